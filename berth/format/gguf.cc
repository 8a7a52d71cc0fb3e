// format/gguf.cc — one pass over the header through a buffer that grows as it is read, never by a number in the file.
#include "berth/format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "berth/base/strings.h"

namespace berth::format {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMinPairBytes = 8 + 4 + 1, kMinInfoBytes = 8 + 4 + 4 + 8;

Error corrupt(std::string_view file, std::string message) {
  return Error(ErrorCode::kCorruptData,
               fmt::format("reading the header of {}: {}", quoted(file, 400), std::move(message)),
               {"The file is damaged or its download is incomplete: fetch it again."});
}

}  // namespace

class GgufHeaderParser {
 public:
  explicit GgufHeaderParser(const ByteSource& source) : source_(source) {}

  Result<GgufFile> parse() {
    file_.metadata.file_name_ = source_.name();
    TRY_STATUS(fixed_part());
    file_.metadata.pairs_.reserve(std::min<uint64_t>(pairs_, 4096));
    for (uint64_t i = 0; i < pairs_; ++i) TRY_STATUS(pair());
    pairs_end_ = position_;
    file_.tensors.reserve(std::min<uint64_t>(tensors_, 1u << 17));
    for (uint64_t i = 0; i < tensors_; ++i) TRY_STATUS(info());
    TRY_STATUS(index_keys());
    TRY_STATUS(alignment());
    TRY_STATUS(place_tensors());
    return finish();
  }

 private:
  struct Text {
    uint32_t offset = 0, size = 0;
  };
  std::string_view view(Text t) const { return {buffer_.data() + t.offset, t.size}; }

  // Messages name the key or tensor that is being read.
  Error fail(std::string message) const {
    if (current_.size > 0) message = fmt::format("{} {}: {}", current_kind_, quoted(view(current_)), message);
    return corrupt(source_.name(), std::move(message));
  }

  // Makes bytes [position_, position_ + n) available.
  Status need(uint64_t n, std::string_view what) {
    if (n <= buffer_.size() - position_) return {};
    const uint64_t left = source_.size_bytes() - position_;
    if (n > left)
      return fail(fmt::format("{} at byte {} needs {} bytes; the file has {} more", what, position_, n, left));
    const uint64_t end = position_ + n;
    if (end > kMaxGgufHeaderBytes) return fail(fmt::format("the header has more than {} bytes", kMaxGgufHeaderBytes));
    const uint64_t target = std::min(source_.size_bytes(), std::max<uint64_t>({end, buffer_.size() * 2, 256 << 10}));
    const uint64_t had = buffer_.size();
    buffer_.resize(target);
    return source_.read_at(had, std::as_writable_bytes(std::span(buffer_)).subspan(had));
  }

  template <typename T>
  Result<T> number(std::string_view what) {
    TRY_STATUS(need(sizeof(T), what));
    const T value = load_le<T>(buffer_.data() + position_);
    position_ += sizeof(T);
    return value;
  }

  // A string's place; position_ ends behind it.
  Result<Text> text(std::string_view what, uint64_t limit) {
    TRY(const uint64_t length, number<uint64_t>(what));
    const uint64_t left = source_.size_bytes() - position_;
    if (length > left)
      return fail(fmt::format("{} at byte {} is said to have {} bytes; the file has {} more", what, position_ - 8,
                              length, left));
    if (length > limit)
      return fail(
          fmt::format("{} at byte {} has {} bytes; at most {} are allowed", what, position_ - 8, length, limit));
    TRY_STATUS(need(length, what));
    const Text out{static_cast<uint32_t>(position_), static_cast<uint32_t>(length)};
    position_ += length;
    return out;
  }

  Status fixed_part() {
    TRY(const uint32_t magic, number<uint32_t>("the magic"));
    if (magic != kMagic) {
      if (magic == __builtin_bswap32(kMagic)) return fail("the magic is byte-swapped: a big-endian file?");
      return fail(fmt::format("the file begins with {}; \"GGUF\" was expected", quoted({buffer_.data(), 4})));
    }
    TRY(file_.version, number<uint32_t>("the version"));
    if (file_.version != 2 && file_.version != 3) {
      const uint32_t swapped = __builtin_bswap32(file_.version);
      return Error(
          ErrorCode::kUnsupported,
          fmt::format(
              "reading the header of {}: GGUF version {} is not supported; versions 2 and 3 are{}",
              quoted(source_.name(), 400), file_.version,
              swapped >= 1 && swapped <= 3 ? fmt::format(" (byte-swapped it is {}: a big-endian file)", swapped) : ""),
          {"Convert the model again with a current converter."});
    }
    TRY(tensors_, number<uint64_t>("the tensor count"));
    TRY(pairs_, number<uint64_t>("the metadata count"));
    const uint64_t left = source_.size_bytes() - position_;
    if (pairs_ > left / kMinPairBytes)
      return fail(fmt::format("{} metadata pairs do not fit the {} bytes that follow", pairs_, left));
    if (tensors_ > (left - pairs_ * kMinPairBytes) / kMinInfoBytes)
      return fail(fmt::format("{} tensors do not fit the {} bytes that follow", tensors_, left));
    return {};
  }

  Result<GgufType> type(std::string_view what) {
    TRY(const uint32_t raw, number<uint32_t>(what));
    if (raw >= kGgufTypes) return fail(fmt::format("{} {} is not known; 0 to {} are", what, raw, kGgufTypes - 1));
    return static_cast<GgufType>(raw);
  }

  Status pair() {
    TRY(const Text name, text("a metadata key", kMaxGgufKeyBytes));
    if (name.size == 0) return fail(fmt::format("an empty metadata key at byte {}", name.offset));
    current_kind_ = "key";
    current_ = name;
    if (!is_valid_utf8(view(name)) || view(name).find('\0') != std::string_view::npos)
      return fail("the key is not valid UTF-8 without NUL");
    GgufMetadata::Pair out{name.offset, name.size, {}, {}, 0, 0, 0};
    TRY(out.type, type("value type"));
    if (out.type == GgufType::kString) {
      TRY(const Text value, text("the value", kMaxGgufStringBytes));
      out.value_offset = value.offset;
      out.count = value.size;
    } else if (out.type == GgufType::kArray) {
      TRY_STATUS(array(out));
    } else {
      TRY_STATUS(need(gguf_type_bytes(out.type), "the value"));
      out.value_offset = static_cast<uint32_t>(position_);
      out.count = 1;
      TRY_STATUS(check_bools(out.type, 1));
      position_ += gguf_type_bytes(out.type);
    }
    file_.metadata.pairs_.push_back(out);
    current_ = {};
    return {};
  }

  Status array(GgufMetadata::Pair& out) {
    TRY(out.element, type("array element type"));
    if (out.element == GgufType::kArray) return fail("arrays of arrays are not supported");
    TRY(out.count, number<uint64_t>("the array's length"));
    const uint64_t least = out.element == GgufType::kString ? 8 : gguf_type_bytes(out.element);
    const uint64_t left = source_.size_bytes() - position_;
    if (out.count > left / least)
      return fail(fmt::format("an array of {} {} does not fit the {} bytes that follow", out.count,
                              gguf_type_name(out.element), left));
    out.value_offset = static_cast<uint32_t>(position_);
    if (out.element != GgufType::kString) {
      TRY_STATUS(need(out.count * least, "the array"));
      TRY_STATUS(check_bools(out.element, out.count));
      position_ += out.count * least;
      return {};
    }
    out.first_start = static_cast<uint32_t>(file_.metadata.starts_.size());
    for (uint64_t i = 0; i < out.count; ++i) {
      TRY(const Text element, text("an element", kMaxGgufStringBytes));
      file_.metadata.starts_.push_back(element.offset - 8);
    }
    return {};
  }

  Status check_bools(GgufType element, uint64_t count) const {
    if (element != GgufType::kBool) return {};
    for (uint64_t i = 0; i < count; ++i)
      if (const auto b = static_cast<unsigned char>(buffer_[position_ + i]); b > 1)
        return fail(fmt::format("a bool has the value {}; 0 or 1 was expected", b));
    return {};
  }

  // Keys and values are views into the buffer: it moves into the metadata now that it does not grow any more.
  Status index_keys() {
    GgufMetadata& m = file_.metadata;
    buffer_.resize(pairs_end_);
    m.block_ = std::move(buffer_);
    buffer_.clear();
    m.index_.reserve(m.pairs_.size());
    for (size_t i = 0; i < m.pairs_.size(); ++i)
      if (!m.index_.add(m.key(i)).is_new) return fail(fmt::format("duplicate metadata key {}", quoted(m.key(i))));
    return {};
  }

  Status alignment() {
    TRY(const auto value, file_.metadata.find_int("general.alignment"));
    if (!value) return {};
    if (*value <= 0 || *value > (1 << 30) || !std::has_single_bit(static_cast<uint64_t>(*value)))
      return file_.metadata.wrong("general.alignment", "a power of two of 1 to 1073741824");
    file_.alignment = static_cast<uint64_t>(*value);
    return {};
  }

  Status info() {
    TRY(const Text name, text("a tensor name", kMaxGgufKeyBytes));
    if (name.size == 0) return fail(fmt::format("an empty tensor name at byte {}", name.offset));
    current_kind_ = "tensor";
    current_ = name;
    TensorEntry t;
    t.name = view(name);
    if (!is_valid_utf8(t.name) || t.name.find('\0') != std::string::npos)
      return fail("its name is not valid UTF-8 without NUL");
    TRY(const uint32_t dimensions, number<uint32_t>("its dimensions"));
    if (dimensions < 1 || dimensions > 4) return fail(fmt::format("{} dimensions; 1 to 4 were expected", dimensions));
    t.shape.resize(dimensions);
    for (uint32_t i = 0; i < dimensions; ++i) {
      TRY(const uint64_t extent, number<uint64_t>("its extents"));
      if (extent == 0 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return fail(fmt::format("dimension {} has the extent {}; 1 to 2^63-1 was expected", i, extent));
      t.shape[dimensions - 1 - i] = static_cast<int64_t>(extent);
    }
    TRY(const uint32_t ggml_type, number<uint32_t>("its type"));
    const auto dtype = dtype_from_gguf(ggml_type);
    if (!dtype)
      return Error(ErrorCode::kUnsupported,
                   fmt::format("reading the header of {}: tensor {}: type {} is unknown or retired",
                               quoted(source_.name(), 400), quoted(t.name), ggml_type));
    t.dtype = *dtype;
    const DTypeInfo& type_info = dtype_info(*dtype);
    if (static_cast<uint64_t>(t.shape.back()) % type_info.block_elements != 0)
      return fail(fmt::format("rows of {} elements are no whole number of {} blocks of {}", t.shape.back(),
                              type_info.name, type_info.block_elements));
    const auto elements = element_count(t.shape);
    const auto bytes = elements ? dtype_bytes(*dtype, *elements) : std::nullopt;
    if (!bytes) return fail(fmt::format("the size of {} {} does not fit 64 bits", type_info.name, shape_text(t.shape)));
    t.size_bytes = *bytes;
    TRY(t.offset, number<uint64_t>("its offset"));
    file_.tensors.push_back(std::move(t));
    current_ = {};
    return {};
  }

  // Makes offsets absolute after checking that the tensors tile the data section.
  Status place_tensors() {
    NameIndex names;
    names.reserve(file_.tensors.size());
    for (const TensorEntry& t : file_.tensors)
      if (!names.add(t.name).is_new) return fail(fmt::format("duplicate tensor name {}", quoted(t.name)));
    const uint64_t size = source_.size_bytes();
    file_.data_offset = align_up(position_, file_.alignment);
    const uint64_t data = file_.data_offset <= size ? size - file_.data_offset : 0;
    for (const TensorEntry& t : file_.tensors) {
      if (t.offset % file_.alignment != 0)
        return fail(fmt::format("tensor {}: its offset {} is no multiple of the alignment {}", quoted(t.name), t.offset,
                                file_.alignment));
      if (t.offset > data || t.size_bytes > data - t.offset)
        return fail(fmt::format("tensor {}: {} bytes at data offset {} reach past the {} bytes of data in the file",
                                quoted(t.name), t.size_bytes, t.offset, data));
    }
    const auto before = [](const TensorEntry& a, const TensorEntry& b) { return a.offset < b.offset; };
    if (!std::is_sorted(file_.tensors.begin(), file_.tensors.end(), before))
      std::stable_sort(file_.tensors.begin(), file_.tensors.end(), before);
    uint64_t end = 0;
    for (size_t i = 0; i < file_.tensors.size(); ++i) {
      TensorEntry& t = file_.tensors[i];
      if (t.offset < end)
        return fail(fmt::format("tensor {}: its bytes from {} on overlap those of tensor {}", quoted(t.name), t.offset,
                                quoted(file_.tensors[i - 1].name)));
      const uint64_t expected = align_up(end, file_.alignment);
      if (t.offset != expected)
        return fail(fmt::format("tensor {}: {} bytes before it, at data offset {}, belong to no tensor", quoted(t.name),
                                t.offset - expected, expected));
      end = t.offset + t.size_bytes;
      t.offset += file_.data_offset;
    }
    const uint64_t used = std::min(align_up(end, file_.alignment), data);
    if (data > used)
      file_.warnings.push_back(fmt::format("{}: {} bytes after the last tensor belong to no tensor and are ignored",
                                           quoted(source_.name(), 400), data - used));
    return {};
  }

  Result<GgufFile> finish() {
    TRY(const auto architecture, file_.metadata.find_string("general.architecture"));
    if (architecture) {
      if (architecture->empty()) return file_.metadata.wrong("general.architecture", "the name of an architecture");
      file_.metadata.architecture_ = *architecture;
    }
    return std::move(file_);
  }

  const ByteSource& source_;
  GgufFile file_;
  std::vector<char> buffer_;  // the file from its beginning, as far as it was needed
  uint64_t position_ = 0, pairs_end_ = 0;
  uint64_t tensors_ = 0, pairs_ = 0;
  std::string_view current_kind_;  // "key" or "tensor"
  Text current_;                   // its name, while it is read
};

Result<GgufFile> read_gguf(const ByteSource& source) { return GgufHeaderParser(source).parse(); }

}  // namespace berth::format
