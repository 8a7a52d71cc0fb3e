// generate/session.cc — see session.h.
#include "berth/generate/session.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

namespace berth::generate {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Text so far, held back while it could be the beginning of a stop string.
class StopText {
 public:
  StopText(const std::vector<std::string>& stops, const TextCallback& on_text) : stops_(stops), on_text_(on_text) {}

  // Adds text; true where a stop string is complete (the text is cut before it).
  bool add(std::string_view text) {
    text_ += text;
    for (const std::string& stop : stops_) {
      if (stop.empty()) continue;
      const size_t from = shown_ > stop.size() ? shown_ - stop.size() : 0;
      const size_t at = text_.find(stop, from);
      if (at != std::string::npos) {
        text_.resize(at);
        show(text_.size());
        return true;
      }
    }
    size_t held = 0;  // the longest end of the text that begins a stop string
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.empty() ? 0 : stop.size() - 1, text_.size()); n > held; --n)
        if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) held = n;
    show(text_.size() - held);
    return false;
  }
  void finish() { show(text_.size()); }
  bool cancelled() const { return cancelled_; }
  std::string take() { return std::move(text_); }

 private:
  void show(size_t end) {
    if (end <= shown_) return;
    if (on_text_ && !on_text_(std::string_view(text_).substr(shown_, end - shown_))) cancelled_ = true;
    shown_ = end;
  }
  const std::vector<std::string>& stops_;
  const TextCallback& on_text_;
  std::string text_;
  size_t shown_ = 0;
  bool cancelled_ = false;
};

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kMaxTokens: return "max_tokens";
    case StopReason::kStopToken: return "stop_token";
    case StopReason::kStopString: return "stop_string";
    case StopReason::kContextFull: return "context_full";
    case StopReason::kCancelled: return "cancelled";
  }
  return "";
}

double GenerateResult::prefill_tokens_per_s() const {
  return prefill_s > 0 ? static_cast<double>(prompt_tokens - reused_tokens) / prefill_s : 0;
}
double GenerateResult::decode_tokens_per_s() const {
  return decode_s > 0 && tokens.size() > 1 ? static_cast<double>(tokens.size() - 1) / decode_s : 0;
}

Status Session::feed(std::span<const int32_t> prompt) {
  if (prompt.empty())
    return Error(ErrorCode::kInvalidArgument, "the prompt has no tokens",
                 {"Give some text with -p, or a model whose tokenizer adds a begin token."});
  size_t common = 0;
  while (common < prompt.size() && common < tokens_.size() && prompt[common] == tokens_[common]) ++common;
  common = std::min(common, prompt.size() - 1);
  model::KvCache& kv = model_->kv();
  reused_ = model_->keepable(sequence_, static_cast<int64_t>(common), static_cast<int64_t>(prompt.size()));
  if (reused_ == 0) kv.set_length(sequence_, 0);
  kv.truncate(sequence_, reused_);
  tokens_.assign(prompt.begin(), prompt.begin() + reused_);
  const auto fresh = prompt.subspan(static_cast<size_t>(reused_));
  TRY_STATUS(model_->prefill(sequence_, fresh, model::LogitRows::kLast, [&](size_t, int64_t, std::span<const float> row) {
    logits_.assign(row.begin(), row.end());
    return Status();
  }));
  tokens_.assign(prompt.begin(), prompt.end());
  return {};
}

Status Session::append(int32_t token) {
  const model::BatchItem item{.sequence = sequence_, .tokens = std::span(&token, 1)};
  TRY_STATUS(model_->forward(std::span(&item, 1), [&](size_t, int64_t, std::span<const float> row) {
    std::copy(row.begin(), row.end(), logits_.begin());
    return Status();
  }));
  tokens_.push_back(token);
  return {};
}

Result<GenerateResult> generate(Session& session, std::span<const int32_t> prompt, const text::Tokenizer* tokenizer,
                                const GenerateOptions& options, const TextCallback& on_text) {
  TRY_STATUS(validate(options.sampling));
  if (tokenizer == nullptr && !options.stop_strings.empty())
    return Error(ErrorCode::kInvalidArgument, "stop strings need a tokenizer, and this model has none");
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  if (options.max_new_tokens == 0) return result;
  const auto prefill_start = std::chrono::steady_clock::now();
  TRY_STATUS(session.feed(prompt));
  result.prefill_s = seconds_since(prefill_start);
  result.reused_tokens = session.reused();

  Sampler sampler(options.sampling);
  Hasher128 hash;
  StopText text(options.stop_strings, on_text);
  std::optional<text::StreamDecoder> decoder;
  if (tokenizer != nullptr) decoder.emplace(*tokenizer, true);
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  const int64_t room = session.model().kv().ctx_size() - result.prompt_tokens;
  const auto decode_start = std::chrono::steady_clock::now();
  for (;;) {
    hash.add(session.logits().data(), session.logits().size_bytes());
    const int32_t token = sampler.choose(session.logits(), history, static_cast<uint32_t>(session.sequence()),
                                         static_cast<uint64_t>(history.size()));
    result.tokens.push_back(token);
    history.push_back(token);
    const auto count = static_cast<int64_t>(result.tokens.size());
    const bool stops = std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end();
    bool stop_string = false;
    if (decoder && !stops) {
      TRY(const std::string piece, decoder->step(token));
      stop_string = text.add(piece);
    }
    if (stops || stop_string || text.cancelled()) {
      result.reason = stops ? StopReason::kStopToken : stop_string ? StopReason::kStopString : StopReason::kCancelled;
      break;
    }
    if (options.max_new_tokens >= 0 && count >= options.max_new_tokens) break;
    if (count > room) {
      result.reason = StopReason::kContextFull;
      break;
    }
    TRY_STATUS(session.append(token));
  }
  result.decode_s = seconds_since(decode_start);
  if (decoder && result.reason != StopReason::kStopString) {
    TRY(const std::string rest, decoder->finish());
    text.add(rest);
    text.finish();
  }
  result.text = text.take();
  result.logits_hash = hash.hex();
  return result;
}

}  // namespace berth::generate
