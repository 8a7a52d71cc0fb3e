// 03_generate — loads a checkpoint as planned, here in 8 bit over two emulated devices, and generates from it.
//
//   cmake -S examples/03_generate -B out && cmake --build out
//   out/generate tests/data/stories260k "Once upon a time"
//
// Expected output ("..." stands for anything):
//   Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball.
//   40 tokens, logits b917a8a4d5588e31070ad847e6ae72a1
//   device 0: peak ... bytes predicted, ... measured
//   device 1: peak ... bytes predicted, ... measured
#include <cstdio>

#include "berth/berth.h"

namespace {

berth::Status generate(const std::string& model, const std::string& prompt) {
  namespace engine = berth::engine;
  engine::Options options;
  options.load_in_8bit = true;
  options.emulate = "1x900KiB,1x1100KiB";
  options.no_offload = true;
  options.ctx_size = 128;
  TRY(auto opened, engine::open_model(model, options, berth::Log()));
  TRY(auto planned, engine::plan_model(opened, options));
  TRY(const auto running, engine::load_model(opened, std::move(planned), options, berth::Log()));
  TRY(const auto generator, engine::Generator::create(*running));
  engine::GenerationOptions ask;
  ask.prompt = prompt;
  ask.max_new_tokens = 40;
  std::printf("%s", prompt.c_str());
  TRY(const auto answer, generator->answer(ask, [](std::string_view text) {
    std::printf("%.*s", static_cast<int>(text.size()), text.data());  // as it is made
    return true;                                                      // false would stop it
  }));
  std::printf("\n%zu tokens, logits %s\n", answer.tokens.size(), answer.logits_hash.c_str());
  for (const auto& row : running->memory())
    std::printf("device %s: peak %llu bytes predicted, %llu measured\n", row.device.c_str(),
                static_cast<unsigned long long>(row.peak.predicted), static_cast<unsigned long long>(row.peak.measured));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: generate MODEL PROMPT\n");
    return 2;
  }
  const auto status = generate(argv[1], argv[2]);
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return berth::exit_status(status.error().code);
}
