// device/cpu/device.cc — memcpy, at once.
#include "berth/device/cpu/device.h"

#include <cstring>

#include "berth/device/backend.h"
#include "berth/device/cpu/memory.h"

namespace berth::device {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

class HostStream : public Stream {
 public:
  Status queue_from_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    copy_bytes(to, from, bytes);
    return {};
  }
  Status queue_to_host(std::byte* to, const std::byte* from, uint64_t bytes) override {
    copy_bytes(to, from, bytes);
    return {};
  }
  Status wait() override { return {}; }
};

}  // namespace

HostDevice::HostDevice(std::string id, std::string map_name, machine::DeviceKind kind, Isa isa, uint64_t budget_bytes)
    : Device(id, std::move(map_name), kind, isa, Arena(id, budget_bytes, HostRegions::instance())) {}

Status HostDevice::copy_from_host(std::byte* to, const std::byte* from, uint64_t bytes) {
  copy_bytes(to, from, bytes);
  return {};
}
Status HostDevice::copy_to_host(std::byte* to, const std::byte* from, uint64_t bytes) {
  copy_bytes(to, from, bytes);
  return {};
}
Status HostDevice::copy_from_peer(std::byte* to, const Device&, const std::byte* from, uint64_t bytes) {
  copy_bytes(to, from, bytes);
  return {};
}
Result<std::unique_ptr<Stream>> HostDevice::make_stream() { return std::unique_ptr<Stream>(new HostStream); }

Result<std::unique_ptr<Device>> open_cpu(const machine::DeviceSpec& spec, const BackendOptions& options) {
  TRY(const Isa isa, require_isa(options.isa));
  return std::unique_ptr<Device>(
      new HostDevice(spec.id, options.map_name, machine::DeviceKind::kCpu, isa, options.budget_bytes));
}

}  // namespace berth::device
