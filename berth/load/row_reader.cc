// load/row_reader.cc — see row_reader.h.
#include "berth/load/row_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "berth/base/check.h"
#include "berth/base/strings.h"
#include "berth/quant/gguf_blocks.h"
#include "berth/tensor/float16.h"

namespace berth::load {
namespace {

uint64_t element_bytes(DType dtype) { return dtype_info(dtype).block_bytes; }

}  // namespace

Status decode_rows(DType dtype, std::span<const std::byte> rows, std::span<float> out) {
  if (dtype == DType::kF64) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(load_le<double>(rows.data() + 8 * i));
    return {};
  }
  if (dtype == DType::kF8E4M3) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = e4m3_to_f32(static_cast<uint8_t>(rows[i]));
    return {};
  }
  return quant::decode_blocks(dtype, rows, out);
}

Result<RowReader> RowReader::create(const format::Checkpoint& checkpoint, const arch::TensorSpec& tensor) {
  RowReader reader;
  reader.checkpoint_ = &checkpoint;
  bool mixed = false;
  for (const arch::Source& source : tensor.recipe.sources) {
    Input in;
    in.entry = checkpoint.find(source.name);
    if (in.entry == nullptr)
      return Error(ErrorCode::kCorruptData, fmt::format("reading {}: tensor {} is not in the checkpoint", quoted(tensor.name), quoted(source.name)));
    in.dtype = in.entry->dtype;
    in.rows = source.rows;
    in.cols = source.cols;
    in.transposed = source.transposed;
    const int64_t file_cols = source.transposed ? source.rows : source.cols;
    const int64_t file_rows = source.transposed ? source.cols : source.rows;
    // Packed bytes of other storages (mxfp4, bitsandbytes) have rows of their own length.
    const uint64_t matrices = source.slice >= 0 && !in.entry->shape.empty() ? static_cast<uint64_t>(in.entry->shape[0]) : 1;
    const uint64_t expected_rows = static_cast<uint64_t>(file_rows) * matrices;
    if (expected_rows == 0 || in.entry->size_bytes % expected_rows != 0)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("tensor {} has {} bytes in shape {}; {} rows of {} elements were expected", quoted(source.name),
                               in.entry->size_bytes, shape_text(in.entry->shape), expected_rows, file_cols));
    in.row_bytes = in.entry->size_bytes / expected_rows;
    if (source.storage == arch::SourceStorage::kPlain || source.storage == arch::SourceStorage::kFp8Block) {
      const auto want = dtype_bytes(in.dtype, static_cast<uint64_t>(file_cols));
      if (!want || *want != in.row_bytes)
        return Error(ErrorCode::kCorruptData,
                     fmt::format("tensor {} has shape {} and type {}; {} rows of {} elements were expected", quoted(source.name),
                                 shape_text(in.entry->shape), dtype_name(in.dtype), expected_rows, file_cols));
    }
    if (source.transposed && is_block_type(in.dtype))
      return Error(ErrorCode::kUnsupported, fmt::format("tensor {} is stored transposed in {} blocks", quoted(source.name), dtype_name(in.dtype)));
    if (source.slice > 0) in.base = static_cast<uint64_t>(source.slice) * static_cast<uint64_t>(file_rows) * in.row_bytes;
    mixed = mixed || in.dtype != checkpoint.find(tensor.recipe.sources[0].name)->dtype;
    reader.inputs_.push_back(in);
  }
  CHECK(!reader.inputs_.empty());
  const Input& first = reader.inputs_[0];
  if (mixed) {
    reader.dtype_ = DType::kF32;
    reader.row_bytes_ = static_cast<uint64_t>(first.cols) * 4;
  } else {
    reader.dtype_ = first.dtype;
    reader.row_bytes_ = first.transposed ? static_cast<uint64_t>(first.cols) * element_bytes(first.dtype) : first.row_bytes;
  }
  int64_t at = 0;
  const auto add = [&](size_t source, int64_t begin, int64_t count, int64_t stride) {
    reader.parts_.push_back({at, count, source, begin, stride});
    at += count;
  };
  if (tensor.recipe.segments.empty())
    for (size_t s = 0; s < reader.inputs_.size(); ++s) add(s, 0, reader.inputs_[s].rows, 1);
  else
    for (const arch::Segment& s : tensor.recipe.segments) add(static_cast<size_t>(s.source), s.begin, s.count, s.stride);
  reader.rows_ = at;
  return reader;
}

Status RowReader::read_part(const Input& in, int64_t begin, int64_t count, int64_t stride, std::span<std::byte> out,
                            std::vector<std::byte>& scratch) const {
  const format::TensorEntry& entry = *in.entry;
  if (!in.transposed && stride == 1)
    return checkpoint_->read(entry, in.base + static_cast<uint64_t>(begin) * in.row_bytes, out);
  if (!in.transposed) {
    const uint64_t span_rows = static_cast<uint64_t>((count - 1) * stride + 1);
    scratch.resize(span_rows * in.row_bytes);
    TRY_STATUS(checkpoint_->read(entry, in.base + static_cast<uint64_t>(begin) * in.row_bytes, scratch));
    for (int64_t r = 0; r < count; ++r)
      std::memcpy(out.data() + static_cast<uint64_t>(r) * in.row_bytes, scratch.data() + static_cast<uint64_t>(r * stride) * in.row_bytes, in.row_bytes);
    return {};
  }
  // Transposed: the file has one row per column; read our rows' elements of each.
  const uint64_t e = element_bytes(in.dtype);
  const uint64_t span_elements = static_cast<uint64_t>((count - 1) * stride + 1);
  scratch.resize(span_elements * e);
  for (int64_t c = 0; c < in.cols; ++c) {
    TRY_STATUS(checkpoint_->read(entry, in.base + static_cast<uint64_t>(c) * in.row_bytes + static_cast<uint64_t>(begin) * e, scratch));
    for (int64_t r = 0; r < count; ++r)
      std::memcpy(out.data() + (static_cast<uint64_t>(r * in.cols + c)) * e, scratch.data() + static_cast<uint64_t>(r * stride) * e, e);
  }
  return {};
}

std::vector<RowReader::Part>::const_iterator RowReader::part_of(int64_t row) const {
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), row, [](int64_t r, const Part& p) { return r < p.first; });
  CHECK(after != parts_.begin());
  return after - 1;
}

bool RowReader::lie_in_file() const {
  return std::all_of(inputs_.begin(), inputs_.end(),
                     [&](const Input& in) { return !in.transposed && in.dtype == dtype_ && in.row_bytes == row_bytes_; });
}

RowReader::Run RowReader::run_at(int64_t row, int64_t end) const {
  CHECK(lie_in_file());
  auto part = part_of(row);
  while (part->first + part->count <= row) ++part;  // parts may be empty
  const Input& in = inputs_[part->source];
  const auto in_source = static_cast<uint64_t>(part->begin + (row - part->first) * part->stride);
  const int64_t count = part->stride == 1 ? std::min(end, part->first + part->count) - row : 1;
  return {&checkpoint_->files()[in.entry->file], in.entry->offset + in.base + in_source * row_bytes_, count};
}

Status RowReader::read(int64_t row_begin, int64_t row_count, std::span<std::byte> out, std::vector<std::byte>& scratch) const {
  CHECK(out.size() == static_cast<uint64_t>(row_count) * row_bytes_);
  auto part = part_of(row_begin);
  int64_t row = row_begin;
  const int64_t end = row_begin + row_count;
  while (row < end) {
    CHECK(part != parts_.end());
    const int64_t n = std::min(end, part->first + part->count) - row;
    if (n > 0) {
      const Input& in = inputs_[part->source];
      const auto to = out.subspan(static_cast<uint64_t>(row - row_begin) * row_bytes_, static_cast<uint64_t>(n) * row_bytes_);
      const int64_t from = part->begin + (row - part->first) * part->stride;
      if (in.dtype == dtype_) {
        TRY_STATUS(read_part(in, from, n, part->stride, to, scratch));
      } else {
        std::vector<std::byte> raw(static_cast<uint64_t>(n * in.cols) * element_bytes(in.dtype));
        TRY_STATUS(read_part(in, from, n, part->stride, raw, scratch));
        TRY_STATUS(decode_rows(in.dtype, raw, {reinterpret_cast<float*>(to.data()), static_cast<size_t>(n * in.cols)}));
      }
      row += n;
    }
    ++part;
  }
  return {};
}

}  // namespace berth::load
