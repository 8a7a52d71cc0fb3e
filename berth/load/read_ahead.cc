// load/read_ahead.cc — see read_ahead.h.
#include "berth/load/read_ahead.h"

#include <algorithm>
#include <system_error>

namespace berth::load {

namespace {

// One large page. The disk gives more where more threads wait for it, each for less: twice as many in the same memory.
constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

}  // namespace

ReadAhead::ReadAhead(const std::vector<Range>& ranges, int threads, uint64_t most_ahead)
    : most_ahead_(std::max(most_ahead, kPieceBytes)) {
  uint64_t total = 0;
  for (const Range& range : ranges) {
    for (uint64_t at = range.offset, end = range.offset + range.bytes; at < end;) {
      const uint64_t n = std::min(kPieceBytes - at % kPieceBytes, end - at);  // whole pages, but for the ends
      pieces_.push_back({{range.tensor, range.mapping, at, n, range.stays}, total, false});
      total += n, at += n;
    }
  }
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // Fewer; with none at all what is touched comes by itself.
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [&] { return stopped_ || next_ == pieces_.size() || pieces_[next_].before < used_ + most_ahead_; });
    if (stopped_ || next_ == pieces_.size()) return;
    Piece& piece = pieces_[next_++];
    lock.unlock();
    const Range& range = piece.range;
    range.mapping->populate(range.offset, range.bytes);
    if (!range.stays) range.mapping->release(range.offset, range.bytes);
    lock.lock();
    piece.brought = true;
    while (first_ < pieces_.size() && pieces_[first_].brought) ++first_;
    changed_.notify_all();
  }
}

void ReadAhead::wait_for(size_t tensor) {
  const auto first_of = [&](size_t t) {
    return std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.range.tensor < t; });
  };
  const auto begin = first_of(tensor), end = first_of(tensor + 1);
  std::unique_lock lock(mutex_);
  if (threads_.empty()) return;
  // What this one needs is let in, however much it is.
  if (begin != end) used_ = std::max(used_, (end - 1)->before);
  changed_.notify_all();
  changed_.wait(lock, [&] { return first_ >= static_cast<size_t>(end - pieces_.begin()); });
}

}  // namespace berth::load
