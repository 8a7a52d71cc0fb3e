// tests/models/golden_models_test.cc — every golden model: logits and greedy tokens as Transformers computes them.
//
// The folders are listed by name; a folder that is missing or new fails the count. Tolerance: numerics.md 6.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <gtest/gtest.h>

#include "placed_model.h"

namespace berth::testing {
namespace {

// Planned, sized and refused by name; their forward pass is not there yet.
const std::vector<std::string> kPlanned = {};

std::vector<float> floats(const format::Checkpoint& file, const std::string& name) {
  const format::TensorEntry* e = file.find(name);
  std::vector<float> out(e->size_bytes / 4);
  EXPECT_TRUE(file.read(*e, 0, std::as_writable_bytes(std::span(out))));
  return out;
}
std::vector<int32_t> ids(const format::Checkpoint& file, const std::string& name) {
  const format::TensorEntry* e = file.find(name);
  std::vector<int64_t> wide(e->size_bytes / 8);
  EXPECT_TRUE(file.read(*e, 0, std::as_writable_bytes(std::span(wide))));
  return {wide.begin(), wide.end()};
}

class GoldenModel : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenModel, GivesTheLogitsAndTokensOfTransformers) {
  const std::string folder = shared_path("golden/models/" + GetParam());
  BERTH_NEEDS(folder);
  RunOptions options;
  options.shape = {.ctx_size = 80, .batch = 1, .prefill_chunk = 16, .logit_rows = 4, .kv_dtype = DType::kF32};
  auto placed = place_model(folder, all_on_cpu(), options);
  ASSERT_TRUE(placed) << placed.error().message;
  auto expected = format::Checkpoint::open(folder + "/expected.safetensors", Log{});
  ASSERT_TRUE(expected) << expected.error().message;
  const std::vector<int32_t> prompt = ids(*expected, "input_ids");
  const std::vector<float> want = floats(*expected, "logits");
  model::Model& model = *(*placed)->model;
  auto got = all_logits(model, prompt);
  ASSERT_TRUE(got) << got.error().message;
  ASSERT_EQ(got->size(), want.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    worst = std::max(worst, std::fabs((*got)[i] - want[i]));
  }
  EXPECT_LE(worst, 2e-4f * largest);

  const std::vector<int32_t> generated = ids(*expected, "generated_ids");
  const std::vector<float> steps = floats(*expected, "step_logits");
  const size_t vocab = want.size() / prompt.size();
  std::vector<float> row(got->end() - static_cast<ptrdiff_t>(vocab), got->end());
  float worst_step = 0;
  for (size_t s = 0; s < generated.size(); ++s) {
    for (size_t v = 0; v < vocab; ++v) worst_step = std::max(worst_step, std::fabs(row[v] - steps[s * vocab + v]));
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    ASSERT_EQ(best, generated[s]) << "step " << s;
    const int32_t token = generated[s];
    const model::BatchItem item{.sequence = 0, .tokens = std::span(&token, 1), .prompt_length = static_cast<int64_t>(prompt.size())};
    const auto status = model.forward(std::span(&item, 1), [&](size_t, int64_t, std::span<const float> logits) {
      row.assign(logits.begin(), logits.end());
      return Status();
    });
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_LE(worst_step, 2e-4f * largest);
  std::printf("[ golden   ] %-18s largest |logit| %7.3f  difference %.2e (prompt) %.2e (steps), as share %.1e\n", GetParam().c_str(),
              static_cast<double>(largest), static_cast<double>(worst), static_cast<double>(worst_step),
              static_cast<double>(std::max(worst, worst_step) / largest));
}

INSTANTIATE_TEST_SUITE_P(Runs, GoldenModel, ::testing::ValuesIn(golden_models()), [](const auto& i) { return i.param; });

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
  std::printf("[ golden   ] %zu run, %zu are planned only, of %zu\n", golden_models().size(), kPlanned.size(), folders.size());
}

}  // namespace
}  // namespace berth::testing
