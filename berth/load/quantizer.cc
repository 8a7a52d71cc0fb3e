// load/quantizer.cc — see quantizer.h.
#include "berth/load/quantizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/quant/cast.h"
#include "berth/quant/int8_row.h"

namespace berth::load {

using quant::Codec;
using quant::Plane;

Quantizer::Quantizer(const quant::MutablePackedMatrix& to, DType from, Isa isa) : to_(to), from_(from), isa_(isa) {
  if (!quant::is_bnb_4bit(to.format.codec)) return;
  const int64_t block = to.format.blocksize;
  row_step_ = block / std::gcd(block, to.cols);
  if (to.format.nested) absmax_.resize(static_cast<size_t>(ceil_div(to.rows * to.cols, block)));
}

Status Quantizer::rows(int64_t row_begin, std::span<float> x) {
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isnan(x[i]))
      return Error(ErrorCode::kCorruptData, fmt::format("the weight in row {}, column {} is not a number",
                                                        row_begin + static_cast<int64_t>(i) / to_.cols, static_cast<int64_t>(i) % to_.cols));
  quant::round_through(from_, x);
  if (to_.format.codec == Codec::kInt8Row) {
    quant::round_through(DType::kF16, x);
    float* scb = to_.plane<float>(Plane::kScales);
    for (int64_t r = 0; r * to_.cols < static_cast<int64_t>(x.size()); ++r)
      scb[row_begin + r] = quant::encode_int8_row(x.subspan(static_cast<size_t>(r * to_.cols), static_cast<size_t>(to_.cols)),
                                                  quant::Int8Scale::kCpu, to_.plane<int8_t>(Plane::kCodes) + (row_begin + r) * to_.cols);
    return {};
  }
  const int64_t first = row_begin * to_.cols;
  CHECK(first % to_.format.blocksize == 0 && first % 2 == 0);
  float* absmax = to_.format.nested ? absmax_.data() : to_.plane<float>(Plane::kScales);
  quant::encode_bnb_4bit(to_.format.codec, to_.format.blocksize, quant::kBnbCpuRules, x, to_.plane<uint8_t>(Plane::kCodes) + first / 2,
                         absmax + first / to_.format.blocksize);
  return {};
}

void Quantizer::finish() {
  if (!to_.format.nested || !quant::is_bnb_4bit(to_.format.codec)) return;
  quant::nest_absmax(absmax_, quant::NearestRule::kCpuBins, to_.plane<uint8_t>(Plane::kScales),
                     to_.plane<float>(Plane::kNestedAbsmax), to_.plane<float>(Plane::kNestedOffset));
  const auto map = quant::dynamic_map();
  std::copy(map.begin(), map.end(), to_.plane<float>(Plane::kNestedMap));
}

}  // namespace berth::load
