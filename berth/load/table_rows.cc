// load/table_rows.cc — see table_rows.h.
#include "berth/load/table_rows.h"

#include <algorithm>

#include "berth/kernel/elementwise.h"
#include "berth/quant/row_slice.h"

namespace berth::load {

Status TableRows::gather(const kernel::Context& context, const HeldTensor& table, std::span<const int32_t> ids,
                         float* out, int64_t width, uint64_t& read_bytes) {
  if (table.file == nullptr) {
    kernel::gather_rows(context, table.matrix, ids, out, width);
    return {};
  }
  const quant::PackedLayout whole = quant::layout_of(table.matrix);
  kernel::Context one = context;
  one.pool = nullptr;
  const auto read_row = [&](int64_t i, Staging& staging) -> Status {
    const int32_t id = ids[static_cast<size_t>(i)];
    const quant::RowSlice slice = quant::row_slice(whole, id, 1);
    staging.raw.resize(std::max<size_t>(staging.raw.size(), slice.layout.total_bytes + quant::kPlaneAlignment));
    const auto address = reinterpret_cast<uintptr_t>(staging.raw.data());
    std::byte* const base =
        staging.raw.data() + (quant::kPlaneAlignment - address % quant::kPlaneAlignment) % quant::kPlaneAlignment;
    for (int p = 0; p < quant::kPlaneCount; ++p) {
      const auto plane = static_cast<quant::Plane>(p);
      const quant::PlaneLayout& part = slice.layout.plane(plane);
      if (part.bytes > 0)
        TRY_STATUS(table.file->read(plane, quant::plane_begin(whole, slice, plane), {base + part.offset, part.bytes}));
    }
    const auto row = static_cast<int32_t>(id - slice.row_begin);
    const quant::PackedMatrix matrix = quant::bind_planes(slice.layout, static_cast<const std::byte*>(base));
    kernel::gather_rows(one, matrix, std::span(&row, 1), out + i * width, width);
    return {};
  };
  for (const int32_t id : ids) read_bytes += quant::plane_bytes(quant::row_slice(whole, id, 1).layout);
  if (context.pool != nullptr) return for_pieces(*context.pool, static_cast<int64_t>(ids.size()), staging_, read_row);
  staging_.resize(std::max<size_t>(staging_.size(), 1));
  for (size_t i = 0; i < ids.size(); ++i) TRY_STATUS(read_row(static_cast<int64_t>(i), staging_[0]));
  return {};
}

}  // namespace berth::load
