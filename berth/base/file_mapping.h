// base/file_mapping.h — a file's bytes as read-only memory: what weights that need no rearranging are used from.
//
// The whole file is mapped, at an address that is the same distance from a 2 MiB boundary as the byte is in the file
// (so that large pages of the page cache can be mapped as such), and at least kTailBytes readable zeros follow its end.
//
// A mapping is not a copy: bytes that somebody writes to the file show up in it, and touching a page that the file no
// longer has, or that the disk cannot give, raises SIGBUS. So whoever computes from a mapping asks check_unchanged()
// before results are used, and a program may install the handler below, which says which file it was and ends the
// process. The library never installs it by itself: signals belong to the program.
//
// Thread-safe. Start reading at: FileMapping::create.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "berth/base/file.h"
#include "berth/base/result.h"

namespace berth {

class FileMapping {
 public:
  static constexpr uint64_t kTailBytes = 4096;

  // `file` must outlive the mapping. Errors: kIo (the system refuses; an empty file), kUnsupported where there is no
  // mmap.
  static Result<std::unique_ptr<FileMapping>> create(const File& file);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  const File& file() const { return *file_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Makes the pages of the range present, reading what is not cached. It is advice: what it cannot bring is brought (or
  // fails) when it is touched.
  void populate(uint64_t offset, uint64_t bytes) const;
  // Gives the range's pages back, so that they are no longer this process's; they stay in the page cache, and come
  // again when they are touched.
  void release(uint64_t offset, uint64_t bytes) const;
  // Whether the file still is what it was when opened: what was computed from the mapping until now may be used.
  Status check_unchanged() const { return file_->check_unchanged(); }

 private:
  FileMapping() = default;
  const File* file_ = nullptr;
  std::span<const std::byte> bytes_;
  std::span<std::byte> reserved_;  // with what lies before and after
  int slot_ = -1;                  // of the table that the handler looks at
};

// On SIGBUS inside a FileMapping: writes one line to stderr that names the file ("berth: io: ..."), after `json` one
// error object to stdout, and ends the process with exit_status(kIo). Any other SIGBUS is left to what was there
// before. For programs; call it once, before threads are started.
void exit_on_mapping_fault(bool json = false);

}  // namespace berth
