// tests/models/families_test.cc — what only some families do, beyond the logits of the golden folders: rows left out
// where no later layer writes a cache, a prefix computed anew at long rope's border, states that cannot go back.
#include <gtest/gtest.h>

#include <algorithm>

#include "placed_model.h"

namespace berth::testing {
namespace {

using Rows = std::vector<std::vector<float>>;

std::vector<int32_t> some_tokens(int32_t count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(5 + i * 17 % 89);
  return out;
}

std::unique_ptr<PlacedModel> open(const std::string& name, int64_t chunk, int64_t wanted_rows = 0) {
  RunOptions options;
  options.shape = {.ctx_size = 80,
                   .batch = 2,
                   .prefill_chunk = chunk,
                   .logit_rows = 3,
                   .wanted_rows = wanted_rows,
                   .kv_dtype = DType::kBF16};
  auto placed = place_model(shared_path("golden/models/" + name), all_on_cpu(), options);
  EXPECT_TRUE(placed) << placed.error().message;
  return placed ? std::move(*placed) : nullptr;
}

auto keep(Rows& rows) {
  return [&rows](size_t, int64_t, std::span<const float> row) {
    rows.emplace_back(row.begin(), row.end());
    return Status();
  };
}

class WantedRows : public ::testing::TestWithParam<std::string> {};

// What comes after the last cache is written computes the wanted rows only: the last MLP, and in Gemma 3n and 4 all
// layers that read older caches. The same logits as when all rows are wanted.
TEST_P(WantedRows, GiveTheSameLogitsWhereTheyAreFew) {
  BERTH_NEEDS(shared_path("golden/models/" + GetParam()));
  auto placed = open(GetParam(), 16);
  ASSERT_NE(placed, nullptr);
  model::Model& model = *placed->model;
  const std::vector<int32_t> prompt = some_tokens(37), other = some_tokens(9);
  Rows all, last, batch;
  ASSERT_TRUE(model.prefill(0, prompt, model::LogitRows::kAll, keep(all)));
  ASSERT_EQ(all.size(), prompt.size());
  model.kv().set_length(0, 0);
  ASSERT_TRUE(model.prefill(0, prompt, model::LogitRows::kLast, keep(last)));
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0], all.back());
  // A batch in which each sequence wants something else; then a step on what it left.
  model.kv().set_length(0, 0);
  model.kv().set_length(1, 0);
  std::vector<model::BatchItem> items(2);
  items[0] = {
      .sequence = 1, .tokens = std::span(other).first(5), .logits = model::LogitRows::kNone, .prompt_length = 9};
  items[1] = {
      .sequence = 0, .tokens = std::span(prompt).first(11), .logits = model::LogitRows::kAll, .prompt_length = 37};
  ASSERT_TRUE(model.forward(items, keep(batch)));
  ASSERT_EQ(batch.size(), 11u);
  for (size_t r = 0; r < batch.size(); ++r) EXPECT_EQ(batch[r], all[r]) << r;
  batch.clear();
  items[0] = {.sequence = 0,
              .tokens = std::span(prompt).subspan(11, 3),
              .logits = model::LogitRows::kLast,
              .prompt_length = 37};
  items[1] = {
      .sequence = 1, .tokens = std::span(other).subspan(5), .logits = model::LogitRows::kLast, .prompt_length = 9};
  ASSERT_TRUE(model.forward(items, keep(batch)));
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0], all[13]);
  // With a workspace for so few: the same once more, and more are refused.
  auto narrow = open(GetParam(), 16, 2);
  ASSERT_NE(narrow, nullptr);
  Rows few;
  ASSERT_TRUE(narrow->model->prefill(1, other, model::LogitRows::kLast, keep(few)));
  ASSERT_TRUE(narrow->model->prefill(0, prompt, model::LogitRows::kLast, keep(few)));
  ASSERT_EQ(few.size(), 2u);
  EXPECT_EQ(few[0], batch[1]);
  EXPECT_EQ(few[1], all.back());
  narrow->model->kv().set_length(0, 0);
  const auto refused = narrow->model->prefill(0, prompt, model::LogitRows::kAll, keep(few));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("logits of 16 rows"), std::string::npos) << refused.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, WantedRows, ::testing::ValuesIn(golden_models()), [](const auto& i) { return i.param; });

// Layers that read older caches have workspaces for the wanted rows; so a device that holds only those needs little,
// and Gemma 4 E2B, whose MLPs are twice as wide there, needs less everywhere.
TEST(WantedRowsWorkspace, IsSmallWhereNoCacheIsWritten) {
  for (const char* name : {"gemma4_e2b", "gemma4_text_e4b", "gemma3n_text"}) {
    BERTH_NEEDS(shared_path(std::string("golden/models/") + name));
    auto placed = open(name, 16);
    ASSERT_NE(placed, nullptr);
    const arch::ModelSpec& spec = placed->description.spec;
    const auto layers = static_cast<int32_t>(spec.layers.size());
    const int32_t first = sizing::first_narrow_layer(spec);
    ASSERT_GT(first, 0);
    ASSERT_LT(first, layers) << name;
    sizing::RunShape all = placed->plan.shape, few = all;
    all.prefill_chunk = few.prefill_chunk = 512;
    few.wanted_rows = 2;
    for (const sizing::Unit& unit : sizing::make_units(spec, placed->storage, few).units) {
      if (unit.kind == sizing::UnitKind::kTable) continue;
      const sizing::UnitTable wide = sizing::make_units(spec, placed->storage, all);
      const auto same = std::find_if(wide.units.begin(), wide.units.end(),
                                     [&](const sizing::Unit& u) { return u.path == unit.path; });
      ASSERT_NE(same, wide.units.end());
      const bool narrow = unit.kind == sizing::UnitKind::kHead || unit.layer >= first ||
                          (unit.layer == first - 1 && unit.kind == sizing::UnitKind::kMlp);
      if (narrow) {
        EXPECT_LT(unit.workspace_bytes, same->workspace_bytes) << unit.path;
        EXPECT_LT(unit.prefill_flops, same->prefill_flops / 100) << unit.path;
      } else {
        EXPECT_EQ(unit.workspace_bytes, same->workspace_bytes) << unit.path;
        EXPECT_EQ(unit.prefill_flops, same->prefill_flops) << unit.path;
      }
    }
  }
}

// Where a sequence passes the border does not depend on how its tokens were cut into passes.
TEST(LongRope, PassesItsBorderTheSameInOnePassOrTokenByToken) {
  BERTH_NEEDS(shared_path("golden/models/phi3_longrope"));
  auto placed = open("phi3_longrope", 32);
  ASSERT_NE(placed, nullptr);
  model::Model& model = *placed->model;
  const int64_t border = placed->description.spec.ropes[0].original_max_position;
  ASSERT_GT(border, 8);
  const std::vector<int32_t> tokens = some_tokens(static_cast<int32_t>(border) + 6);
  const int64_t prompt = border - 4;
  Rows steps, passes;
  ASSERT_TRUE(
      model.prefill(0, std::span(tokens).first(static_cast<size_t>(prompt)), model::LogitRows::kNone, keep(steps)));
  for (size_t t = static_cast<size_t>(prompt); t < tokens.size(); ++t) {
    const model::BatchItem item{.sequence = 0, .tokens = std::span(tokens).subspan(t, 1), .prompt_length = prompt};
    ASSERT_TRUE(model.forward(std::span(&item, 1), keep(steps)));
  }
  ASSERT_TRUE(
      model.prefill(1, std::span(tokens).first(static_cast<size_t>(prompt)), model::LogitRows::kNone, keep(passes)));
  const model::BatchItem rest{.sequence = 1,
                              .tokens = std::span(tokens).subspan(static_cast<size_t>(prompt)),
                              .logits = model::LogitRows::kAll,
                              .prompt_length = prompt};
  ASSERT_TRUE(model.forward(std::span(&rest, 1), keep(passes)));
  ASSERT_EQ(passes.size(), steps.size());
  for (size_t r = 0; r < steps.size(); ++r) EXPECT_EQ(passes[r], steps[r]) << r;
  EXPECT_EQ(model.kv().length(0), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(model.kv().length(1), static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(model.keepable(0, 8, 9), 0);  // its keys are the long list's now
}

TEST(DeltaNet, StatesCannotBeCutBackButBeginAnew) {
  for (const char* name : {"qwen3_next", "qwen3_5_moe"}) {
    BERTH_NEEDS(shared_path(std::string("golden/models/") + name));
    auto placed = open(name, 16);
    ASSERT_NE(placed, nullptr);
    model::Model& model = *placed->model;
    const std::vector<int32_t> tokens = some_tokens(20);
    Rows first, second, more;
    ASSERT_TRUE(model.prefill(0, tokens, model::LogitRows::kAll, keep(first)));
    EXPECT_EQ(model.keepable(0, 19, 30), 0);
    EXPECT_EQ(model.keepable(0, 20, 30), 20);  // nothing has to go
    model.kv().set_length(0, 0);
    ASSERT_TRUE(model.prefill(0, tokens, model::LogitRows::kAll, keep(second)));
    EXPECT_EQ(first, second);
  }
}

TEST(LearnedPositions, EndWhereTheModelSays) {
  BERTH_NEEDS(shared_path("golden/models/gpt2"));
  RunOptions options;
  auto probe = open("gpt2", 8);
  ASSERT_NE(probe, nullptr);
  const int64_t positions = probe->description.spec.position_rows - probe->description.spec.position_offset;
  options.shape = {
      .ctx_size = positions + 8, .batch = 1, .prefill_chunk = 64, .logit_rows = 1, .kv_dtype = DType::kBF16};
  auto placed = place_model(shared_path("golden/models/gpt2"), all_on_cpu(), options);
  ASSERT_TRUE(placed) << placed.error().message;
  Rows rows;
  const auto status = (*placed)->model->prefill(0, some_tokens(static_cast<int32_t>(positions) + 1),
                                                model::LogitRows::kLast, keep(rows));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("learned " + std::to_string(positions) + " positions"), std::string::npos)
      << status.error().message;
}

}  // namespace
}  // namespace berth::testing
