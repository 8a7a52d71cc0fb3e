// load/quantizer.cc — see quantizer.h.
#include "berth/load/quantizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/encode.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/quant/cast.h"
#include "berth/quant/gguf_blocks.h"
#include "berth/quant/int8_row.h"

namespace berth::load {

using quant::Codec;
using quant::Plane;

Quantizer::Quantizer(const quant::MutablePackedMatrix& to, DType from, Isa isa, NonFinite non_finite)
    : to_(to), from_(from), isa_(isa), non_finite_(non_finite) {
  run_step_ = quant::is_bnb_4bit(to.format.codec) ? to.format.blocksize : to.cols;
  if (to.format.nested) absmax_.resize(static_cast<size_t>(ceil_div(to.rows * to.cols, run_step_)));
}

Status Quantizer::refuse(int64_t element) const {
  return Error(ErrorCode::kCorruptData,
               fmt::format("expected finite weights, found NaN or an infinity (as stored or after the cast) at row {}, "
                           "column {}",
                           element / to_.cols, element % to_.cols));
}

Status Quantizer::run(int64_t first, int64_t count, DType dtype, const void* data, bool more_follow) {
  CHECK(first % run_step_ == 0 && (count % run_step_ == 0 || first + count == to_.rows * to_.cols));
  if (to_.format.codec == Codec::kInt8Row) {
    float* scb = to_.plane<float>(Plane::kScales);
    const int64_t row_bytes = to_.cols * static_cast<int64_t>(dtype_info(dtype).block_bytes);
    for (int64_t done = 0; done < count; done += to_.cols) {
      const auto* row = static_cast<const std::byte*>(data) + done / to_.cols * row_bytes;
      const int64_t at = first + done;
      const int64_t bad = kernel::encode_int8_row(isa_, {dtype, row, to_.cols, from_},
                                                  to_.plane<int8_t>(Plane::kCodes) + at, scb + at / to_.cols);
      if (bad == kernel::kAllFinite) continue;
      if (non_finite_ == NonFinite::kRefuse) return refuse(at + bad);
      encode_scalar(at, to_.cols, dtype, row);
    }
    return {};
  }
  float* absmax = to_.format.nested ? absmax_.data() : to_.plane<float>(Plane::kScales);
  const int64_t bad = kernel::encode_4bit(isa_, to_.format.codec, to_.format.blocksize, {dtype, data, count, from_},
                                          to_.plane<uint8_t>(Plane::kCodes) + first / 2,
                                          absmax + first / to_.format.blocksize, more_follow);
  if (bad == kernel::kAllFinite) return {};
  if (non_finite_ == NonFinite::kRefuse) return refuse(first + bad);
  encode_scalar(first, count, dtype, data);
  return {};
}

void Quantizer::encode_scalar(int64_t first, int64_t count, DType dtype, const void* data) {
  met_non_finite_->store(true);
  const FloatEnvironmentScope exact_floats;
  std::vector<float> x(static_cast<size_t>(count));
  const uint64_t bytes = static_cast<uint64_t>(count) * dtype_info(dtype).block_bytes;
  CHECK(quant::decode_blocks(dtype, {static_cast<const std::byte*>(data), bytes}, x).has_value());
  quant::round_through(from_, x);
  if (to_.format.codec == Codec::kInt8Row) {
    quant::round_through(DType::kF16, x);
    to_.plane<float>(Plane::kScales)[first / to_.cols] =
        quant::encode_int8_row(x, quant::Int8Scale::kCpu, to_.plane<int8_t>(Plane::kCodes) + first);
    return;
  }
  float* absmax = to_.format.nested ? absmax_.data() : to_.plane<float>(Plane::kScales);
  quant::encode_bnb_4bit(to_.format.codec, to_.format.blocksize, quant::kBnbCpuRules, x,
                         to_.plane<uint8_t>(Plane::kCodes) + first / 2, absmax + first / to_.format.blocksize);
}

void Quantizer::finish() {
  if (!to_.format.nested || !quant::is_bnb_4bit(to_.format.codec)) return;
  const FloatEnvironmentScope exact_floats;
  quant::nest_absmax(absmax_, quant::NearestRule::kCpuBins, to_.plane<uint8_t>(Plane::kScales),
                     to_.plane<float>(Plane::kNestedAbsmax), to_.plane<float>(Plane::kNestedOffset));
  const auto map = quant::dynamic_map();
  std::copy(map.begin(), map.end(), to_.plane<float>(Plane::kNestedMap));
}

}  // namespace berth::load
