// kernel/nan_weights_test.cc — an output of Linear is NaN or infinite whenever a weight or scale of its row is NaN, on
// every instruction set, for every number of inputs, whatever they are: what load/unseen_weights.h proves weights by.
// Not codes of fp8: kernels widen them as if none were NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "berth/kernel/linear.h"
#include "berth/kernel/parity.h"
#include "berth/quant/codec.h"
#include "berth/quant/scratch.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::parity {
namespace {

using quant::Codec;
using quant::Plane;

// Calls `check` with the outputs of input 0 in every way to compute them.
template <typename F>
void in_every_way(const quant::PackedMatrix& weight, ThreadPool& pool, F&& check) {
  Random random(seed_of("nan weights"));
  for (const int64_t m : {1, 2, 3, 4, 6, 9, 16, 17, 40, 65}) {
    for (const bool zeros : {false, true}) {
      std::vector<float> x(static_cast<size_t>(m * weight.cols), 0.0f);
      if (!zeros) x = values(random, m * weight.cols, Inputs::kPlain);
      for (const Numerics numerics : {Numerics::kExact, Numerics::kInt8}) {
        for (const Isa isa : available_isas()) {
          for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
            if (isa == Isa::kRef && m > 3) continue;  // one form
            std::vector<float> y(static_cast<size_t>(m * weight.rows), -1.0f);
            const Aligned scratch(quant::linear_scratch_bytes(m, weight.cols, numerics == Numerics::kInt8,
                                                              threads == nullptr ? 1 : threads->size()));
            const LinearJob job{.weight = &weight, .row_count = weight.rows, .y = y.data(), .y_stride = weight.rows};
            linear({isa, numerics, threads}, {x.data(), m, weight.cols, weight.cols}, std::span(&job, 1),
                   scratch.span());
            check(std::span<const float>(y).first(static_cast<size_t>(weight.rows)),
                  quant::format_text(weight.format) + (numerics == Numerics::kInt8 ? " int8" : " exact") + " m " +
                      std::to_string(m) + " k " + std::to_string(weight.cols) + (zeros ? " zeros" : "") + " on " +
                      std::string(isa_name(isa)));
          }
        }
      }
    }
  }
}

// One element after the other is made NaN, and put back: the row's output must not be finite, all others stay so.
template <typename T>
void poison(const quant::PackedMatrix& weight, std::byte* at, uint64_t elements, const std::vector<T>& nans,
            const std::function<int64_t(uint64_t element)>& row_of) {
  ThreadPool pool(2);
  Random random(seed_of("elements"));
  for (int turn = 0; turn < 4; ++turn) {
    const uint64_t element = turn == 0   ? 0
                             : turn == 1 ? elements - 1
                                         : static_cast<uint64_t>(random.below(static_cast<int64_t>(elements)));
    for (const T nan : nans) {
      T kept;
      std::memcpy(&kept, at + element * sizeof(T), sizeof(T));
      std::memcpy(at + element * sizeof(T), &nan, sizeof(T));
      in_every_way(weight, pool, [&](std::span<const float> y, const std::string& how) {
        for (int64_t row = 0; row < weight.rows; ++row)
          EXPECT_EQ(std::isfinite(y[static_cast<size_t>(row)]), row != row_of(element))
              << how << " element " << element << " row " << row;
      });
      std::memcpy(at + element * sizeof(T), &kept, sizeof(T));
    }
  }
}

const std::vector<uint16_t> kBf16{0x7FC0, 0xFFFF, 0x7F81}, kF16{0x7E00, 0xFFFF, 0x7C01};
const std::vector<uint32_t> kF32{0x7FC00000u, 0xFFFFFFFFu, 0x7F800001u};

TEST(NanWeights, OfFloatsAreSeenInTheirOutput) {
  for (const Codec codec : {Codec::kF32, Codec::kF16, Codec::kBF16}) {
    for (const int64_t k : {33, 96, 544}) {
      Random random(seed_of("floats"));
      const Matrix matrix(quant::stored_format(codec), 21, k, random);
      const auto row_of = [&](uint64_t element) { return static_cast<int64_t>(element) / k; };
      const auto elements = static_cast<uint64_t>(matrix.view.rows * k);
      std::byte* const at = matrix.memory.data() + matrix.layout.plane(Plane::kCodes).offset;
      if (codec == Codec::kF32) poison(matrix.view, at, elements, kF32, row_of);
      if (codec == Codec::kF16) poison(matrix.view, at, elements, kF16, row_of);
      if (codec == Codec::kBF16) poison(matrix.view, at, elements, kBf16, row_of);
    }
  }
}

// Scales of 4-bit blocks and of rows of int8.
TEST(NanWeights, ScalesAreSeenInTheirOutput) {
  struct Case {
    quant::StoredFormat format;
    int64_t k;
  };
  for (const Case& c : {Case{{Codec::kNF4, 64, false}, 192}, Case{{Codec::kFP4, 32, false}, 544},
                        Case{{Codec::kNF4, 128, false}, 256}, Case{{Codec::kInt8Row}, 544}}) {
    Random random(seed_of("scales"));
    const Matrix matrix(c.format, 21, c.k, random);
    const quant::PlaneLayout& scales = matrix.layout.plane(Plane::kScales);
    ASSERT_EQ(scales.dtype, DType::kF32);
    const auto per_row = static_cast<int64_t>(scales.count) / matrix.view.rows;
    poison(matrix.view, matrix.memory.data() + scales.offset, scales.count, kF32,
           [&](uint64_t element) { return static_cast<int64_t>(element) / per_row; });
  }
}

// Q8_0 blocks where a GGUF file has them: d is NaN, or infinite over a code of 0.
TEST(NanWeights, BlocksInAFileAreSeenInTheirOutput) {
  const int64_t rows = 21, k = 288, blocks = k / 32;
  Aligned memory(static_cast<size_t>(rows * blocks) * quant::kQ8BlockBytes + 64);
  Random random(seed_of("blocks"));
  quant::PackedMatrix weight{quant::stored_format(Codec::kQ8_0), rows, k, {}};
  weight.in_blocks = true;
  weight.planes[0] = memory.data();
  for (int64_t b = 0; b < rows * blocks; ++b) {
    std::byte* const at = memory.data() + b * static_cast<int64_t>(quant::kQ8BlockBytes);
    const uint16_t d = f32_to_f16(0.01f + random.uniform());
    std::memcpy(at, &d, 2);
    for (int i = 0; i < 32; ++i) at[2 + i] = static_cast<std::byte>(random.bits());
    at[2 + random.below(32)] = std::byte{0};
  }
  ThreadPool pool(2);
  for (const int64_t block : {int64_t{0}, rows * blocks / 2, rows * blocks - 1}) {
    for (const uint16_t d : {0x7E00, 0xFC01, 0x7C00, 0xFC00}) {
      std::byte* const at = memory.data() + block * static_cast<int64_t>(quant::kQ8BlockBytes);
      uint16_t kept;
      std::memcpy(&kept, at, 2);
      std::memcpy(at, &d, 2);
      in_every_way(weight, pool, [&](std::span<const float> y, const std::string& how) {
        for (int64_t row = 0; row < rows; ++row)
          EXPECT_EQ(std::isfinite(y[static_cast<size_t>(row)]), row != block / blocks) << how << " row " << row;
      });
      std::memcpy(at, &kept, 2);
    }
  }
}

}  // namespace
}  // namespace berth::kernel::parity
