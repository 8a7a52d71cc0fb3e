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

Result<TextParts> read_text_parts(const format::Checkpoint& checkpoint) {
  TextParts parts;
  auto tokenizer = make_tokenizer(checkpoint);
  if (tokenizer) parts.tokenizer.emplace(*std::move(tokenizer));
  else if (tokenizer.error().code == ErrorCode::kUnsupported) parts.no_tokenizer = tokenizer.error();
  else return tokenizer.error();
  TRY(parts.chat_template, checkpoint.chat_template());
  TRY(parts.defaults, checkpoint.generation_config());
  return parts;
}

Result<std::unique_ptr<Generator>> Generator::create(RunningModel& running) {
  TRY(TextParts text, read_text_parts(*running.opened->checkpoint));
  return create(running, std::move(text));
}

Result<std::unique_ptr<Generator>> Generator::create(RunningModel& running, TextParts text) {
  return std::unique_ptr<Generator>(new Generator(running, std::move(text)));
}

Result<generate::GenerateOptions> Generator::resolve(const GenerationOptions& o) const {
  generate::GenerateOptions out;
  out.max_new_tokens = o.max_new_tokens;
  out.stop_strings = text_.defaults.stop_strings;
  out.stop_strings.insert(out.stop_strings.end(), o.stop.begin(), o.stop.end());
  if (!o.ignore_eos) {
    for (const int64_t id : text_.defaults.eos_token_id) out.stop_tokens.push_back(static_cast<int32_t>(id));
    if (text_.tokenizer) {
      if (const auto eos = text_.tokenizer->eos_id()) out.stop_tokens.push_back(*eos);
      for (const int32_t id : text_.tokenizer->end_ids()) out.stop_tokens.push_back(id);
    }
  }
  generate::SamplingOptions& s = out.sampling;
  const bool asked = o.temperature || o.top_k || o.top_p || o.min_p || o.seed;
  s.sample = (asked && o.temperature != 0.0) || (o.sample && text_.defaults.samples());
  if (o.sample) {
    s.temperature = text_.defaults.temperature.value_or(1.0);
    s.top_k = text_.defaults.top_k.value_or(format::GenerationConfig::kDefaultTopK);
    s.top_p = text_.defaults.top_p.value_or(1.0);
    s.min_p = text_.defaults.min_p.value_or(0.0);
    s.repetition_penalty = text_.defaults.repetition_penalty.value_or(1.0);
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

Result<std::vector<int32_t>> TextParts::render(const std::vector<Message>& messages) const {
  if (no_tokenizer) return *no_tokenizer;
  if (!chat_template)
    return Error(ErrorCode::kUnsupported, "this model has no chat template", {"Prompt it without --chat: it continues your text."});
  JsonWriter json;
  json.begin_object().key("messages").begin_array();
  for (const Message& m : messages) json.begin_object().member("role", m.role).member("content", m.content).end_object();
  json.end_array().member("add_generation_prompt", true).end_object();
  TRY(const std::string rendered, render_json(*chat_template, json.str(), tokenizer->special_tokens()));
  // The template writes begin tokens itself.
  return tokenizer->encode(rendered, false);
}

Status TextParts::check(const GenerationOptions& options, bool interactive) const {
  if (!interactive) {
    const auto ids = prompt_ids(options);
    return ids ? Status() : Status(ids.error());
  }
  if (no_tokenizer) return *no_tokenizer;
  if (!chat_template) return {};
  const auto parsed = text::ChatTemplate::parse(*chat_template);
  return parsed ? Status() : Status(parsed.error());
}

Result<std::vector<int32_t>> TextParts::prompt_ids(const GenerationOptions& o) const {
  if (!o.prompt_tokens.empty()) {
    if (!o.prompt.empty() || o.chat)
      return Error(ErrorCode::kInvalidArgument, "--prompt-tokens was given beside --prompt or --chat; a run has one prompt");
    return read_token_file(o.prompt_tokens);
  }
  if (!o.chat) {
    if (no_tokenizer) return *no_tokenizer;
    return tokenizer->encode(o.prompt, true);
  }
  std::vector<Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", o.prompt});
  return render(messages);
}

Result<generate::GenerateResult> Generator::answer(const GenerationOptions& o, const generate::TextCallback& on_text) {
  TRY(const auto options, resolve(o));
  TRY(const auto ids, text_.prompt_ids(o));
  return generate::generate(session_, ids, tokenizer(), options, on_text);
}

Result<generate::GenerateResult> Generator::chat_turn(const std::string& user, const GenerationOptions& o,
                                                      const generate::TextCallback& on_text) {
  TRY(const auto options, resolve(o));
  if (conversation_.empty() && !o.system.empty()) conversation_.push_back({"system", o.system});
  conversation_.push_back({"user", user});
  auto ids = text_.render(conversation_);
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
