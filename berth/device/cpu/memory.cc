// device/cpu/memory.cc — /proc, getrlimit and mmap.
#include "berth/device/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/cgroup.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth::device {
namespace {

// The bytes of "Key:   123 kB" in a /proc file.
std::optional<uint64_t> kilobytes_of(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    const std::string_view view = line;
    if (view.size() <= key.size() || view.substr(0, key.size()) != key || view[key.size()] != ':') continue;
    const std::string_view value = trimmed(view.substr(key.size() + 1));
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || std::string_view(end, static_cast<size_t>(value.data() + value.size() - end)) != " kB")
      return std::nullopt;
    return checked_mul<uint64_t>(n, 1024);
  }
  return std::nullopt;
}

std::string text_of(const std::string& path) {
  auto text = read_kernel_file(path);
  return text ? std::move(*text) : std::string();
}

std::optional<uint64_t> limit_of(int resource) {
  struct rlimit limit {};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

ProcessLimits process_limits() { return {limit_of(RLIMIT_AS), limit_of(RLIMIT_DATA)}; }

HostMemory host_memory(const std::string& root, const ProcessLimits& limits) {
  HostMemory out;
  const auto consider = [&](std::optional<uint64_t> bytes, std::string name) {
    if (!bytes || (out.available_bytes && *out.available_bytes <= *bytes)) return;
    out.available_bytes = bytes;
    out.limited_by = std::move(name);
  };
  const std::string meminfo = text_of(root + "/proc/meminfo");
  out.total_bytes = kilobytes_of(meminfo, "MemTotal");
  auto available = kilobytes_of(meminfo, "MemAvailable");
  if (out.total_bytes && available && *available > *out.total_bytes) available.reset();  // nonsense: unknown
  consider(available, "free memory");
  if (const auto group = cgroup_memory(root))
    consider(group->available_bytes(), fmt::format("its control group {}", group->group));
  const std::string status = text_of(root + "/proc/self/status");
  const auto left = [](uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; };
  if (limits.address_space_bytes)
    consider(left(*limits.address_space_bytes, kilobytes_of(status, "VmSize").value_or(0)), "ulimit -v");
  if (limits.data_bytes) consider(left(*limits.data_bytes, kilobytes_of(status, "VmData").value_or(0)), "ulimit -d");
  return out;
}

namespace {

// What populate() brings at once: small enough to be still in the second-level cache when it is written to.
constexpr uint64_t kUnitBytes = uint64_t{256} << 10;

// A region that was mapped anew, of which no page need be there yet.
struct NewRegion {
  NewRegion(uint64_t bytes, bool in_huge_pages) : size(bytes), populated(bytes / kUnitBytes), huge(in_huge_pages) {}
  uint64_t size;
  std::vector<std::atomic<bool>> populated;  // by unit
  std::atomic<bool> huge;                    // asked for
};

}  // namespace

// Kept ranges by address, joined where they touch: a range is pages, so any part of it can be used or unmapped alone.
struct HostRegions::State {
  std::mutex mutex;
  std::map<std::byte*, std::shared_ptr<NewRegion>> made_anew;
  std::map<std::byte*, uint64_t> kept;
  uint64_t kept_bytes = 0;
  uint64_t max_kept_bytes = kMaxKeptBytes;
  bool huge_pages_are_slow = false;  // found once, believed from then on

  void drop() {
    for (const auto& [at, size] : kept) ::munmap(at, size);
    kept.clear();
    kept_bytes = 0;
  }

  // The smallest kept range that holds `size`; the rest of it stays. nullptr where none does.
  std::byte* reuse(uint64_t size) {
    auto best = kept.end();
    for (auto range = kept.begin(); range != kept.end(); ++range)
      if (range->second >= size && (best == kept.end() || range->second < best->second)) best = range;
    if (best == kept.end()) return nullptr;
    const auto [at, held] = *best;
    kept.erase(best);
    if (held > size) kept.emplace(at + size, held - size);
    kept_bytes -= size;
    return at;
  }

  void keep(std::byte* at, uint64_t size) {
    kept_bytes += size;
    auto next = kept.lower_bound(at);
    if (next != kept.end() && next->first == at + size) {
      size += next->second;
      next = kept.erase(next);
    }
    if (next != kept.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == at) {
        previous->second += size;
        return;
      }
    }
    kept.emplace(at, size);
  }
};

HostRegions::HostRegions() : state_(std::make_unique<State>()) {
  if (const auto total = host_memory().total_bytes) state_->max_kept_bytes = std::min(kMaxKeptBytes, *total / 4);
}

HostRegions::~HostRegions() { state_->drop(); }

std::shared_ptr<HostRegions> HostRegions::instance() {
  static const std::shared_ptr<HostRegions> regions = std::make_shared<HostRegions>();
  return regions;
}

namespace {

// An anonymous mapping of `size` bytes aligned to 2 MiB, or nullptr with errno set.
std::byte* map_aligned(uint64_t size) {
  constexpr uint64_t kPage = HostRegions::kPageBytes;
  void* const mapped =
      ::mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  std::byte* const start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const uint64_t before = align_up<uintptr_t>(address, kPage) - address;
  std::byte* const at = start + before;
  if (before > 0) ::munmap(start, before);
  if (before < kPage) ::munmap(at + size, kPage - before);
  return at;
}

// Asks for huge pages where they come quickly: the region's first ones are touched and timed. On a virtual machine that
// gives free memory back to its host, and where memory is fragmented, the kernel moves other pages about for each huge
// one (0.3 GB/s were seen); small ones come at 2 to 3 GB/s there, and weights are read as fast from them.
bool huge_pages_come_quickly(std::byte* at, uint64_t size) {
  constexpr uint64_t kPage = HostRegions::kPageBytes;
  constexpr std::chrono::microseconds kQuick{700};  // 3 GB/s
  // Several, as the first may come from what the kernel has at hand when the next ones do not; the first slow one ends
  // it. No more than an eighth of the region, whose end may never be used. populate() goes on watching.
  const uint64_t asked = std::clamp(size / 8 / kPage, uint64_t{1}, uint64_t{4}) * kPage;
  if (::madvise(at, asked, MADV_HUGEPAGE) != 0) return false;
  for (uint64_t page = 0; page < asked; page += kPage) {
    const auto start = std::chrono::steady_clock::now();
    *reinterpret_cast<volatile std::byte*>(at + page) = std::byte{0};
    if (std::chrono::steady_clock::now() - start > kQuick) {
      ::madvise(at + page, asked - page, MADV_NOHUGEPAGE);
      return false;
    }
  }
  ::madvise(at, size, MADV_HUGEPAGE);  // advice: where it is refused, small pages work too
  return true;
}

}  // namespace

Result<std::span<std::byte>> HostRegions::acquire(uint64_t bytes) {
  if (bytes == 0 || bytes > (uint64_t{1} << 60))
    return Error(ErrorCode::kDevice, fmt::format("mapping {} bytes of host memory: out of range", bytes));
  const uint64_t size = align_up(bytes, kPageBytes);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (std::byte* const at = state_->reuse(size)) return std::span<std::byte>(at, size);
  if (state_->kept_bytes > 0) {
    // What is kept must not stand in the way of what is needed.
    const auto available = host_memory().available_bytes;
    if (!available || *available < size + state_->kept_bytes) state_->drop();
  }
  std::byte* at = map_aligned(size);
  if (at == nullptr && state_->kept_bytes > 0) {
    state_->drop();
    at = map_aligned(size);
  }
  if (at == nullptr) {
    const int number = errno;
    const HostMemory host = host_memory();
    Error e(ErrorCode::kDevice,
            fmt::format("mapping {} of host memory: {}", format_bytes(size), std::strerror(number)));
    if (host.available_bytes)
      e.message += fmt::format("; {} are left to this process, limited by {}", format_bytes(*host.available_bytes),
                               host.limited_by);
    return e;
  }
  if (!state_->huge_pages_are_slow) state_->huge_pages_are_slow = !huge_pages_come_quickly(at, size);
  state_->made_anew[at] = std::make_shared<NewRegion>(size, !state_->huge_pages_are_slow);
  return std::span<std::byte>(at, size);
}

void HostRegions::populate(std::span<const std::byte> range) {
#if defined(MADV_POPULATE_WRITE)
  std::byte* base = nullptr;
  std::shared_ptr<NewRegion> region;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    auto after = state_->made_anew.upper_bound(const_cast<std::byte*>(range.data()));
    if (after == state_->made_anew.begin()) return;
    std::tie(base, region) = *--after;
  }
  const auto begin = static_cast<uint64_t>(range.data() - base);
  if (begin >= region->size) return;
  const uint64_t end = std::min(begin + range.size(), region->size);
  for (uint64_t unit = begin / kUnitBytes; unit < ceil_div(end, kUnitBytes); ++unit) {
    if (region->populated[unit].exchange(true, std::memory_order_relaxed)) continue;
    constexpr std::chrono::microseconds kSlow{1500};  // of one huge page: 1.4 GB/s
    const auto start = std::chrono::steady_clock::now();
    if (::madvise(base + unit * kUnitBytes, kUnitBytes, MADV_POPULATE_WRITE) != 0) return;  // touching does it, too
    if (!region->huge || std::chrono::steady_clock::now() - start < kSlow) continue;
    if (!region->huge.exchange(false)) continue;
    ::madvise(base, region->size, MADV_NOHUGEPAGE);
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->huge_pages_are_slow = true;
  }
#else
  static_cast<void>(range);
#endif
}

void HostRegions::release(std::span<std::byte> region) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->made_anew.erase(region.data());
  if (state_->kept_bytes + region.size() <= state_->max_kept_bytes)
    state_->keep(region.data(), region.size());
  else
    ::munmap(region.data(), region.size());
}

uint64_t HostRegions::kept_bytes() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->kept_bytes;
}

void HostRegions::drop_kept() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->drop();
}

}  // namespace berth::device
