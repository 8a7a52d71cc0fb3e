// engine/bnb_tensors.cc — see bnb_tensors.h.
#include "berth/engine/bnb_tensors.h"

#include <array>
#include <cstdlib>
#include <memory>

#include "berth/base/strings.h"
#include "berth/quant/quant_state.h"

namespace berth::engine {
namespace {

using quant::Plane;

// Python writes a float in at most this many characters.
constexpr size_t kLongestFloat = 24;

struct FreeAligned {
  void operator()(std::byte* p) const { std::free(p); }
};

// "a.b.weight" -> "a.b"; other names have their state beside them under their own name.
std::string int8_prefix(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

std::span<const std::byte> plane_bytes(const quant::PackedLayout& layout, const std::byte* base, Plane plane) {
  const quant::PlaneLayout& p = layout.plane(plane);
  return {base + p.offset, p.bytes};
}

// The 16 values as files have them: fp4's code 8 is +0 there.
std::array<float, 16> stored_map(quant::Codec codec) {
  std::array<float, 16> map;
  const float* book = quant::codec_info(codec).code_book;
  for (size_t i = 0; i < map.size(); ++i) map[i] = book[i] == 0 ? 0.0f : book[i];
  return map;
}

}  // namespace

Result<OutputGroup> bnb_group(const BnbWeight& w, FillPlanes fill) {
  auto laid_out = quant::packed_layout(w.format, w.rows, w.cols);
  if (!laid_out) return laid_out.error().with_context("quantizing tensor " + quoted(w.name));
  const quant::PackedLayout layout = *std::move(laid_out);
  const bool int8 = w.format.codec == quant::Codec::kInt8Row;
  OutputGroup group;
  const auto add = [&](const std::string& name, DType dtype, Shape shape) {
    group.tensors.push_back({{name, dtype, std::move(shape), 0}, false, 0});
    TensorDesc& desc = group.tensors.back().desc;
    desc.size_bytes = *dtype_bytes(dtype, *element_count(desc.shape));
  };
  const auto n = static_cast<uint64_t>(w.rows) * static_cast<uint64_t>(w.cols);
  const auto count = [&](Plane p) { return static_cast<int64_t>(layout.plane(p).count); };
  quant::QuantState state;
  if (int8) {
    const std::string prefix = int8_prefix(w.name);
    add(w.name, DType::kI8, {w.rows, w.cols});
    add(prefix + ".SCB", DType::kF32, {w.rows});
    add(prefix + ".weight_format", DType::kU8, {});
    group.parameters = n;
  } else {
    TRY(Shape packed, quant::packed_storage_shape(n, w.quant_storage));
    add(w.name, w.quant_storage, std::move(packed));
    add(w.name + ".absmax", w.format.nested ? DType::kU8 : DType::kF32, {count(Plane::kScales)});
    add(w.name + ".quant_map", DType::kF32, {16});
    state = {w.format.codec, w.format.blocksize, w.load_dtype, Shape{w.rows, w.cols}, w.format.nested, 256, 0.0f};
    const auto text = static_cast<int64_t>(quant::quant_state_json(state).size());
    // "0.0" stands in the text so far.
    const int64_t most = w.format.nested ? text + static_cast<int64_t>(kLongestFloat) : text;
    add(w.name + "." + quant::quant_state_key(w.format.codec), DType::kU8, {most});
    group.tensors.back().late = w.format.nested;
    group.tensors.back().typical_bytes = text + 16;
    if (w.format.nested) {
      add(w.name + ".nested_absmax", DType::kF32, {count(Plane::kNestedAbsmax)});
      add(w.name + ".nested_quant_map", DType::kF32, {count(Plane::kNestedMap)});
    }
    group.parameters = n + n % 2;
  }
  group.make = [layout, state, int8, fill = std::move(fill)](TensorSink& sink) -> Status {
    const std::unique_ptr<std::byte, FreeAligned> memory(
        static_cast<std::byte*>(std::aligned_alloc(quant::kPlaneAlignment, layout.total_bytes + quant::kPlaneAlignment)));
    if (memory == nullptr) return Error(ErrorCode::kIo, "no memory for a quantized tensor");
    std::byte* const base = memory.get();
    const quant::MutablePackedMatrix matrix = quant::bind_planes(layout, base);
    TRY_STATUS(fill(matrix));
    TRY_STATUS(sink.write(0, 0, plane_bytes(layout, base, Plane::kCodes)));
    TRY_STATUS(sink.write(1, 0, plane_bytes(layout, base, Plane::kScales)));
    if (int8) {
      const std::byte row_format{0};
      return sink.write(2, 0, {&row_format, 1});
    }
    const auto map = stored_map(state.codec);
    TRY_STATUS(sink.write(2, 0, std::as_bytes(std::span(map))));
    quant::QuantState made = state;
    if (made.nested) made.nested_offset = *matrix.plane<float>(Plane::kNestedOffset);
    std::string text = quant::quant_state_json(made);
    if (!made.nested) return sink.write(3, 0, std::as_bytes(std::span(text)));
    TRY_STATUS(sink.write_late(3, std::move(text)));
    TRY_STATUS(sink.write(4, 0, plane_bytes(layout, base, Plane::kNestedAbsmax)));
    return sink.write(5, 0, plane_bytes(layout, base, Plane::kNestedMap));
  };
  return group;
}

}  // namespace berth::engine
