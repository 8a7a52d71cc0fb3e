// kernel/parity_rows_test.cc — the parity rows of norms, rope, activations and the other operations over rows.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "berth/kernel/dispatch.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/parity.h"
#include "berth/kernel/rope.h"
#include "berth/quant/codec.h"

namespace berth::kernel::parity {
namespace {

constexpr float kGap = -12345.678f;
constexpr int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 576, 2560, 5000, 10240};

struct Shape {
  int64_t rows, n;
  Inputs inputs;
};

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int64_t n : kLengths)
    for (const Inputs inputs : {Inputs::kPlain, Inputs::kHard})
      for (const int64_t rows : {1, 5, 64})
        if (rows * n <= 40000) all.push_back({rows, n, inputs});
  return all;
}

std::string text(const Shape& s) {
  return std::to_string(s.rows) + "x" + std::to_string(s.n) + (s.inputs == Inputs::kHard ? " hard" : "");
}

// Checks one operation over all shapes. run(context, shape, x, w, b, y): x and y have stride n + 3; y starts as gaps.
template <typename Run>
void over_shapes(Parity& parity, const std::string& op, Run&& run) {
  for (const Shape& s : shapes()) {
    Row row;
    row.name = op + "/" + text(s);
    Random random(seed_of(row.name));
    const std::vector<float> x = values(random, s.rows * (s.n + 3), s.inputs), w = values(random, s.n, Inputs::kPlain),
                             b = values(random, s.n, Inputs::kPlain);
    row.run = [&](const Context& context) {
      std::vector<float> y(static_cast<size_t>(s.rows * (s.n + 3)), kGap);
      run(context, s, x, w.data(), b.data(), y);
      return y;
    };
    parity.check(row, op);
  }
}

TEST(RowsParity, Norms) {
  Parity parity("norm");
  over_shapes(parity, "rms_norm", [](auto& c, auto& s, auto& x, const float* w, auto, auto& y) {
    rms_norm(c, x.data(), s.n + 3, w, 1e-6f, s.rows, s.n, y.data(), s.n + 3);
  });
  over_shapes(parity, "rms_norm without weight", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    rms_norm(c, x.data(), s.n + 3, nullptr, 1e-6f, s.rows, s.n, y.data(), s.n + 3);
  });
  over_shapes(parity, "rms_norm in place", [](auto& c, auto& s, auto& x, const float* w, auto, auto& y) {
    y = x;
    rms_norm(c, y.data(), s.n + 3, w, 1e-5f, s.rows, s.n, y.data(), s.n + 3);
  });
  over_shapes(parity, "layer_norm", [](auto& c, auto& s, auto& x, const float* w, const float* b, auto& y) {
    layer_norm(c, x.data(), s.n + 3, w, b, 1e-5f, s.rows, s.n, y.data(), s.n + 3);
  });
  over_shapes(parity, "layer_norm without bias", [](auto& c, auto& s, auto& x, const float* w, auto, auto& y) {
    y = x;
    layer_norm(c, y.data(), s.n + 3, w, nullptr, 1e-5f, s.rows, s.n, y.data(), s.n + 3);
  });
  over_shapes(parity, "layer_norm without weight", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    layer_norm(c, x.data(), s.n + 3, nullptr, nullptr, 1e-5f, s.rows, s.n, y.data(), s.n + 3);
  });
}

TEST(RowsParity, Activations) {
  Parity parity("activation");
  const std::pair<Activation, const char*> acts[] = {{Activation::kSilu, "silu"},
                                                     {Activation::kGeluTanh, "gelu_tanh"},
                                                     {Activation::kGeluErf, "gelu_erf"},
                                                     {Activation::kRelu, "relu"}};
  for (const auto& entry : acts) {
    const Activation act = entry.first;
    const char* name = entry.second;
    over_shapes(parity, std::string(name) + " gated", [&](auto& c, auto& s, auto& x, auto, auto, auto& y) {
      activate(c, act, x.data(), s.n + 3, x.data() + 1, s.n + 3, s.rows, s.n, y.data(), s.n + 3);
    });
    over_shapes(parity, name, [&](auto& c, auto& s, auto& x, auto, auto, auto& y) {
      y = x;
      activate(c, act, y.data(), s.n + 3, nullptr, 0, s.rows, s.n, y.data(), s.n + 3);
    });
  }
}

TEST(RowsParity, Elementwise) {
  Parity parity("elementwise");
  over_shapes(parity, "add_residual", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    add_residual(c, y.data(), s.n + 3, x.data(), s.n + 3, 1.0f, s.rows, s.n);
  });
  over_shapes(parity, "add_residual times", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    add_residual(c, y.data(), s.n + 3, x.data(), s.n + 3, 0.22f, s.rows, s.n);
  });
  over_shapes(parity, "scale", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    scale(c, y.data(), s.n + 3, 25.298221f, s.rows, s.n);
  });
  over_shapes(parity, "divide", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    divide(c, y.data(), s.n + 3, 7.0f, s.rows, s.n);
  });
  over_shapes(parity, "softcap", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    softcap(c, y.data(), s.n + 3, 30.0f, s.rows, s.n);
  });
  over_shapes(parity, "softmax", [](auto& c, auto& s, auto& x, auto, auto, auto& y) {
    y = x;
    softmax(c, y.data(), s.n + 3, s.rows, s.n);
  });
}

TEST(RowsParity, Rope) {
  Parity parity("rope");
  struct Case {
    int32_t heads, head_dim, rotary_dim;
    int64_t rows;
  };
  const std::pair<RopeLayout, const char*> layouts[] = {
      {RopeLayout::kHalves, "halves"}, {RopeLayout::kPairs, "pairs"}, {RopeLayout::kPairsToHalves, "pairs to halves"}};
  for (const auto& entry : layouts) {
    const RopeLayout layout = entry.first;
    const char* name = entry.second;
    for (const Case& c : {Case{3, 64, 64, 1}, Case{4, 128, 128, 70}, Case{2, 128, 64, 5}, Case{1, 8, 4, 3},
                          Case{5, 80, 80, 2}, Case{2, 100, 34, 9}, Case{1, 256, 256, 2}, Case{8, 192, 64, 40}}) {
      Row row;
      row.name = std::string("rope/") + name + "/" + std::to_string(c.heads) + "x" + std::to_string(c.head_dim) + " " +
                 std::to_string(c.rotary_dim) + " rows " + std::to_string(c.rows);
      Random random(seed_of(row.name));
      const int64_t stride = c.heads * c.head_dim + 3;
      const std::vector<float> x = values(random, c.rows * stride, Inputs::kHard);
      RopeParameters p;
      p.rotary_dim = c.rotary_dim;
      p.head_dim = c.head_dim;
      const std::vector<float> f = inverse_frequencies(p, 0);
      std::vector<float> cos(f.size() * static_cast<size_t>(c.rows)), sin(cos.size());
      for (int64_t r = 0; r < c.rows; ++r)
        rope_row(f, 1000 + r, 1.0, cos.data() + r * c.rotary_dim / 2, sin.data() + r * c.rotary_dim / 2);
      row.run = [&](const Context& context) {
        std::vector<float> y = x;
        rope(context, y.data(), stride, c.rows, c.heads, c.head_dim, c.rotary_dim, layout, cos.data(), sin.data());
        return y;
      };
      parity.check(row, name);
    }
  }
}

TEST(RowsParity, GatherRows) {
  Parity parity("gather_rows");
  for (const quant::StoredFormat& format : formats()) {
    for (const int64_t cols : {1, 7, 32, 67, 256, 576, 2560}) {
      if (cols % quant::codec_info(format.codec).cols_multiple != 0) continue;
      Row row;
      row.name = "gather_rows/" + quant::format_text(format) + "/" + std::to_string(cols);
      Random random(seed_of(row.name));
      const Matrix matrix(format, 37, cols, random);
      const std::vector<int32_t> ids = {36, 0, 5, 5, 1, 17, 20, 3, 9, 36};
      row.run = [&](const Context& context) {
        std::vector<float> y(ids.size() * static_cast<size_t>(cols + 2), kGap);
        gather_rows(context, matrix.view, ids, y.data(), cols + 2);
        return y;
      };
      parity.check(row, quant::format_text(format));
    }
  }
}

TEST(Argmax, TakesTheLargestThenTheLowestIndexAndNoticesNan) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : available_isas()) {
    const Operations& op = operations(isa);
    SCOPED_TRACE(op.name);
    Random random(3);
    for (const int64_t n : {1, 5, 8, 16, 31, 64, 65, 200, 5000}) {
      std::vector<float> x = values(random, n, Inputs::kPlain);
      for (const int64_t at : {int64_t{0}, n / 3, n - 1}) {
        std::vector<float> y = x;
        y[static_cast<size_t>(n - 1)] = y[static_cast<size_t>(at)] = 100;
        EXPECT_EQ(op.argmax(y.data(), n), at);
        EXPECT_TRUE(op.all_finite(y.data(), n));
        y[static_cast<size_t>(at)] = inf;
        EXPECT_EQ(op.argmax(y.data(), n), at);
        EXPECT_FALSE(op.all_finite(y.data(), n));
        y[static_cast<size_t>(at)] = nan;
        EXPECT_EQ(op.argmax(y.data(), n), -1);
        EXPECT_FALSE(op.all_finite(y.data(), n));
      }
      const std::vector<float> masked(static_cast<size_t>(n), -inf);
      EXPECT_EQ(op.argmax(masked.data(), n), 0);
    }
    const float zeros[] = {-0.0f, 0.0f, -1.0f};
    EXPECT_EQ(op.argmax(zeros, 3), 0);
    EXPECT_EQ(op.argmax(zeros, 0), -1);
  }
}

TEST(Dispatch, TheForcedInstructionSetIsTheOneThatRuns) {
  for (const Isa isa : available_isas())
    EXPECT_TRUE(operations(isa).name.starts_with(isa_name(isa))) << operations(isa).name;
  const auto same = [](Isa a, Isa b) { return operations(a).attention == operations(b).attention; };
  for (const Isa a : available_isas())
    for (const Isa b : available_isas()) EXPECT_EQ(same(a, b), a == b) << isa_name(a) << ", " << isa_name(b);
}

}  // namespace
}  // namespace berth::kernel::parity
