// load/quantizer.h — quantize on load: decoded rows of one tensor into nf4, fp4 or LLM.int8 where they will stay.
//
// Rows may come in any order and from several threads; each run must hold whole blocks (row_step()). finish() nests the
// scales where double quantization was asked for; it needs every row.
//
// Start reading at: Quantizer::create.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/base/isa.h"
#include "berth/quant/packed.h"

namespace berth::load {

class Quantizer {
 public:
  // `from`: what values are rounded to first (the model's dtype), as Transformers casts before it quantizes.
  Quantizer(const quant::MutablePackedMatrix& to, DType from, Isa isa);

  // Runs begin at a multiple of this many rows and hold a multiple of it, but for the tensor's last.
  int64_t row_step() const { return row_step_; }

  // Quantizes rows [row_begin, row_begin + x.size()/cols). `x` is overwritten. Errors: kCorruptData (NaN: row, column).
  Status rows(int64_t row_begin, std::span<float> x);
  void finish();

 private:
  quant::MutablePackedMatrix to_;
  DType from_;
  Isa isa_;
  int64_t row_step_ = 1;
  std::vector<float> absmax_;  // nested only: what finish() quantizes
};

}  // namespace berth::load
