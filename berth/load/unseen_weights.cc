// load/unseen_weights.cc — see unseen_weights.h.
#include "berth/load/unseen_weights.h"

#include <algorithm>
#include <utility>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::load {
namespace {

constexpr uint64_t kPlanePieceBytes = uint64_t{4} << 20;

}  // namespace

uint64_t mapped_bytes_per_32(const quant::PackedMatrix& matrix, const quant::PlaneLayout& layout) {
  return matrix.in_blocks ? quant::kQ8BlockBytes : 32 * dtype_info(layout.dtype).block_bytes;
}

Status bring_mapped(const MappedMatrix& m, bool left, ThreadPool& pool, std::vector<Staging>& staging) {
  for (int p = 0; p < quant::kPlaneCount; ++p) {
    const auto plane = static_cast<quant::Plane>(p);
    const quant::PlaneLayout& layout = m.layout.plane(plane);
    const std::byte* const begin = m.matrix.planes[static_cast<size_t>(p)];
    if (begin == nullptr) continue;
    const FileMapping* from = nullptr;
    for (const auto& mapping : m.mappings)
      if (begin >= mapping->bytes().data() && begin < mapping->bytes().data() + mapping->bytes().size())
        from = mapping.get();
    const bool enters_as_it_is =
        plane == quant::Plane::kScales || (plane == quant::Plane::kCodes && layout.dtype != DType::kF8E4M3);
    const bool look = !left || !enters_as_it_is;
    if (from == nullptr && !look) continue;
    // Pieces of whole blocks: 32 elements are `per_32` bytes.
    const uint64_t per_32 = mapped_bytes_per_32(m.matrix, layout);
    const uint64_t step = kPlanePieceBytes / per_32 * 32;
    const auto bring = [&](int64_t piece, Staging&) -> Status {
      const uint64_t first = static_cast<uint64_t>(piece) * step;
      const uint64_t count = std::min(step, layout.count - first);
      if (from != nullptr)
        from->populate(static_cast<uint64_t>(begin - from->bytes().data()) + first / 32 * per_32,
                       ceil_div<uint64_t>(count, 32) * per_32);
      return look ? quant::check_finite(m.matrix, plane, first, count) : Status();
    };
    TRY_STATUS(for_pieces(pool, static_cast<int64_t>(ceil_div(layout.count, step)), staging, bring));
  }
  return {};
}

void UnseenWeights::add(int32_t index, std::string name, const quant::PackedMatrix& matrix,
                        const quant::PackedLayout& layout) {
  tensors_.insert_or_assign(index, Tensor{std::move(name), matrix, layout, {{0, matrix.rows}}});
}

void UnseenWeights::seen(int32_t index, int64_t row_begin, int64_t row_count) {
  const auto found = tensors_.find(index);
  if (found == tensors_.end()) return;
  const int64_t row_end = row_begin + row_count;
  std::vector<std::pair<int64_t, int64_t>> left;
  for (const auto& [begin, end] : found->second.rows) {
    if (begin < std::min(end, row_begin)) left.emplace_back(begin, std::min(end, row_begin));
    if (std::max(begin, row_end) < end) left.emplace_back(std::max(begin, row_end), end);
  }
  if (left.empty())
    tensors_.erase(found);
  else
    found->second.rows = std::move(left);
}

Status UnseenWeights::look(ThreadPool& pool) {
  std::vector<Staging> staging;
  while (!tensors_.empty()) {
    const Tensor& tensor = tensors_.begin()->second;
    // The whole of it: rows of planes may be interleaved, and blocks of scales straddle rows.
    Status status = bring_mapped({tensor.matrix, tensor.layout, {}}, false, pool, staging);
    if (!status) return std::move(status).error().with_context("loading tensor " + quoted(tensor.name));
    tensors_.erase(tensors_.begin());
  }
  return {};
}

}  // namespace berth::load
