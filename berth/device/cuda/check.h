// device/cuda/check.h — every CUDA runtime call goes through cuda_status() once: its name, the device, the reason.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "berth/base/result.h"

namespace berth::device {

// OK, or kDevice: "device "cuda:0": cudaMemcpy: an illegal memory access was encountered". Clears the sticky-less
// error.
Status cuda_status(cudaError_t code, std::string_view call, std::string_view device_id);

// Makes a CUDA device current in this thread and the previous one again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int number);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  cudaError_t code() const { return code_; }

 private:
  int previous_ = 0;
  cudaError_t code_;
};

}  // namespace berth::device
