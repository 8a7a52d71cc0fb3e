// load/read_ahead.h — cold files brought into the page cache while the tensors before them are made.
//
// A few threads, of which most wait for the disk, walk over the ranges of the files in the order in which tensors are
// loaded, through mappings (whose pages the kernel then makes large ones). They stay at most so many bytes ahead of
// what has been used, so that nothing is dropped again before it is needed where memory is short.
//
// Start reading at: ReadAhead::wait_for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "berth/base/file_mapping.h"

namespace berth::load {

class ReadAhead {
 public:
  // What a load starts, at least: they wait for the disk, which gives more where more is asked of it at once.
  static constexpr int kThreads = 8;

  struct Range {
    size_t tensor = 0;
    const FileMapping* mapping = nullptr;
    uint64_t offset = 0, bytes = 0;
    bool stays = false;  // in this process's memory: the tensor is used from this mapping
  };
  // `ranges`: tensors ascending. Mappings must outlive this.
  ReadAhead(const std::vector<Range>& ranges, int threads, uint64_t most_ahead);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns when every range of the tensors up to this one has been brought, and counts those before it as used.
  void wait_for(size_t tensor);

 private:
  struct Piece {
    Range range;
    uint64_t before = 0;  // bytes of all pieces before it
    bool brought = false;
  };
  void work();

  std::vector<Piece> pieces_;
  const uint64_t most_ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;    // to be claimed
  size_t first_ = 0;   // not yet brought: all before it are
  uint64_t used_ = 0;  // bytes
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace berth::load
