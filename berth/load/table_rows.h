// load/table_rows.h — rows of a table gathered: from memory, or read from the disk one by one.
//
// Only the rows asked for are read, each by itself, several at once. Start reading at: TableRows::gather.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/base/thread_pool.h"
#include "berth/kernel/context.h"
#include "berth/load/fill_matrix.h"
#include "berth/load/weight_store.h"

namespace berth::load {

class TableRows {
 public:
  // Row ids[i] as fp32 at out + i * width. Errors: kIo. `read_bytes` grows by what came from the disk.
  Status gather(const kernel::Context& context, const HeldTensor& table, std::span<const int32_t> ids, float* out,
                int64_t width, uint64_t& read_bytes);

 private:
  std::vector<Staging> staging_;  // a row's bytes for each thread
};

}  // namespace berth::load
