// device/cpu/memory.h — host memory: how much this process may have, and the regions arenas are made of.
//
// Regions come from anonymous mappings aligned to 2 MiB, with huge pages asked for as long as those come quickly. First
// touch is slow (with huge pages 0.3 to 0.6 GB/s on some virtual machines), so what an arena gives back is kept for the
// next one up to a limit, whatever its size, and who fills new memory calls populate() first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/device/arena.h"

namespace berth::device {

struct HostMemory {
  std::optional<uint64_t> total_bytes;      // of the host; nothing where it does not say
  std::optional<uint64_t> available_bytes;  // for this process now: the least of all limits
  std::string limited_by;                   // "free memory", "its control group /x", "ulimit -v", "ulimit -d"
};

// What the process's own limits are; nothing = unlimited. A value, so that tests can make one up.
struct ProcessLimits {
  std::optional<uint64_t> address_space_bytes;  // RLIMIT_AS
  std::optional<uint64_t> data_bytes;           // RLIMIT_DATA
};
ProcessLimits process_limits();

// `root` is "" on a real system; tests pass a folder with proc/ and sys/ trees.
HostMemory host_memory(const std::string& root = "", const ProcessLimits& limits = process_limits());

// The one source of host regions in this process. Thread-safe.
class HostRegions : public RegionSource {
 public:
  static constexpr uint64_t kPageBytes = uint64_t{2} << 20;
  // At most this much is kept for reuse, and no more than a quarter of the host's memory.
  static constexpr uint64_t kMaxKeptBytes = uint64_t{4} << 30;

  static std::shared_ptr<HostRegions> instance();

  // A multiple of kPageBytes, aligned to it. Errors: kDevice with the system's reason and the limit that binds.
  Result<std::span<std::byte>> acquire(uint64_t bytes) override;
  void release(std::span<std::byte> region) override;

  // Makes a region's pages present just before they are written to: half as long as touching them one by one (3.9 for
  // 2.5 GB/s), and the zeros are still in the cache. Once huge pages come slowly, the region gets small ones from there
  // on. Advice: ranges of other memory, or of memory that was used before, are left alone.
  void populate(std::span<const std::byte> range);

  uint64_t kept_bytes() const;
  // Gives everything kept back to the system.
  void drop_kept();

  HostRegions();
  ~HostRegions() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace berth::device
