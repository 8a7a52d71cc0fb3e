// kernel/cpu/linear_driver.cc — one linear() call: x prepared once per layout, the outputs cut into chunks, the chunks
// given to the threads of the pool. The arithmetic is in the `rows` and `gemm` loops of each instruction set.
//
// Few inputs (`rows`): each thread begins with its own share of all outputs, in four long streams, and takes it a
// little at a time; then what is left of the others'. Many inputs (`gemm`): a chunk is a panel of outputs, claimed as
// threads finish (ThreadPool::parallel_for). So a core that another process takes delays little. Scratch: x for the
// call, then one area per thread.
//
// Start reading at: run().
#include <algorithm>
#include <atomic>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/kernel/cpu/linear_dispatch.h"
#include "berth/kernel/cpu/linear_kernels.h"
#include "berth/kernel/dispatch.h"
#include "berth/quant/packed.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;
using quant::Plane;

// Inputs of one pass: bounds the copies of x, a multiple of 6 (tiling()). Later passes read and pack the weights again:
// a prompt chunk of 512 goes in one.
constexpr int64_t kPassM = 516;
// Bytes of weights that a thread takes at once from a share (few inputs): a quarter of what is left of it, so that all
// end together, within these bounds. A share's streams go on from piece to piece, so that pieces may be small.
constexpr int64_t kMostPieceBytes = 256 * 1024;
constexpr int64_t kLeastPieceBytes = 12 * 1024;
constexpr int64_t kLeastShareBytes = 16 * 1024;  // less is not worth a second thread
// Between what all threads read and what one writes, and between two threads' areas: reading to the end of the one must
// not make the hardware fetch the other.
constexpr int64_t kBetweenThreads = 4096;

// The same step of all inputs is read together: what to add to the bytes between two inputs, that these
// steps lie in different sets of the first-level cache, and not all at the same place of a page.
int64_t apart(int64_t bytes) {
  const int64_t at = bytes % 2048;
  return at < 512 ? 512 - at : at > 1536 ? 2048 + 512 - at : 0;
}
// Inputs from which on threads share the work of laying them out.
constexpr int64_t kShareInputs = 8;

// Loops that serve every format compute where a row's high bits would be before they know that it has none: an address
// to count from, never read.
constexpr uint32_t kNoHighBits[16] = {};

WeightView view(const quant::PackedMatrix& w) {
  const quant::CodecInfo& info = quant::codec_info(w.format.codec);
  WeightView v;
  v.codec = w.format.codec;
  v.k = w.cols;
  v.blocksize = w.format.blocksize;
  v.nested = w.format.nested;
  v.codes = w.codes();
  v.high = w.high() != nullptr ? w.high() : kNoHighBits;
  v.scales = w.plane<void>(Plane::kScales);
  v.mins = w.plane<uint16_t>(Plane::kMins);
  v.sub_scales = w.plane<uint8_t>(Plane::kSubScales);
  v.nested_absmax = w.plane<float>(Plane::kNestedAbsmax);
  v.nested_map = w.plane<float>(Plane::kNestedMap);
  if (const float* offset = w.plane<float>(Plane::kNestedOffset)) v.nested_offset = *offset;
  v.book = info.code_book;
  v.int8_book = info.int8_book;
  v.in_blocks = w.in_blocks;
  v.interleaved_rows = w.interleaved_rows;
  return v;
}

InputLayout layout_of(const quant::CodecInfo& info, bool int8) {
  if (int8 && info.int8_mode) return info.code_bits == 8 ? InputLayout::kBytes : InputLayout::kNibbles;
  switch (info.word_elements) {
    case 1:
      return InputLayout::kWords1;
    case 2:
      return InputLayout::kWords2;
    case 4:
      return InputLayout::kWords4;
    default:
      return InputLayout::kWords8;
  }
}
constexpr int kLayouts = 6;

class Call {
 public:
  Call(const LinearKernels& kernels, const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
       std::span<std::byte> scratch)
      : kernels_(kernels),
        context_(context),
        in_(input),
        jobs_(jobs),
        scratch_(scratch),
        threads_(context.pool == nullptr ? 1 : context.pool->size()),
        int8_(context.numerics == Numerics::kInt8) {}

  void run();

 private:
  void rows_pass(InputLayout layout, int64_t m_begin, int64_t m_count);
  void gemm_pass(InputLayout layout, int64_t m_begin, int64_t m_count);
  void by_reference();
  template <typename F>
  void for_shares(InputLayout layout, F&& f);
  template <typename RowsOf, typename F>
  void for_chunks(InputLayout layout, RowsOf&& rows_of, F&& f);
  template <typename Task>
  Task task_of(const LinearJob& job, int64_t begin, int64_t count, int64_t m_begin, int64_t m_count) const;
  template <typename F>
  void parallel(int64_t count, F&& f) {
    if (context_.pool != nullptr && threads_ > 1 && count > 1) {
      context_.pool->parallel_for(count, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) f(i, thread);
      });
    } else {
      for (int64_t i = 0; i < count; ++i) f(i, 0);
    }
  }
  // Whether the pass that runs now is the job's: its layout of x and its kind of loop.
  bool reads(const LinearJob& job, InputLayout layout) const {
    const quant::CodecInfo& info = quant::codec_info(job.weight->format.codec);
    return job.row_count > 0 && layout_of(info, int8_) == layout && wants_gemm(info) == gemm_;
  }
  bool wants_gemm(const quant::CodecInfo& info) const {
    return pass_m_ >= kernels_.gemm_from(info, int8_ && info.int8_mode);
  }

  const LinearKernels& kernels_;
  const Context& context_;
  const LinearInput& in_;
  const std::span<const LinearJob> jobs_;
  const std::span<std::byte> scratch_;
  const int threads_;
  const bool int8_;
  int64_t pass_m_ = 0;  // inputs of the pass that runs now
  bool gemm_ = false;   // and its kind of loop
};

int64_t code_bytes(const LinearJob& job) {
  return job.row_count * (job.weight->cols * quant::codec_info(job.weight->format.codec).code_bits / 8);
}

// A thread's share of a call's outputs, laid end to end and cut by bytes: some rows of one job or of several
// neighbouring ones. Its quads are numbered through, and taken from the front by whoever has time.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t quads = 0;
  int64_t begin_bytes = 0, end_bytes = 0;

  // The rows of a job that belong to it; `before`: the bytes of the jobs before this one.
  struct Rows {
    int64_t begin, count;
  };
  Rows rows_of(const LinearJob& job, int64_t before) const {
    const int64_t bytes = code_bytes(job);
    const auto row_at = [&](int64_t at) {
      if (at >= before + bytes) return job.row_count;
      return at <= before ? 0 : (at - before) / (bytes / job.row_count) / 4 * 4;
    };
    const int64_t begin = row_at(begin_bytes);
    return {begin, row_at(end_bytes) - begin};
  }
};

// Calls f(job, first row, rows, first quad, end quad, thread) so that together all quads of all jobs that read `layout`
// are done.
template <typename F>
void Call::for_shares(InputLayout layout, F&& f) {
  constexpr int kMost = 64;
  int64_t total = 0;
  for (const LinearJob& job : jobs_)
    if (reads(job, layout)) total += code_bytes(job);
  const int n = static_cast<int>(std::clamp<int64_t>(total / kLeastShareBytes, 1, std::min(threads_, kMost)));
  Share shares[kMost];
  int64_t quads = 0;
  for (int i = 0; i < n; ++i) {
    Share& s = shares[i];
    s.begin_bytes = total * i / n;
    s.end_bytes = total * (i + 1) / n;
    int64_t before = 0;
    for (const LinearJob& job : jobs_) {
      if (!reads(job, layout)) continue;
      s.quads += RowsTask::quads(s.rows_of(job, before).count);
      before += code_bytes(job);
    }
    quads += s.quads;
  }
  const int64_t quad_bytes = std::max<int64_t>(total / quads, 1);
  const int64_t least = ceil_div(kLeastPieceBytes, quad_bytes);
  const int64_t most = n == 1 ? quads : std::max(kMostPieceBytes / quad_bytes, least);
  const auto take = [&](Share& s, int thread) {  // false: nothing is left
    const int64_t left = s.quads - s.next.load(std::memory_order_relaxed);
    if (left <= 0) return false;
    const int64_t want = align_up(std::clamp(left / 4, least, most), int64_t{2});  // loops may take two quads at a time
    int64_t begin = s.next.fetch_add(n == 1 ? left : want, std::memory_order_relaxed);
    int64_t end = std::min(begin + (n == 1 ? left : want), s.quads);
    int64_t before = 0;
    for (const LinearJob& job : jobs_) {
      if (begin >= end) break;
      if (!reads(job, layout)) continue;
      const Share::Rows rows = s.rows_of(job, before);
      const int64_t count = RowsTask::quads(rows.count);
      if (begin < count) f(job, rows.begin, rows.count, begin, std::min(end, count), thread);
      begin = std::max<int64_t>(begin - count, 0);
      end -= count;
      before += code_bytes(job);
    }
    return true;
  };
  parallel(n, [&](int64_t share, int thread) {
    for (int i = 0; i < n; ++i)
      while (take(shares[(share + i) % n], thread)) {
      }
  });
}

// Calls f(job, first output, outputs, thread) for pieces of all jobs that read `layout`; `rows_of(job)` outputs each.
template <typename RowsOf, typename F>
void Call::for_chunks(InputLayout layout, RowsOf&& rows_of, F&& f) {
  int64_t chunks = 0;
  for (const LinearJob& job : jobs_)
    if (reads(job, layout)) chunks += ceil_div(job.row_count, rows_of(job));
  parallel(chunks, [&](int64_t chunk, int thread) {
    for (const LinearJob& job : jobs_) {
      if (!reads(job, layout)) continue;
      const int64_t rows = rows_of(job), count = ceil_div(job.row_count, rows);
      if (chunk < count) return f(job, chunk * rows, std::min(rows, job.row_count - chunk * rows), thread);
      chunk -= count;
    }
  });
}

// What both kinds of task say about their outputs.
template <typename Task>
Task Call::task_of(const LinearJob& job, int64_t begin, int64_t count, int64_t m_begin, int64_t m_count) const {
  const quant::CodecInfo& info = quant::codec_info(job.weight->format.codec);
  Task t;
  t.w = view(*job.weight);
  t.row_begin = job.row_begin + begin;
  t.row_count = count;
  t.m = m_count;
  t.y = job.y + m_begin * job.y_stride + begin;
  t.y_stride = job.y_stride;
  t.bias = job.bias == nullptr ? nullptr : job.bias + begin;
  t.kappa = int8_ && info.int8_mode ? info.kappa : 1.0f;
  return t;
}

void Call::rows_pass(InputLayout layout, int64_t m_begin, int64_t m_count) {
  int64_t x_bytes = prepared_bytes(layout, in_.k);
  if (m_count > 1) x_bytes += apart(x_bytes);
  const int64_t area = align_up(rows_scratch_bytes(in_.k, m_count), int64_t{64}) + kBetweenThreads;
  std::byte* const x = scratch_.data();
  std::byte* const areas = x + m_count * x_bytes + kBetweenThreads;
  CHECK(m_count * x_bytes + kBetweenThreads + area * threads_ <= static_cast<int64_t>(scratch_.size()));
  const auto prepare = [&](int64_t m, int) {
    prepare_input_avx2(in_.x + (m_begin + m) * in_.x_stride, in_.k, layout, kernels_.vector, x + m * x_bytes);
  };
  if (m_count >= kShareInputs)
    parallel(m_count, prepare);
  else
    for (int64_t m = 0; m < m_count; ++m) prepare(m, 0);
  for_shares(layout,
             [&](const LinearJob& job, int64_t begin, int64_t count, int64_t quad_begin, int64_t quad_end, int thread) {
               RowsTask t = task_of<RowsTask>(job, begin, count, m_begin, m_count);
               t.quad_begin = quad_begin;
               t.quad_end = quad_end;
               t.x = x;
               t.x_bytes = x_bytes;
               t.scratch = areas + thread * area;
               kernels_.rows(t.w, int8_ && quant::codec_info(t.w.codec).int8_mode, m_count)(t);
             });
}

void Call::gemm_pass(InputLayout layout, int64_t m_begin, int64_t m_count) {
  const int64_t x_bytes = tile_bytes(layout, in_.k);
  const int64_t area = align_up(gemm_scratch_bytes(in_.k), int64_t{64});
  const Tiling tiles = tiling(m_count);
  const int64_t padded_m = tiles.padded();
  std::byte* const x = scratch_.data();
  std::byte* const areas = x + align_up(padded_m * x_bytes, int64_t{64});
  CHECK(areas - x + area * threads_ <= static_cast<int64_t>(scratch_.size()));
  parallel(tiles.count(), [&](int64_t i, int) {
    const int64_t m = tiles.begin(i);
    const int tile = tiles.tile_at(m);
    kernels_.prepare_tile(in_.x + (m_begin + m) * in_.x_stride, in_.x_stride,
                          static_cast<int>(std::min<int64_t>(tile, m_count - m)), tile, in_.k, layout, x + m * x_bytes);
  });
  const bool groups = (layout == InputLayout::kNibbles || layout == InputLayout::kBytes) && m_count >= kInt8BlockM;
  const int64_t most_panels = std::min<int64_t>(kernels_.int8_panels, int8_panels(in_.k));
  const auto gemm_rows = [&](const LinearJob& job) {
    // Several panels to a chunk, where each thread still gets several chunks.
    const int64_t panels = job.row_count / kPanelN / (threads_ == 1 ? 1 : threads_ * 4);
    return kPanelN * (groups ? std::clamp<int64_t>(panels, 1, most_panels) : 1);
  };
  for_chunks(layout, gemm_rows, [&](const LinearJob& job, int64_t begin, int64_t count, int thread) {
    GemmTask t = task_of<GemmTask>(job, begin, count, m_begin, m_count);
    t.x = x;
    // Threads take chunks in turn.
    t.next_begin = t.row_begin + threads_ * gemm_rows(job);
    t.next_rows = std::clamp(job.row_begin + job.row_count - t.next_begin, int64_t{0}, gemm_rows(job));
    t.scratch = areas + thread * area;
    kernels_.gemm(t.w.codec, int8_ && quant::codec_info(t.w.codec).int8_mode)(t);
  });
}

// Rows that are not whole words of 32: each thread runs the definition on its rows, a few inputs at a time.
void Call::by_reference() {
  constexpr int64_t kRows = 16, kInputs = 32;
  const int64_t area = static_cast<int64_t>(scratch_.size()) / threads_ / 64 * 64;
  Context alone = context_;
  alone.pool = nullptr;
  for (const LinearJob& job : jobs_) {
    parallel(ceil_div(job.row_count, kRows), [&](int64_t chunk, int thread) {
      LinearJob part = job;
      const int64_t begin = chunk * kRows;
      part.row_begin += begin;
      part.row_count = std::min(kRows, job.row_count - begin);
      if (job.bias != nullptr) part.bias += begin;
      for (int64_t m = 0; m < in_.m; m += kInputs) {
        LinearInput few = in_;
        few.x += m * in_.x_stride;
        few.m = std::min(kInputs, in_.m - m);
        part.y = job.y + m * job.y_stride + begin;
        operations(Isa::kRef).linear(alone, few, {&part, 1},
                                     scratch_.subspan(static_cast<size_t>(thread * area), static_cast<size_t>(area)));
      }
    });
  }
}

void Call::run() {
  if (in_.k % 32 != 0) return by_reference();
  for (int64_t m = 0; m < in_.m; m += kPassM) {
    pass_m_ = std::min(kPassM, in_.m - m);
    for (int i = 0; i < kLayouts; ++i) {
      const auto layout = static_cast<InputLayout>(i);
      for (const bool gemm : {false, true}) {
        gemm_ = gemm;
        if (std::none_of(jobs_.begin(), jobs_.end(), [&](const LinearJob& job) { return reads(job, layout); }))
          continue;
        gemm ? gemm_pass(layout, m, pass_m_) : rows_pass(layout, m, pass_m_);
      }
    }
  }
}

}  // namespace

void linear_avx512(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
                   std::span<std::byte> scratch) {
  Call(kLinearAvx512, context, input, jobs, scratch).run();
}

void linear_avx2(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
                 std::span<std::byte> scratch) {
  Call(kLinearAvx2, context, input, jobs, scratch).run();
}

}  // namespace berth::kernel::cpu
