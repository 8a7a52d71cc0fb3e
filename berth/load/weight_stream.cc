// load/weight_stream.cc — see weight_stream.h.
//
// One queue of requests for all devices, in order of use. The filling thread takes them one after the other, waits for
// room, and copies; the computing thread takes them in the same order. So whoever waits, waits for something earlier,
// which will be used and make room: no cycle. Room: a unit's vectors lie at one end of the buffer, its matrices next to
// them, and the next unit's vectors at the other end, so that what is free is in one piece.
#include "berth/load/weight_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/thread_pool.h"
#include "berth/device/stream.h"
#include "berth/load/fill_matrix.h"
#include "berth/quant/row_slice.h"

namespace berth::load {
namespace {

using quant::Plane;

constexpr size_t kSlots = 16;     // pieces in the buffers at once
constexpr int32_t kVectors = -1;  // StreamPiece::tensor: all vectors of the stage's unit
constexpr size_t kNone = static_cast<size_t>(-1);
constexpr uint64_t kReadBytes = uint64_t{1} << 20;  // one request to the disk
constexpr uint64_t kPassBytes = uint64_t{8} << 20;  // most that passes through host memory at once
constexpr int kReaders = 4;                         // requests to the disk at once

}  // namespace

struct WeightStream::State {
  struct Request {
    StreamPiece piece;
    uint32_t stage = 0;
  };
  enum class SlotState { kFree, kLoading, kReady };
  struct Slot {
    SlotState state = SlotState::kFree;
    size_t request = kNone;  // numbers go on through a pass
    size_t pool = 0;
    uint64_t begin = 0, bytes = 0;  // in the pool's buffer
    StreamPiece piece;
    int64_t row_begin = 0;
    quant::PackedMatrix matrix;
  };
  struct Pool {
    device::Device* on = nullptr;
    device::Buffer buffer;
    std::unique_ptr<device::Stream> copies;
    bool from_top = false;  // where the newest unit's vectors and matrices are
  };
  struct Stage {
    StreamStage what;
    size_t pool = 0;
    bool from_top = false;                           // set when its unit opens
    std::optional<std::vector<StreamPiece>> script;  // in which order it used its pieces the last time
    size_t twin_mode = kNone, twin = kNone;          // the same part of the unit in another mode
  };
  struct Unit {  // opened and not closed
    int32_t unit = -1;
    size_t slot = kNone;
  };

  StreamParts parts;
  std::vector<std::vector<Stage>> modes;
  std::vector<Pool> pools;
  size_t host_pool = kNone;

  // The filling thread's own.
  std::unique_ptr<ThreadPool> readers;  // null: nothing is on the disk
  std::vector<Staging> no_staging;
  std::vector<float> values;  // a vector from the disk

  // What follows is shared with the filling thread.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Request> requests;
  size_t first_request = 0;  // number of requests.front()
  size_t next_fill = 0, next_use = 0;
  std::array<Slot, kSlots> slots;
  Status failure;
  bool stop = false;

  // The computing thread's own.
  size_t mode = 0, stage = 0, last_stage = 0;
  size_t announced = 0;            // stages before it are announced
  bool vectors_announced = false;  // ... and of this one its vectors
  size_t held = kNone;             // slot of the matrix in use
  std::vector<Unit> open;
  std::vector<const float*> vectors;  // by tensor
  std::vector<StreamPiece> recording;
  int64_t unexpected = 0;
  std::thread thread;

  std::vector<Stage>& stages() { return modes[mode]; }
  Stage& current() { return modes[mode][stage]; }
  // What the stage is expected to use: as the last time, or before its first time as its twin did.
  const std::vector<StreamPiece>* script_of(const Stage& s) const {
    if (s.script) return &*s.script;
    const Stage* twin = s.twin == kNone ? nullptr : &modes[s.twin_mode][s.twin];
    return twin != nullptr && twin->script ? &*twin->script : nullptr;
  }
  size_t end_request() const { return first_request + requests.size(); }
  const Request& request(size_t number) const { return requests[number - first_request]; }
  const HeldTensor& tensor(int32_t index) const { return parts.weights->tensor(index); }

  Status create();
  void find_twins();
  // --- computing thread, with the lock
  void push(const StreamPiece& piece, size_t of_stage) { requests.push_back({piece, static_cast<uint32_t>(of_stage)}); }
  void announce();
  void drop_ahead(std::unique_lock<std::mutex>& lock);
  void release_held();
  size_t use_next(std::unique_lock<std::mutex>& lock, const StreamPiece& piece);
  // --- filling thread
  void fill_loop();
  uint64_t bytes_of(const Request& r, quant::RowSlice* slice) const;
  bool place(const Request& r, Slot& slot, quant::RowSlice& slice);
  std::optional<uint64_t> room(size_t pool, uint64_t bytes, bool from_top, bool at_the_end) const;
  Status fill(const Request& r, const Slot& slot, const quant::RowSlice& slice);
  Status bring(Pool& pool, std::byte* to, int32_t index, Plane plane, uint64_t begin, uint64_t bytes);
  Status bring_from_disk(Pool& pool, std::byte* to, const FileTensor& from, Plane plane, uint64_t begin,
                         uint64_t bytes);
  Status bring_vector(Pool& pool, std::byte* to, const FileTensor& from, uint64_t bytes);
  Result<size_t> pass_through(uint64_t bytes);
};

// --- creation

Status WeightStream::State::create() {
  for (const StreamParts::Pool& p : parts.pools) {
    Pool pool;
    pool.on = p.on;
    TRY(pool.buffer, p.on->arena().allocate(p.bytes, device::Tag::kStaging));
    TRY(pool.copies, p.on->make_stream());
    if (p.on->kind() == machine::DeviceKind::kCpu) host_pool = pools.size();
    pools.push_back(std::move(pool));
  }
  for (size_t t = 0; t < parts.tensor_count; ++t)
    if (tensor(static_cast<int32_t>(t)).file != nullptr && readers == nullptr)
      readers = std::make_unique<ThreadPool>(kReaders);
  for (const auto& list : parts.modes) {
    std::vector<Stage> made;
    for (const StreamStage& s : list) {
      Stage stage_made;
      stage_made.what = s;
      const auto at = std::find_if(pools.begin(), pools.end(), [&](const Pool& p) { return p.on == s.on; });
      CHECK(at != pools.end());
      stage_made.pool = static_cast<size_t>(at - pools.begin());
      made.push_back(std::move(stage_made));
    }
    modes.push_back(std::move(made));
  }
  find_twins();
  vectors.resize(parts.tensor_count, nullptr);
  open.reserve(4);
  thread = std::thread([this] { fill_loop(); });
  return {};
}

// A unit's first stage in one mode is its first in every other, and so on.
void WeightStream::State::find_twins() {
  const auto number_in_unit = [](const std::vector<Stage>& list, size_t at) {
    return std::count_if(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(at),
                         [&](const Stage& s) { return s.what.unit == list[at].what.unit; });
  };
  for (size_t m = 0; m < modes.size(); ++m)
    for (size_t i = 0; i < modes[m].size(); ++i)
      for (size_t other = 0; other < modes.size(); ++other)
        for (size_t j = 0; other != m && j < modes[other].size(); ++j) {
          if (modes[other][j].what.unit != modes[m][i].what.unit) continue;
          if (number_in_unit(modes[other], j) != number_in_unit(modes[m], i)) continue;
          modes[m][i].twin_mode = other;
          modes[m][i].twin = j;
        }
}

Result<std::unique_ptr<WeightStream>> WeightStream::create(StreamParts parts) {
  auto state = std::make_unique<State>();
  state->parts = std::move(parts);
  TRY_STATUS(state->create());
  return std::unique_ptr<WeightStream>(new WeightStream(std::move(state)));
}

WeightStream::WeightStream(std::unique_ptr<State> state) : state_(std::move(state)) {}

WeightStream::~WeightStream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

// --- the computing thread

// Requests everything that is known of the stages to come.
void WeightStream::State::announce() {
  for (; announced < last_stage; ++announced, vectors_announced = false) {
    const Stage& s = stages()[announced];
    if (s.what.opens && !vectors_announced) push({kVectors, 0, 0}, announced);
    vectors_announced = true;
    const std::vector<StreamPiece>* script = script_of(s);
    if (s.what.routed || script == nullptr) return;
    for (const StreamPiece& piece : *script) push(piece, announced);
  }
}

// Forgets what was requested and not used yet.
void WeightStream::State::drop_ahead(std::unique_lock<std::mutex>& lock) {
  next_fill = std::min(next_fill, next_use);
  requests.resize(next_use - first_request);
  const auto is_ahead = [&](const Slot& s) { return s.state != SlotState::kFree && s.request >= next_use; };
  changed.wait(lock, [&] {
    return std::none_of(slots.begin(), slots.end(),
                        [&](const Slot& s) { return is_ahead(s) && s.state == SlotState::kLoading; });
  });
  for (Slot& s : slots)
    if (is_ahead(s)) s = Slot();
}

void WeightStream::State::release_held() {
  if (held == kNone) return;
  slots[held] = Slot();
  held = kNone;
  changed.notify_all();
}

// Waits for the next request, which should be `piece`; its slot.
size_t WeightStream::State::use_next(std::unique_lock<std::mutex>& lock, const StreamPiece& piece) {
  const bool as_announced =
      next_use < end_request() && request(next_use).piece == piece && request(next_use).stage == stage;
  if (!as_announced) {
    ++unexpected;
    drop_ahead(lock);
    push(piece, stage);
    // The rest of this stage is asked for piece by piece; announcing goes on after it.
    announced = stage;
    vectors_announced = true;
    current().script.reset();
  }
  changed.notify_all();
  size_t slot = kNone;
  changed.wait(lock, [&] {
    for (size_t i = 0; i < kSlots; ++i)
      if (slots[i].request == next_use && slots[i].state == SlotState::kReady) slot = i;
    return slot != kNone;
  });
  ++next_use;
  constexpr size_t kCompactAt = 4096;
  if (next_use - first_request >= kCompactAt) {
    requests.erase(requests.begin(), requests.begin() + static_cast<std::ptrdiff_t>(next_use - first_request));
    first_request = next_use;
  }
  return slot;
}

void WeightStream::start(size_t mode, size_t stages) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.next_use = std::min(s.next_use, s.end_request());
  s.drop_ahead(lock);
  for (State::Slot& slot : s.slots) slot = State::Slot();
  s.requests.clear();
  s.first_request = s.next_fill = s.next_use = 0;
  s.failure = Status();
  s.mode = mode;
  s.last_stage = std::min(stages, s.stages().size());
  s.stage = s.announced = 0;
  s.vectors_announced = false;
  s.held = kNone;
  s.open.clear();
  std::fill(s.vectors.begin(), s.vectors.end(), nullptr);
  s.announce();
  s.changed.notify_all();
}

void WeightStream::begin(size_t stage) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  CHECK(stage < s.stages().size());
  s.release_held();
  s.stage = stage;
  s.recording.clear();
  const StreamStage& what = s.current().what;
  if (!what.opens) return;
  const size_t slot = s.use_next(lock, {kVectors, 0, 0});
  s.open.push_back({what.unit, slot});
  uint64_t at = s.slots[slot].begin;
  for (const int32_t t : what.vectors) {
    const std::byte* base = s.pools[s.slots[slot].pool].buffer.data() + at;
    s.vectors[static_cast<size_t>(t)] = reinterpret_cast<const float*>(base);
    at += quant::layout_of(s.tensor(t).matrix).total_bytes;
  }
}

void WeightStream::route(const std::vector<StreamPiece>& pieces) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  CHECK(s.current().what.routed);
  if (s.announced != s.stage) return;  // announced already: the same stage again
  for (const StreamPiece& piece : pieces) s.push(piece, s.stage);
  ++s.announced;
  s.vectors_announced = false;
  s.announce();
  s.changed.notify_all();
}

StagedMatrix WeightStream::acquire(const StreamPiece& piece) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  if (s.held == kNone || s.slots[s.held].piece != piece) {
    s.release_held();
    s.recording.push_back(piece);
    s.held = s.use_next(lock, piece);
  }
  const State::Slot& slot = s.slots[s.held];
  return {&slot.matrix, slot.row_begin};
}

const float* WeightStream::vector(int32_t tensor) const {
  const float* there = state_->vectors[static_cast<size_t>(tensor)];
  CHECK(there != nullptr);  // of a unit that is open
  return there;
}

void WeightStream::end(size_t stage) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  CHECK(s.stage == stage);
  s.release_held();
  State::Stage& done = s.current();
  if (!done.what.routed && !done.script) done.script = s.recording;
  if (done.what.closes) {
    const auto unit =
        std::find_if(s.open.begin(), s.open.end(), [&](const State::Unit& u) { return u.unit == done.what.unit; });
    CHECK(unit != s.open.end());
    for (const int32_t t : done.what.vectors) s.vectors[static_cast<size_t>(t)] = nullptr;
    s.slots[unit->slot] = State::Slot();
    s.open.erase(unit);
  }
  if (s.announced == stage) {
    ++s.announced;
    s.vectors_announced = false;
    s.announce();
  }
  s.changed.notify_all();
}

Status WeightStream::status() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

int64_t WeightStream::unexpected() const {
  const std::lock_guard lock(state_->mutex);
  return state_->unexpected;
}

// --- the filling thread

uint64_t WeightStream::State::bytes_of(const Request& r, quant::RowSlice* slice) const {
  if (r.piece.tensor != kVectors) {
    *slice = quant::row_slice(quant::layout_of(tensor(r.piece.tensor).matrix), r.piece.row_begin, r.piece.row_count);
    return slice->layout.total_bytes;
  }
  uint64_t bytes = 0;
  for (const int32_t t : modes[mode][r.stage].what.vectors) bytes += quant::layout_of(tensor(t).matrix).total_bytes;
  return bytes;
}

// Where `bytes` would lie: next to that end of the buffer, or only right at it; nothing where there is no room.
std::optional<uint64_t> WeightStream::State::room(size_t pool, uint64_t bytes, bool from_top, bool at_the_end) const {
  const uint64_t size = pools[pool].buffer.size_bytes();
  if (bytes > size) return std::nullopt;
  const auto blocking = [&](uint64_t at) -> const Slot* {
    for (const Slot& s : slots)
      if (s.state != SlotState::kFree && s.pool == pool && s.bytes > 0 && at < s.begin + s.bytes &&
          s.begin < at + bytes)
        return &s;
    return nullptr;
  };
  uint64_t at = from_top ? size - bytes : 0;
  for (const Slot* other = blocking(at); other != nullptr; other = blocking(at)) {
    if (at_the_end) return std::nullopt;
    if (from_top) {
      if (other->begin < bytes) return std::nullopt;
      at = other->begin - bytes;
    } else {
      at = other->begin + other->bytes;
      if (at + bytes > size) return std::nullopt;
    }
  }
  return at;
}

// Finds a place for the request; false where it must wait.
bool WeightStream::State::place(const Request& r, Slot& slot, quant::RowSlice& slice) {
  Stage& s = modes[mode][r.stage];
  const uint64_t bytes = bytes_of(r, &slice);
  Pool& pool = pools[s.pool];
  std::optional<uint64_t> at;
  if (r.piece.tensor == kVectors) {
    bool top = !pool.from_top;
    at = room(s.pool, bytes, top, true);
    if (!at) {
      top = !top;
      at = room(s.pool, bytes, top, true);
    }
    if (!at) return false;
    pool.from_top = top;
    for (Stage& other : modes[mode])
      if (other.what.unit == s.what.unit) other.from_top = top;
  } else {
    at = room(s.pool, bytes, s.from_top, false);
    if (!at) return false;
  }
  slot.pool = s.pool;
  slot.begin = *at;
  slot.bytes = bytes;
  slot.piece = r.piece;
  slot.row_begin = slice.row_begin;
  if (r.piece.tensor != kVectors)
    slot.matrix = quant::bind_planes(slice.layout, static_cast<const std::byte*>(pool.buffer.data()) + *at);
  return true;
}

Status WeightStream::State::bring(Pool& pool, std::byte* to, int32_t index, Plane plane, uint64_t begin,
                                  uint64_t bytes) {
  const HeldTensor& from = tensor(index);
  if (from.file != nullptr && from.file->is_vector()) return bring_vector(pool, to, *from.file, bytes);
  if (from.file != nullptr) return bring_from_disk(pool, to, *from.file, plane, begin, bytes);
  parts.devices->count(from.device->map_name(), pool.on->map_name(), device::Cargo::kWeights, bytes);
  return pool.copies->queue_from_host(to, from.matrix.planes[static_cast<size_t>(plane)] + begin, bytes);
}

// Room in the host's buffer for a while; its slot.
Result<size_t> WeightStream::State::pass_through(uint64_t bytes) {
  std::unique_lock lock(mutex);
  size_t slot = kNone;
  std::optional<uint64_t> at;
  changed.wait(lock, [&] {
    if (stop) return true;
    for (slot = 0; slot < kSlots && slots[slot].state != SlotState::kFree; ++slot) continue;
    at = room(host_pool, bytes, pools[host_pool].from_top, false);
    return slot < kSlots && at.has_value();
  });
  if (stop) return Error(ErrorCode::kCancelled, "streaming weights was interrupted");
  Slot& s = slots[slot];
  s.state = SlotState::kLoading;
  s.pool = host_pool;
  s.begin = *at;
  s.bytes = bytes;
  return slot;
}

Status WeightStream::State::bring_from_disk(Pool& pool, std::byte* to, const FileTensor& from, Plane plane,
                                            uint64_t begin, uint64_t bytes) {
  const auto read = [&](std::byte* out, uint64_t first, uint64_t count) {
    return for_pieces(*readers, static_cast<int64_t>(ceil_div(count, kReadBytes)), no_staging,
                      [&](int64_t i, Staging&) {
                        const uint64_t at = static_cast<uint64_t>(i) * kReadBytes;
                        return from.read(plane, first + at, {out + at, std::min(kReadBytes, count - at)});
                      });
  };
  parts.devices->count("disk", "cpu", device::Cargo::kWeights, bytes);
  if (pool.on->kind() == machine::DeviceKind::kCpu) return read(to, begin, bytes);
  parts.devices->count("cpu", pool.on->map_name(), device::Cargo::kWeights, bytes);
  const uint64_t most = std::min({bytes, kPassBytes, pools[host_pool].buffer.size_bytes() / 2});
  TRY(const size_t slot, pass_through(most));
  std::byte* const host = pools[host_pool].buffer.data() + slots[slot].begin;
  Status status;
  for (uint64_t done = 0; done < bytes && status; done += most) {
    const uint64_t n = std::min(most, bytes - done);
    status = read(host, begin + done, n);
    if (status) status = pool.copies->queue_from_host(to + done, host, n);
    if (status) status = pool.copies->wait();
  }
  const std::lock_guard lock(mutex);
  slots[slot] = Slot();
  changed.notify_all();
  return status;
}

Status WeightStream::State::bring_vector(Pool& pool, std::byte* to, const FileTensor& from, uint64_t bytes) {
  values.resize(bytes / sizeof(float));
  TRY_STATUS(from.read_vector(values));
  parts.devices->count("disk", "cpu", device::Cargo::kWeights, bytes);
  if (pool.on->kind() != machine::DeviceKind::kCpu)
    parts.devices->count("cpu", pool.on->map_name(), device::Cargo::kWeights, bytes);
  TRY_STATUS(pool.copies->queue_from_host(to, reinterpret_cast<const std::byte*>(values.data()), bytes));
  return pool.copies->wait();
}

Status WeightStream::State::fill(const Request& r, const Slot& slot, const quant::RowSlice& slice) {
  Pool& pool = pools[slot.pool];
  std::byte* const base = pool.buffer.data() + slot.begin;
  const auto bring_planes = [&](std::byte* to, int32_t index, const quant::PackedLayout& whole,
                                const quant::RowSlice& part) -> Status {
    for (int p = 0; p < quant::kPlaneCount; ++p) {
      const auto plane = static_cast<Plane>(p);
      const quant::PlaneLayout& bytes = part.layout.plane(plane);
      if (bytes.bytes > 0)
        TRY_STATUS(bring(pool, to + bytes.offset, index, plane, quant::plane_begin(whole, part, plane), bytes.bytes));
    }
    return {};
  };
  if (r.piece.tensor != kVectors) {
    TRY_STATUS(bring_planes(base, r.piece.tensor, quant::layout_of(tensor(r.piece.tensor).matrix), slice));
  } else {
    uint64_t at = 0;
    for (const int32_t t : modes[mode][r.stage].what.vectors) {
      const quant::PackedLayout layout = quant::layout_of(tensor(t).matrix);
      TRY_STATUS(bring_planes(base + at, t, layout, {0, layout}));
      at += layout.total_bytes;
    }
  }
  return pool.copies->wait();
}

void WeightStream::State::fill_loop() {
  std::unique_lock lock(mutex);
  for (;;) {
    size_t free = kNone;
    Slot slot;
    quant::RowSlice slice;
    changed.wait(lock, [&] {
      if (stop) return true;
      if (next_fill >= end_request()) return false;
      for (free = 0; free < kSlots && slots[free].state != SlotState::kFree; ++free) continue;
      slot = Slot();
      return free < kSlots && place(request(next_fill), slot, slice);
    });
    if (stop) return;
    const Request r = request(next_fill);
    slot.request = next_fill++;
    slot.state = SlotState::kLoading;
    slots[free] = slot;
    lock.unlock();
    Status done = fill(r, slot, slice);
    if (!done) std::memset(pools[slot.pool].buffer.data() + slot.begin, 0, slot.bytes);
    lock.lock();
    slots[free].state = SlotState::kReady;
    if (!done && failure) failure = std::move(done);
    changed.notify_all();
  }
}

}  // namespace berth::load
