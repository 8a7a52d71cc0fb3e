// quant/quant_state.cc
#include "berth/quant/quant_state.h"

#include <charconv>
#include <cmath>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/quant/bnb_8bit_blocks.h"

namespace berth::quant {
namespace {

constexpr int64_t kLargestExtent = int64_t{1} << 40;

bool is_scale_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

// The blob's members while they are read; every accessor says what was expected.
class Blob {
 public:
  Blob(std::string_view weight, JsonView root) : weight_(weight), root_(root) {}

  Error wrong(std::string_view key, const std::string& expected) const {
    const JsonView v = root_[key];
    std::string found = !v.valid() ? "nothing" : std::string(json_type_name(v.type()));
    if (const auto text = v.as_string()) found = quoted(*text);
    if (const auto number = v.as_int64()) found = std::to_string(*number);
    return Error(ErrorCode::kCorruptData, "reading the quant_state of " + quoted(weight_) + ": expected " +
                                              std::string(key) + " to be " + expected + ", found " + found);
  }
  Result<std::string_view> text(std::string_view key) const {
    const auto v = root_[key].as_string();
    if (!v) return wrong(key, "a string");
    return *v;
  }
  Result<int32_t> block(std::string_view key) const {
    const auto v = root_[key].as_int64();
    if (!v || *v < 1 || *v > (1 << 30)) return wrong(key, "a block size");
    return static_cast<int32_t>(*v);
  }

 private:
  std::string_view weight_;
  JsonView root_;
};

Result<std::optional<Shape>> parse_shape(const Blob& blob, JsonView view) {
  if (!view.valid() || view.is_null()) return std::optional<Shape>();
  if (!view.is_array()) return blob.wrong("shape", "a list of extents or null");
  Shape shape;
  bool valid = view.size() <= 8;
  view.for_each_element([&](JsonView extent) {
    const auto n = extent.as_int64();
    valid = valid && n && *n >= 0 && *n <= kLargestExtent;
    if (valid) shape.push_back(*n);
    return valid;
  });
  if (!valid || !element_count(shape)) return blob.wrong("shape", "a list of at most 8 extents from 0 to 2^40");
  return std::optional<Shape>(std::move(shape));
}

}  // namespace

Result<QuantState> parse_quant_state(std::string_view weight, std::string_view text) {
  const std::string doing = "reading the quant_state of " + quoted(weight);
  auto document = JsonDocument::parse(text, {.max_bytes = 1 << 20});
  if (!document) {
    Error error = std::move(document).error().with_context(doing);
    if (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos) {
      error.message += " (bitsandbytes writes NaN or Infinity where the weight had such values; it cannot be used)";
    }
    return error;
  }
  const JsonView root = document->root();
  if (!root.is_object()) {
    return Error(ErrorCode::kCorruptData,
                 doing + ": expected a JSON object, found " + std::string(json_type_name(root.type())));
  }
  const Blob blob(weight, root);
  QuantState state;

  TRY(const std::string_view type, blob.text("quant_type"));
  const auto codec = codec_from_name(type);
  if (!codec || !is_bnb_4bit(*codec)) {
    Error error = blob.wrong("quant_type", "\"nf4\" or \"fp4\"");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  state.codec = *codec;
  TRY(state.blocksize, blob.block("blocksize"));
  if (const Status valid = validate({state.codec, state.blocksize, false}); !valid) {
    return Error(ErrorCode::kCorruptData, doing + ": " + valid.error().message);
  }
  TRY(const std::string_view dtype_text, blob.text("dtype"));
  const auto dtype = dtype_from_name(dtype_text);
  if (!dtype || !is_scale_float(*dtype)) return blob.wrong("dtype", "\"float32\", \"float16\" or \"bfloat16\"");
  state.dtype = *dtype;
  TRY(state.shape, parse_shape(blob, root["shape"]));

  state.nested = root["nested_offset"].valid() || root["nested_blocksize"].valid();
  if (!state.nested) return state;
  TRY(state.nested_blocksize, blob.block("nested_blocksize"));
  if (state.nested_blocksize != kNestedBlock) {
    Error error = blob.wrong("nested_blocksize", "256");
    error.code = ErrorCode::kUnsupported;
    return error;
  }
  const auto offset = root["nested_offset"].as_double();
  state.nested_offset = offset ? static_cast<float>(*offset) : NAN;
  if (!std::isfinite(state.nested_offset)) return blob.wrong("nested_offset", "a finite fp32 number");
  return state;
}

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char buffer[64];
  // The shortest digits that read back, as d.ddde±XX.
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);

  std::string out = negative ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

std::string quant_state_json(const QuantState& state) {
  std::string text = "{\"quant_type\": \"" + std::string(codec_name(state.codec)) +
                     "\", \"blocksize\": " + std::to_string(state.blocksize) + ", \"dtype\": \"" +
                     std::string(dtype_info(state.dtype).torch) +
                     "\", \"shape\": " + (state.shape ? shape_text(*state.shape) : "null");
  if (state.nested) {
    text +=
        ", \"nested_blocksize\": " + std::to_string(state.nested_blocksize) +
        ", \"nested_dtype\": \"float32\", \"nested_offset\": " + python_float(static_cast<double>(state.nested_offset));
  }
  return text + "}";
}

std::string quant_state_key(Codec codec) { return "quant_state.bitsandbytes__" + std::string(codec_name(codec)); }

Result<Shape> packed_storage_shape(uint64_t elements, DType storage) {
  const uint64_t bytes = ceil_div<uint64_t>(elements, 2), item = dtype_info(storage).block_bytes;
  if (is_block_type(storage) || bytes % item != 0) {
    return Error(ErrorCode::kInvalidArgument, "storing 4-bit codes as " + std::string(dtype_name(storage)) +
                                                  ": expected a whole number of elements, found " +
                                                  std::to_string(bytes) + " bytes for " + std::to_string(item) +
                                                  " each");
  }
  return Shape{static_cast<int64_t>(bytes / item), 1};
}

Status check_bnb_4bit_tensors(const QuantState& state, int64_t rows, int64_t cols, const Bnb4Tensors& tensors) {
  if (!(rows >= 0 && cols >= 0 && rows <= kLargestExtent && cols <= kLargestExtent) ||
      !checked_mul(rows, cols).has_value()) {
    return Error(ErrorCode::kCorruptData,
                 "checking " + quoted(tensors.packed.name) + ": " + shape_text({rows, cols}) + " is no possible shape");
  }
  const auto n = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  const std::string base = tensors.packed.name;
  if (state.shape && element_count(*state.shape) != n) {
    return Error(ErrorCode::kCorruptData, "checking the 4-bit weight " + quoted(base) + ": expected a shape of " +
                                              shape_text({rows, cols}) + ", found " + shape_text(*state.shape) +
                                              " in its quant_state");
  }
  const uint64_t packed = ceil_div<uint64_t>(n, 2);
  if (tensors.packed.size_bytes != packed) {
    return Error(ErrorCode::kCorruptData, "checking the 4-bit weight " + quoted(base) + ": expected " +
                                              std::to_string(packed) + " bytes of codes for " +
                                              shape_text({rows, cols}) + ", found " +
                                              std::to_string(tensors.packed.size_bytes));
  }
  const auto check = [&](const std::optional<TensorDesc>& tensor, const std::string& suffix, uint64_t count, bool bytes,
                         bool required) -> Status {
    if (!tensor) {
      if (!required) return {};
      return Error(ErrorCode::kCorruptData, "checking the 4-bit weight " + quoted(base) + ": expected a tensor " +
                                                quoted(base + suffix) + ", found none");
    }
    const bool right_type = bytes ? tensor->dtype == DType::kU8 : is_scale_float(tensor->dtype);
    const auto found = element_count(tensor->shape);
    if (right_type && found && *found == count) return {};
    return Error(ErrorCode::kCorruptData, "checking " + quoted(tensor->name) + ": expected " + std::to_string(count) +
                                              (bytes ? " U8" : " F32") + " elements, found " +
                                              std::string(dtype_info(tensor->dtype).safetensors) + " " +
                                              shape_text(tensor->shape));
  };
  const uint64_t blocks = ceil_div(n, static_cast<uint64_t>(state.blocksize));
  TRY_STATUS(check(tensors.absmax, ".absmax", blocks, state.nested, true));
  TRY_STATUS(check(tensors.quant_map, ".quant_map", 16, false, false));
  if (!state.nested) {
    if (!tensors.nested_absmax) return {};
    return Error(ErrorCode::kCorruptData, "checking the 4-bit weight " + quoted(base) + ": expected no " +
                                              quoted(tensors.nested_absmax->name) +
                                              ", since its quant_state is not nested");
  }
  TRY_STATUS(check(tensors.nested_absmax, ".nested_absmax", ceil_div<uint64_t>(blocks, kNestedBlock), false, true));
  return check(tensors.nested_quant_map, ".nested_quant_map", 256, false, true);
}

}  // namespace berth::quant
