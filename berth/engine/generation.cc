// engine/generation.cc — see generation.h.
#include "berth/engine/generation.h"

#include <algorithm>

#include "berth/base/json.h"
#include "berth/engine/evaluate.h"
#include "berth/text/chat_template.h"

namespace berth::engine {

namespace {

using SpecialTokens = std::span<const std::pair<std::string, std::string>>;

Result<std::string> render_json(const std::string& source, std::string_view json, SpecialTokens special_tokens) {
  TRY(const auto parsed, text::ChatTemplate::parse(source));
  TRY(const JsonDocument document, JsonDocument::parse(json));
  TRY(const auto request, text::read_chat_request(document.root()));
  return parsed.render(request.request, special_tokens);
}

}  // namespace

Result<std::string> render_template(const std::string& model, std::string_view conversation_json, const Log& log) {
  TRY(const auto checkpoint, open_checkpoint(model, log));
  TRY(const auto source, checkpoint.chat_template());
  if (!source)
    return Error(ErrorCode::kUnsupported, "this model has no chat template", {"Use a chat (instruct) version of the model."});
  TRY(const auto tokenizer, make_tokenizer(checkpoint));
  auto rendered = render_json(*source, conversation_json, tokenizer.special_tokens());
  if (!rendered && rendered.error().code == ErrorCode::kCorruptData && !JsonDocument::parse(conversation_json)) {
    Error e = rendered.error().with_context("reading the conversation");
    e.code = ErrorCode::kInvalidArgument;
    return e;
  }
  return rendered;
}

Result<std::unique_ptr<Generator>> Generator::create(RunningModel& running) {
  std::unique_ptr<Generator> g(new Generator(running));
  const format::Checkpoint& checkpoint = *running.opened->checkpoint;
  auto tokenizer = make_tokenizer(checkpoint);
  if (tokenizer) g->tokenizer_.emplace(*std::move(tokenizer));
  else if (tokenizer.error().code == ErrorCode::kUnsupported) g->no_tokenizer_ = tokenizer.error();
  else return tokenizer.error();
  TRY(g->chat_template_, checkpoint.chat_template());
  TRY(g->defaults_, checkpoint.generation_config());
  return g;
}

Result<generate::GenerateOptions> Generator::resolve(const GenerationOptions& o) const {
  generate::GenerateOptions out;
  out.max_new_tokens = o.max_new_tokens;
  out.stop_strings = defaults_.stop_strings;
  out.stop_strings.insert(out.stop_strings.end(), o.stop.begin(), o.stop.end());
  if (!o.ignore_eos) {
    for (const int64_t id : defaults_.eos_token_id) out.stop_tokens.push_back(static_cast<int32_t>(id));
    if (tokenizer_) {
      if (const auto eos = tokenizer_->eos_id()) out.stop_tokens.push_back(*eos);
      for (const int32_t id : tokenizer_->end_ids()) out.stop_tokens.push_back(id);
    }
  }
  generate::SamplingOptions& s = out.sampling;
  const bool asked = o.temperature || o.top_k || o.top_p || o.min_p || o.seed;
  s.sample = (asked && o.temperature != 0.0) || (o.sample && defaults_.samples());
  if (o.sample) {
    s.temperature = defaults_.temperature.value_or(1.0);
    s.top_k = defaults_.top_k.value_or(format::GenerationConfig::kDefaultTopK);
    s.top_p = defaults_.top_p.value_or(1.0);
    s.min_p = defaults_.min_p.value_or(0.0);
    s.repetition_penalty = defaults_.repetition_penalty.value_or(1.0);
  }
  if (o.temperature) s.temperature = *o.temperature;
  if (o.top_k) s.top_k = *o.top_k;
  if (o.top_p) s.top_p = *o.top_p;
  if (o.min_p) s.min_p = *o.min_p;
  if (o.repetition_penalty) s.repetition_penalty = *o.repetition_penalty;
  if (o.seed) s.seed = static_cast<uint64_t>(*o.seed);
  TRY_STATUS(generate::validate(s));
  return out;
}

Result<std::vector<int32_t>> Generator::render(const std::vector<Message>& messages) const {
  if (no_tokenizer_) return *no_tokenizer_;
  if (!chat_template_)
    return Error(ErrorCode::kUnsupported, "this model has no chat template", {"Prompt it without --chat: it continues your text."});
  JsonWriter json;
  json.begin_object().key("messages").begin_array();
  for (const Message& m : messages) json.begin_object().member("role", m.role).member("content", m.content).end_object();
  json.end_array().member("add_generation_prompt", true).end_object();
  TRY(const std::string rendered, render_json(*chat_template_, json.str(), tokenizer_->special_tokens()));
  // The template writes begin tokens itself.
  return tokenizer_->encode(rendered, false);
}

Result<std::vector<int32_t>> Generator::prompt_ids(const GenerationOptions& o) const {
  if (!o.prompt_tokens.empty()) {
    if (!o.prompt.empty() || o.chat)
      return Error(ErrorCode::kInvalidArgument, "--prompt-tokens was given beside --prompt or --chat; a run has one prompt");
    return read_token_file(o.prompt_tokens);
  }
  if (!o.chat) {
    if (no_tokenizer_) return *no_tokenizer_;
    return tokenizer_->encode(o.prompt, true);
  }
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", o.prompt});
  return render(messages);
}

Result<generate::GenerateResult> Generator::answer(const GenerationOptions& o, const generate::TextCallback& on_text) {
  TRY(const auto options, resolve(o));
  TRY(const auto ids, prompt_ids(o));
  return generate::generate(session_, ids, tokenizer(), options, on_text);
}

Result<generate::GenerateResult> Generator::chat_turn(const std::string& user, const GenerationOptions& o,
                                                      const generate::TextCallback& on_text) {
  TRY(const auto options, resolve(o));
  if (conversation_.empty() && !o.system.empty()) conversation_.push_back({"system", o.system});
  conversation_.push_back({"user", user});
  auto ids = render(conversation_);
  if (!ids) {
    conversation_.pop_back();
    return std::move(ids).error();
  }
  auto result = generate::generate(session_, *ids, tokenizer(), options, on_text);
  if (!result) {
    conversation_.pop_back();
    return result;
  }
  conversation_.push_back({"assistant", result->text});
  return result;
}

}  // namespace berth::engine
