// device/no_cuda/device.cc — the build without CUDA: says which option brings it.
#include <fmt/format.h>

#include "berth/base/strings.h"
#include "berth/device/backend.h"

namespace berth::device {

Result<std::unique_ptr<Device>> open_cuda(const machine::DeviceSpec& spec, const BackendOptions&) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("opening device {}: this build of Berth has no CUDA", quoted(spec.id)),
               {"Build with -DBERTH_CUDA=ON (cmake --preset cuda), or use --emulate to run without the card."});
}

CudaProbe probe_cuda() { return {}; }

}  // namespace berth::device
