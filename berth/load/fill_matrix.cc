// load/fill_matrix.cc — see fill_matrix.h.
#include "berth/load/fill_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/device/cpu/memory.h"
#include "berth/kernel/encode.h"
#include "berth/quant/cast.h"

namespace berth::load {
namespace {

using quant::Codec;

// First error of several threads.
class FirstError {
 public:
  void keep(Status status) {
    if (status) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(status).error();
    failed_.store(true, std::memory_order_relaxed);
  }
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  Status take() {
    if (error_) return *std::move(error_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
};

// The kernel brings pages around one that is missing (fault_around_bytes): given back as well.
constexpr uint64_t kFaultAround = uint64_t{64} << 10;
constexpr uint64_t kLargePage = uint64_t{2} << 20;

bool is_encodable(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

// Whether the matrix holds the file's rows of this type byte for byte, one after the other.
bool is_same_bytes(Codec codec, DType dtype) {
  return (codec == Codec::kF32 && dtype == DType::kF32) || (codec == Codec::kBF16 && dtype == DType::kBF16) ||
         (codec == Codec::kF16 && dtype == DType::kF16);
}

class Filler {
 public:
  Filler(const RowReader& reader, const quant::MutablePackedMatrix& to, const FillOptions& options)
      : reader_(reader),
        to_(to),
        o_(options),
        decode_(options.vector || options.add_one || reader.dtype() == DType::kF64 ||
                (options.quantize && !is_encodable(reader.dtype()))),
        straight_(!options.quantize && !decode_ && is_same_bytes(to.format.codec, reader.dtype())) {
    const auto layout = quant::packed_layout(to.format, to.rows, to.cols);
    for (size_t p = 0; layout && p < plane_bytes_.size(); ++p)
      plane_bytes_[p] = to.planes[p] == nullptr ? 0 : layout->planes[p].bytes;
  }

  Result<Filled> fill(ThreadPool& pool, std::vector<Staging>& staging) {
    CHECK(reader_.rows() == to_.rows);
    if (o_.quantize) return quantize(pool, staging);
    if (!straight_ && is_mapped()) {
      TRY_STATUS(
          for_mapped_pieces(pool, staging, kMappedToPackBytes, [&](int64_t begin, int64_t end, Staging& s) -> Status {
            populate(begin, end);
            return quant::pack_rows(to_, reader_.dtype(), mapped_rows(begin, end, s), begin, end - begin);
          }));
      return Filled{};
    }
    const uint64_t row = widest_row_bytes();
    const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / std::max<uint64_t>(row, 1)));
    TRY_STATUS(for_pieces(pool, ceil_div(to_.rows, step), staging, [&](int64_t piece, Staging& s) -> Status {
      const int64_t begin = piece * step, count = std::min(step, to_.rows - begin);
      populate(begin, begin + count);
      if (straight_) return read_straight(begin, count, s);
      TRY_STATUS(read(begin, count, s));
      if (!decode_) return quant::pack_rows(to_, reader_.dtype(), s.raw, begin, count);
      return quant::pack_rows(to_, DType::kF32, std::as_bytes(std::span(s.values)), begin, count);
    }));
    return Filled{};
  }

 private:
  uint64_t widest_row_bytes() const {
    return std::max<uint64_t>(reader_.row_bytes(), decode_ ? static_cast<uint64_t>(to_.cols) * sizeof(float) : 0);
  }

  // The pages that rows [begin, end) of the matrix will lie in.
  void populate(int64_t begin, int64_t end) const {
    if (o_.new_memory == nullptr || to_.rows == 0) return;
    for (size_t p = 0; p < plane_bytes_.size(); ++p) {
      const auto rows = static_cast<uint64_t>(to_.rows), bytes = plane_bytes_[p];
      const auto at = [&](int64_t row) {
        const auto r = static_cast<uint64_t>(row);
        return bytes / rows * r + bytes % rows * r / rows;
      };
      if (bytes > 0) o_.new_memory->populate({to_.planes[p] + at(begin), at(end) - at(begin)});
    }
  }

  // Rows into s.raw, and decoded into s.values where that is wanted.
  Status read(int64_t begin, int64_t count, Staging& s) const {
    s.raw.resize(static_cast<uint64_t>(count) * reader_.row_bytes());
    TRY_STATUS(reader_.read(begin, count, s.raw, s.scratch));
    if (!decode_) return {};
    s.values.resize(static_cast<size_t>(count * to_.cols));
    TRY_STATUS(decode_rows(reader_.dtype(), s.raw, s.values));
    quant::round_through(o_.round_to, s.values);
    if (o_.add_one)
      for (float& v : s.values) v = 1.0f + v;
    return {};
  }

  Status read_straight(int64_t begin, int64_t count, Staging& s) const {
    std::byte* at =
        to_.planes[static_cast<size_t>(quant::Plane::kCodes)] + static_cast<uint64_t>(begin) * reader_.row_bytes();
    const std::span<std::byte> out(at, static_cast<uint64_t>(count) * reader_.row_bytes());
    TRY_STATUS(reader_.read(begin, count, out, s.scratch));
    return quant::pack_rows(to_, reader_.dtype(), out, begin, count);  // in place: only looks for NaN
  }

  // Pieces are runs of elements: blocks of 4 bit may straddle rows.
  Result<Filled> quantize(ThreadPool& pool, std::vector<Staging>& staging) {
    const bool whole_blocks = to_.format.codec == Codec::kInt8Row || to_.cols % to_.format.blocksize == 0;
    if (whole_blocks && is_mapped()) return quantize_mapped(pool, staging);
    Quantizer quantizer(to_, o_.quantize_from, o_.isa, o_.non_finite);
    const int64_t elements = to_.rows * to_.cols;
    const uint64_t element_bytes = decode_ ? sizeof(float) : dtype_info(reader_.dtype()).block_bytes;
    const int64_t step_elements = quantizer.run_step();
    const int64_t step =
        std::max<int64_t>(1, static_cast<int64_t>(kPieceBytes / element_bytes) / step_elements) * step_elements;
    TRY_STATUS(for_pieces(pool, ceil_div(elements, step), staging, [&](int64_t piece, Staging& s) -> Status {
      const int64_t first = piece * step, count = std::min(step, elements - first);
      const int64_t begin = first / to_.cols, end = ceil_div(first + count, to_.cols);
      populate(begin, end);
      TRY_STATUS(read(begin, end - begin, s));
      const uint64_t skip = static_cast<uint64_t>(first - begin * to_.cols) * element_bytes;
      const std::byte* data = decode_ ? reinterpret_cast<const std::byte*>(s.values.data()) : s.raw.data();
      return quantizer.run(first, count, decode_ ? DType::kF32 : reader_.dtype(), data + skip);
    }));
    quantizer.finish();
    return Filled{quantizer.met_non_finite()};
  }

  const FileMapping* mapping_of(const File& file) const {
    for (const auto& mapping : o_.mappings)
      if (&mapping->file() == &file) return mapping.get();
    return nullptr;
  }

  // Whether all rows are in a mapping, whole, and used as they are.
  bool is_mapped() const {
    if (o_.mappings.empty() || decode_ || !reader_.lie_in_file() || reader_.row_bytes() == 0) return false;
    for (int64_t row = 0; row < to_.rows;) {
      const RowReader::Run run = reader_.run_at(row, to_.rows);
      const FileMapping* const mapping = mapping_of(*run.file);
      const uint64_t size = mapping == nullptr ? 0 : mapping->bytes().size();
      if (run.offset > size || bytes_of(run) > size - run.offset) return false;
      row += run.count;
    }
    return true;
  }

  uint64_t bytes_of(const RowReader::Run& run) const { return static_cast<uint64_t>(run.count) * reader_.row_bytes(); }

  // A stretch of a mapping with rows [begin, end): one run, or several that are near each other (interleaved heads).
  struct Stretch {
    const FileMapping* mapping;
    uint64_t from, to;
    int64_t end;
  };
  Stretch stretch_at(int64_t begin, int64_t end) const {
    const RowReader::Run first = reader_.run_at(begin, end);
    Stretch s{mapping_of(*first.file), first.offset, first.offset + bytes_of(first), begin + first.count};
    while (s.end < end) {
      const RowReader::Run run = reader_.run_at(s.end, end);
      const uint64_t from = std::min(s.from, run.offset), to = std::max(s.to, run.offset + bytes_of(run));
      if (run.file != first.file || to - from > 4 * kPieceBytes) break;
      s = {s.mapping, from, to, s.end + run.count};
    }
    return s;
  }

  // Rows [begin, end) where the file has them.
  Status quantize_in_place(Quantizer& quantizer, int64_t begin, int64_t end) const {
    // Once for all runs: of interleaved heads each row is one.
    const struct Order {
      ~Order() { kernel::order_encoded(); }
    } order;
    while (begin < end) {
      const Stretch stretch = stretch_at(begin, end);
      stretch.mapping->populate(stretch.from, stretch.to - stretch.from);
      while (begin < stretch.end) {
        const RowReader::Run run = reader_.run_at(begin, stretch.end);
        TRY_STATUS(quantizer.run(begin * to_.cols, run.count * to_.cols, reader_.dtype(),
                                 stretch.mapping->bytes().data() + run.offset, true));
        begin += run.count;
      }
    }
    return {};
  }

  // Rows [begin, end) as the file has them: where they are, or put together in s.raw where they are not in one piece.
  std::span<const std::byte> mapped_rows(int64_t begin, int64_t end, Staging& s) const {
    const uint64_t row_bytes = reader_.row_bytes();
    if (const RowReader::Run run = reader_.run_at(begin, end); run.count == end - begin) {
      const FileMapping* const mapping = mapping_of(*run.file);
      mapping->populate(run.offset, bytes_of(run));
      return mapping->bytes().subspan(run.offset, bytes_of(run));
    }
    s.raw.resize(static_cast<uint64_t>(end - begin) * row_bytes);
    for (int64_t row = begin; row < end;) {
      const Stretch stretch = stretch_at(row, end);
      stretch.mapping->populate(stretch.from, stretch.to - stretch.from);
      while (row < stretch.end) {
        const RowReader::Run run = reader_.run_at(row, stretch.end);
        std::memcpy(s.raw.data() + static_cast<uint64_t>(row - begin) * row_bytes,
                    stretch.mapping->bytes().data() + run.offset, bytes_of(run));
        row += run.count;
      }
    }
    return s.raw;
  }

  // Calls task(begin, end, staging) for all rows, a piece at a time. Pages of the mapping are given
  // back, a window of pieces at a time, by whoever has done the window's last piece: else the whole checkpoint would
  // count as this process's memory. As pieces are claimed in order, at most one window per thread is open.
  Status for_mapped_pieces(ThreadPool& pool, std::vector<Staging>& staging, uint64_t window_bytes,
                           FunctionRef<Status(int64_t begin, int64_t end, Staging& staging)> task) const {
    const auto rows_of = [&](uint64_t bytes) {
      return std::max<int64_t>(1, static_cast<int64_t>(bytes / reader_.row_bytes()));
    };
    const auto threads = static_cast<uint64_t>(std::max(1, pool.size()));
    const uint64_t share = static_cast<uint64_t>(to_.rows) * reader_.row_bytes() / (8 * threads);
    const int64_t step = rows_of(std::clamp(share, kSmallPieceBytes, kPieceBytes));
    const int64_t pieces = ceil_div(to_.rows, step);
    const int64_t per_window = std::max<int64_t>(1, rows_of(window_bytes / threads) / step);
    std::vector<std::atomic<int64_t>> done(static_cast<size_t>(ceil_div(pieces, per_window)));
    return for_pieces(pool, pieces, staging, [&](int64_t piece, Staging& s) -> Status {
      TRY_STATUS(task(piece * step, std::min(to_.rows, (piece + 1) * step), s));
      const int64_t window = piece / per_window, first = window * per_window;
      const int64_t last = std::min(pieces, first + per_window);
      if (done[static_cast<size_t>(window)].fetch_add(1, std::memory_order_relaxed) + 1 < last - first) return {};
      give_back(first * step, std::min(to_.rows, last * step));
      return {};
    });
  }

  // The pages of rows [begin, end), and what the kernel brought around them. Whole large pages, as to take a part of
  // one interrupts every thread, twice: before the tensor's end one that reaches beyond it waits for the next window.
  void give_back(int64_t begin, int64_t end) const {
    Stretch all = stretch_at(begin, end);
    const auto release = [&](bool last) {
      const uint64_t from = (all.from - std::min(all.from, kFaultAround)) / kLargePage * kLargePage;
      const uint64_t to = last ? align_up(all.to + kFaultAround, kLargePage) : all.to / kLargePage * kLargePage;
      const uint64_t size = all.mapping->bytes().size();
      if (from < std::min(to, size)) all.mapping->release(from, std::min(to, size) - from);
    };
    while (all.end < end) {
      const Stretch next = stretch_at(all.end, end);
      const bool adjoins = next.mapping == all.mapping && next.from <= all.to && next.to >= all.from;
      if (!adjoins) release(true);
      all = adjoins ? Stretch{all.mapping, std::min(all.from, next.from), std::max(all.to, next.to), next.end} : next;
    }
    release(end == to_.rows);
  }

  Result<Filled> quantize_mapped(ThreadPool& pool, std::vector<Staging>& staging) {
    Quantizer quantizer(to_, o_.quantize_from, o_.isa, o_.non_finite);
    TRY_STATUS(
        for_mapped_pieces(pool, staging, kMappedToQuantizeBytes, [&](int64_t begin, int64_t end, Staging&) -> Status {
          populate(begin, end);
          return quantize_in_place(quantizer, begin, end);
        }));
    quantizer.finish();
    return Filled{quantizer.met_non_finite()};
  }

  const RowReader& reader_;
  const quant::MutablePackedMatrix& to_;
  const FillOptions& o_;
  bool decode_, straight_;
  std::array<uint64_t, quant::kPlaneCount> plane_bytes_{};
};

}  // namespace

Status for_pieces(ThreadPool& pool, int64_t count, std::vector<Staging>& staging,
                  FunctionRef<Status(int64_t index, Staging& staging)> task) {
  staging.resize(std::max(staging.size(), static_cast<size_t>(pool.size())));
  FirstError failure;
  pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end && !failure.failed(); ++i)
      failure.keep(task(i, staging[static_cast<size_t>(thread)]));
  });
  return failure.take();
}

Result<Filled> fill_matrix(const RowReader& reader, const quant::MutablePackedMatrix& to, const FillOptions& options,
                           ThreadPool& pool, std::vector<Staging>& staging) {
  return Filler(reader, to, options).fill(pool, staging);
}

}  // namespace berth::load
