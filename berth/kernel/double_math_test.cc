// kernel/double_math_test.cc — pow, log, sin and cos against long double, and rounded to fp32; the rotary tables.
#include "berth/kernel/double_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "berth/kernel/parity.h"
#include "berth/kernel/rope.h"

namespace berth::kernel {
namespace {

void expect_close(double found, long double expected, const char* what, double x) {
  const long double error = std::fabs(static_cast<long double>(found) - expected);
  EXPECT_LE(error, std::fabs(expected) * 0x1p-51L) << what << " of " << x << ": " << found;
}

TEST(DoubleMath, PowIsAccurate) {
  parity::Random random(1);
  int misrounded = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp(16.0 * random.uniform());
    const double y = -random.uniform() * (i % 7 == 0 ? 40 : 1);
    const long double expected = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    expect_close(pow_f64(x, y), expected, "pow", x);
    misrounded += static_cast<float>(pow_f64(x, y)) != static_cast<float>(expected);
  }
  EXPECT_LE(misrounded, 1);
  for (const double theta : {10000.0, 500000.0, 1e6, 5e6})
    for (int j = 0; j < 64; ++j)
      EXPECT_EQ(static_cast<float>(pow_f64(theta, -2.0 * j / 128)),
                static_cast<float>(std::pow(static_cast<long double>(theta), -2.0L * j / 128)));
}

TEST(DoubleMath, LogIsAccurate) {
  parity::Random random(2);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp(80.0 * random.signed_unit());
    expect_close(log_f64(x), std::log(static_cast<long double>(x)), "log", x);
  }
  expect_close(log_f64(1.0000001), std::log(1.0000001L + (1.0000001 - 1.0000001L)), "log", 1.0000001);
}

TEST(DoubleMath, SinAndCosAreAccurateUpToTenMillion) {
  parity::Random random(3);
  int misrounded = 0;
  for (int i = 0; i < 400000; ++i) {
    const float scale = i % 3 == 0 ? 1e7f : i % 3 == 1 ? 1000.0f : 1.0f;
    const double x = scale * random.signed_unit();
    const long double s = std::sin(static_cast<long double>(x)), c = std::cos(static_cast<long double>(x));
    expect_close(sin_f64(x), s, "sin", x);
    expect_close(cos_f64(x), c, "cos", x);
    misrounded += static_cast<float>(sin_f64(x)) != static_cast<float>(s);
    misrounded += static_cast<float>(cos_f64(x)) != static_cast<float>(c);
  }
  EXPECT_LE(misrounded, 1);
}

TEST(DoubleMath, EdgesAreDefined) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(pow_f64(10000, 0), 1);
  EXPECT_EQ(pow_f64(1, -5), 1);
  EXPECT_EQ(pow_f64(0, 2), 0);
  EXPECT_EQ(pow_f64(0, -2), inf);
  EXPECT_EQ(pow_f64(1e300, 5), inf);
  EXPECT_EQ(pow_f64(1e300, -5), 0);
  EXPECT_TRUE(std::isnan(pow_f64(-1, 0.5)));
  EXPECT_EQ(sin_f64(0), 0);
  EXPECT_EQ(cos_f64(0), 1);
  EXPECT_TRUE(std::isnan(sin_f64(inf)));
  EXPECT_TRUE(std::isfinite(cos_f64(1e300)));
  EXPECT_EQ(log_f64(0), -inf);
  EXPECT_EQ(log_f64(1), 0);
}

RopeParameters plain(int32_t dim, double theta) {
  RopeParameters p;
  p.rotary_dim = p.head_dim = dim;
  p.theta = theta;
  return p;
}

TEST(RopeTables, DefaultIsThetaToTheMinusTwoJOverDim) {
  const std::vector<float> f = inverse_frequencies(plain(64, 100000), 0);
  ASSERT_EQ(f.size(), 32u);
  EXPECT_EQ(f[0], 1.0f);
  for (size_t j = 0; j < f.size(); ++j)
    EXPECT_EQ(f[j], static_cast<float>(std::pow(100000.0L, -2.0L * static_cast<long double>(j) / 64)));
}

TEST(RopeTables, ProportionalLeavesTheRestUnturned) {
  RopeParameters p = plain(256, 1e6);
  p.scaling = RopeScaling::kProportional;
  p.partial_rotary_factor = 0.25;
  const std::vector<float> f = inverse_frequencies(p, 0);
  ASSERT_EQ(f.size(), 128u);
  EXPECT_GT(f[31], 0.0f);
  EXPECT_EQ(f[32], 0.0f);
  float cos[128], sin[128];
  rope_row(f, 1000, 1.0, cos, sin);
  EXPECT_EQ(cos[32], 1.0f);
  EXPECT_EQ(sin[32], 0.0f);
}

TEST(RopeTables, Llama3DividesSlowFrequenciesOnly) {
  RopeParameters p = plain(128, 500000);
  p.scaling = RopeScaling::kLlama3;
  p.factor = 8;
  p.original_max_position = 8192;
  const std::vector<float> f = inverse_frequencies(p, 0), d = inverse_frequencies(plain(128, 500000), 0);
  EXPECT_EQ(f[0], d[0]);
  EXPECT_EQ(f[63], d[63] / 8);
  EXPECT_LT(f[32], d[32]);
}

TEST(RopeTables, YarnGoesFromKeptToDivided) {
  RopeParameters p = plain(64, 150000);
  p.scaling = RopeScaling::kYarn;
  p.factor = 32;
  p.original_max_position = 4096;
  p.truncate = false;
  const std::vector<float> f = inverse_frequencies(p, 0), d = inverse_frequencies(plain(64, 150000), 0);
  EXPECT_EQ(f[0], d[0]);
  EXPECT_EQ(f[31], d[31] / 32);
}

TEST(RopeTables, LengthMattersOnlyForDynamicAndLongRope) {
  RopeParameters p = plain(64, 10000);
  p.factor = 2;
  p.max_position = p.original_max_position = 100;
  p.short_factor.assign(32, 1.0);
  p.long_factor.assign(32, 4.0);
  for (const RopeScaling scaling : {RopeScaling::kDefault, RopeScaling::kLinear, RopeScaling::kLlama3,
                                    RopeScaling::kYarn, RopeScaling::kDynamic, RopeScaling::kLongRope}) {
    p.scaling = scaling;
    EXPECT_EQ(inverse_frequencies(p, 50) != inverse_frequencies(p, 300), depends_on_length(scaling));
  }
}

TEST(RopeTables, RowsAreOneRoundingOfDoubleAngles) {
  const std::vector<float> f = inverse_frequencies(plain(64, 10000), 0);
  float cos[32], sin[32];
  rope_row(f, 131071, 1.25, cos, sin);
  for (size_t j = 0; j < 32; ++j) {
    const float angle = 131071.0f * f[j];
    EXPECT_EQ(cos[j], static_cast<float>(std::cos(static_cast<long double>(angle)) * 1.25L));
    EXPECT_EQ(sin[j], static_cast<float>(std::sin(static_cast<long double>(angle)) * 1.25L));
  }
}

}  // namespace
}  // namespace berth::kernel
