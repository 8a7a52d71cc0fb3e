// arch/stored_source.cc — see stored_source.h.
#include "berth/arch/stored_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "berth/base/strings.h"
#include "berth/quant/codec.h"
#include "berth/quant/quant_state.h"

namespace berth::arch {
namespace {

using format::Checkpoint;
using format::TensorEntry;
using quant::Codec;

constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr uint64_t kMaxStateBytes = 1 << 16;

bool is_plain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64;
}

Error wrong_shape(const TensorEntry& entry, const Shape& expected) {
  return Error(ErrorCode::kCorruptData, fmt::format("tensor {} has shape {}, expected {}", quoted(entry.name),
                                                    shape_text(entry.shape), shape_text(expected)));
}

// Every form of a tensor of one row or one element: [n], [1, n]; [1], [].
bool same_shape(const Shape& found, const Shape& expected) {
  if (found == expected) return true;
  return expected == Shape{1} && found.empty();
}

std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// The rows and columns that the engine sees of a file's shape.
void set_extents(const WantedSource& wanted, Source& source) {
  const Shape& s = wanted.shape;
  if (wanted.column) {
    source.rows = static_cast<int64_t>(element_count(s).value_or(0));
    source.cols = 1;
    return;
  }
  if (s.size() <= 1) {
    source.rows = 1;
    source.cols = s.empty() ? 1 : s[0];
    return;
  }
  source.rows = s[s.size() - 2];
  source.cols = s[s.size() - 1];
  if (wanted.transposed) std::swap(source.rows, source.cols);
  if (wanted.slice >= 0) return;
  for (size_t i = 0; i + 2 < s.size(); ++i) source.rows *= s[i];
}

Result<const TensorEntry*> companion(const Checkpoint& checkpoint, const std::string& name, const Shape& shape) {
  const TensorEntry* entry = checkpoint.find(name);
  if (entry == nullptr)
    return Error(ErrorCode::kCorruptData,
                 fmt::format("tensor {} is missing: the weight beside it needs it", quoted(name)));
  if (entry->shape != shape) return wrong_shape(*entry, shape);
  return entry;
}

// --- bitsandbytes

Result<std::string> read_text(const Checkpoint& checkpoint, const TensorEntry& entry) {
  if (entry.size_bytes > kMaxStateBytes)
    return Error(ErrorCode::kCorruptData, fmt::format("tensor {} has {} bytes, a quant_state has at most {}",
                                                      quoted(entry.name), entry.size_bytes, kMaxStateBytes));
  std::string text(entry.size_bytes, '\0');
  TRY_STATUS(checkpoint.read(entry, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::optional<TensorDesc> described(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry* entry = checkpoint.find(name);
  if (entry == nullptr) return std::nullopt;
  return TensorDesc{entry->name, entry->dtype, entry->shape, entry->size_bytes};
}

// The table in the file is the one the codec has: decoding uses that.
Status check_quant_map(const Checkpoint& checkpoint, const std::string& weight, Codec codec) {
  TRY(const TensorEntry* entry, companion(checkpoint, weight + ".quant_map", {16}));
  std::array<float, 16> map{};
  if (entry->dtype != DType::kF32)
    return Error(ErrorCode::kCorruptData, fmt::format("tensor {} must be F32", quoted(entry->name)));
  TRY_STATUS(checkpoint.read(*entry, 0, std::as_writable_bytes(std::span(map))));
  const float* book = quant::codec_info(codec).code_book;
  for (size_t i = 0; i < map.size(); ++i)
    if (map[i] != book[i])
      return Error(ErrorCode::kUnsupported, fmt::format("tensor {}: entry {} is {}, {} has {}", quoted(entry->name), i,
                                                        map[i], quant::codec_name(codec), book[i]));
  return {};
}

Result<Source> bnb4(const Checkpoint& checkpoint, const TensorEntry& entry, const TensorEntry& state_entry,
                    const Shape& shape, Source source) {
  for (const std::string_view type : {"nf4", "fp4"})
    if (const std::string second = entry.name + std::string(kState) + std::string(type);
        second != state_entry.name && checkpoint.find(second) != nullptr)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} has two quant_states, {} and {}: expected one",
                                                        quoted(entry.name), quoted(state_entry.name), quoted(second)));
  TRY(const std::string text, read_text(checkpoint, state_entry));
  TRY(const quant::QuantState state, quant::parse_quant_state(entry.name, text));
  if (state.shape && *state.shape != shape)
    return Error(ErrorCode::kCorruptData,
                 fmt::format("tensor {}: its shape is {}, expected {} from the config", quoted(state_entry.name),
                             shape_text(*state.shape), shape_text(shape)));
  const std::string absmax = entry.name + ".absmax", nested = entry.name + ".nested_absmax",
                    map = entry.name + ".nested_quant_map";
  const quant::Bnb4Tensors tensors{{entry.name, entry.dtype, entry.shape, entry.size_bytes},
                                   described(checkpoint, absmax),
                                   described(checkpoint, entry.name + ".quant_map"),
                                   described(checkpoint, nested),
                                   described(checkpoint, map)};
  TRY_STATUS(quant::check_bnb_4bit_tensors(state, shape[0], shape[1], tensors));
  TRY_STATUS(check_quant_map(checkpoint, entry.name, state.codec));
  source.companions = {absmax};
  if (state.nested) source.companions.insert(source.companions.end(), {nested, map});
  const std::vector<std::string> floats = state.nested ? std::vector{nested, map} : std::vector{absmax};
  source.widens_scales =
      std::ranges::any_of(floats, [&](const std::string& name) { return checkpoint.find(name)->dtype != DType::kF32; });
  source.storage = SourceStorage::kBnb4;
  source.prequantized = state.format();
  source.nested_offset = state.nested_offset;
  source.transposed = false;  // files hold Conv1D weights quantized as [out, in]
  return source;
}

Result<Source> bnb_int8(const Checkpoint& checkpoint, const TensorEntry& entry, const Shape& shape, Source source) {
  const std::string module = module_of(entry.name);
  if (entry.shape != shape) return wrong_shape(entry, shape);
  TRY(const TensorEntry* scb, companion(checkpoint, module + ".SCB", {shape[0]}));
  if (!is_plain(scb->dtype))
    return Error(ErrorCode::kCorruptData, fmt::format("tensor {} is {}, expected f32: one scale per row",
                                                      quoted(scb->name), dtype_name(scb->dtype)));
  if (const TensorEntry* order = checkpoint.find(module + ".weight_format"); order != nullptr) {
    std::byte value{};
    if (order->dtype != DType::kU8 || order->size_bytes != 1)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} must be one byte", quoted(order->name)));
    TRY_STATUS(checkpoint.read(*order, 0, std::span(&value, 1)));
    if (value != std::byte{0})
      return Error(ErrorCode::kUnsupported, fmt::format("tensor {} says layout {}, only 0 (rows) can be read",
                                                        quoted(order->name), static_cast<int>(value)));
  }
  source.widens_scales = scb->dtype != DType::kF32;
  source.storage = SourceStorage::kBnbInt8;
  source.prequantized = quant::StoredFormat{Codec::kInt8Row, 0, false};
  source.companions = {scb->name};
  source.transposed = false;
  return source;
}

// --- others

// What the quantizers of published checkpoints store instead of `weight`: GPTQ and AWQ, compressed-tensors, HQQ,
// quanto, torchao (two versions), AQLM, VPTQ, SpQR.
constexpr std::array<std::string_view, 9> kForeignCodes{"qweight",      "weight_packed", "W_q",
                                                        "weight._data", "_weight_qdata", "weight:qdata",
                                                        "codes",        "indices",       "dense_weights"};
// And beside it.
constexpr std::array<std::string_view, 35> kForeignParts{"weight_scale",
                                                         "weight_scale_2",
                                                         "weight_global_scale",
                                                         "weight_zero_point",
                                                         "qzeros",
                                                         "scales",
                                                         "g_idx",
                                                         "input_scale",
                                                         "weight_shape",
                                                         "input_global_scale",
                                                         "k_scale",
                                                         "v_scale",
                                                         "weight_g_idx",  // GPTQ to modelopt
                                                         "weight_scale_inv",
                                                         "weight_scales",
                                                         "output_scale",
                                                         "weight._scale",
                                                         "weight._shift",  // fp8, EETQ, quanto
                                                         "scale",
                                                         "zero",
                                                         "meta",  // HQQ
                                                         "_weight_scale",
                                                         "_weight_zero_point",
                                                         "weight:scale",
                                                         "weight:zero_point",  // torchao
                                                         "codebooks",
                                                         "centroids.weight",
                                                         "res_centroids.weight",
                                                         "res_indices",
                                                         "perm",
                                                         "weight_bias",  // AQLM, VPTQ
                                                         "row_offsets",
                                                         "col_vals",
                                                         "in_perm",
                                                         "second_order"};  // SpQR

// Every tensor of the module, as bytes to be counted.
Source other(const Checkpoint& checkpoint, const std::string& name, Source source) {
  source.storage = SourceStorage::kOther;
  const std::string prefix = module_of(name) + ".";
  const TensorEntry* main = checkpoint.find(name);
  for (const std::string_view part : kForeignCodes) {
    if (main != nullptr) break;
    main = checkpoint.find(prefix + std::string(part));
  }
  if (main != nullptr) source.other_bytes += main->size_bytes;
  for (const std::string_view part : kForeignParts) {
    const TensorEntry* entry = checkpoint.find(prefix + std::string(part));
    if (entry == nullptr || entry == main) continue;
    source.companions.push_back(entry->name);
    source.other_bytes += entry->size_bytes;
  }
  if (main != nullptr) {
    source.name = main->name;
    source.dtype = main->dtype;
  }
  return source;
}

bool is_fp8_block(const Checkpoint& checkpoint, const TensorEntry& entry) {
  if (entry.dtype != DType::kF8E4M3 || entry.shape.size() != 2) return false;
  const TensorEntry* scale = checkpoint.find(entry.name + "_scale_inv");
  if (scale == nullptr || !is_plain(scale->dtype)) return false;
  // Other blocks, or one scale for the whole tensor, are counted and not run.
  if (scale->shape.empty()) return false;
  const auto& quantization = checkpoint.quantization();
  return !quantization || quantization->block_size.empty() ||
         quantization->block_size == std::vector<int64_t>{128, 128};
}

Result<Source> fp8_block(const Checkpoint& checkpoint, const TensorEntry& entry, Source source) {
  const Shape blocks{ceil_div<int64_t>(entry.shape[0], 128), ceil_div<int64_t>(entry.shape[1], 128)};
  const TensorEntry* scale = checkpoint.find(entry.name + "_scale_inv");
  if (scale->shape != blocks)
    return wrong_shape(*scale, blocks).with_hint("Berth reads fp8 weights with one scale per 128 x 128 block.");
  source.storage = SourceStorage::kFp8Block;
  source.prequantized = quant::StoredFormat{Codec::kFP8Block, 0, false};
  source.companions = {scale->name};
  return source;
}

Result<Source> mxfp4(const Checkpoint& checkpoint, const WantedSource& wanted, const std::string& name, Source source) {
  Shape scales = wanted.shape;
  if (scales.back() % 32 != 0)
    return Error(ErrorCode::kCorruptData, fmt::format("tensor {}: {} columns are no whole number of mxfp4 blocks of 32",
                                                      quoted(name), scales.back()));
  scales.back() /= 32;
  Shape blocks = scales;
  blocks.push_back(16);
  TRY(const TensorEntry* main, companion(checkpoint, name + "_blocks", blocks));
  TRY(const TensorEntry* scale, companion(checkpoint, name + "_scales", scales));
  for (const TensorEntry* entry : {main, scale})
    if (entry->dtype != DType::kU8)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("tensor {} is {}, expected u8", quoted(entry->name), dtype_name(entry->dtype)));
  source.name = main->name;
  source.dtype = main->dtype;
  source.storage = SourceStorage::kMxfp4;
  source.prequantized = quant::StoredFormat{Codec::kMXFP4, 0, false};
  source.companions = {scale->name};
  return source;
}

}  // namespace

bool is_stored(const Checkpoint& checkpoint, const WantedSource& wanted, const std::string& name) {
  if (wanted.mxfp4) return checkpoint.find(name + "_blocks") != nullptr;
  if (checkpoint.find(name) != nullptr) return true;
  if (!name.ends_with(".weight")) return false;
  const std::string prefix = module_of(name) + ".";
  return std::ranges::any_of(
      kForeignCodes, [&](std::string_view part) { return checkpoint.find(prefix + std::string(part)) != nullptr; });
}

Result<Source> describe_source(const Checkpoint& checkpoint, const WantedSource& wanted, const std::string& name) {
  Source source;
  source.name = name;
  source.transposed = wanted.transposed;
  source.slice = wanted.slice;
  set_extents(wanted, source);
  if (wanted.mxfp4) return mxfp4(checkpoint, wanted, name, std::move(source));

  const TensorEntry* entry = checkpoint.find(name);
  if (entry == nullptr) return other(checkpoint, name, std::move(source));
  source.dtype = entry->dtype;
  if (is_plain(entry->dtype)) {
    // A quantizer may keep 16-bit storage for packed bytes.
    for (const std::string_view type : {"nf4", "fp4"})
      if (const TensorEntry* state = checkpoint.find(name + std::string(kState) + std::string(type)); state != nullptr)
        return bnb4(checkpoint, *entry, *state, {source.rows, source.cols}, std::move(source));
    if (!same_shape(entry->shape, wanted.shape)) return wrong_shape(*entry, wanted.shape);
    return source;
  }
  const Shape out_in{source.rows, source.cols};
  for (const std::string_view type : {"nf4", "fp4"})
    if (const TensorEntry* state = checkpoint.find(name + std::string(kState) + std::string(type)); state != nullptr)
      return bnb4(checkpoint, *entry, *state, out_in, std::move(source));
  if (entry->dtype == DType::kI8 && checkpoint.find(module_of(name) + ".SCB") != nullptr)
    return bnb_int8(checkpoint, *entry, out_in, std::move(source));
  if (is_fp8_block(checkpoint, *entry)) {
    if (entry->shape != wanted.shape) return wrong_shape(*entry, wanted.shape);
    return fp8_block(checkpoint, *entry, std::move(source));
  }
  const auto& quantization = checkpoint.quantization();
  if (entry->dtype == DType::kF8E4M3 && quantization && quantization->method == format::QuantMethod::kFp8 &&
      quantization->block_size == std::vector<int64_t>{128, 128})
    TRY_STATUS(companion(checkpoint, name + "_scale_inv",
                         {ceil_div<int64_t>(source.rows, 128), ceil_div<int64_t>(source.cols, 128)}));
  return other(checkpoint, name, std::move(source));
}

}  // namespace berth::arch
