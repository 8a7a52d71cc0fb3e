// base/file.cc — POSIX files.
#include "berth/base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "berth/base/strings.h"

namespace berth {
namespace {

Error system_error(std::string_view doing, const std::string& path, int number) {
  const ErrorCode code = number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  return Error(code, fmt::format("{} {}: {}", doing, quoted(path, 400), std::strerror(number)));
}

FileIdentity identity_of(const struct stat& s) {
  return {static_cast<uint64_t>(s.st_dev), static_cast<uint64_t>(s.st_ino), static_cast<uint64_t>(s.st_size),
          static_cast<uint64_t>(s.st_mtim.tv_sec) * 1000000000ull + static_cast<uint64_t>(s.st_mtim.tv_nsec)};
}

}  // namespace

Result<File> File::open(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    return Error(ErrorCode::kCorruptData, fmt::format("path {} contains a NUL character", quoted(path)));
  File file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const int open_error = file.fd_ < 0 ? errno : 0;
  struct stat s {};
  // A socket does not open at all: what it is says more than the error number.
  if (open_error != 0 && (open_error != ENXIO || ::stat(path.c_str(), &s) != 0)) return system_error("opening", path, open_error);
  if (open_error == 0 && ::fstat(file.fd_, &s) != 0) return system_error("examining", path, errno);
  if (!S_ISREG(s.st_mode)) {
    const char* what = S_ISDIR(s.st_mode) ? "a folder" : S_ISFIFO(s.st_mode) ? "a pipe" : "a special file";
    return Error(ErrorCode::kCorruptData, fmt::format("opening {}: a regular file was expected, this is {}", quoted(path, 400), what));
  }
  file.identity_ = identity_of(s);
  return file;
}

File::File(File&& other) noexcept { *this = std::move(other); }
File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  return *this;
}
File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Status File::read_at(uint64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const size_t want = std::min<size_t>(out.size() - done, size_t{1} << 30);
    const ssize_t n = ::pread(fd_, out.data() + done, want, static_cast<off_t>(offset + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      return Error(ErrorCode::kIo, fmt::format("reading {} bytes at offset {} of {}: {}", out.size(), offset,
                                               quoted(path_, 400), std::strerror(errno)));
    }
    if (n == 0)
      return Error(ErrorCode::kIo,
                   fmt::format("reading {} at offset {}: {} bytes were expected, the file ends after {}",
                               quoted(path_, 400), offset, out.size(), done),
                   {"The file was cut since it was opened, or its download is incomplete: fetch it again."});
    done += static_cast<size_t>(n);
  }
  return {};
}

Status File::check_unchanged() const {
  struct stat s {};
  if (::fstat(fd_, &s) != 0) return system_error("examining", path_, errno);
  const FileIdentity now = identity_of(s);
  if (now.size != identity_.size)
    return Error(ErrorCode::kIo, fmt::format("{} had {} bytes when it was opened and has {} now", quoted(path_, 400),
                                             identity_.size, now.size));
  if (now.mtime_ns != identity_.mtime_ns)
    return Error(ErrorCode::kIo, fmt::format("{} was written to since it was opened", quoted(path_, 400)));
  return {};
}

void File::drop_cache(uint64_t offset, uint64_t bytes) const {
  (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  TRY(const File file, File::open(path));
  if (file.size_bytes() > max_bytes)
    return Error(ErrorCode::kCorruptData, fmt::format("{} has {} bytes; at most {} were expected of such a file",
                                                      quoted(path, 400), file.size_bytes(), max_bytes));
  std::string text(file.size_bytes(), '\0');
  TRY_STATUS(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::string> read_kernel_file(const std::string& path, size_t max_bytes) {
  TRY(const File file, File::open(path));
  std::string text(4096, '\0');
  size_t filled = 0;
  while (true) {
    const ssize_t n = ::read(file.descriptor(), text.data() + filled, text.size() - filled);
    if (n < 0) {
      if (errno == EINTR) continue;
      return system_error("reading", path, errno);
    }
    if (n == 0) break;
    filled += static_cast<size_t>(n);
    if (filled > max_bytes)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("reading {}: at most {} bytes were expected of such a file", quoted(path, 400), max_bytes));
    if (filled == text.size()) text.resize(2 * text.size());
  }
  text.resize(filled);
  return text;
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("creating", temporary, errno);
  size_t done = 0;
  int failure = 0;
  while (done < content.size() && failure == 0) {
    const ssize_t n = ::write(fd, content.data() + done, content.size() - done);
    if (n < 0 && errno != EINTR) failure = errno;
    if (n > 0) done += static_cast<size_t>(n);
  }
  if (failure == 0 && ::fsync(fd) != 0) failure = errno;
  ::close(fd);
  if (failure == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) failure = errno;
  if (failure != 0) {
    ::unlink(temporary.c_str());
    return system_error("writing", path, failure);
  }
  return {};
}

bool path_exists(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0;
}
bool is_directory(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return system_error("listing folder", path, errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::string path_join(std::string_view folder, std::string_view name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  std::string out(folder);
  if (out.back() != '/') out += '/';
  out += name;
  return out;
}
std::string path_folder(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return "";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}
std::string path_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace berth
