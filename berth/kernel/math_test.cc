// kernel/math_test.cc — the elementary functions: every 37th of all fp32 inputs gives the same bits on every
// instruction set and one checked-in hash, and errors stay below the stated ulps. BERTH_MATH_STEP=1 walks all 2^32.
#include "berth/kernel/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "berth/kernel/elementwise.h"
#include "berth/kernel/parity.h"

namespace berth::kernel {
namespace {

struct Case {
  Function function;
  const char* name;
  uint64_t hash;  // over every 37th input
  float (*scalar)(float);
  long double (*exact)(long double);  // null: no ulp bound (its argument is itself rounded)
  double ulps;
  float low, high;  // where the bound holds
};

long double exact_softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }
long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double exact_silu(long double x) { return x / (1 + std::exp(-x)); }
long double exact_exp(long double x) { return std::exp(x); }
long double exact_tanh(long double x) { return std::tanh(x); }
long double exact_erf(long double x) { return std::erf(x); }
long double exact_log(long double x) { return std::log(x); }
float relu(float x) { return x < 0 ? 0.0f : x; }

const Case kCases[] = {
    {Function::kExp, "exp", 0x13f82136be6bc878, exp_f32, exact_exp, 1.0, -87.3f, 88.7f},
    {Function::kTanh, "tanh", 0xef9b395b192029, tanh_f32, exact_tanh, 1.4, -50, 50},
    {Function::kSigmoid, "sigmoid", 0x41cb691012e0123b, sigmoid_f32, exact_sigmoid, 2.5, -87, 200},
    {Function::kErf, "erf", 0xb35b2908fa1d576d, erf_f32, exact_erf, 2.0, -10, 10},
    {Function::kLog, "log", 0x352cce0dae9a5a8d, log_f32, exact_log, 1.5, 1e-44f, 3e38f},
    {Function::kSoftplus, "softplus", 0x48f1bee0bcbf14a4, softplus_f32, exact_softplus, 2.5, -87, 1e30f},
    {Function::kSilu, "silu", 0x2fa15744362fd79d, silu_f32, exact_silu, 2.5, -80, 1e30f},
    {Function::kGeluTanh, "gelu_tanh", 0x8115b4931e3121f0, gelu_tanh_f32, nullptr, 0, 0, 0},
    {Function::kGeluErf, "gelu_erf", 0x8131976f0fb26ef0, gelu_erf_f32, nullptr, 0, 0, 0},
    {Function::kRelu, "relu", 0x1fb3d51a5f2bd0f3, relu, nullptr, 0, 0, 0},
};

constexpr uint64_t kStep = 37;

// 65536 inputs at a time, so that the walk needs no memory.
template <typename Visit>
void walk(uint64_t step, Visit&& visit) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32);) {
    x.clear();
    for (; x.size() < 65536 && bits < (uint64_t{1} << 32); bits += step)
      x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    visit(x);
  }
}

class MathTest : public testing::TestWithParam<Case> {};

TEST_P(MathTest, IsTheSameBitsOnEveryInstructionSetAndAsCheckedIn) {
  const Case& c = GetParam();
  const char* text = std::getenv("BERTH_MATH_STEP");
  const uint64_t step = text == nullptr ? kStep : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
  // The scalar code is slow: without CI it is compared on an eighth of the inputs, the hash covers all anyway.
  const char* ci = std::getenv("CI");
  const int scalar_every = text != nullptr || (ci != nullptr && std::string(ci) == "true") ? 1 : 8;
  int chunk = 0;
  // The hash is folded from the fastest instruction set's outputs; the others are compared with it.
  uint64_t hash = 0xCBF29CE484222325u;
  int failures = 0;
  std::vector<float> expected, found;
  walk(step, [&](const std::vector<float>& x) {
    expected.resize(x.size());
    found.resize(x.size());
    apply({best_isa(), Numerics::kExact, nullptr}, c.function, x.data(), expected.data(),
          static_cast<int64_t>(x.size()));
    hash = parity::hash_floats(expected, hash);
    for (const Isa isa : available_isas()) {
      if (isa == best_isa() || (isa == Isa::kRef && chunk % scalar_every != 0)) continue;
      apply({isa, Numerics::kExact, nullptr}, c.function, x.data(), found.data(), static_cast<int64_t>(x.size()));
      size_t at = 0;
      if (parity::same_bits(expected, found, &at) || ++failures > 5) continue;
      ADD_FAILURE() << c.name << "(" << x[at] << ") is " << found[at] << " on " << isa_name(isa) << ", " << expected[at]
                    << " on " << isa_name(best_isa());
    }
    ++chunk;
  });
  if (step == kStep) EXPECT_EQ(hash, c.hash) << c.name << ": hash 0x" << std::hex << hash;
}

TEST_P(MathTest, IsWithinItsUlps) {
  const Case& c = GetParam();
  if (c.exact == nullptr)
    GTEST_SKIP() << c.name << " is made of functions whose arguments are rounded: no bound stated";
  double worst = 0;
  float where = 0;
  walk(kStep * 61, [&](const std::vector<float>& x) {
    for (const float v : x) {
      if (!(v >= c.low && v <= c.high)) continue;
      const long double exact = c.exact(v);
      const float rounded = std::fabs(static_cast<float>(exact));
      const double ulp = std::max(
          static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) - rounded, 0x1p-149);
      const double error = static_cast<double>(std::fabs(c.scalar(v) - exact)) / ulp;
      if (error > worst) {
        worst = error;
        where = v;
      }
    }
  });
  EXPECT_LE(worst, c.ulps) << c.name << " at " << where;
  RecordProperty("worst_ulps", std::to_string(worst));
  std::printf("             %s: %.3f ulp at %g\n", c.name, worst, static_cast<double>(where));
}

INSTANTIATE_TEST_SUITE_P(Functions, MathTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Math, EdgesAreAsStated) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(exp_f32(0), 1);
  EXPECT_EQ(exp_f32(-inf), 0);
  EXPECT_EQ(exp_f32(-104), 0);
  EXPECT_EQ(exp_f32(inf), inf);
  EXPECT_GT(exp_f32(-103), 0);  // a denormal, kept
  EXPECT_EQ(tanh_f32(inf), 1);
  EXPECT_EQ(tanh_f32(-inf), -1);
  EXPECT_TRUE(std::signbit(tanh_f32(-0.0f)));
  EXPECT_EQ(erf_f32(inf), 1);
  EXPECT_EQ(erf_f32(-4.5f), -1);
  EXPECT_EQ(log_f32(1), 0);
  EXPECT_EQ(log_f32(0), -inf);
  EXPECT_EQ(log_f32(-0.0f), -inf);
  EXPECT_EQ(log_f32(inf), inf);
  EXPECT_TRUE(std::isnan(log_f32(-1)));
  EXPECT_EQ(softplus_f32(-inf), 0);
  EXPECT_EQ(softplus_f32(inf), inf);
  EXPECT_EQ(sigmoid_f32(inf), 1);
  EXPECT_EQ(silu_f32(0), 0);
  for (float (*f)(float) :
       {exp_f32, tanh_f32, sigmoid_f32, erf_f32, log_f32, softplus_f32, silu_f32, gelu_tanh_f32, gelu_erf_f32})
    EXPECT_TRUE(std::isnan(f(nan)));
}

}  // namespace
}  // namespace berth::kernel
