// device/arena.h — a device's memory under a hard limit, every byte tagged and counted.
//
// An arena refuses the first byte over its budget, before it asks the system for anything. What it counts is exactly
// what the planner predicts: each allocation's bytes rounded up to the device's alignment, per tag and in total, now
// and at the peak. Memory that buffers give back stays mapped and is used again, since first touch is slow.
//
// Thread-safe. Buffers may outlive the Arena object (they share its state). Contents of a new buffer are undefined.
//
// Non-goals: copies between devices (device.h), deciding what goes where (plan/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "berth/base/result.h"

namespace berth::device {

// What an allocation is for; the columns of every memory report.
enum class Tag : uint8_t { kWeights, kKv, kWorkspace, kStaging };
inline constexpr size_t kTagCount = 4;
std::string_view tag_name(Tag tag);  // "weights", "kv", "workspace", "staging"

struct ArenaUsage {
  struct Count {
    uint64_t used_bytes = 0;
    uint64_t peak_bytes = 0;
    bool operator==(const Count&) const = default;
  };
  std::array<Count, kTagCount> tags;
  Count total;  // its peak is the largest sum at any one moment, at most the sum of the tags' peaks

  const Count& operator[](Tag tag) const { return tags[static_cast<size_t>(tag)]; }
};

// Where an arena's memory comes from: anonymous pages on the host (cpu/), the CUDA driver (cuda/). One mapping call per
// region, not per buffer; an arena carves buffers from its regions.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // At least `bytes`, aligned to at least 4096. Errors: kDevice with the system's reason.
  virtual Result<std::span<std::byte>> acquire(uint64_t bytes) = 0;
  virtual void release(std::span<std::byte> region) = 0;
  // Whether the CPU may dereference what acquire() gives.
  virtual bool host_addressable() const { return true; }
};

namespace detail {
class ArenaState;
}

// One allocation; gives its bytes back when destroyed. Movable, not copyable. An empty Buffer owns nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { reset(); }

  // Device memory: dereference only where the device is host-addressable.
  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }  // as asked for
  Tag tag() const { return tag_; }
  std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }
  void reset();

 private:
  friend class Arena;
  std::shared_ptr<detail::ArenaState> arena_;
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
  Tag tag_ = Tag::kWorkspace;
  bool elsewhere_ = false;  // counted only
};

class Arena {
 public:
  static constexpr size_t kMinAlignment = 64;

  // `device_name` appears in messages ("emu:0"). `granularity_bytes` is the device's alignment (a power of two >= 64:
  // 512 on CUDA, 64 elsewhere): every allocation starts at a multiple of it and is counted rounded up to it.
  Arena(std::string device_name, uint64_t budget_bytes, std::shared_ptr<RegionSource> source,
        size_t granularity_bytes = kMinAlignment);
  ~Arena();
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;

  // `alignment`: a power of two up to 2 MiB; less than the granularity counts as the granularity. 0 bytes give an empty
  // Buffer that counts nothing.
  // Errors: kDoesNotFit naming device, tag, needed and available bytes (details_json has them too: "device", "tag",
  // "needed_bytes", "available_bytes", "missing_bytes", "budget_bytes"); kDevice where the system has no memory left;
  // kInvalidArgument for a bad alignment.
  Result<Buffer> allocate(uint64_t bytes, Tag tag, size_t alignment = kMinAlignment);

  // Counts memory that lies elsewhere (a mapped file) as if it were allocated here: the same budget, tag and rounding.
  // The buffer's data() is `data`; destroying it ends the counting and touches nothing. Errors: kDoesNotFit.
  Result<Buffer> count(std::byte* data, uint64_t bytes, Tag tag);

  // Maps one region in which `bytes` (or what the budget has left, if less) lie in one piece, so that a load of known
  // size leaves no gaps. Counts nothing. Errors: kDevice as for allocate().
  Status reserve(uint64_t bytes);

  // What `allocate(bytes, ...)` will count.
  uint64_t counted_bytes(uint64_t bytes) const;

  const std::string& device_name() const;
  uint64_t budget_bytes() const;
  uint64_t available_bytes() const;
  size_t granularity_bytes() const;
  ArenaUsage usage() const;
  // Peaks start again from what is used now.
  void reset_peaks();
  // Bytes held from the system, used or kept for reuse. Above the budget only where gaps between buffers are too small
  // for what was asked for (or by the rounding of a region to huge pages).
  uint64_t mapped_bytes() const;
  // Gives regions without a live buffer back.
  void trim();

 private:
  std::shared_ptr<detail::ArenaState> state_;
};

}  // namespace berth::device
