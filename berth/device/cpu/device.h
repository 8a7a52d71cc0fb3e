// device/cpu/device.h — a device whose memory is the host's: the cpu itself, and what emulated devices are made of.
#pragma once

#include <memory>
#include <string>

#include "berth/device/device.h"

namespace berth::device {

class HostDevice : public Device {
 public:
  HostDevice(std::string id, std::string map_name, machine::DeviceKind kind, Isa isa, uint64_t budget_bytes);

  Status copy_from_host(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status copy_to_host(std::byte* to, const std::byte* from, uint64_t bytes) override;
  Status copy_from_peer(std::byte* to, const Device& from_device, const std::byte* from, uint64_t bytes) override;
  Result<std::unique_ptr<Stream>> make_stream() override;
  Status synchronize() override { return {}; }
};

}  // namespace berth::device
