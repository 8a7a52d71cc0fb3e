// load/quantizer.h — quantize on load: runs of one matrix's elements into nf4, fp4 or LLM.int8 where they will stay.
//
// Runs may come in any order and from several threads; each begins at a multiple of run_step() elements and holds a
// multiple of it, but for the matrix's last. finish() nests the scales where double quantization was asked for; it
// needs every run. The bytes are bitsandbytes' (kernel/encode.h), whatever the cut and the instruction set.
//
// Start reading at: Quantizer::run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "berth/base/isa.h"
#include "berth/quant/packed.h"

namespace berth::load {

// What a weight that is NaN or infinite (as stored, or after the cast) means.
enum class NonFinite : uint8_t {
  kRefuse,     // an error that names row and column: a model to be run
  kAsLibrary,  // encoded as bitsandbytes' CPU code does (specs: NaN makes its block NaN...): a file to be converted
};

class Quantizer {
 public:
  // `from`: what values are rounded to first (the model's dtype), as Transformers casts before it quantizes.
  Quantizer(const quant::MutablePackedMatrix& to, DType from, Isa isa, NonFinite non_finite = NonFinite::kRefuse);

  // Elements: a block of nf4 and fp4 (they are blocks of the flattened matrix), a row of int8.
  int64_t run_step() const { return run_step_; }

  // Quantizes elements [first, first + count), stored at `data` as f32, bf16 or f16. Errors: kCorruptData (row, column).
  // `more_follow` as in kernel/encode.h.
  Status run(int64_t first, int64_t count, DType dtype, const void* data, bool more_follow = false);
  void finish();
  // Whether kAsLibrary met a weight that is not finite.
  bool met_non_finite() const { return met_non_finite_->load(); }

 private:
  Status refuse(int64_t element) const;
  void encode_scalar(int64_t first, int64_t count, DType dtype, const void* data);

  quant::MutablePackedMatrix to_;
  DType from_;
  Isa isa_;
  NonFinite non_finite_;
  int64_t run_step_ = 1;
  std::vector<float> absmax_;  // nested only: what finish() quantizes
  std::unique_ptr<std::atomic<bool>> met_non_finite_ = std::make_unique<std::atomic<bool>>(false);
};

}  // namespace berth::load
