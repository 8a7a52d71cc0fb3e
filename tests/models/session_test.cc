// tests/models/session_test.cc — conversations: a kept prefix computes only what is new and changes no bit; stopping; sampling.
#include <algorithm>

#include <gtest/gtest.h>

#include "berth/engine/running.h"
#include "berth/generate/session.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

std::unique_ptr<PlacedModel> open(const std::string& folder, int64_t ctx = 200, int64_t chunk = 16) {
  RunOptions options;
  options.shape = {.ctx_size = ctx, .batch = 1, .prefill_chunk = chunk, .logit_rows = 1, .kv_dtype = DType::kF16};
  auto placed = place_model(shared_path(folder), all_on_cpu(), options);
  EXPECT_TRUE(placed) << (placed ? "" : placed.error().message);
  return placed ? *std::move(placed) : nullptr;
}

std::vector<int32_t> tokens(int32_t n, int32_t salt) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < n; ++i) out.push_back(4 + (i * 13 + salt) % 80);
  return out;
}

class KeptPrefix : public ::testing::TestWithParam<std::string> {};

TEST_P(KeptPrefix, GivesTheBitsOfAFreshRun) {
  BERTH_NEEDS(shared_path(GetParam()));
  const auto kept = open(GetParam());
  const auto fresh = open(GetParam());
  ASSERT_TRUE(kept && fresh);
  generate::Session session(*kept->model, 0);
  std::vector<int32_t> conversation = tokens(20, 1);
  for (int turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(session.feed(conversation));
    generate::Session other(*fresh->model, 0);
    fresh->model->kv().set_length(0, 0);
    ASSERT_TRUE(other.feed(conversation));
    ASSERT_EQ(other.reused(), 0);
    ASSERT_TRUE(std::equal(session.logits().begin(), session.logits().end(), other.logits().begin())) << "turn " << turn;
    for (const int32_t t : tokens(5, turn)) {
      ASSERT_TRUE(session.append(t));
      conversation.push_back(t);
    }
    const auto more = tokens(9, 50 + turn);
    conversation.insert(conversation.end(), more.begin(), more.end());
  }
  // A reply is taken back and another asked for: the common beginning is kept where the cache still has it.
  conversation.resize(30);
  conversation[25] = 7;
  ASSERT_TRUE(session.feed(conversation));
  generate::Session other(*fresh->model, 0);
  fresh->model->kv().set_length(0, 0);
  ASSERT_TRUE(other.feed(conversation));
  EXPECT_TRUE(std::equal(session.logits().begin(), session.logits().end(), other.logits().begin()));
}

INSTANTIATE_TEST_SUITE_P(All, KeptPrefix,
                         ::testing::Values("golden/models/llama", "golden/models/mistral", "golden/models/gemma3_text",
                                           "golden/models/llama_dynamic", "golden/real_models/stories260k/checkpoint"),
                         [](const auto& i) {
                           std::string n = i.param.substr(i.param.rfind('/') + 1);
                           return n == "checkpoint" ? std::string("stories260k") : n;
                         });

TEST(Session, KeepsAllOfAConversationThatOnlyGrows) {
  BERTH_NEEDS(shared_path("golden/models/llama"));
  const auto placed = open("golden/models/llama");
  ASSERT_TRUE(placed);
  generate::Session session(*placed->model, 0);
  std::vector<int32_t> prompt = tokens(30, 0);
  ASSERT_TRUE(session.feed(prompt));
  prompt.push_back(9);
  ASSERT_TRUE(session.feed(prompt));
  EXPECT_EQ(session.reused(), 30);
  ASSERT_TRUE(session.feed(prompt));  // nothing new: the last token is computed again for its logits
  EXPECT_EQ(session.reused(), 30);
}

TEST(Session, RingsForgetAndThenNothingIsKept) {
  BERTH_NEEDS(shared_path("golden/models/mistral"));
  const auto placed = open("golden/models/mistral", 400, 16);  // window 9: the ring holds 128 positions
  ASSERT_TRUE(placed);
  generate::Session session(*placed->model, 0);
  const std::vector<int32_t> prompt = tokens(300, 0);
  ASSERT_TRUE(session.feed(prompt));
  ASSERT_TRUE(session.feed(std::span(prompt).first(20)));
  EXPECT_EQ(session.reused(), 0);
}

TEST(Generate, StopsWhereItIsTold) {
  const std::string folder = "golden/real_models/stories260k/checkpoint";
  BERTH_NEEDS(shared_path(folder));
  const auto placed = open(folder, 64);
  ASSERT_TRUE(placed);
  auto tokenizer = engine::make_tokenizer(*placed->checkpoint);
  ASSERT_TRUE(tokenizer);
  auto prompt = tokenizer->encode("Once upon a time", true);
  ASSERT_TRUE(prompt);
  generate::Session session(*placed->model, 0);
  generate::GenerateOptions options;
  options.max_new_tokens = 20;
  auto all = generate::generate(session, *prompt, &*tokenizer, options);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->tokens.size(), 20u);
  EXPECT_EQ(all->reason, generate::StopReason::kMaxTokens);
  ASSERT_GT(all->text.size(), 12u);

  std::string streamed;
  options.stop_strings = {all->text.substr(8, 4)};
  auto cut = generate::generate(session, *prompt, &*tokenizer, options, [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->reason, generate::StopReason::kStopString);
  EXPECT_EQ(cut->text, all->text.substr(0, all->text.find(options.stop_strings[0])));
  EXPECT_EQ(streamed, cut->text);

  options.stop_strings.clear();
  options.stop_tokens = {all->tokens[5]};
  auto at_token = generate::generate(session, *prompt, &*tokenizer, options);
  ASSERT_TRUE(at_token);
  EXPECT_EQ(at_token->reason, generate::StopReason::kStopToken);
  EXPECT_EQ(at_token->tokens.back(), all->tokens[5]);

  options.stop_tokens.clear();
  options.max_new_tokens = -1;
  auto full = generate::generate(session, *prompt, &*tokenizer, options);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->reason, generate::StopReason::kContextFull);
  EXPECT_EQ(full->prompt_tokens + static_cast<int64_t>(full->tokens.size()), 64 + 1);

  int calls = 0;
  auto cancelled = generate::generate(session, *prompt, &*tokenizer, options, [&](std::string_view) { return ++calls < 3; });
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->reason, generate::StopReason::kCancelled);
}

TEST(Generate, SamplesTheSameTextForTheSameSeed) {
  const std::string folder = "golden/real_models/stories260k/checkpoint";
  BERTH_NEEDS(shared_path(folder));
  const auto placed = open(folder, 64);
  ASSERT_TRUE(placed);
  generate::GenerateOptions options;
  options.max_new_tokens = 16;
  options.sampling.sample = true;
  options.sampling.temperature = 1.2;
  std::vector<std::vector<int32_t>> runs;
  for (const uint64_t seed : {1u, 1u, 2u}) {
    generate::Session session(*placed->model, 0);
    placed->model->kv().set_length(0, 0);
    options.sampling.seed = seed;
    auto result = generate::generate(session, tokens(6, 0), nullptr, options);
    ASSERT_TRUE(result);
    runs.push_back(result->tokens);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

}  // namespace
}  // namespace berth::testing
