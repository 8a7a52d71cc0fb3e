// tensor/dtype.h — every element type a checkpoint can store, in one table: names, bits, block sizes.
//
// `format` checks bounds with it; decoding lives in `quant`. A type whose elements come in blocks (GGUF) states elements
// and bytes per block. Sub-byte scalar types (F4, F6) have a block of the least whole number of bytes.
//
// Sources: safetensors 0.8 format; ggml type ids and block structs (docs/formats).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace berth {

enum class DType : uint8_t {
  kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF64, kF32, kF16, kBF16,
  kF8E4M3, kF8E5M2, kF8E8M0, kF8E4M3FNUZ, kF8E5M2FNUZ, kF6E2M3, kF6E3M2, kF4, kC64,
  // GGUF blocks
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ8_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kQ8_K,
  kIQ2_XXS, kIQ2_XS, kIQ3_XXS, kIQ1_S, kIQ4_NL, kIQ3_S, kIQ2_S, kIQ4_XS, kIQ1_M, kTQ1_0, kTQ2_0, kMXFP4, kNVFP4,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;         // Berth's: "bf16", "q4_k"
  std::string_view safetensors;  // "BF16"; empty where safetensors has no such type
  std::string_view torch;        // "bfloat16"; empty where torch has none
  int32_t gguf_id;               // ggml type id; -1 where GGUF has none
  uint32_t block_elements;       // elements per block; 1 for scalars of whole bytes
  uint32_t block_bytes;          // bytes per block
};

std::span<const DTypeInfo> all_dtypes();
const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType d) { return dtype_info(d).name; }

std::optional<DType> dtype_from_safetensors(std::string_view name);  // exact case
std::optional<DType> dtype_from_gguf(uint32_t ggml_type_id);
// "bf16", "BF16", "bfloat16", "torch.bfloat16", "float32", "half"...: any case.
std::optional<DType> dtype_from_name(std::string_view name);

bool is_float(DType dtype);  // scalar floating point of any width
inline bool is_block_type(DType dtype) { return dtype >= DType::kQ4_0; }

// Bytes of `elements` elements; nothing on overflow or where they are no whole number of blocks.
std::optional<uint64_t> dtype_bytes(DType dtype, uint64_t elements);

}  // namespace berth
