// device/device.cc — opening a machine's devices, and copies between any two of them.
#include "berth/device/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/check.h"
#include "berth/base/strings.h"
#include "berth/device/backend.h"

namespace berth::device {

Device::Device(std::string id, std::string map_name, machine::DeviceKind kind, Isa isa, Arena arena)
    : id_(std::move(id)), map_name_(std::move(map_name)), kind_(kind), isa_(isa), arena_(std::move(arena)) {}

DeviceSet::DeviceSet(DeviceSet&& other) noexcept { *this = std::move(other); }

DeviceSet& DeviceSet::operator=(DeviceSet&& other) noexcept {
  devices_ = std::move(other.devices_);
  traffic_ = std::move(other.traffic_);
  decoding_ = other.decoding_;
  return *this;
}

Device* DeviceSet::find(std::string_view name) const {
  for (const auto& d : devices_)
    if (d->map_name() == name) return d.get();
  for (const auto& d : devices_)
    if (d->id() == name) return d.get();
  return nullptr;
}

Device& DeviceSet::cpu() const {
  const auto at = std::find_if(devices_.begin(), devices_.end(),
                               [](const auto& d) { return d->kind() == machine::DeviceKind::kCpu; });
  CHECK(at != devices_.end());
  return **at;
}

std::string_view cargo_name(Cargo cargo) {
  constexpr std::string_view kNames[] = {"activations", "rows", "weights"};
  return kNames[static_cast<size_t>(cargo)];
}

void DeviceSet::count(std::string_view from, std::string_view to, Cargo cargo, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (LinkTraffic& t : traffic_)
    if (t.from == from && t.to == to && t.cargo == cargo) {
      t.bytes += bytes;
      ++t.copies;
      if (decoding_) t.decode_bytes += bytes;
      return;
    }
  traffic_.push_back({std::string(from), std::string(to), cargo, bytes, 1, decoding_ ? bytes : 0});
}

void DeviceSet::set_decoding(bool decoding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  decoding_ = decoding;
}

Status DeviceSet::copy(Device& to_device, std::byte* to, Device& from_device, const std::byte* from, uint64_t bytes,
                       Cargo cargo) {
  if (bytes == 0) return {};
  const bool from_host = from_device.host_addressable();
  Status done = from_host                      ? to_device.copy_from_host(to, from, bytes)
                : to_device.host_addressable() ? from_device.copy_to_host(to, from, bytes)
                                               : to_device.copy_from_peer(to, from_device, from, bytes);
  if (!done)
    return std::move(done).error().with_context(
        fmt::format("copying {} bytes from device {} to {}", bytes, from_device.map_name(), to_device.map_name()));
  count(from_device.map_name(), to_device.map_name(), cargo, bytes);
  return {};
}

std::vector<LinkTraffic> DeviceSet::traffic() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return traffic_;
}

void DeviceSet::reset_traffic() {
  const std::lock_guard<std::mutex> lock(mutex_);
  traffic_.clear();
}

Result<DeviceSet> open_devices(const machine::Machine& machine, std::span<const machine::DeviceBudget> budgets,
                               const OpenOptions& options) {
  if (budgets.size() != machine.devices.size())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("opening devices: {} budgets for {} devices", budgets.size(), machine.devices.size()));
  DeviceSet set;
  for (const bool accelerators : {true, false})
    for (size_t i = 0; i < machine.devices.size(); ++i) {
      const machine::DeviceSpec& spec = machine.devices[i];
      if (spec.is_accelerator() != accelerators || spec.kind == machine::DeviceKind::kDisk) continue;
      if (budgets[i].machine_id != spec.id)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("opening devices: budget {} is for {}, the machine's device is {}", i,
                                 quoted(budgets[i].machine_id), quoted(spec.id)));
      if (accelerators && budgets[i].budget_bytes == 0) continue;
      const BackendOptions backend{machine.map_name(i), budgets[i].usable_bytes(), spec.kernels.value_or(options.isa)};
      auto opened = spec.kind == machine::DeviceKind::kCuda       ? open_cuda(spec, backend)
                    : spec.kind == machine::DeviceKind::kEmulated ? open_emulated(spec, backend)
                                                                  : open_cpu(spec, backend);
      if (!opened) return std::move(opened).error().with_context(fmt::format("device {}", quoted(spec.id)));
      set.devices_.push_back(std::move(*opened));
    }
  if (!machine.cpu()) {  // a machine file may leave the host out; copies and control still go over it
    TRY(auto cpu, open_cpu(machine::default_cpu(0), {"cpu", 0, options.isa}));
    set.devices_.push_back(std::move(cpu));
  }
  return set;
}

}  // namespace berth::device
