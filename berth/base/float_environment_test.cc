// base/float_environment_test.cc — denormals survive inside a scope, and the caller's settings survive it.
#include "berth/base/float_environment.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

#include "berth/base/thread_pool.h"

namespace berth {
namespace {

#if defined(__x86_64__)
constexpr uint64_t kFlushBoth = (1u << 15) | (1u << 6);
#elif defined(__aarch64__)
constexpr uint64_t kFlushBoth = 1u << 24;
#else
constexpr uint64_t kFlushBoth = 0;
#endif

// Kept from being computed at compile time.
float halved(float x) {
  volatile float here = x;
  return here * 0.5f;
}
constexpr float kSmallest = std::numeric_limits<float>::min();

class FloatEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kFlushBoth == 0) GTEST_SKIP() << "no floating-point control register on this CPU";
    before_ = float_control();
  }
  void TearDown() override { set_float_control(before_); }
  uint64_t before_ = 0;
};

TEST_F(FloatEnvironment, FlushingCallerKeepsDenormalsInsideAScopeAndFlushesAgainAfterIt) {
  set_float_control(before_ | kFlushBoth);
  ASSERT_EQ(halved(kSmallest), 0.0f);
  {
    const FloatEnvironmentScope scope;
    EXPECT_NE(halved(kSmallest), 0.0f);
  }
  EXPECT_EQ(halved(kSmallest), 0.0f);
}

TEST_F(FloatEnvironment, RoundingIsToNearestInsideAScope) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  volatile float third = 1.0f;
  {
    const FloatEnvironmentScope scope;
    EXPECT_EQ(third / 3.0f, 0x1.555556p-2f);  // to nearest; upward too, so look the other way as well
    EXPECT_EQ(-third / 3.0f, -0x1.555556p-2f);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST_F(FloatEnvironment, PoolThreadsAndTheCallerOfAForkKeepDenormals) {
  set_float_control(before_ | kFlushBoth);
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 50; ++repeat) {
    bool kept[4] = {};  // compared in the task: with denormals taken as zero the caller could not tell
    pool.run([&](int share, int) { kept[share] = halved(kSmallest) != 0.0f; });
    for (const bool k : kept) ASSERT_TRUE(k);
  }
  EXPECT_EQ(halved(kSmallest), 0.0f) << "the caller's own setting is back";
}

}  // namespace
}  // namespace berth
