// quant/codec.h — every number format a weight matrix can be kept and run in: names, block sizes, code books, bytes.
//
// A codec is data (CodecInfo) plus three small functions: which planes a matrix has in memory, how its scales are read,
// how rows of a file become planes. Everything else (sizes, packing, decoding, the reference kernels) is generic over
// that table. To add a codec: one file in codecs/, one line in codec.cc, one value in the enum.
//
// numerics.md 1 and 5 say how the numbers are multiplied; packed.h has the bytes in memory; docs/formats has drawings.
// Formats that can only be read (Q2_K, IQ2_XS...) are no codecs: gguf_blocks.h decodes them.
//
// Start reading at: CodecInfo, then codecs/mxfp4.cc, the shortest one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "berth/base/result.h"
#include "berth/tensor/dtype.h"

namespace berth::quant {

enum class Codec : uint8_t {
  kF32,
  kBF16,
  kF16,
  kInt8Row,   // bitsandbytes LLM.int8: int8 rows, fp32 SCB per row
  kFP8Block,  // e4m3, one fp32 scale per 128 x 128 elements
  kNF4,
  kFP4,  // bitsandbytes 4 bit: StoredFormat says block size and nesting
  kMXFP4,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
};
inline constexpr int kCodecCount = 17;

// A property of the tensor: which codec, and for nf4 and fp4 how it is blocked. Bits of results depend on it.
struct StoredFormat {
  Codec codec = Codec::kF32;
  int32_t blocksize = 0;  // nf4, fp4: 32, 64, ... 4096 elements of the flattened tensor; 0 for every other codec
  bool nested = false;    // nf4, fp4: absmax is itself stored in 8 bits (double quantization)
  bool operator==(const StoredFormat&) const = default;
};

enum class Scaling : uint8_t {
  kNone,   // the code is the value
  kRow,    // one scale per row, applied after the sum
  kBlock,  // one scale (and perhaps minimum) per block of elements within the row (nf4, fp4: of the flattened tensor)
};

// How a stored code q becomes the exact fp32 value c that kernels multiply.
enum class CodeKind : uint8_t {
  kFloat,   // q is the fp32, bf16 or fp16 element itself
  kSigned,  // c = q, an int8
  kE4M3,    // c = the e4m3 value of the byte
  kOffset,  // c = q - code_offset, q unsigned
  kBook,    // c = code_book[q], q in 0..15
};

struct PackedMatrix;
struct MutablePackedMatrix;
struct PlaneCounts;

struct CodecInfo {
  Codec codec;
  std::string_view name;   // "nf4", "q4_k": as options and messages print it
  int32_t word_elements;   // E of numerics.md 1
  int32_t block_elements;  // elements per scale along a row; 0: none, per row, or StoredFormat::blocksize
  int32_t code_bits;       // 4, 5, 6, 8, 16, 32
  Scaling scaling;
  bool has_min;  // values are c*s + m
  CodeKind code_kind;
  int32_t code_offset;      // kOffset
  const float* code_book;   // kBook: 16 fp32 values, else null
  bool int8_mode;           // runs in --numerics int8; otherwise that mode computes it as in exact
  const int8_t* int8_book;  // kBook: the 16 integers of int8 mode, else null (the integer is c)
  float kappa;              // int8 mode: y is multiplied by it at the end; 1 where the integers are c
  DType file_dtype;         // element type of the weight's main tensor in files
  int32_t cols_multiple;    // rows must have a multiple of so many elements

  // Fills the number and type of elements of each plane of a [rows, cols] matrix.
  void (*plane_counts)(const StoredFormat& format, uint64_t rows, uint64_t cols, PlaneCounts& counts);
  // Scales of one row: s (and m where has_min), one per block of the row (packed.h row_blocks). Null for kNone.
  void (*row_scales)(const PackedMatrix& matrix, int64_t row, float* s, float* m);
  // Takes rows of GGUF blocks apart into the planes; null where files keep codes and scales as separate tensors.
  void (*unpack_blocks)(const uint8_t* file_row, int64_t row, const MutablePackedMatrix& matrix);
};

std::span<const CodecInfo* const> all_codecs();
const CodecInfo& codec_info(Codec codec);
inline std::string_view codec_name(Codec codec) { return codec_info(codec).name; }
std::optional<Codec> codec_from_name(std::string_view name);  // exact, lower case

// The format in which a tensor of this element type can be kept as it is; nothing for types that need a conversion,
// a second tensor with scales (I8, F8_E4M3, U8) or cannot run.
std::optional<StoredFormat> format_for_dtype(DType dtype);

inline bool is_bnb_4bit(Codec codec) { return codec == Codec::kNF4 || codec == Codec::kFP4; }
inline StoredFormat stored_format(Codec codec) { return {codec, is_bnb_4bit(codec) ? 64 : 0, false}; }

// "q4_k", "nf4 (block 64)", "nf4 (block 64, nested)".
std::string format_text(const StoredFormat& format);

// kInvalidArgument where blocksize or nested do not fit the codec.
Status validate(const StoredFormat& format);

// Bytes of the weight's tensors in a file, as published: GGUF blocks; packed + absmax + quant_map (+ nested_absmax +
// nested_quant_map), without the quant_state text; int8 + SCB + weight_format; fp8 + weight_scale_inv; mxfp4 blocks and
// scales. Errors: kInvalidArgument (shape does not fit the codec, or too large).
Result<uint64_t> file_bytes(const StoredFormat& format, int64_t rows, int64_t cols);

}  // namespace berth::quant
