// load/offload_folder.cc — see offload_folder.h.
#include "berth/load/offload_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/hash.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

namespace berth::load {
namespace {

constexpr std::string_view kFormat = "berth-offload-1";
constexpr uint64_t kPage = 4096, kPagesHashed = 64;

Error system_error(std::string_view doing, const std::string& path, int number) {
  return Error(ErrorCode::kIo, fmt::format("{} {}: {}", doing, quoted(path, 400), std::strerror(number)));
}

// Of pages spread over the image: first and last among them.
template <typename Read>
Result<std::string> image_hash(uint64_t bytes, Read&& read) {
  Hasher128 hash;
  std::vector<std::byte> page(kPage);
  const uint64_t pages = ceil_div(bytes, kPage), taken = std::min(pages, kPagesHashed);
  for (uint64_t i = 0; i < taken; ++i) {
    const uint64_t at = (taken < 2 ? 0 : i * (pages - 1) / (taken - 1)) * kPage, n = std::min(kPage, bytes - at);
    TRY_STATUS(read(at, std::span(page).first(n)));
    hash.add(page.data(), n);
  }
  return hash.hex();
}

std::string hash_of(std::string_view text) {
  Hasher128 hash;
  hash.add(text.data(), text.size());
  return hash.hex();
}

Status make_folder(const std::string& path) {
  if (path.empty() || is_directory(path)) return {};
  if (const std::string parent = path_folder(path); parent != path) TRY_STATUS(make_folder(parent));
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return system_error("making folder", path, errno);
  if (!is_directory(path))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--offload-folder: {} is not a folder", quoted(path, 400)));
  return {};
}

// Files that a process left which is no more.
void remove_leftovers(const std::string& folder) {
  const auto names = list_folder(folder);
  if (!names) return;
  for (const std::string& name : *names) {
    const size_t at = name.rfind(".tmp-");
    if (at == std::string::npos) continue;
    int pid = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + at + 5, end, pid);
    if (parsed.ec != std::errc() || parsed.ptr != end || pid <= 0) continue;
    if (::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(path_join(folder, name).c_str());
  }
}

// A file being written: unmapped, closed and removed unless it was kept.
class Draft {
 public:
  Draft(std::string path, uint64_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
    if (fd_ >= 0) ::close(fd_);
    if (!kept_ && created_) ::unlink(path_.c_str());
  }

  Result<std::byte*> open() {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) return system_error("creating", path_, errno);
    created_ = true;
    // Its room is taken now: a page that could not be written later would end the process.
    if (const int number = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes_)); number != 0) {
      Error e = system_error(fmt::format("taking {} for", format_bytes(bytes_)), path_, number);
      e.hints.push_back("Free room there, or name another --offload-folder.");
      return e;
    }
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) return system_error("mapping", path_, errno);
    at_ = mapped;
    return static_cast<std::byte*>(mapped);
  }

  Status keep_as(const std::string& name) {
    if (::msync(at_, bytes_, MS_SYNC) != 0 || ::fsync(fd_) != 0) return system_error("writing", path_, errno);
    if (::rename(path_.c_str(), name.c_str()) != 0) return system_error("renaming to", name, errno);
    kept_ = true;
    return {};
  }

 private:
  std::string path_;
  uint64_t bytes_;
  int fd_ = -1;
  void* at_ = nullptr;
  bool created_ = false, kept_ = false;
};

}  // namespace

Result<OffloadFolder> OffloadFolder::open(const std::string& folder, const format::Checkpoint& checkpoint,
                                          DType quantize_from) {
  OffloadFolder out;
  std::string identity = fmt::format("{} {} {}", kFormat, checkpoint.fingerprint(), dtype_name(quantize_from));
  for (const File& file : checkpoint.files())
    identity += fmt::format("\n{} {} {}", path_name(file.path()), file.size_bytes(), file.identity().mtime_ns);
  out.key_ = hash_of(identity);
  out.folder_ = path_join(folder, out.key_.substr(0, 16));
  TRY_STATUS(make_folder(out.folder_));
  remove_leftovers(out.folder_);
  return out;
}

std::string OffloadFolder::path_of(const arch::TensorSpec& tensor, const quant::PackedLayout& layout) const {
  std::string name = tensor.name + "-" + quant::format_text(layout.format);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_') c = '_';
  constexpr size_t kMost = 180;
  if (name.size() > kMost) name = name.substr(0, kMost) + "-" + hash_of(tensor.name).substr(0, 16);
  return path_join(folder_, name + ".weights");
}

std::string OffloadFolder::header_of(const arch::TensorSpec& tensor, const quant::PackedLayout& layout,
                                     const std::string& hash) const {
  JsonWriter w;
  w.begin_object()
      .member("format", kFormat)
      .member("key", key_)
      .member("tensor", tensor.name)
      .member("storage", quant::format_text(layout.format))
      .member("rows", layout.rows)
      .member("cols", layout.cols)
      .member("bytes", layout.total_bytes)
      .member("pages_hash", hash)
      .end_object();
  std::string header = w.take();
  header.resize(kHeaderBytes, '\0');
  return header;
}

std::optional<File> OffloadFolder::find(const arch::TensorSpec& tensor, const quant::PackedLayout& layout,
                                        const Log& log) const {
  const std::string path = path_of(tensor, layout);
  if (!path_exists(path)) return std::nullopt;
  const auto refuse = [&](std::string_view why) {
    log.warning(fmt::format("{} in the offload folder {}: it is made anew", quoted(path, 400), why));
    return std::nullopt;
  };
  auto file = File::open(path);
  if (!file) return refuse("cannot be opened");
  if (file->size_bytes() != kHeaderBytes + layout.total_bytes)
    return refuse(fmt::format("has {} bytes instead of {}", file->size_bytes(), kHeaderBytes + layout.total_bytes));
  std::string header(kHeaderBytes, '\0');
  if (!file->read_at(0, std::as_writable_bytes(std::span(header)))) return refuse("cannot be read");
  const auto hash = image_hash(
      layout.total_bytes, [&](uint64_t at, std::span<std::byte> out) { return file->read_at(kHeaderBytes + at, out); });
  if (!hash) return refuse("cannot be read");
  if (header != header_of(tensor, layout, *hash)) return refuse("is not what was written");
  return std::move(*file);
}

Result<File> OffloadFolder::write(const arch::TensorSpec& tensor, const quant::PackedLayout& layout,
                                  FunctionRef<Status(std::byte* image)> fill) const {
  const std::string path = path_of(tensor, layout);
  const auto make = [&]() -> Status {
    Draft draft(fmt::format("{}.tmp-{}", path, ::getpid()), kHeaderBytes + layout.total_bytes);
    TRY(std::byte* const base, draft.open());
    TRY_STATUS(fill(base + kHeaderBytes));
    TRY(const std::string hash, image_hash(layout.total_bytes, [&](uint64_t at, std::span<std::byte> out) {
          std::memcpy(out.data(), base + kHeaderBytes + at, out.size());
          return Status();
        }));
    const std::string header = header_of(tensor, layout, hash);
    std::memcpy(base, header.data(), header.size());
    return draft.keep_as(path);
  };
  if (Status made = make(); !made) return std::move(made).error().with_context("writing to the offload folder");
  return File::open(path);
}

}  // namespace berth::load
