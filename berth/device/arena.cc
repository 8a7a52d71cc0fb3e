// device/arena.cc — the budget check, the counts, and a best-fit allocator over regions.
//
// Free blocks are indexed twice: by address, to join neighbours, and by size, to find the tightest fit. Blocks never
// join across regions, so that an empty region can be given back. All sizes are multiples of the granularity.
#include "berth/device/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

#if defined(__SANITIZE_ADDRESS__)
#define BERTH_POISONS_FREE_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BERTH_POISONS_FREE_MEMORY 1
#endif
#endif
#if defined(BERTH_POISONS_FREE_MEMORY)
#include <sanitizer/asan_interface.h>
#endif

namespace berth::device {
namespace {

// Smaller regions would mean many mappings and wasted huge pages; larger ones more memory that a full arena maps in
// vain.
constexpr uint64_t kRegionBytes = uint64_t{64} << 20;
constexpr size_t kMaxAlignment = size_t{2} << 20;
constexpr uint64_t kMaxAllocation = uint64_t{1} << 60;

}  // namespace

std::string_view tag_name(Tag tag) {
  static constexpr std::string_view kNames[kTagCount] = {"weights", "kv", "workspace", "staging"};
  return kNames[static_cast<size_t>(tag)];
}

namespace detail {

class ArenaState {
 public:
  ArenaState(std::string name, uint64_t budget, std::shared_ptr<RegionSource> source, size_t granularity)
      : name_(std::move(name)), budget_(budget), granularity_(granularity), source_(std::move(source)) {
    CHECK(granularity >= Arena::kMinAlignment && (granularity & (granularity - 1)) == 0 &&
          granularity <= kMaxAlignment);
  }
  ~ArenaState() {
    for (const auto& [base, size] : regions_) give_back(base, size);
  }
  ArenaState(const ArenaState&) = delete;
  ArenaState& operator=(const ArenaState&) = delete;

  Result<std::byte*> allocate(uint64_t bytes, Tag tag, size_t alignment);
  Status count(uint64_t bytes, Tag tag);
  Status reserve(uint64_t bytes);
  void release(std::byte* data, uint64_t bytes, Tag tag, bool elsewhere);
  void trim();
  void reset_peaks();

  uint64_t counted(uint64_t bytes) const { return align_up<uint64_t>(bytes, granularity_); }
  const std::string& name() const { return name_; }
  uint64_t budget() const { return budget_; }
  size_t granularity() const { return granularity_; }
  ArenaUsage usage() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return usage_;
  }
  uint64_t available() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return budget_ - usage_.total.used_bytes;
  }
  uint64_t mapped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return mapped_;
  }

 private:
  // All of these with the mutex held.
  Result<uint64_t> room_for(uint64_t bytes, Tag tag) const;  // as counted
  void add(uint64_t size, Tag tag);
  std::byte* take(uint64_t size, size_t alignment);
  Status add_region(uint64_t least);
  void insert_free(std::byte* at, uint64_t size);
  void erase_free(std::map<std::byte*, uint64_t>::iterator block);
  void trim_locked();
  void give_back(std::byte* base, uint64_t size);
  Error refusal(uint64_t needed, Tag tag) const;

  const std::string name_;
  const uint64_t budget_;
  const size_t granularity_;
  const std::shared_ptr<RegionSource> source_;

  mutable std::mutex mutex_;
  ArenaUsage usage_;
  uint64_t mapped_ = 0;
  std::map<std::byte*, uint64_t> regions_;          // base -> size
  std::map<std::byte*, uint64_t> free_by_address_;  // start -> size
  std::set<std::pair<uint64_t, std::byte*>> free_by_size_;
};

Error ArenaState::refusal(uint64_t needed, Tag tag) const {
  const uint64_t available = budget_ - usage_.total.used_bytes;
  Error e(
      ErrorCode::kDoesNotFit,
      fmt::format("allocating {} ({} bytes) of {} on device {}: {} ({} bytes) of its {} are left, {} bytes are missing",
                  format_bytes(needed), needed, tag_name(tag), quoted(name_), format_bytes(available), available,
                  format_bytes(budget_), needed - available),
      {"Give the device a larger budget (--max-memory), a shorter context, or place less on it."});
  JsonWriter details;
  details.begin_object()
      .member("device", name_)
      .member("tag", tag_name(tag))
      .member("needed_bytes", needed)
      .member("available_bytes", available)
      .member("missing_bytes", needed - available)
      .member("budget_bytes", budget_)
      .end_object();
  e.details_json = details.take();
  return e;
}

Result<std::byte*> ArenaState::allocate(uint64_t bytes, Tag tag, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("allocating on device {}: an alignment must be a power of two up to {}, found {}",
                             quoted(name_), kMaxAlignment, alignment));
  const std::lock_guard<std::mutex> lock(mutex_);
  TRY(const uint64_t size, room_for(bytes, tag));
  alignment = std::max(alignment, granularity_);
  std::byte* at = take(size, alignment);
  if (at == nullptr) {
    // A region's start has the granularity's alignment at least; more takes slack.
    if (Status added = add_region(size + (alignment > granularity_ ? alignment : 0)); !added)
      return std::move(added).error().with_context(
          fmt::format("allocating {} of {} on device {}", format_bytes(size), tag_name(tag), quoted(name_)));
    at = take(size, alignment);
    CHECK(at != nullptr);
  }
  add(size, tag);
  return at;
}

Result<uint64_t> ArenaState::room_for(uint64_t bytes, Tag tag) const {
  // Rounding up cannot overflow once absurd requests are out of the way; they fit no budget anyway.
  const uint64_t size = bytes > kMaxAllocation ? bytes : counted(bytes);
  if (size > budget_ - usage_.total.used_bytes) return refusal(size, tag);
  return size;
}

void ArenaState::add(uint64_t size, Tag tag) {
  for (ArenaUsage::Count* count : {&usage_.tags[static_cast<size_t>(tag)], &usage_.total}) {
    count->used_bytes += size;
    count->peak_bytes = std::max(count->peak_bytes, count->used_bytes);
  }
}

Status ArenaState::count(uint64_t bytes, Tag tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  TRY(const uint64_t size, room_for(bytes, tag));
  add(size, tag);
  return {};
}

Status ArenaState::reserve(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t available = budget_ - usage_.total.used_bytes;
  const uint64_t size = counted(std::min(bytes, available));
  if (size == 0 || (!free_by_size_.empty() && free_by_size_.rbegin()->first >= size)) return {};
  if (Status added = add_region(size); !added)
    return std::move(added).error().with_context(
        fmt::format("reserving {} on device {}", format_bytes(size), quoted(name_)));
  return {};
}

// Cuts `size` bytes out of the tightest free block that holds them at `alignment`; nullptr where none does.
std::byte* ArenaState::take(uint64_t size, size_t alignment) {
  for (auto fit = free_by_size_.lower_bound({size, nullptr}); fit != free_by_size_.end(); ++fit) {
    const auto [block_size, block] = *fit;
    const auto address = reinterpret_cast<uintptr_t>(block);
    const uint64_t skipped = align_up<uintptr_t>(address, alignment) - address;
    if (skipped + size > block_size) continue;
    erase_free(free_by_address_.find(block));
    std::byte* const at = block + skipped;
    if (skipped > 0) {
      free_by_address_.emplace(block, skipped);
      free_by_size_.emplace(skipped, block);
    }
    if (const uint64_t rest = block_size - skipped - size; rest > 0) {
      free_by_address_.emplace(at + size, rest);
      free_by_size_.emplace(rest, at + size);
    }
#if defined(BERTH_POISONS_FREE_MEMORY)
    if (source_->host_addressable()) ASAN_UNPOISON_MEMORY_REGION(at, size);
#endif
    return at;
  }
  return nullptr;
}

// Acquires a region with a free block of at least `least` bytes: a whole kRegionBytes where the budget has room for it.
Status ArenaState::add_region(uint64_t least) {
  const uint64_t room = budget_ > mapped_ ? budget_ - mapped_ : 0;
  const uint64_t wanted = std::max(least, std::min(kRegionBytes, counted(room)));
  if (mapped_ + wanted > budget_) trim_locked();  // fragments: give empty regions back before mapping beyond the budget
  TRY(const std::span<std::byte> region, source_->acquire(wanted));
  CHECK(region.size() >= wanted && reinterpret_cast<uintptr_t>(region.data()) % granularity_ == 0);
  regions_.emplace(region.data(), region.size());
  mapped_ += region.size();
  insert_free(region.data(), region.size() / granularity_ * granularity_);
  return {};
}

void ArenaState::erase_free(std::map<std::byte*, uint64_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_by_address_.erase(block);
}

// Makes [at, at + size) free, joined with the free neighbours of its region.
void ArenaState::insert_free(std::byte* at, uint64_t size) {
#if defined(BERTH_POISONS_FREE_MEMORY)
  if (source_->host_addressable()) ASAN_POISON_MEMORY_REGION(at, size);
#endif
  const auto region = std::prev(regions_.upper_bound(at));
  const auto next = free_by_address_.lower_bound(at);
  if (next != free_by_address_.end() && next->first == at + size && next->first < region->first + region->second) {
    size += next->second;
    erase_free(next);
  }
  const auto after = free_by_address_.lower_bound(at);
  if (after != free_by_address_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == at && previous->first >= region->first) {
      at = previous->first;
      size += previous->second;
      erase_free(previous);
    }
  }
  free_by_address_.emplace(at, size);
  free_by_size_.emplace(size, at);
}

void ArenaState::release(std::byte* data, uint64_t bytes, Tag tag, bool elsewhere) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t size = counted(bytes);
  usage_.tags[static_cast<size_t>(tag)].used_bytes -= size;
  usage_.total.used_bytes -= size;
  if (!elsewhere) insert_free(data, size);
}

void ArenaState::give_back(std::byte* base, uint64_t size) {
#if defined(BERTH_POISONS_FREE_MEMORY)
  if (source_->host_addressable()) ASAN_UNPOISON_MEMORY_REGION(base, size);
#endif
  source_->release({base, static_cast<size_t>(size)});
}

void ArenaState::trim_locked() {
  for (auto region = regions_.begin(); region != regions_.end();) {
    const auto block = free_by_address_.find(region->first);
    if (block == free_by_address_.end() || block->second < region->second / granularity_ * granularity_) {
      ++region;
      continue;
    }
    erase_free(block);
    give_back(region->first, region->second);
    mapped_ -= region->second;
    region = regions_.erase(region);
  }
}

void ArenaState::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  trim_locked();
}

void ArenaState::reset_peaks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (ArenaUsage::Count& count : usage_.tags) count.peak_bytes = count.used_bytes;
  usage_.total.peak_bytes = usage_.total.used_bytes;
}

}  // namespace detail

Buffer::Buffer(Buffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      tag_(other.tag_),
      elsewhere_(other.elsewhere_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  reset();
  arena_ = std::move(other.arena_);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  tag_ = other.tag_;
  elsewhere_ = other.elsewhere_;
  return *this;
}

void Buffer::reset() {
  if (arena_) arena_->release(data_, size_bytes_, tag_, elsewhere_);
  arena_.reset();
  data_ = nullptr;
  size_bytes_ = 0;
}

Arena::Arena(std::string device_name, uint64_t budget_bytes, std::shared_ptr<RegionSource> source, size_t granularity)
    : state_(
          std::make_shared<detail::ArenaState>(std::move(device_name), budget_bytes, std::move(source), granularity)) {}
Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;

Result<Buffer> Arena::allocate(uint64_t bytes, Tag tag, size_t alignment) {
  Buffer buffer;
  buffer.tag_ = tag;
  if (bytes == 0) return buffer;
  TRY(buffer.data_, state_->allocate(bytes, tag, alignment));
  buffer.size_bytes_ = bytes;
  buffer.arena_ = state_;
  return buffer;
}

Result<Buffer> Arena::count(std::byte* data, uint64_t bytes, Tag tag) {
  Buffer buffer;
  buffer.tag_ = tag;
  if (bytes == 0) return buffer;
  TRY_STATUS(state_->count(bytes, tag));
  buffer.data_ = data;
  buffer.size_bytes_ = bytes;
  buffer.arena_ = state_;
  buffer.elsewhere_ = true;
  return buffer;
}

Status Arena::reserve(uint64_t bytes) { return state_->reserve(bytes); }
uint64_t Arena::counted_bytes(uint64_t bytes) const { return state_->counted(bytes); }
const std::string& Arena::device_name() const { return state_->name(); }
uint64_t Arena::budget_bytes() const { return state_->budget(); }
uint64_t Arena::available_bytes() const { return state_->available(); }
size_t Arena::granularity_bytes() const { return state_->granularity(); }
ArenaUsage Arena::usage() const { return state_->usage(); }
void Arena::reset_peaks() { state_->reset_peaks(); }
uint64_t Arena::mapped_bytes() const { return state_->mapped(); }
void Arena::trim() { state_->trim(); }

}  // namespace berth::device
