// quant/row_slice.cc — see row_slice.h.
#include "berth/quant/row_slice.h"

#include <algorithm>
#include <numeric>

#include "berth/base/bytes.h"
#include "berth/base/check.h"

namespace berth::quant {
namespace {

constexpr int64_t kNestedBlock = 256;  // of absmax values
constexpr int64_t kFp8Tile = 128;      // rows

PackedLayout must_lay_out(const StoredFormat& format, int64_t rows, int64_t cols) {
  const auto layout = packed_layout(format, rows, cols);
  CHECK(layout.has_value());  // part of a matrix that has one
  return *layout;
}

}  // namespace

int64_t slice_step(const StoredFormat& format, int64_t cols) {
  if (format.codec == Codec::kFP8Block) return kFp8Tile;
  if (!is_bnb_4bit(format.codec) || cols == 0) return 1;
  const int64_t block = int64_t{format.blocksize} * (format.nested ? kNestedBlock : 1);
  return block / std::gcd(block, cols);
}

RowSlice row_slice(const PackedLayout& whole, int64_t row_begin, int64_t row_count) {
  CHECK(row_begin >= 0 && row_count >= 0 && row_begin + row_count <= whole.rows);
  const int64_t step = slice_step(whole.format, whole.cols);
  RowSlice slice;
  slice.row_begin = row_begin / step * step;
  const int64_t end = std::min(ceil_div(row_begin + row_count, step) * step, whole.rows);
  slice.layout = must_lay_out(whole.format, end - slice.row_begin, whole.cols);
  return slice;
}

uint64_t plane_begin(const PackedLayout& whole, const RowSlice& slice, Plane plane) {
  const PackedLayout none = must_lay_out(whole.format, 0, whole.cols);
  if (none.plane(plane).count > 0) return 0;  // the same for all rows
  return must_lay_out(whole.format, slice.row_begin, whole.cols).plane(plane).bytes;
}

uint64_t plane_bytes(const PackedLayout& layout) {
  uint64_t sum = 0;
  for (const PlaneLayout& plane : layout.planes) sum += plane.bytes;
  return sum;
}

PackedLayout layout_of(const PackedMatrix& matrix) { return must_lay_out(matrix.format, matrix.rows, matrix.cols); }

}  // namespace berth::quant
