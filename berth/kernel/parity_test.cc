// kernel/parity_test.cc — every operation x format x shape: each instruction set equals the reference with ==; the
// reference equals hashes that are checked in, and stays near float64. parity.h says how to run one row alone.
#include "berth/kernel/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "berth/kernel/dispatch.h"
#include "berth/kernel/linear.h"
#include "berth/quant/codec.h"
#include "berth/quant/scratch.h"

namespace berth::kernel::parity {
namespace {

constexpr float kGap = -12345.678f;  // what strides leave between rows must stay untouched

// y = W x for two jobs of one call: all rows with a bias, and a range of rows without.
std::vector<float> run_linear(const Operations* operations, const Context& context, const quant::PackedMatrix& weight,
                              std::span<const float> x, std::span<const float> bias, int64_t m) {
  const int64_t n = weight.rows, k = weight.cols;
  const int64_t y_stride = n + 3;
  std::vector<float> y(static_cast<size_t>(2 * m * y_stride), kGap);
  const int64_t begin = std::min<int64_t>(1, n - 1);
  const LinearJob jobs[] = {
      {.weight = &weight, .row_begin = 0, .row_count = n, .bias = bias.data(), .y = y.data(), .y_stride = y_stride},
      {.weight = &weight,
       .row_begin = begin,
       .row_count = n - begin,
       .bias = nullptr,
       .y = y.data() + m * y_stride,
       .y_stride = y_stride}};
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  const Aligned scratch(quant::linear_scratch_bytes(m, k, context.numerics == Numerics::kInt8, threads));
  const LinearInput input{.x = x.data(), .m = m, .k = k, .x_stride = k + 5};
  if (operations != nullptr) {
    operations->linear(context, input, std::span(jobs), scratch.span());
  } else {
    linear(context, input, std::span(jobs), scratch.span());
  }
  return y;
}

struct LinearCase {
  int64_t m, n, k;
  Inputs inputs;
};

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> cases;
  for (const int64_t k : {1, 7, 8, 31, 32, 33, 63, 64, 65, 67, 72, 96, 255, 256, 257, 576, 768, 2560, 10240}) {
    for (const int64_t m : {1, 2, 5, 16, 17, 64}) {
      if (k > 768 && m > 17) continue;
      const int64_t n = k > 768 ? 5 : (m == 1 || m == 17) ? 67 : (m == 64 ? 33 : 9);
      cases.push_back({m, n, k, Inputs::kPlain});
      if (m <= 5 || k == 256) cases.push_back({m, std::min<int64_t>(n, 5), k, Inputs::kHard});
    }
  }
  cases.push_back({1, 1, 576, Inputs::kPlain});
  cases.push_back({3, 130, 256, Inputs::kPlain});
  return cases;
}

std::string linear_name(const quant::StoredFormat& format, Numerics numerics, const LinearCase& c) {
  return "linear/" + quant::format_text(format) + (numerics == Numerics::kInt8 ? "/int8" : "/exact") + "/m" +
         std::to_string(c.m) + " n" + std::to_string(c.n) + " k" + std::to_string(c.k) +
         (c.inputs == Inputs::kHard ? " hard" : "");
}

void linear_parity(Numerics numerics) {
  Parity parity(numerics == Numerics::kInt8 ? "linear int8" : "linear exact");
  for (const quant::StoredFormat& format : formats()) {
    const quant::CodecInfo& info = quant::codec_info(format.codec);
    if (numerics == Numerics::kInt8 && !info.int8_mode) continue;
    for (const LinearCase& c : linear_cases()) {
      if (c.k % info.cols_multiple != 0) continue;
      Row row;
      row.name = linear_name(format, numerics, c);
      Random random(seed_of(row.name));
      const Matrix matrix(format, c.n, c.k, random);
      const std::vector<float> x = values(random, c.m * (c.k + 5), c.inputs);
      const std::vector<float> bias = values(random, c.n, Inputs::kPlain);
      row.run = [&](const Context& context) { return run_linear(nullptr, context, matrix.view, x, bias, c.m); };
      parity.check(row, quant::format_text(format), numerics);
    }
  }
  testing::Test::RecordProperty("rows", parity.rows_run());
}

TEST(LinearParity, ExactEqualsTheReferenceOnEveryInstructionSet) { linear_parity(Numerics::kExact); }
TEST(LinearParity, Int8EqualsTheReferenceOnEveryInstructionSet) { linear_parity(Numerics::kInt8); }

// A matrix as a mapped GGUF file has it: rows of plain elements or of Q8_0 blocks, those of each head interleaved.
struct InFile {
  InFile(const Matrix& of, int32_t interleaved_rows)
      : view{of.view.format, of.view.rows, of.view.cols}, memory(bytes_of(of) + 64) {
    view.in_blocks = of.view.format.codec == quant::Codec::kQ8_0;
    view.interleaved_rows = interleaved_rows;
    std::byte* const base = memory.data() + 2;  // files align to 32 bytes; kernels must not need more than an element
    view.planes[0] = base;
    const auto row_bytes = static_cast<int64_t>((memory.span().size() - 64) / static_cast<size_t>(view.rows));
    for (int64_t row = 0; row < view.rows; ++row) {
      std::byte* to = base + view.stored_row(row) * row_bytes;
      const std::byte* codes = of.view.planes[0] + row * (view.in_blocks ? view.cols : row_bytes);
      if (!view.in_blocks) {
        std::memcpy(to, codes, static_cast<size_t>(row_bytes));
        continue;
      }
      for (int64_t b = 0; b < view.cols / 32; ++b) {
        std::memcpy(to + b * quant::kQ8BlockBytes, of.view.scales<uint16_t>() + row * (view.cols / 32) + b, 2);
        std::memcpy(to + b * quant::kQ8BlockBytes + 2, codes + b * 32, 32);
      }
    }
  }
  static size_t bytes_of(const Matrix& m) { return *quant::file_bytes(m.view.format, m.view.rows, m.view.cols); }
  quant::PackedMatrix view;
  Aligned memory;
};

TEST(LinearParity, MatricesInAMappedFileGiveTheBitsOfTheirPlanes) {
  ThreadPool pool(2);
  for (const quant::Codec codec : {quant::Codec::kQ8_0, quant::Codec::kBF16, quant::Codec::kF16}) {
    for (const int64_t k : {32, 64, 96, 224, 256, 288, 576, 2560}) {
      for (const int32_t head : {0, 6}) {
        Random random(seed_of("in file") + static_cast<uint64_t>(k));
        const int64_t n = 42;
        const Matrix planes(quant::stored_format(codec), n, k, random);
        const InFile in_file(planes, head);
        const std::vector<float> bias = values(random, n, Inputs::kPlain);
        std::vector<float> expected(static_cast<size_t>(k)), found(expected.size());
        for (int64_t row = 0; row < n; ++row) {
          quant::decode_row(planes.view, row, expected.data());
          quant::decode_row(in_file.view, row, found.data());
          size_t at = 0;
          ASSERT_TRUE(same_bits(expected, found, &at)) << quant::codec_name(codec) << " row " << row;
        }
        for (const int64_t m : {1, 3, 7, 40}) {
          const std::vector<float> x = values(random, m * (k + 5), m == 3 ? Inputs::kHard : Inputs::kPlain);
          for (const Numerics numerics : {Numerics::kExact, Numerics::kInt8}) {
            Context context;
            context.numerics = numerics;
            context.isa = Isa::kRef;
            const std::vector<float> y = run_linear(nullptr, context, planes.view, x, bias, m);
            for (const Isa isa : available_isas()) {
              for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
                context.isa = isa;
                context.pool = threads;
                size_t at = 0;
                EXPECT_TRUE(same_bits(y, run_linear(nullptr, context, in_file.view, x, bias, m), &at))
                    << quant::codec_name(codec) << " k " << k << " head " << head << " m " << m << " on "
                    << isa_name(isa) << ": differs at " << at;
              }
            }
          }
        }
      }
    }
  }
}

// The forms that depend on the number of inputs: shared decoding, tiles of 6, 5 and 4, several panels to a chunk.
TEST(LinearParity, EveryNumberOfInputsGivesTheBitsOfTheReference) {
  const Operations& reference = reference_operations(true);
  ThreadPool pool(2);
  struct Shape {
    int64_t m, n, k;
  };
  std::vector<Shape> shapes = {{99, 140, 288}};
  for (int64_t m = 2; m <= 20; ++m) shapes.push_back({m, 5, 288});
  for (const int64_t m : {21, 24, 28, 29, 33, 36, 37, 41, 44, 45, 47, 48, 49, 50, 63, 64, 65})
    shapes.push_back({m, 5, 544});
  // Three quads of outputs; K that ends within a half step, with one, with a block of steps.
  for (const Shape& shape : {Shape{32, 9, 1056}, Shape{34, 12, 1184}, Shape{36, 9, 96}, Shape{66, 9, 2048}})
    shapes.push_back(shape);
  for (const quant::StoredFormat& format : formats()) {
    const quant::CodecInfo& info = quant::codec_info(format.codec);
    for (const Shape& shape : shapes) {
      const int64_t k = info.cols_multiple > 32 ? (shape.k + 255) / 256 * 256 : shape.k;
      Random random(seed_of("inputs") + static_cast<uint64_t>(shape.m));
      const Matrix matrix(format, shape.n, k, random);
      const std::vector<float> x = values(random, shape.m * (k + 5), shape.m % 3 == 0 ? Inputs::kHard : Inputs::kPlain);
      const std::vector<float> bias = values(random, shape.n, Inputs::kPlain);
      for (const Numerics numerics : {Numerics::kExact, Numerics::kInt8}) {
        if (numerics == Numerics::kInt8 && !info.int8_mode) continue;
        const Context plain{Isa::kRef, numerics, nullptr};
        const std::vector<float> y = run_linear(&reference, plain, matrix.view, x, bias, shape.m);
        for (const Isa isa : available_isas()) {
          for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
            size_t at = 0;
            EXPECT_TRUE(same_bits(y, run_linear(nullptr, {isa, numerics, threads}, matrix.view, x, bias, shape.m), &at))
                << quant::format_text(format) << (numerics == Numerics::kInt8 ? " int8" : " exact") << " m " << shape.m
                << " n " << shape.n << " k " << k << " on " << isa_name(isa) << ": differs at " << at;
          }
        }
      }
    }
  }
}

TEST(LinearParity, FormatsWithoutInt8ModeRunAsInExact) {
  for (const quant::StoredFormat& format : formats()) {
    if (quant::codec_info(format.codec).int8_mode) continue;
    Random random(5);
    const Matrix matrix(format, 9, 256, random);
    const std::vector<float> x = values(random, 2 * (256 + 5), Inputs::kPlain),
                             bias = values(random, 9, Inputs::kPlain);
    for (const Isa isa : available_isas()) {
      size_t at = 0;
      EXPECT_TRUE(same_bits(run_linear(nullptr, {isa, Numerics::kExact, nullptr}, matrix.view, x, bias, 2),
                            run_linear(nullptr, {isa, Numerics::kInt8, nullptr}, matrix.view, x, bias, 2), &at))
          << quant::format_text(format);
    }
  }
}

TEST(Reference, FmaByLibraryAndByInstructionAreTheSameBits) {
  const Operations& plain = reference_operations(false);
  const Operations& instruction = reference_operations(true);
  if (&plain == &instruction) GTEST_SKIP() << "this CPU has no fma instruction";
  for (const quant::StoredFormat& format : formats()) {
    for (const Numerics numerics : {Numerics::kExact, Numerics::kInt8}) {
      Random random(7);
      const Matrix matrix(format, 5, 256, random);
      const std::vector<float> x = values(random, 2 * (256 + 5), Inputs::kHard),
                               bias = values(random, 5, Inputs::kPlain);
      const Context context{Isa::kRef, numerics, nullptr};
      size_t at = 0;
      EXPECT_TRUE(same_bits(run_linear(&plain, context, matrix.view, x, bias, 2),
                            run_linear(&instruction, context, matrix.view, x, bias, 2), &at))
          << quant::format_text(format) << " at " << at;
    }
  }
}

// The reference's Linear against float64: each error within the worst case of the chain (length/32 terms in a lane, 5
// levels of the tree, the products' roundings), and over many outputs no larger, as root mean square, than plain
// sequential fp32 summation's.
TEST(Reference, ExactLinearIsNearFloat64) {
  for (const quant::StoredFormat& format : formats()) {
    const quant::CodecInfo& info = quant::codec_info(format.codec);
    const int64_t k = 2560, n = 40, m = 26;  // 1040 outputs
    Random random(seed_of(quant::format_text(format)));
    const Matrix matrix(format, n, k, random);
    const std::vector<float> x = values(random, m * (k + 5), Inputs::kPlain), bias(static_cast<size_t>(n), 0.0f);
    const std::vector<float> y = run_linear(nullptr, {}, matrix.view, x, bias, m);
    double ours = 0, sequential = 0;
    for (int64_t r = 0; r < n; ++r) {
      std::vector<float> c(static_cast<size_t>(k)), w(static_cast<size_t>(k)), s(static_cast<size_t>(k) + 1),
          minimum(static_cast<size_t>(k) + 1);
      quant::row_codes(matrix.view, r, c.data());
      quant::row_scales(matrix.view, r, s.data(), info.has_min ? minimum.data() : nullptr);
      quant::decode_row(matrix.view, r, w.data());
      const quant::RowBlocks blocks = quant::row_blocks(matrix.view, r);
      for (int64_t row = 0; row < m; ++row) {
        double exact = 0, magnitude = 0;
        float plain = 0;
        for (int64_t i = 0; i < k; ++i) {
          const auto e = static_cast<size_t>(i);
          double weight = c[e];
          if (info.scaling != quant::Scaling::kNone) weight *= s[static_cast<size_t>(blocks.block_of(i))];
          double minimum_term = info.has_min ? minimum[static_cast<size_t>(blocks.block_of(i))] : 0;
          const double input = x[static_cast<size_t>(row * (k + 5) + i)];
          exact += (weight + minimum_term) * input;
          magnitude += (std::fabs(weight) + std::fabs(minimum_term)) * std::fabs(input);
          plain = plain + w[e] * static_cast<float>(input);
        }
        const double error = y[static_cast<size_t>(row * (n + 3) + r)] - exact;
        EXPECT_LE(std::fabs(error), (2 * static_cast<double>(k) / 32 + 20) * 0x1p-24 * magnitude)
            << quant::format_text(format);
        ours += error * error;
        sequential += (plain - exact) * (plain - exact);
      }
    }
    EXPECT_LE(std::sqrt(ours), std::sqrt(sequential)) << quant::format_text(format);
  }
}

// What the comparison would miss if it were empty: a dot over 16 lanes instead of 32 has another hash.
TEST(Parity, SixteenLanesGiveAnotherHash) {
  Random random(11);
  const quant::StoredFormat format = quant::stored_format(quant::Codec::kF32);
  const Matrix matrix(format, 8, 576, random);
  const std::vector<float> x = values(random, 576 + 5, Inputs::kPlain), bias(8, 0.0f);
  const std::vector<float> y = run_linear(nullptr, {}, matrix.view, x, bias, 1);
  const auto dot = [&](int64_t row, int lanes) {
    std::vector<float> a(static_cast<size_t>(lanes), 0.0f);
    for (int64_t i = 0; i < 576; ++i) {
      float& lane = a[static_cast<size_t>(i % lanes)];
      lane = std::fma(matrix.view.plane<float>(quant::Plane::kCodes)[row * 576 + i], x[static_cast<size_t>(i)], lane);
    }
    for (int h = lanes / 2; h >= 1; h /= 2)
      for (int i = 0; i < h; ++i) a[static_cast<size_t>(i)] = a[static_cast<size_t>(i)] + a[static_cast<size_t>(i + h)];
    return a[0] + 0.0f;
  };
  std::vector<float> right, wrong;
  for (int64_t row = 0; row < 8; ++row) {
    right.push_back(dot(row, 32));
    wrong.push_back(dot(row, 16));
  }
  const std::span<const float> reference(y.data(), 8);
  EXPECT_EQ(hash_floats(reference), hash_floats(right));
  EXPECT_NE(hash_floats(reference), hash_floats(wrong));
}

TEST(Parity, NamesTheInstructionSetsThisCpuLacks) {
  const std::string skipped = skipped_isas();
  if (!skipped.empty()) GTEST_SKIP() << "not compared on this CPU: " << skipped;
}

}  // namespace
}  // namespace berth::kernel::parity
