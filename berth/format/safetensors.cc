// format/safetensors.cc — length, JSON, entries, then coverage of the data section.
#include "berth/format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/name_index.h"
#include "berth/format/plain_scanner.h"

namespace berth::format {
namespace {

constexpr size_t kMaxDimensions = 64;
constexpr std::string_view kMetadataKey = "__metadata__";

Error corrupt(std::string_view file, std::string message) {
  return Error(ErrorCode::kCorruptData,
               fmt::format("reading the header of {}: {}", quoted(file, 400), std::move(message)),
               {"The file is damaged or its download is incomplete: fetch it again."});
}

Error corrupt_tensor(std::string_view file, std::string_view tensor, std::string message) {
  return corrupt(file, fmt::format("tensor {}: {}", quoted(tensor), std::move(message)));
}

std::string found(const JsonView& value) {
  std::string text = value.text();
  return fmt::format("{} was found: {}", json_type_name(value.type()), escaped(text.substr(0, 60)));
}

Result<uint64_t> length_field(const ByteSource& source) {
  const uint64_t size = source.size_bytes();
  if (size < 8)
    return corrupt(source.name(),
                   fmt::format("the file has {} bytes; at least 8 were expected for the header's length", size));
  std::byte raw[8];
  TRY_STATUS(source.read_at(0, raw));
  const auto length = load_le<uint64_t>(raw);
  if (length > size - 8) {
    const uint64_t swapped = __builtin_bswap64(length);
    return corrupt(source.name(),
                   fmt::format("the header is said to have {} bytes; {} bytes follow its length{}", length, size - 8,
                               swapped <= size - 8 ? " (the length seems byte-swapped)" : ""));
  }
  if (length > kMaxSafetensorsHeaderBytes)
    return corrupt(source.name(), fmt::format("the header is said to have {} bytes; at most {} are allowed", length,
                                              kMaxSafetensorsHeaderBytes));
  return length;
}

// One entry as the file states it.
struct RawEntry {
  std::string_view name, dtype;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view file, uint64_t data_bytes, uint64_t data_offset)
      : file_(file), data_bytes_(data_bytes), data_offset_(data_offset) {}

  Result<SafetensorsHeader> parse(std::string_view json, bool quick_scan) {
    if (!quick_scan || !scan(json)) {
      raw_.clear();
      header_.metadata.clear();
      // Duplicate names are looked for here, where the message can say what they are.
      auto document =
          JsonDocument::parse(json, {.max_bytes = kMaxSafetensorsHeaderBytes, .reject_duplicate_keys = false});
      if (!document) return corrupt(file_, std::move(document).error().message);
      TRY_STATUS(walk(document->root()));
      return check();  // while the document holds the texts
    }
    return check();
  }

 private:
  // The header as it is usually written; false where the full parser must decide.
  bool scan(std::string_view json) {
    PlainScanner s(json);
    if (!s.take('{')) return false;
    raw_.reserve(json.size() / 96 + 1);
    if (!s.take('}')) {
      do {
        std::string_view name;
        if (!s.text(name) || !s.take(':')) return false;
        if (name == kMetadataKey) {
          if (saw_metadata_ || !scan_metadata(s)) return false;
          saw_metadata_ = true;
        } else {
          raw_.emplace_back();
          raw_.back().name = name;
          if (!scan_entry(s, raw_.back())) return false;
        }
      } while (s.take(','));
      if (!s.take('}')) return false;
    }
    return s.at_end();
  }

  bool scan_metadata(PlainScanner& s) {
    if (!s.take('{')) return false;
    if (s.take('}')) return true;
    do {
      std::string_view key, value;
      if (!s.text(key) || !s.take(':') || !s.text(value)) return false;
      for (const auto& [known, text] : header_.metadata)
        if (known == key || header_.metadata.size() > 64) return false;
      header_.metadata.emplace_back(key, value);
    } while (s.take(','));
    return s.take('}');
  }

  static bool scan_entry(PlainScanner& s, RawEntry& out) {
    if (!s.take('{')) return false;
    unsigned seen = 0;  // one bit a field
    do {
      std::string_view field;
      if (!s.text(field) || !s.take(':')) return false;
      const unsigned bit = field == "dtype" ? 1u : field == "shape" ? 2u : field == "data_offsets" ? 4u : 0u;
      if (bit == 0 || (seen & bit) != 0) return false;
      seen |= bit;
      if (bit == 1) {
        if (!s.text(out.dtype)) return false;
      } else if (bit == 2) {
        if (!s.take('[')) return false;
        if (s.take(']')) continue;
        out.shape.reserve(4);
        do {
          uint64_t extent;
          if (!s.integer(extent) || out.shape.size() == kMaxDimensions) return false;
          out.shape.push_back(static_cast<int64_t>(extent));
        } while (s.take(','));
        if (!s.take(']')) return false;
      } else if (!s.take('[') || !s.integer(out.begin) || !s.take(',') || !s.integer(out.end) || !s.take(']')) {
        return false;
      }
    } while (s.take(','));
    return seen == 7 && s.take('}');
  }

  // The same from the parsed document, with a reason for everything that is refused.
  Status walk(const JsonView& root) {
    if (!root.is_object()) return corrupt(file_, fmt::format("a JSON object was expected, {}", found(root)));
    bool metadata_seen = false;
    for (JsonView::Cursor c(root); c.next();) {
      if (c.key() != kMetadataKey) {
        TRY_STATUS(walk_entry(c.key(), c.value()));
        continue;
      }
      if (metadata_seen) return corrupt(file_, "duplicate key \"__metadata__\"");
      metadata_seen = true;
      TRY_STATUS(walk_metadata(c.value()));
    }
    return {};
  }

  Status walk_metadata(const JsonView& value) {
    if (!value.is_object())
      return corrupt(file_, fmt::format("__metadata__: an object of texts was expected, {}", found(value)));
    NameIndex keys;
    for (JsonView::Cursor c(value); c.next();) {
      const auto text = c.value().as_string();
      if (!text)
        return corrupt(
            file_, fmt::format("__metadata__: a text was expected under {}, {}", quoted(c.key()), found(c.value())));
      if (!keys.add(c.key()).is_new)
        return corrupt(file_, fmt::format("__metadata__: duplicate key {}", quoted(c.key())));
      header_.metadata.emplace_back(c.key(), *text);
    }
    return {};
  }

  Status walk_entry(std::string_view name, const JsonView& value) {
    if (!value.is_object()) return corrupt_tensor(file_, name, fmt::format("an object was expected, {}", found(value)));
    JsonView dtype, shape, offsets;
    for (JsonView::Cursor c(value); c.next();) {
      JsonView* field = c.key() == "dtype"          ? &dtype
                        : c.key() == "shape"        ? &shape
                        : c.key() == "data_offsets" ? &offsets
                                                    : nullptr;
      if (field == nullptr) continue;
      if (field->valid()) return corrupt_tensor(file_, name, fmt::format("duplicate field \"{}\"", c.key()));
      *field = c.value();
    }
    const auto missing = [&](const char* field) {
      return corrupt_tensor(file_, name, fmt::format("its \"{}\" is missing", field));
    };
    if (!dtype.valid()) return missing("dtype");
    if (!shape.valid()) return missing("shape");
    if (!offsets.valid()) return missing("data_offsets");

    RawEntry out;
    out.name = name;
    const auto type = dtype.as_string();
    if (!type) return corrupt_tensor(file_, name, fmt::format("dtype: a text was expected, {}", found(dtype)));
    out.dtype = *type;
    if (!shape.is_array())
      return corrupt_tensor(file_, name, fmt::format("shape: a list was expected, {}", found(shape)));
    for (JsonView::Cursor c(shape); c.next();) {
      const auto extent = c.value().as_int64();
      if (!extent || *extent < 0)
        return corrupt_tensor(file_, name,
                              fmt::format("shape: extents of 0 to 2^63-1 were expected, {}", found(c.value())));
      if (out.shape.size() == kMaxDimensions)
        return corrupt_tensor(file_, name, fmt::format("shape: more than {} dimensions", kMaxDimensions));
      out.shape.push_back(*extent);
    }
    uint64_t range[2];
    size_t n = 0;
    bool good = offsets.is_array();
    for (JsonView::Cursor c(offsets); good && c.next(); ++n) {
      const auto v = c.value().as_uint64();
      good = n < 2 && v;
      if (good) range[n] = *v;
    }
    if (!good || n != 2)
      return corrupt_tensor(file_, name,
                            fmt::format("data_offsets: two numbers [begin, end] were expected, {}", found(offsets)));
    out.begin = range[0];
    out.end = range[1];
    raw_.push_back(std::move(out));
    return {};
  }

  // What both ways have in common: every rule between name, type, shape and range.
  Result<SafetensorsHeader> check() {
    header_.data_offset = data_offset_;
    header_.tensors.reserve(raw_.size());
    NameIndex names;
    names.reserve(raw_.size());
    for (RawEntry& raw : raw_) {
      if (!names.add(raw.name).is_new) return corrupt(file_, fmt::format("duplicate tensor name {}", quoted(raw.name)));
      TRY_STATUS(entry(raw));
    }
    TRY_STATUS(coverage());
    return std::move(header_);
  }

  Status entry(RawEntry& raw) {
    if (raw.name.empty()) return corrupt(file_, "a tensor has an empty name");
    if (raw.name.find('\0') != std::string_view::npos)
      return corrupt_tensor(file_, raw.name, "its name holds a NUL character");
    TensorEntry out;
    out.name = raw.name;
    out.shape = std::move(raw.shape);
    TRY_STATUS(set_dtype(raw.dtype, out));
    TRY_STATUS(set_size(out));
    TRY_STATUS(set_range(raw.begin, raw.end, out));
    header_.tensors.push_back(std::move(out));
    return {};
  }

  Status set_dtype(std::string_view text, TensorEntry& out) const {
    // Nearly every tensor has its predecessor's type.
    if (!header_.tensors.empty() && dtype_info(header_.tensors.back().dtype).safetensors == text) {
      out.dtype = header_.tensors.back().dtype;
      return {};
    }
    const auto known = dtype_from_safetensors(text);
    if (!known) {
      std::string list;
      for (const DTypeInfo& t : all_dtypes())
        if (!t.safetensors.empty()) list += (list.empty() ? "" : ", ") + std::string(t.safetensors);
      return Error(ErrorCode::kUnsupported,
                   fmt::format("reading the header of {}: tensor {}: dtype {} is not known; known are {}",
                               quoted(file_, 400), quoted(out.name), quoted(text), list));
    }
    out.dtype = *known;
    return {};
  }

  Status set_size(TensorEntry& out) const {
    const auto elements = element_count(out.shape);
    if (!elements)
      return corrupt_tensor(file_, out.name,
                            fmt::format("the product of shape {} does not fit 64 bits", shape_text(out.shape)));
    const auto bytes = dtype_bytes(out.dtype, *elements);
    if (!bytes) {
      const DTypeInfo& t = dtype_info(out.dtype);
      if (*elements % t.block_elements != 0)
        return corrupt_tensor(file_, out.name,
                              fmt::format("{} {} is no whole number of bytes", t.safetensors, shape_text(out.shape)));
      return corrupt_tensor(
          file_, out.name,
          fmt::format("the size of {} {} in bytes does not fit 64 bits", t.safetensors, shape_text(out.shape)));
    }
    out.size_bytes = *bytes;
    return {};
  }

  Status set_range(uint64_t begin, uint64_t end, TensorEntry& out) const {
    if (begin > end)
      return corrupt_tensor(file_, out.name, fmt::format("data_offsets [{}, {}] end before they begin", begin, end));
    if (end > data_bytes_)
      return corrupt_tensor(
          file_, out.name,
          fmt::format("data_offsets [{}, {}] reach past the {} bytes of data in the file", begin, end, data_bytes_));
    if (end - begin != out.size_bytes)
      return corrupt_tensor(file_, out.name,
                            fmt::format("data_offsets [{}, {}] hold {} bytes; {} {} needs {}", begin, end, end - begin,
                                        dtype_info(out.dtype).safetensors, shape_text(out.shape), out.size_bytes));
    out.offset = data_offset_ + begin;
    return {};
  }

  // Every data byte belongs to exactly one tensor.
  Status coverage() {
    const auto before = [](const TensorEntry& a, const TensorEntry& b) {
      if (a.offset != b.offset) return a.offset < b.offset;
      if (a.size_bytes != b.size_bytes) return a.size_bytes < b.size_bytes;
      return a.name < b.name;
    };
    std::vector<TensorEntry>& tensors = header_.tensors;
    if (!std::is_sorted(tensors.begin(), tensors.end(), before)) std::sort(tensors.begin(), tensors.end(), before);
    uint64_t at = data_offset_;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorEntry& t = tensors[i];
      if (t.offset < at)
        return corrupt_tensor(file_, t.name,
                              fmt::format("its bytes from {} on overlap those of tensor {}", t.offset - data_offset_,
                                          quoted(tensors[i - 1].name)));
      if (t.offset > at)
        return corrupt_tensor(file_, t.name,
                              fmt::format("{} bytes before it, at data offset {}, belong to no tensor", t.offset - at,
                                          at - data_offset_));
      at += t.size_bytes;
    }
    const uint64_t used = at - data_offset_;
    if (used != data_bytes_)
      return corrupt(file_, fmt::format("{} bytes after the last tensor, at data offset {}, belong to no tensor",
                                        data_bytes_ - used, used));
    return {};
  }

  std::string_view file_;
  uint64_t data_bytes_, data_offset_;
  bool saw_metadata_ = false;
  std::vector<RawEntry> raw_;  // views into the header's text or the parsed document
  SafetensorsHeader header_;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                                   std::string_view file_name, bool quick_scan) {
  if (json.empty() || json.front() != '{')
    return corrupt(file_name,
                   json.empty()
                       ? std::string("the header is empty; a JSON object was expected")
                       : fmt::format("the header is no JSON object: its first byte is {:#04x}, '{{' was expected",
                                     static_cast<unsigned char>(json.front())));
  return HeaderParser(file_name, data_bytes, json.size() + 8).parse(json, quick_scan);
}

Result<SafetensorsHeader> read_safetensors_header(const ByteSource& source) {
  TRY(const uint64_t length, length_field(source));
  std::string text(length, '\0');  // at most the file's own size, and the limit
  TRY_STATUS(source.read_at(8, std::as_writable_bytes(std::span(text))));
  return parse_safetensors_header(text, source.size_bytes() - 8 - length, source.name());
}

}  // namespace berth::format
