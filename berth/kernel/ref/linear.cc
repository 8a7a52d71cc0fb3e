// kernel/ref/linear.cc — the definition of the Linear layer's bits: numerics.md 1 (exact) and 5 (int8), to the letter.
//
// A weight row becomes its exact code values c, its blocks' scales s and minima m (quant/packed.h), whatever the
// format; one loop over words and runs serves all. Start reading at: exact_row, then int8_row.
#include "berth/kernel/linear.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/kernel/ref/lanes.h"
#include "berth/kernel/ref/ref.h"
#include "berth/quant/codec.h"
#include "berth/quant/packed.h"

namespace berth::kernel::BERTH_REF {
namespace {

constexpr int kInt8Lanes = 8;
constexpr int64_t kInt8Word = 32;
constexpr int64_t kNibbleOrder[8] = {1, 0, 3, 2,
                                     5, 4, 7, 6};  // words of 8 elements: bitsandbytes' nibbles by bit position

// One weight row, decoded. Blocks of unscaled and row-scaled formats: none.
struct Row {
  const float* c = nullptr;
  const int8_t* q = nullptr;  // int8 mode
  const float* s = nullptr;
  const float* m = nullptr;  // null: no minimum
  quant::RowBlocks blocks;
  quant::Scaling scaling = quant::Scaling::kNone;
  int64_t word = 1;
};

float exact_row(const Row& row, const float* x, int64_t k) {
  float a[kLanes] = {};
  for (int64_t begin = 0, j = 0; begin < k; begin += row.word, ++j) {
    const int64_t end = std::min(begin + row.word, k);
    float& lane = a[j % kLanes];
    if (row.scaling != quant::Scaling::kBlock) {
      for (int64_t i = 0; i < row.word; ++i) {
        const int64_t e = begin + (row.word == 8 ? kNibbleOrder[i] : i);
        if (e < end) lane = std::fma(row.c[e], x[e], lane);
      }
      continue;
    }
    for (int64_t b = row.blocks.block_of(begin); b <= row.blocks.block_of(end - 1); ++b) {
      bool first = true;
      float p = 0, t = 0;
      for (int64_t i = 0; i < row.word; ++i) {
        const int64_t e = begin + (row.word == 8 ? kNibbleOrder[i] : i);
        if (e >= end || row.blocks.block_of(e) != b) continue;
        p = first ? row.c[e] * x[e] : std::fma(row.c[e], x[e], p);
        t = first ? x[e] : t + x[e];
        first = false;
      }
      lane = std::fma(p, row.s[b], lane);
      if (row.m != nullptr) lane = std::fma(row.m[b], t, lane);
    }
  }
  return finish(a, kLanes);
}

// One input vector quantized to int8 by words of 32.
struct Int8Input {
  int8_t* q = nullptr;  // [k]
  float* dx = nullptr;  // [words]
};

void quantize(const float* x, int64_t k, const Int8Input& out) {
  for (int64_t begin = 0, j = 0; begin < k; begin += kInt8Word, ++j) {
    const int64_t end = std::min(begin + kInt8Word, k);
    uint32_t bits = 0;
    for (int64_t e = begin; e < end; ++e) bits = std::max(bits, std::bit_cast<uint32_t>(x[e]) & 0x7FFFFFFFu);
    const float m = std::bit_cast<float>(bits);
    std::memset(out.q + begin, 0, static_cast<size_t>(end - begin));
    if (bits >= 0x7F800000u) {
      out.dx[j] = std::bit_cast<float>(0x7FC00000u);
    } else if (m < 0x1p-100f) {
      out.dx[j] = 0.0f;
    } else {
      out.dx[j] = m / 127.0f;
      const float id = 127.0f / m;
      for (int64_t e = begin; e < end; ++e) out.q[e] = static_cast<int8_t>(std::nearbyint(x[e] * id));
    }
  }
}

float int8_row(const Row& row, const Int8Input& x, int64_t k) {
  float a[kInt8Lanes] = {};
  for (int64_t begin = 0, j = 0; begin < k; begin += kInt8Word, ++j) {
    const int64_t end = std::min(begin + kInt8Word, k);
    float& lane = a[j % kInt8Lanes];
    const bool blocks = row.scaling == quant::Scaling::kBlock;
    for (int64_t run = begin; run < end;) {
      const int64_t b = blocks ? row.blocks.block_of(run) : 0;
      int32_t dot = 0, sum = 0;
      int64_t e = run;
      for (; e < end && (!blocks || row.blocks.block_of(e) == b); ++e) {
        dot += row.q[e] * x.q[e];
        sum += x.q[e];
      }
      lane = std::fma(static_cast<float>(dot), blocks ? x.dx[j] * row.s[b] : x.dx[j], lane);
      if (row.m != nullptr) lane = std::fma(static_cast<float>(sum), x.dx[j] * row.m[b], lane);
      run = e;
    }
  }
  return finish(a, kInt8Lanes);
}

// Takes the next `count` T's of the scratch, on a 64-byte boundary.
struct Scratch {
  std::byte* at;
  template <typename T>
  T* take(int64_t count) {
    T* taken = reinterpret_cast<T*>(at);
    at += align_up(static_cast<size_t>(count) * sizeof(T), size_t{64});
    return taken;
  }
};

void one_job(const Context& context, const LinearInput& in, const LinearJob& job, Scratch scratch) {
  const quant::PackedMatrix& w = *job.weight;
  const quant::CodecInfo& info = quant::codec_info(w.format.codec);
  const bool int8 = context.numerics == Numerics::kInt8 && info.int8_mode;
  const int64_t words = ceil_div(in.k, kInt8Word);
  float* c = scratch.take<float>(in.k);
  int8_t* q = scratch.take<int8_t>(in.k);
  float* s = scratch.take<float>(in.k + 1);
  float* minimum = scratch.take<float>(in.k + 1);
  const Int8Input x8{scratch.take<int8_t>(int8 ? in.m * in.k : 0), scratch.take<float>(int8 ? in.m * words : 0)};
  const auto x8_row = [&](int64_t m) { return Int8Input{x8.q + m * in.k, x8.dx + m * words}; };
  for (int64_t m = 0; int8 && m < in.m; ++m) quantize(in.x + m * in.x_stride, in.k, x8_row(m));

  for (int64_t n = 0; n < job.row_count; ++n) {
    const int64_t r = job.row_begin + n;
    Row row;
    row.word = info.word_elements;
    row.scaling = info.scaling;
    if (info.scaling != quant::Scaling::kNone) {
      row.blocks = quant::row_blocks(w, r);
      quant::row_scales(w, r, s, info.has_min ? minimum : nullptr);
      row.s = s;
      row.m = info.has_min ? minimum : nullptr;
    }
    if (int8) {
      quant::row_int8_codes(w, r, q);
      row.q = q;
    } else {
      quant::row_codes(w, r, c);
      row.c = c;
    }
    for (int64_t m = 0; m < in.m; ++m) {
      float y = int8 ? int8_row(row, x8_row(m), in.k) : exact_row(row, in.x + m * in.x_stride, in.k);
      if (int8 && info.kappa != 1.0f) y = y * info.kappa;
      if (info.scaling == quant::Scaling::kRow) y = y * row.s[0];
      if (job.bias != nullptr) y = y + job.bias[n];
      job.y[m * job.y_stride + n] = y;
    }
  }
}

}  // namespace

void linear(const Context& context, const LinearInput& input, std::span<const LinearJob> jobs,
            std::span<std::byte> scratch) {
  for (const LinearJob& job : jobs) one_job(context, input, job, Scratch{scratch.data()});
}

}  // namespace berth::kernel::BERTH_REF
