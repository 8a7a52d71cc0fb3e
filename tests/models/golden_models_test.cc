// tests/models/golden_models_test.cc — every golden model: logits and greedy tokens as Transformers computes them.
//
// The folders are listed by name; a folder that is missing or new fails the count. Tolerance: numerics.md 6.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "golden_logits.h"

namespace berth::testing {
namespace {

// Planned, sized and refused by name; their forward pass is not there yet.
const std::vector<std::string> kPlanned = {};

class GoldenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, GivesTheLogitsAndTokensOfTransformers) {
  const std::string folder = shared_path("golden/models/" + GetParam());
  BERTH_NEEDS(folder);
  RunOptions options;
  options.shape = golden_shape();
  auto placed = place_model(folder, all_on_cpu(), options);
  ASSERT_TRUE(placed) << placed.error().message;
  const GoldenDifference d = expect_golden_logits(*(*placed)->model, folder);
  std::printf("[ golden   ] %-18s largest |logit| %7.3f  difference %.2e (prompt) %.2e (steps), as share %.1e\n",
              GetParam().c_str(), d.largest, d.prompt, d.steps, d.share());
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenModel, ::testing::ValuesIn(golden_models()),
                         [](const auto& i) { return i.param; });

TEST(GoldenModels, AreAllListedByName) {
  BERTH_NEEDS(shared_path("golden/models"));
  auto names = list_folder(shared_path("golden/models"));
  ASSERT_TRUE(names) << names.error().message;
  std::vector<std::string> folders, listed = golden_models();
  for (const std::string& n : *names)
    if (is_directory(shared_path("golden/models/" + n))) folders.push_back(n);
  listed.insert(listed.end(), kPlanned.begin(), kPlanned.end());
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(folders, listed);
  std::printf("[ golden   ] %zu run, %zu are planned only, of %zu\n", golden_models().size(), kPlanned.size(),
              folders.size());
}

}  // namespace
}  // namespace berth::testing
