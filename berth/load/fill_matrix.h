// load/fill_matrix.h — rows of a checkpoint into one matrix's planes: converted or quantized, in parallel, in bounded
// memory.
//
// A thread reads a piece of kPieceBytes, converts it while it is in its cache, and puts it where it stays. Rows that
// need no change are read straight into the matrix.
//
// Non-goals: planes that are tensors of their own in the file (load_weights.cc). Start reading at: fill_matrix.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "berth/base/file_mapping.h"
#include "berth/base/thread_pool.h"
#include "berth/load/quantizer.h"
#include "berth/load/row_reader.h"

namespace berth::device {
class HostRegions;
}

namespace berth::load {

// What one thread reads at once. Small enough to be converted out of its own cache, large enough that a request to the
// disk is worth it (docs/decisions/load_io.md). A thread holds one such piece, or two rows where they are larger, as
// stored and as fp32.
inline constexpr uint64_t kPieceBytes = uint64_t{512} << 10;

// Of a mapping whose rows are quantized or packed, as much is this process's memory at once (or a piece per thread,
// where that is more): little where the matrices themselves are as large as the file, and more where giving pages back
// often would cost a tenth of the rate. Pieces of matrices that have few of them are smaller.
inline constexpr uint64_t kMappedToPackBytes = uint64_t{2} << 20;
inline constexpr uint64_t kMappedToQuantizeBytes = uint64_t{16} << 20;
inline constexpr uint64_t kSmallPieceBytes = uint64_t{128} << 10;

// Buffers of one thread; grown, never shrunk.
struct Staging {
  std::vector<std::byte> raw, scratch;
  std::vector<float> values;
  uint64_t bytes() const { return raw.capacity() + scratch.capacity() + values.capacity() * sizeof(float); }
};

struct FillOptions {
  bool quantize = false;              // into the matrix's nf4, fp4 or int8; otherwise its rows are packed as they are
  DType quantize_from = DType::kF32;  // the dtype values are rounded to before they are quantized
  bool vector = false;                // decode to fp32 first, whatever the file has
  bool add_one = false;               // fp32(1 + w)
  DType round_to = DType::kF32;       // vectors: --dtype's rounding, before one is added
  Isa isa = Isa::kRef;                // of the encoders
  NonFinite non_finite = NonFinite::kRefuse;
  // Of the checkpoint's files: rows that are quantized or packed as they are in one of these are not read but used
  // there.
  std::span<const std::unique_ptr<FileMapping>> mappings;
  device::HostRegions* new_memory = nullptr;  // where the matrix may lie: its pages are asked for just before use
};

struct Filled {
  bool met_non_finite = false;  // only with NonFinite::kAsLibrary
};

// Fills `to` with all rows of `reader` (as many as it has: a CHECK). `staging`: one per thread of `pool`, grown here.
// Errors: kIo, kCorruptData (a weight that is not a number: row and column), kUnsupported (no such conversion).
Result<Filled> fill_matrix(const RowReader& reader, const quant::MutablePackedMatrix& to, const FillOptions& options,
                           ThreadPool& pool, std::vector<Staging>& staging);

// Runs task(index, staging of its thread) for every index on the pool; the first error ends it and is returned.
Status for_pieces(ThreadPool& pool, int64_t count, std::vector<Staging>& staging,
                  FunctionRef<Status(int64_t index, Staging& staging)> task);

}  // namespace berth::load
