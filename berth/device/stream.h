// device/stream.h — a queue of copies between the host and one device, in order, beside the device's computing.
//
// For prefetching: queue the next layer's weights into one staging buffer while the current one is computed from the
// other, then wait(). On host-addressable devices nothing runs beside the CPU: copies are done when queued.
//
// The buffers of a queued copy must live until wait() returns. One thread at a time per Stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "berth/base/result.h"

namespace berth::device {

class Stream {
 public:
  virtual ~Stream() = default;
  virtual Status queue_from_host(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual Status queue_to_host(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Returns when every queued copy is done. Errors: kDevice naming the device.
  virtual Status wait() = 0;
};

}  // namespace berth::device
