// load/file_tensor.cc — see file_tensor.h.
#include "berth/load/file_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "berth/base/check.h"
#include "berth/base/strings.h"
#include "berth/quant/cast.h"

namespace berth::load {

using quant::Plane;

namespace {

uint64_t end_of(uint64_t begin, uint64_t bytes) { return begin + bytes; }

}  // namespace

// A plane that is a tensor of its own, whole.
Status FileTensor::add(const format::Checkpoint& checkpoint, Plane plane, const std::string& name, uint64_t bytes) {
  const format::TensorEntry* entry = checkpoint.find(name);
  if (entry == nullptr)
    return Error(ErrorCode::kCorruptData, fmt::format("tensor {} is not in the checkpoint", quoted(name)));
  if (entry->size_bytes != bytes)
    return Error(ErrorCode::kCorruptData,
                 fmt::format("tensor {} has {} bytes, {} were expected", quoted(name), entry->size_bytes, bytes));
  extents_[static_cast<size_t>(plane)].push_back({&checkpoint.files()[entry->file], entry->offset, 0, bytes});
  return {};
}

// The codes: rows of the sources, one after the other.
Status FileTensor::add_rows(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor) {
  std::vector<Extent>& extents = extents_[static_cast<size_t>(Plane::kCodes)];
  uint64_t at = 0;
  const auto add = [&](const arch::Source& source, int64_t begin, int64_t count) -> Status {
    const format::TensorEntry* entry = checkpoint.find(source.name);
    if (entry == nullptr)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} is not in the checkpoint", quoted(source.name)));
    const uint64_t matrices =
        source.slice >= 0 && !entry->shape.empty() ? static_cast<uint64_t>(std::max<int64_t>(entry->shape[0], 1)) : 1;
    const auto rows = static_cast<uint64_t>(std::max<int64_t>(source.rows, 1));
    if (entry->size_bytes % (rows * matrices) != 0 || begin + count > source.rows)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} has {} bytes: not {} rows", quoted(source.name),
                                                        entry->size_bytes, rows * matrices));
    const uint64_t row = entry->size_bytes / (rows * matrices);
    const uint64_t first =
        (source.slice > 0 ? static_cast<uint64_t>(source.slice) * rows : 0) + static_cast<uint64_t>(begin);
    const Extent next{&checkpoint.files()[entry->file], entry->offset + first * row, at,
                      static_cast<uint64_t>(count) * row};
    at += next.bytes;
    if (!extents.empty() && extents.back().file == next.file &&
        end_of(extents.back().offset, extents.back().bytes) == next.offset)
      extents.back().bytes += next.bytes;
    else
      extents.push_back(next);
    return {};
  };
  if (tensor.recipe.segments.empty()) {
    for (const arch::Source& source : tensor.recipe.sources) TRY_STATUS(add(source, 0, source.rows));
  } else {
    for (const arch::Segment& s : tensor.recipe.segments)
      TRY_STATUS(add(tensor.recipe.sources[static_cast<size_t>(s.source)], s.begin, s.count));
  }
  return {};
}

Result<FileTensor> FileTensor::in_checkpoint(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor,
                                             const quant::PackedLayout& layout) {
  FileTensor out;
  out.name_ = tensor.name;
  out.add_one_ = tensor.recipe.add_one;
  out.round_to_ = tensor.recipe.round_to;
  if (tensor.kind == arch::TensorKind::kVector) {
    TRY(out.vector_, RowReader::create(checkpoint, tensor));
    return out;
  }
  const arch::Source& source = tensor.recipe.sources[0];
  const auto bytes = [&](Plane plane) { return layout.plane(plane).bytes; };
  const auto companion = [&](std::string_view suffix) {
    for (const std::string& name : source.companions)
      if (name.ends_with(suffix)) return name;
    return source.name + std::string(suffix);
  };
  switch (source.storage) {
    case arch::SourceStorage::kBnb4:
      TRY_STATUS(out.add(checkpoint, Plane::kCodes, source.name, bytes(Plane::kCodes)));
      TRY_STATUS(out.add(checkpoint, Plane::kScales, companion(".absmax"), bytes(Plane::kScales)));
      if (layout.format.nested) {
        TRY_STATUS(out.add(checkpoint, Plane::kNestedAbsmax, companion(".nested_absmax"), bytes(Plane::kNestedAbsmax)));
        TRY_STATUS(out.add(checkpoint, Plane::kNestedMap, companion(".nested_quant_map"), bytes(Plane::kNestedMap)));
        out.nested_offset_ = source.nested_offset;
        out.has_nested_offset_ = true;
      }
      break;
    case arch::SourceStorage::kBnbInt8:
      TRY_STATUS(out.add_rows(checkpoint, tensor));
      TRY_STATUS(out.add(checkpoint, Plane::kScales,
                         source.companions.empty() ? source.name + ".SCB" : source.companions[0],
                         bytes(Plane::kScales)));
      break;
    default:
      TRY_STATUS(out.add_rows(checkpoint, tensor));
  }
  for (int p = 0; p < quant::kPlaneCount; ++p) {
    uint64_t there = 0;
    for (const Extent& e : out.extents_[static_cast<size_t>(p)]) there += e.bytes;
    const uint64_t wanted =
        static_cast<Plane>(p) == Plane::kNestedOffset ? 0 : layout.planes[static_cast<size_t>(p)].bytes;
    if (there != wanted)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("tensor {}: {} bytes of {} were expected, the checkpoint has {}", quoted(tensor.name),
                               wanted, quant::plane_name(static_cast<Plane>(p)), there));
  }
  return out;
}

FileTensor FileTensor::in_image(File file, uint64_t offset, std::string name, const quant::PackedLayout& layout) {
  FileTensor out;
  out.name_ = std::move(name);
  out.image_ = std::make_shared<const File>(std::move(file));
  for (size_t p = 0; p < layout.planes.size(); ++p)
    if (layout.planes[p].bytes > 0)
      out.extents_[p].push_back({out.image_.get(), offset + layout.planes[p].offset, 0, layout.planes[p].bytes});
  return out;
}

std::optional<FileTensor::Place> FileTensor::place(Plane plane) const {
  const std::vector<Extent>& extents = extents_[static_cast<size_t>(plane)];
  if (extents.size() != 1) return std::nullopt;
  return Place{extents[0].file, extents[0].offset, extents[0].bytes};
}

Status FileTensor::read(Plane plane, uint64_t begin, std::span<std::byte> out) const {
  CHECK(!is_vector());
  if (plane == Plane::kNestedOffset && has_nested_offset_) {
    CHECK(begin == 0 && out.size() == sizeof nested_offset_);
    std::memcpy(out.data(), &nested_offset_, sizeof nested_offset_);
    return {};
  }
  const std::vector<Extent>& extents = extents_[static_cast<size_t>(plane)];
  auto at =
      std::upper_bound(extents.begin(), extents.end(), begin, [](uint64_t b, const Extent& e) { return b < e.begin; });
  uint64_t done = 0;
  while (done < out.size()) {
    CHECK(at != extents.begin());
    const Extent& e = *(at - 1);
    const uint64_t skip = begin + done - e.begin;
    CHECK(skip < e.bytes);
    const uint64_t n = std::min<uint64_t>(out.size() - done, e.bytes - skip);
    Status status = e.file->read_at(e.offset + skip, out.subspan(done, n));
    if (status) status = e.file->check_unchanged();
    if (!status) return std::move(status).error().with_context("reading tensor " + quoted(name_) + " from the disk");
    done += n;
    ++at;
  }
  return {};
}

Status FileTensor::read_vector(std::span<float> out) const {
  CHECK(is_vector());
  std::vector<std::byte> raw(static_cast<uint64_t>(vector_->rows()) * vector_->row_bytes()), scratch;
  Status status = vector_->read(0, vector_->rows(), raw, scratch);
  if (status) status = decode_rows(vector_->dtype(), raw, out);
  if (!status) return std::move(status).error().with_context("reading tensor " + quoted(name_) + " from the disk");
  quant::round_through(round_to_, out);
  if (add_one_)
    for (float& v : out) v = 1.0f + v;
  return {};
}

}  // namespace berth::load
