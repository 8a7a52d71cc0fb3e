// format/write_safetensors.cc — see write_safetensors.h.
#include "berth/format/write_safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/name_index.h"

namespace berth::format {
namespace {

Error io_error(std::string_view doing, const std::string& path, int number) {
  return Error(ErrorCode::kIo, fmt::format("{} {}: {}", doing, quoted(path, 400), std::strerror(number)));
}

Status write_all(int fd, const std::string& path, uint64_t offset, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, data, std::min<size_t>(size, size_t{1} << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return io_error(fmt::format("writing {} bytes at offset {} of", size, offset), path, n == 0 ? EIO : errno);
    data += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return {};
}

Status check_desc(TensorDesc& t) {
  const auto wrong = [&t](std::string_view why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("writing tensor {}: {}", quoted(t.name), why));
  };
  const DTypeInfo& type = dtype_info(t.dtype);
  if (t.name.empty() || t.name == "__metadata__" || t.name.find('\0') != std::string::npos || !is_valid_utf8(t.name))
    return wrong("safetensors has no such name");
  if (type.safetensors.empty()) return wrong(fmt::format("safetensors has no type {}", type.name));
  const auto elements = element_count(t.shape);
  const auto bytes = elements ? dtype_bytes(t.dtype, *elements) : std::nullopt;
  if (!bytes)
    return wrong(fmt::format("{} {} is no whole number of bytes below 2^64", type.safetensors, shape_text(t.shape)));
  if (t.size_bytes != 0 && t.size_bytes != *bytes)
    return wrong(fmt::format("{} {} needs {} bytes, {} were announced", type.safetensors, shape_text(t.shape), *bytes,
                             t.size_bytes));
  t.size_bytes = *bytes;
  return {};
}

}  // namespace

Result<std::string> safetensors_header(std::vector<TensorDesc>& tensors, const SafetensorsWriter::Metadata& metadata,
                                       uint64_t alignment) {
  if (!std::has_single_bit(alignment) || alignment > (1u << 20))
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("alignment {} is no power of two of at most 1 MiB", alignment));
  NameIndex names;
  names.reserve(tensors.size());
  std::string json(8, '\0');
  json.reserve(96 * tensors.size() + 64);
  json += '{';
  if (!metadata.empty()) {
    JsonWriter writer;
    writer.begin_object();
    for (const auto& [key, value] : metadata) writer.member(key, value);
    writer.end_object();
    json += "\"__metadata__\":" + writer.take();
  }
  uint64_t at = 0;
  for (TensorDesc& t : tensors) {
    TRY_STATUS(check_desc(t));
    if (!names.add(t.name).is_new)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("writing tensor {}: there are two of this name", quoted(t.name)));
    const auto end = checked_add(at, t.size_bytes);
    if (!end) return Error(ErrorCode::kInvalidArgument, "the tensors to write have 2^64 bytes or more");
    if (json.back() != '{') json += ',';
    json += json_quoted(t.name);
    fmt::format_to(std::back_inserter(json), ":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                   dtype_info(t.dtype).safetensors, fmt::join(t.shape, ","), at, *end);
    at = *end;
  }
  json += '}';
  json.append(align_up<uint64_t>(json.size(), alignment) - json.size(), ' ');
  store_le(json.data(), static_cast<uint64_t>(json.size() - 8));
  return json;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<TensorDesc> tensors,
                                                    const Metadata& metadata, const WriteOptions& options) {
  SafetensorsWriter w;
  TRY(const std::string header, safetensors_header(tensors, metadata, options.alignment));
  w.options_ = options;
  w.path_ = path;
  w.tensors_ = std::move(tensors);
  w.metadata_ = metadata;
  w.written_ = std::make_unique<std::atomic<uint64_t>[]>(w.tensors_.size());
  w.header_bytes_ = header.size();
  w.place_tensors();
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  w.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (w.fd_ < 0) return io_error("creating", temporary, errno);
  w.temporary_ = temporary;
  // Says now that the disk is full rather than at the end.
  if (const int error = ::posix_fallocate(w.fd_, 0, static_cast<off_t>(w.file_bytes_));
      error != 0 && error != EINVAL && error != EOPNOTSUPP)
    return io_error(fmt::format("reserving {} for", format_bytes(w.file_bytes_)), temporary, error);
  TRY_STATUS(write_all(w.fd_, temporary, 0, header.data(), header.size()));
  return w;
}

void SafetensorsWriter::place_tensors() {
  offsets_.clear();
  file_bytes_ = header_bytes_;
  for (const TensorDesc& t : tensors_) {
    offsets_.push_back(file_bytes_);
    file_bytes_ += t.size_bytes;
  }
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept { *this = std::move(other); }
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(options_, other.options_);
  std::swap(metadata_, other.metadata_);
  std::swap(tensors_, other.tensors_);
  std::swap(offsets_, other.offsets_);
  std::swap(written_, other.written_);
  std::swap(header_bytes_, other.header_bytes_);
  std::swap(file_bytes_, other.file_bytes_);
  std::swap(shrunk_, other.shrunk_);
  return *this;
}
SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Status SafetensorsWriter::write(size_t index, uint64_t offset, std::span<const std::byte> bytes) {
  if (fd_ < 0 || index >= tensors_.size() || offset > tensors_[index].size_bytes ||
      bytes.size() > tensors_[index].size_bytes - offset)
    return Error(ErrorCode::kInvalidArgument, fmt::format("writing {} bytes at {} of tensor {} of {}: outside of it",
                                                          bytes.size(), offset, index, quoted(path_, 400)));
  TRY_STATUS(
      write_all(fd_, temporary_, offsets_[index] + offset, reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  written_[index] += bytes.size();
  return {};
}

Status SafetensorsWriter::shrink(size_t index, int64_t elements) {
  bool behind_is_free = index < tensors_.size() && elements >= 0;
  for (size_t i = index; i < tensors_.size(); ++i) behind_is_free = behind_is_free && written_[i] == 0;
  const auto bytes = behind_is_free ? dtype_bytes(tensors_[index].dtype, static_cast<uint64_t>(elements)) : std::nullopt;
  if (!bytes || *bytes > tensors_[index].size_bytes)
    return Error(ErrorCode::kInternal, fmt::format("writing {}: tensor {} cannot become {} elements any more",
                                                   quoted(path_, 400), index, elements));
  tensors_[index].shape = {elements};
  tensors_[index].size_bytes = *bytes;
  place_tensors();
  shrunk_ = true;
  return {};
}

Status SafetensorsWriter::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (written_[i] != tensors_[i].size_bytes)
      return Error(ErrorCode::kInternal,
                   fmt::format("writing {}: {} of {} bytes of tensor {} were written", quoted(path_, 400), written_[i].load(),
                               tensors_[i].size_bytes, quoted(tensors_[i].name)));
  if (shrunk_) {
    TRY(std::string header, safetensors_header(tensors_, metadata_, options_.alignment));
    header.append(header_bytes_ - header.size(), ' ');
    store_le(header.data(), static_cast<uint64_t>(header.size() - 8));
    TRY_STATUS(write_all(fd_, temporary_, 0, header.data(), header.size()));
    if (::ftruncate(fd_, static_cast<off_t>(file_bytes_)) != 0) return io_error("cutting", temporary_, errno);
  }
  int failure = options_.sync && ::fsync(fd_) != 0 ? errno : 0;
  if (::close(fd_) != 0 && failure == 0) failure = errno;
  fd_ = -1;
  if (failure == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) failure = errno;
  if (failure != 0) {
    discard();
    return io_error("writing", path_, failure);
  }
  temporary_.clear();
  return {};
}

Status write_safetensors(const std::string& path, std::vector<TensorDesc> tensors,
                         std::span<const std::span<const std::byte>> data, const SafetensorsWriter::Metadata& metadata,
                         const WriteOptions& options) {
  if (data.size() != tensors.size())
    return Error(ErrorCode::kInvalidArgument, fmt::format("writing {}: {} tensors and the bytes of {} were given",
                                                          quoted(path, 400), tensors.size(), data.size()));
  TRY(auto writer, SafetensorsWriter::create(path, std::move(tensors), metadata, options));
  for (size_t i = 0; i < data.size(); ++i) TRY_STATUS(writer.write(i, 0, data[i]));
  return writer.finish();
}

}  // namespace berth::format
