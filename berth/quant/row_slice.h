// quant/row_slice.h — some rows of a packed matrix as a matrix of their own: which bytes of each plane they are.
//
// For bringing one expert of a bank, or a few rows of a table, from where the whole is stored. A slice is again a
// PackedMatrix, so nothing that computes needs to know. Where blocks straddle rows (nf4, fp4 with odd widths, nested
// scales, fp8's tiles) a slice is widened to rows at which all planes can be cut.
//
// Start reading at: row_slice.
#pragma once

#include <cstdint>

#include "berth/quant/packed.h"

namespace berth::quant {

struct RowSlice {
  int64_t row_begin = 0;  // of the whole matrix; at most what was asked for
  PackedLayout layout;    // of the slice: layout.rows of them, at least what was asked for
};

// Rows between which every plane can be cut: a slice begins at a multiple, and ends at one or with the matrix.
int64_t slice_step(const StoredFormat& format, int64_t cols);

// The slice that holds rows [row_begin, row_begin + row_count) of a matrix laid out as `whole`. A CHECK: the rows are
// inside.
RowSlice row_slice(const PackedLayout& whole, int64_t row_begin, int64_t row_count);

// Where a plane's bytes of the slice are in the same plane of the whole matrix; as many as the slice's plane has.
uint64_t plane_begin(const PackedLayout& whole, const RowSlice& slice, Plane plane);

// Bytes of all planes, without padding: what moves when a matrix is brought somewhere.
uint64_t plane_bytes(const PackedLayout& layout);

// The layout of a view.
PackedLayout layout_of(const PackedMatrix& matrix);

}  // namespace berth::quant
