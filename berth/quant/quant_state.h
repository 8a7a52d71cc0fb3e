// quant/quant_state.h — bitsandbytes' quant_state: the JSON blob beside a 4-bit weight, and the sizes it implies.
//
// Tensors of a 4-bit weight P.weight (specs/quantization.md 3.1):
//
//   P.weight                U8 [ceil(n/2), 1] (or the same bytes under quant_storage's dtype)
//   P.weight.absmax         F32 [blocks], nested U8 [blocks]
//   P.weight.quant_map      F32 [16]
//   P.weight.nested_absmax  F32 [ceil(blocks/256)]   nested
//   P.weight.nested_quant_map F32 [256]              nested
//   P.weight.quant_state.bitsandbytes__nf4 | __fp4   U8: the blob
//
// The blob is Python's json.dumps; nested_offset is the shortest text of the fp32 value widened to double.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "berth/base/result.h"
#include "berth/quant/codec.h"
#include "berth/tensor/shape.h"

namespace berth::quant {

struct QuantState {
  Codec codec = Codec::kNF4;  // quant_type
  int32_t blocksize = 64;
  DType dtype = DType::kBF16;  // of the tensor that was quantized
  std::optional<Shape> shape;  // original; null in some files
  bool nested = false;
  int32_t nested_blocksize = 256;
  float nested_offset = 0;

  StoredFormat format() const { return {codec, blocksize, nested}; }
};

// Reads the blob of the weight called `weight` (for messages). Errors: kCorruptData (not JSON, fields missing or of the
// wrong kind, a non-finite offset), kUnsupported (nested_blocksize other than 256, an unknown quant_type).
Result<QuantState> parse_quant_state(std::string_view weight, std::string_view blob);

// The blob, byte for byte as bitsandbytes writes it.
std::string quant_state_json(const QuantState& state);

// The last part of the blob's key: "quant_state.bitsandbytes__nf4".
std::string quant_state_key(Codec codec);

// The shape of the packed tensor when its bytes are stored under `storage` (bnb_4bit_quant_storage): [ceil(n/2) / item
// size, 1]. Errors: kInvalidArgument where the bytes are no whole number of items, which bitsandbytes refuses too.
Result<Shape> packed_storage_shape(uint64_t elements, DType storage);

// Python's repr of a float: "0.04993503540754318", "1e-05", "2.0", "nan" as JSON has it ("NaN", "Infinity").
std::string python_float(double value);

// What a file has for one weight; an absent tensor is nullopt.
struct Bnb4Tensors {
  TensorDesc packed;
  std::optional<TensorDesc> absmax, quant_map, nested_absmax, nested_quant_map;
};

// Checks that the tensors have the sizes and types that `state` and the [rows, cols] shape imply. Types may be wider or
// narrower floats than bitsandbytes writes. Errors: kCorruptData naming tensor, expected and found.
Status check_bnb_4bit_tensors(const QuantState& state, int64_t rows, int64_t cols, const Bnb4Tensors& tensors);

}  // namespace berth::quant
