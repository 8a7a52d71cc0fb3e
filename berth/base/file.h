// base/file.h — files as Berth reads and writes them: opened once, checked, read at offsets; written aside, then renamed.
//
// A File is opened once and the same handle serves the check and every read, so that a file swapped between planning
// and loading cannot slip through; identity() tells whether it changed. Only regular files open: a FIFO, a directory
// or a device is refused without blocking.
//
// Thread-safe: read_at() from many threads on one File.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "berth/base/result.h"

namespace berth {

struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0, mtime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

class File {
 public:
  // Errors: kNotFound, kIo (no permission), kCorruptData (not a regular file). Messages name the path.
  static Result<File> open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return identity_.size; }  // when opened
  const FileIdentity& identity() const { return identity_; }

  // Fills all of `out` from byte `offset`. A short read is an error that names the file, offset and byte count.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // Whether the file still is what it was when opened; kIo naming what changed otherwise.
  Status check_unchanged() const;
  // Tells the kernel the range will not be read again soon (drops its cached pages); advisory.
  void drop_cache(uint64_t offset, uint64_t bytes) const;
  int descriptor() const { return fd_; }

 private:
  File() = default;
  int fd_ = -1;
  std::string path_;
  FileIdentity identity_;
};

// Whole file, at most `max_bytes`.
Result<std::string> read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);
// What the kernel makes up when it is read (/proc, /sys): such files say they have 0 bytes. At most `max_bytes`.
Result<std::string> read_kernel_file(const std::string& path, size_t max_bytes = size_t{1} << 20);
// Writes PATH.tmp-PID, syncs, then renames over PATH; on any error nothing is left behind.
Status write_file_atomically(const std::string& path, std::string_view content);

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
// Names (not paths) in a folder, sorted.
Result<std::vector<std::string>> list_folder(const std::string& path);
std::string path_join(std::string_view folder, std::string_view name);
std::string path_folder(std::string_view path);  // "" where there is none
std::string path_name(std::string_view path);

}  // namespace berth
