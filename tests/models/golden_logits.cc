// tests/models/golden_logits.cc — see golden_logits.h.
#include "golden_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace berth::testing {
namespace {

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

void compare(model::Model& model, const format::Checkpoint& expected, GoldenDifference& d) {
  const std::vector<int32_t> prompt = ids(expected, "input_ids");
  const std::vector<float> want = floats(expected, "logits");
  auto got = all_logits(model, prompt);
  ASSERT_TRUE(got) << got.error().message;
  // Tables of some files have padding rows: logits past the golden's are never chosen.
  const size_t vocab = want.size() / prompt.size(), width = got->size() / prompt.size();
  ASSERT_GE(width, vocab);
  float largest = 0, worst = 0;
  for (size_t row = 0; row < prompt.size(); ++row)
    for (size_t v = 0; v < vocab; ++v) {
      largest = std::max(largest, std::fabs(want[row * vocab + v]));
      worst = std::max(worst, std::fabs((*got)[row * width + v] - want[row * vocab + v]));
    }
  EXPECT_LE(worst, 2e-4f * largest);
  d.largest = static_cast<double>(largest);
  d.prompt = static_cast<double>(worst);

  const std::vector<int32_t> generated = ids(expected, "generated_ids");
  const std::vector<float> steps = floats(expected, "step_logits");
  std::vector<float> row(got->end() - static_cast<ptrdiff_t>(width), got->end());
  for (size_t s = 0; s < generated.size(); ++s) {
    for (size_t v = 0; v < vocab; ++v)
      d.steps = std::max(d.steps, static_cast<double>(std::fabs(row[v] - steps[s * vocab + v])));
    const auto best = std::max_element(row.begin(), row.begin() + static_cast<ptrdiff_t>(vocab)) - row.begin();
    ASSERT_EQ(best, generated[s]) << "step " << s;
    const int32_t token = generated[s];
    const model::BatchItem item{
        .sequence = 0, .tokens = std::span(&token, 1), .prompt_length = static_cast<int64_t>(prompt.size())};
    const auto status = model.forward(std::span(&item, 1), [&](size_t, int64_t, std::span<const float> logits) {
      row.assign(logits.begin(), logits.end());
      return Status();
    });
    ASSERT_TRUE(status) << status.error().message;
  }
  EXPECT_LE(d.steps, 2e-4 * d.largest);
}

}  // namespace

sizing::RunShape golden_shape() {
  return {.ctx_size = 80, .batch = 1, .prefill_chunk = 16, .logit_rows = 4, .kv_dtype = DType::kF32};
}

GoldenDifference expect_golden_logits(model::Model& model, const std::string& folder) {
  GoldenDifference difference;
  auto expected = format::Checkpoint::open(folder + "/expected.safetensors", Log{});
  EXPECT_TRUE(expected) << expected.error().message;
  if (expected) compare(model, *expected, difference);
  return difference;
}

}  // namespace berth::testing
