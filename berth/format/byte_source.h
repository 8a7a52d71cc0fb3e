// format/byte_source.h — where a header parser reads from: an open file, or bytes in memory (tests, fuzzing).
//
// Parsers ask for exact ranges that they have checked against size_bytes() before; they never map a file, so that a
// file cut while it is read is an error and not a signal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "berth/base/file.h"
#include "berth/base/result.h"

namespace berth::format {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;  // as it appears in messages, unescaped
  virtual uint64_t size_bytes() const = 0;
  virtual Status read_at(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Borrows `file`, which must outlive it.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const File& file) : file_(file) {}
  const std::string& name() const override { return file_.path(); }
  uint64_t size_bytes() const override { return file_.size_bytes(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override { return file_.read_at(offset, out); }

 private:
  const File& file_;
};

// Borrows `bytes`, which must outlive it.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::string_view bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return Error(ErrorCode::kIo, "reading past the end of " + name_);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::string name_;
  std::string_view bytes_;
};

}  // namespace berth::format
