// device/emulated/device.cc — an accelerator made of host memory: its own arena with a hard limit, its own kernels.
//
// Its stated rates are the planner's; nothing is slowed down here.
#include "berth/device/cpu/device.h"

#include "berth/device/backend.h"

namespace berth::device {

Result<std::unique_ptr<Device>> open_emulated(const machine::DeviceSpec& spec, const BackendOptions& options) {
  TRY(const Isa isa, require_isa(options.isa));
  return std::unique_ptr<Device>(
      new HostDevice(spec.id, options.map_name, machine::DeviceKind::kEmulated, isa, options.budget_bytes));
}

}  // namespace berth::device
