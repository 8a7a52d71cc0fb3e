// tensor/dtype.cc — the table.
#include "berth/tensor/dtype.h"

#include <string>

#include "berth/base/bytes.h"
#include "berth/base/check.h"

namespace berth {
namespace {

constexpr DTypeInfo kTable[] = {
    {DType::kBool, "bool", "BOOL", "bool", -1, 1, 1},
    {DType::kU8, "u8", "U8", "uint8", -1, 1, 1},
    {DType::kI8, "i8", "I8", "int8", 24, 1, 1},
    {DType::kU16, "u16", "U16", "uint16", -1, 1, 2},
    {DType::kI16, "i16", "I16", "int16", 25, 1, 2},
    {DType::kU32, "u32", "U32", "uint32", -1, 1, 4},
    {DType::kI32, "i32", "I32", "int32", 26, 1, 4},
    {DType::kU64, "u64", "U64", "uint64", -1, 1, 8},
    {DType::kI64, "i64", "I64", "int64", 27, 1, 8},
    {DType::kF64, "f64", "F64", "float64", 28, 1, 8},
    {DType::kF32, "f32", "F32", "float32", 0, 1, 4},
    {DType::kF16, "f16", "F16", "float16", 1, 1, 2},
    {DType::kBF16, "bf16", "BF16", "bfloat16", 30, 1, 2},
    {DType::kF8E4M3, "f8_e4m3", "F8_E4M3", "float8_e4m3fn", -1, 1, 1},
    {DType::kF8E5M2, "f8_e5m2", "F8_E5M2", "float8_e5m2", -1, 1, 1},
    {DType::kF8E8M0, "f8_e8m0", "F8_E8M0", "float8_e8m0fnu", -1, 1, 1},
    {DType::kF8E4M3FNUZ, "f8_e4m3fnuz", "F8_E4M3FNUZ", "float8_e4m3fnuz", -1, 1, 1},
    {DType::kF8E5M2FNUZ, "f8_e5m2fnuz", "F8_E5M2FNUZ", "float8_e5m2fnuz", -1, 1, 1},
    {DType::kF6E2M3, "f6_e2m3", "F6_E2M3", "", -1, 4, 3},
    {DType::kF6E3M2, "f6_e3m2", "F6_E3M2", "", -1, 4, 3},
    {DType::kF4, "f4", "F4", "float4_e2m1fn_x2", -1, 2, 1},
    {DType::kC64, "c64", "C64", "complex64", -1, 1, 8},
    {DType::kQ4_0, "q4_0", "", "", 2, 32, 18},
    {DType::kQ4_1, "q4_1", "", "", 3, 32, 20},
    {DType::kQ5_0, "q5_0", "", "", 6, 32, 22},
    {DType::kQ5_1, "q5_1", "", "", 7, 32, 24},
    {DType::kQ8_0, "q8_0", "", "", 8, 32, 34},
    {DType::kQ8_1, "q8_1", "", "", 9, 32, 36},
    {DType::kQ2_K, "q2_k", "", "", 10, 256, 84},
    {DType::kQ3_K, "q3_k", "", "", 11, 256, 110},
    {DType::kQ4_K, "q4_k", "", "", 12, 256, 144},
    {DType::kQ5_K, "q5_k", "", "", 13, 256, 176},
    {DType::kQ6_K, "q6_k", "", "", 14, 256, 210},
    {DType::kQ8_K, "q8_k", "", "", 15, 256, 292},
    {DType::kIQ2_XXS, "iq2_xxs", "", "", 16, 256, 66},
    {DType::kIQ2_XS, "iq2_xs", "", "", 17, 256, 74},
    {DType::kIQ3_XXS, "iq3_xxs", "", "", 18, 256, 98},
    {DType::kIQ1_S, "iq1_s", "", "", 19, 256, 50},
    {DType::kIQ4_NL, "iq4_nl", "", "", 20, 32, 18},
    {DType::kIQ3_S, "iq3_s", "", "", 21, 256, 110},
    {DType::kIQ2_S, "iq2_s", "", "", 22, 256, 82},
    {DType::kIQ4_XS, "iq4_xs", "", "", 23, 256, 136},
    {DType::kIQ1_M, "iq1_m", "", "", 29, 256, 56},
    {DType::kTQ1_0, "tq1_0", "", "", 34, 256, 54},
    {DType::kTQ2_0, "tq2_0", "", "", 35, 256, 66},
    {DType::kMXFP4, "mxfp4", "", "", 39, 32, 17},
    {DType::kNVFP4, "nvfp4", "", "", 40, 64, 36},
};

}  // namespace

std::span<const DTypeInfo> all_dtypes() { return kTable; }

const DTypeInfo& dtype_info(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  CHECK(i < std::size(kTable) && kTable[i].dtype == dtype);
  return kTable[i];
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const DTypeInfo& t : kTable)
    if (!t.safetensors.empty() && t.safetensors == name) return t.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_gguf(uint32_t ggml_type_id) {
  for (const DTypeInfo& t : kTable)
    if (t.gguf_id >= 0 && static_cast<uint32_t>(t.gguf_id) == ggml_type_id) return t.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  std::string low(name);
  for (char& c : low)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  if (low.starts_with("torch.")) low.erase(0, 6);
  if (low == "half") return DType::kF16;
  if (low == "float") return DType::kF32;
  if (low == "double") return DType::kF64;
  for (const DTypeInfo& t : kTable)
    if (t.name == low || (!t.torch.empty() && t.torch == low)) return t.dtype;
  if (low == "f8_e4m3fn") return DType::kF8E4M3;
  return std::nullopt;
}

bool is_float(DType d) {
  switch (d) {
    case DType::kF64: case DType::kF32: case DType::kF16: case DType::kBF16:
    case DType::kF8E4M3: case DType::kF8E5M2: case DType::kF8E8M0: case DType::kF8E4M3FNUZ: case DType::kF8E5M2FNUZ:
    case DType::kF6E2M3: case DType::kF6E3M2: case DType::kF4:
      return true;
    default:
      return false;
  }
}

std::optional<uint64_t> dtype_bytes(DType dtype, uint64_t elements) {
  const DTypeInfo& t = dtype_info(dtype);
  if (elements % t.block_elements != 0) return std::nullopt;
  return checked_mul<uint64_t>(elements / t.block_elements, t.block_bytes);
}

}  // namespace berth
