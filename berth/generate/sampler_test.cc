#include "berth/generate/sampler.h"

#include <map>

#include <gtest/gtest.h>

#include "berth/generate/philox.h"

namespace berth::generate {
namespace {

TEST(Philox, GivesThePublishedNumbers) {
  // Known answers of the Random123 distribution's kat_vectors for philox4x32, 10 rounds.
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Sampler, IsGreedyWithTheLowerIdFirst) {
  Sampler s({});
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(s.choose(logits, {}, 0, 0), 1);
}

TEST(Sampler, PenalizesEachSeenTokenOnce) {
  SamplingOptions o;
  o.repetition_penalty = 2;
  Sampler s(o);
  const std::vector<float> logits = {4, 3, -1};
  const std::vector<int32_t> history = {0, 0, 0};
  EXPECT_EQ(s.choose(logits, history, 0, 0), 1);
}

TEST(Sampler, DrawsFromWhatTheWarpersLeave) {
  SamplingOptions o;
  o.sample = true;
  o.top_k = 2;
  Sampler s(o);
  const std::vector<float> logits = {0, 1, 2, -5};
  std::map<int32_t, int> counts;
  for (uint64_t p = 0; p < 4000; ++p) ++counts[s.choose(logits, {}, 0, p)];
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[2] / 4000.0, 0.731, 0.03);
  o.top_p = 0.5;
  Sampler narrow(o);
  for (uint64_t p = 0; p < 100; ++p) EXPECT_EQ(narrow.choose(logits, {}, 0, p), 2);
  o.top_p = 1;
  o.min_p = 0.5;
  Sampler least(o);
  for (uint64_t p = 0; p < 100; ++p) EXPECT_EQ(least.choose(logits, {}, 0, p), 2);
}

TEST(Sampler, DependsOnSeedSequenceAndPositionOnly) {
  SamplingOptions o;
  o.sample = true;
  o.seed = 7;
  Sampler a(o), b(o);
  std::vector<float> logits(50, 0.0f);
  std::vector<int32_t> first, second;
  for (uint64_t p = 0; p < 50; ++p) first.push_back(a.choose(logits, {}, 3, p));
  for (uint64_t p = 50; p-- > 0;) second.insert(second.begin(), b.choose(logits, {}, 3, p));
  EXPECT_EQ(first, second);
}

TEST(SamplingOptions, NameWhatIsWrong) {
  SamplingOptions o;
  o.top_p = 2;
  auto status = validate(o);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("top_p"), std::string::npos);
  o.top_p = 1;
  o.temperature = -1;
  EXPECT_FALSE(validate(o));
}

}  // namespace
}  // namespace berth::generate
