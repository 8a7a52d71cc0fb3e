// quant/encode.h — quantize on load: a stream of elements into the planes of a matrix, chunk by chunk, in bounded
// memory.
//
//   TRY(auto encoder, MatrixEncoder::create(matrix, {.load_dtype = DType::kBF16}));
//   while (more) TRY_STATUS(encoder.append(DType::kBF16, chunk));   // elements in row-major order, any chunking
//   TRY_STATUS(encoder.finish());
//
// Elements are widened to fp32, rounded through the load dtype, then encoded by the target's codec: nf4, fp4, int8
// (through fp16), or rounded to f32, bf16, f16. Bytes equal what bitsandbytes writes for the whole tensor, however it
// is cut. Beyond the target it keeps one row or 4096 elements, and for nested formats an fp32 absmax per block.
//
// The scalar truth; kernel/encode has the fast, parallel one. Not thread-safe (one encoder per matrix).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "berth/base/result.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/int8_row.h"
#include "berth/quant/packed.h"

namespace berth::quant {

struct EncodeOptions {
  DType load_dtype = DType::kF32;  // f32 (no rounding), bf16 or f16: the dtype the model is loaded in
  Bnb4Rules bnb_4bit = kBnbCpuRules;
  Int8Scale int8_scale = Int8Scale::kCpu;
};

// Whether weights can be quantized into `codec` on load.
bool can_encode(Codec codec);

// Host bytes an encoder for this matrix keeps while it runs, at most.
uint64_t encoder_scratch_bytes(const StoredFormat& format, int64_t rows, int64_t cols);

class MatrixEncoder {
 public:
  // `target`'s planes must outlive the encoder. Errors: kUnsupported (codec), kInvalidArgument (load_dtype).
  static Result<MatrixEncoder> create(const MutablePackedMatrix& target, const EncodeOptions& options);

  // The next elements, as a file has them: whole blocks of any type of gguf_blocks.h. Errors: kUnsupported (type),
  // kInvalidArgument (more than rows*cols), kCorruptData (a weight that is NaN, or infinite after rounding: row and
  // column named).
  Status append(DType dtype, std::span<const std::byte> elements);
  Status append(std::span<const float> elements);

  // After the last element: encodes what is left and nests. Errors: kInvalidArgument where elements are missing.
  Status finish();

 private:
  MatrixEncoder(const MutablePackedMatrix& target, const EncodeOptions& options);
  void flush(size_t n);  // encodes the first n buffered elements
  Status fail_at(uint64_t element, float value) const;

  MutablePackedMatrix target_;
  EncodeOptions options_;
  DType rounding_;             // int8: fp16 after the load dtype
  uint64_t total_ = 0;         // elements of the matrix
  uint64_t received_ = 0;      // elements appended
  std::vector<float> buffer_;  // elements not yet encoded, at positions received_ - buffered_ ...
  size_t buffered_ = 0;
  std::vector<float> absmax_;  // nested: of every block
};

}  // namespace berth::quant
