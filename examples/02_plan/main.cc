// 02_plan — where would every module of a checkpoint go on two unequal devices? No device is touched, no weight is read.
//
//   cmake -S examples/02_plan -B out && cmake --build out
//   out/plan tests/data/stories260k 1x1MiB,1x1600KiB
//
// Expected output ("..." stands for anything):
//   device 0: ... of 1048576 bytes
//   device 1: ... of 1638400 bytes
//   lm_head -> ...
//   model.embed_tokens -> ...
//   model.layers.0 -> 0
//   ...
//   model.layers.4 -> 1
//   ...
#include <cstdio>

#include "berth/berth.h"

namespace {

berth::Status plan(const std::string& model, const std::string& devices) {
  berth::engine::Options options;  // the same options as the command's, under the same names
  options.emulate = devices;
  options.ctx_size = 128;
  options.no_offload = true;
  TRY(const auto opened, berth::engine::open_model(model, options, berth::Log()));
  TRY(const auto planned, berth::engine::plan_model(opened, options));
  for (const auto& device : planned.plan.devices) {
    if (device.weights_bytes == 0) continue;
    std::printf("device %s: %llu of %llu bytes\n", device.id.c_str(), static_cast<unsigned long long>(device.used()),
                static_cast<unsigned long long>(device.budget_bytes));
  }
  for (const auto& [path, device] : berth::engine::device_map_of(opened, planned.plan).entries)
    std::printf("%s -> %s\n", path.c_str(), device.text().c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: plan MODEL DEVICES\n");
    return 2;
  }
  const auto status = plan(argv[1], argv[2]);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());  // does not fit: device, module, bytes missing
  for (const auto& hint : status.error().hints) std::fprintf(stderr, "  try: %s\n", hint.c_str());
  return berth::exit_status(status.error().code);
}
