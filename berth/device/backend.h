// device/backend.h — what each kind of device provides to open_devices() and the probe; private to this layer.
//
// One folder per kind with the same file names: cpu/, emulated/, and cuda/ or no_cuda/ (chosen by BERTH_CUDA).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/base/isa.h"
#include "berth/base/result.h"
#include "berth/device/device.h"
#include "berth/machine/machine.h"

namespace berth::device {

struct BackendOptions {
  std::string map_name;
  uint64_t budget_bytes = 0;  // of the arena
  Isa isa = Isa::kRef;        // CPU kernels; not looked at for CUDA
};

Result<std::unique_ptr<Device>> open_cpu(const machine::DeviceSpec& spec, const BackendOptions& options);
Result<std::unique_ptr<Device>> open_emulated(const machine::DeviceSpec& spec, const BackendOptions& options);
// `spec.id` is "cuda:N", N being the CUDA runtime's number. Errors: kUnsupported in a build without CUDA, naming the
// build option; kDevice where the driver or the device does not answer.
Result<std::unique_ptr<Device>> open_cuda(const machine::DeviceSpec& spec, const BackendOptions& options);

// What the CUDA driver says of one device, unjudged.
struct CudaDeviceInfo {
  int number = 0;
  std::string name;
  std::string problem;  // the error, where asking for its memory failed
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  int64_t read_bytes_per_s = 0;  // bus width times memory clock; 0 where unknown
  int64_t flops_per_s = 0;       // fp32 units times clock times 2; 0 where unknown
};
struct CudaProbe {
  std::vector<CudaDeviceInfo> devices;
  std::string note;  // a sentence: why there are none, "" where that is no surprise
};
CudaProbe probe_cuda();

// The accelerator that a probe's answer describes. 0 bytes, an error, or more free than total make its memory unknown
// (no use without an explicit budget); `notes` then gets a sentence that says so. Unknown rates become planning values.
machine::DeviceSpec cuda_device_spec(const CudaDeviceInfo& info, std::vector<std::string>& notes);

}  // namespace berth::device
