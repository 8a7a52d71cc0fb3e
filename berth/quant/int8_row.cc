// quant/int8_row.cc
#include "berth/quant/int8_row.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "berth/base/check.h"

namespace berth::quant {
namespace {

// The largest magnitude among those below `threshold` (all where it is 0); NaN if there is one.
float row_absmax(std::span<const float> row, float threshold) {
  float largest = 0;
  for (const float v : row) {
    if (std::isnan(v)) return v;
    const float a = std::fabs(v);
    if (threshold == 0 || a < threshold) largest = std::max(largest, a);
  }
  return largest;
}

float encode_row(std::span<const float> row, float threshold, Int8Scale rule, int8_t* codes) {
  const float scb = row_absmax(row, threshold);
  if (!std::isfinite(scb)) {
    std::fill_n(codes, row.size(), int8_t{0});
    return scb;
  }
  const float scale = rule == Int8Scale::kCpu ? (1.0f / scb) * 127.0f : 127.0f / scb;
  for (size_t k = 0; k < row.size(); ++k) {
    const bool outlier = threshold > 0 && std::fabs(row[k]) >= threshold;
    const float q = std::nearbyint(row[k] * scale);
    codes[k] = outlier || !std::isfinite(q) ? int8_t{0} : static_cast<int8_t>(q);
  }
  return scb;
}

}  // namespace

float encode_int8_row(std::span<const float> row, Int8Scale scale, int8_t* codes) {
  return encode_row(row, 0, scale, codes);
}

std::vector<int64_t> encode_int8_rows(std::span<const float> x, int64_t rows, int64_t cols, float threshold,
                                      Int8Scale scale, int8_t* codes, float* scb) {
  CHECK(static_cast<int64_t>(x.size()) == rows * cols);
  const auto width = static_cast<size_t>(cols);
  std::vector<uint8_t> is_outlier(width, 0);
  for (int64_t r = 0; r < rows; ++r) {
    const auto row = x.subspan(static_cast<size_t>(r) * width, width);
    scb[r] = encode_row(row, threshold, scale, codes + r * cols);
    if (threshold > 0) {
      for (size_t k = 0; k < width; ++k) is_outlier[k] |= std::fabs(row[k]) >= threshold;
    }
  }
  std::vector<int64_t> columns;
  for (int64_t k = 0; k < cols; ++k) {
    if (is_outlier[static_cast<size_t>(k)] == 0) continue;
    columns.push_back(k);
    if (rows > 1) {
      for (int64_t r = 0; r < rows; ++r) codes[r * cols + k] = 0;
    }
  }
  return columns;
}

void decode_int8_row(std::span<const int8_t> codes, float scb, float* out) {
  for (size_t k = 0; k < codes.size(); ++k) {
    const float product = static_cast<float>(codes[k]) * scb;
    out[k] = product * std::bit_cast<float>(0x3c010204u);
  }
}

}  // namespace berth::quant
