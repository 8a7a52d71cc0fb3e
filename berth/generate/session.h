// generate/session.h — one sequence's life: feed a prompt (keeping what the cache already has), produce tokens, stop.
//
//   Session session(model, 0);
//   session.feed(prompt_ids);                     // computes only what differs from the last turn
//   while (auto token = session.next()) ...
//
// generate() is the loop around it with stop tokens, stop strings, text streaming and timing.
//
// Start reading at: generate().
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "berth/base/hash.h"
#include "berth/generate/sampler.h"
#include "berth/model/model.h"
#include "berth/text/tokenizer.h"

namespace berth::generate {

enum class StopReason { kMaxTokens, kStopToken, kStopString, kContextFull, kCancelled };
std::string_view stop_reason_name(StopReason reason);

struct GenerateOptions {
  int64_t max_new_tokens = -1;  // -1: until something else stops it
  SamplingOptions sampling;
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // new ones; a stop token is included
  std::string text;             // of the new tokens, without special ones, cut before a stop string
  StopReason reason = StopReason::kMaxTokens;
  int64_t prompt_tokens = 0;    // the whole prompt
  int64_t reused_tokens = 0;    // of it, taken from the cache
  double prefill_s = 0, decode_s = 0;
  std::string logits_hash;      // over the rows the tokens were chosen from
  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
};

// Text as it becomes final, for streaming; returns false to cancel.
using TextCallback = std::function<bool(std::string_view text)>;

class Session {
 public:
  Session(model::Model& model, int32_t sequence) : model_(&model), sequence_(sequence) {}

  // Makes the cache hold `prompt` and computes the logits after its last token. Positions that the cache already has
  // are kept (all but the last, whose logits are needed). Errors: from Model::forward; an empty prompt.
  Status feed(std::span<const int32_t> prompt);
  // Logits of the last position.
  std::span<const float> logits() const { return logits_; }
  // Appends a token and computes its logits.
  Status append(int32_t token);

  std::span<const int32_t> tokens() const { return tokens_; }
  int64_t reused() const { return reused_; }
  int32_t sequence() const { return sequence_; }
  model::Model& model() { return *model_; }

 private:
  model::Model* model_;
  int32_t sequence_;
  std::vector<int32_t> tokens_;  // whose K and V the cache holds
  std::vector<float> logits_;
  int64_t reused_ = 0;
};

// `tokenizer` may be null: then no text is made and stop strings are refused.
Result<GenerateResult> generate(Session& session, std::span<const int32_t> prompt, const text::Tokenizer* tokenizer,
                                const GenerateOptions& options, const TextCallback& on_text = {});

}  // namespace berth::generate
