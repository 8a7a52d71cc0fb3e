// engine/generation.h — prompts to answers: plain text or chat, with the model's own template, stop rules and defaults.
//
//   TRY(auto generator, Generator::create(*running));
//   TRY(auto answer, generator.answer("Hello", options, on_text));
//
// A Generator keeps its conversation in the cache: a next turn computes only what is new.
// Start reading at: Generator.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "berth/engine/options.h"
#include "berth/engine/running.h"
#include "berth/generate/session.h"

namespace berth::engine {

// What `run` takes besides Options. A value that was not given (nullopt) comes from generation_config where --sample is
// on, and is greedy otherwise.
struct GenerationOptions {
  std::string prompt;
  std::string prompt_tokens;    // a file of token ids in place of `prompt`; needs no tokenizer
  int64_t max_new_tokens = -1;  // -1: until the model ends or the context is full
  bool chat = false;            // render the prompt with the chat template
  bool sample = false;          // take temperature, top-k... from generation_config
  std::string system;           // chat: a system message
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

template <typename OptionsType, typename Visitor>
void visit_generation_options(OptionsType& o, Visitor&& visit) {
  constexpr std::string_view kText = "What is generated";
  visit(OptionInfo{"prompt", "p", "TEXT", kText, "the prompt; without it an interactive chat on a terminal, else standard input"}, o.prompt);
  visit(OptionInfo{"prompt-tokens", "", "FILE.json", kText, "a prompt as a JSON list of token ids; the model needs no tokenizer then"}, o.prompt_tokens);
  visit(OptionInfo{"max-new-tokens", "n", "N", kText, "most tokens to make (default: until the model ends or the context is full)"}, o.max_new_tokens);
  visit(OptionInfo{"chat", "", "", kText, "put the prompt into the model's chat template"}, o.chat);
  visit(OptionInfo{"system", "", "TEXT", kText, "with --chat: a system message"}, o.system);
  visit(OptionInfo{"sample", "", "", kText, "sample with the model's generation_config (default: greedy)"}, o.sample);
  visit(OptionInfo{"temp", "", "T", kText, "temperature; 0 is greedy"}, o.temperature);
  visit(OptionInfo{"top-k", "", "K", kText, "sample among the K likeliest; 0: all"}, o.top_k);
  visit(OptionInfo{"top-p", "", "P", kText, "sample among the likeliest that make up P"}, o.top_p);
  visit(OptionInfo{"min-p", "", "P", kText, "drop tokens less likely than P times the likeliest"}, o.min_p);
  visit(OptionInfo{"repetition-penalty", "", "R", kText, "divide the scores of tokens seen before"}, o.repetition_penalty);
  visit(OptionInfo{"seed", "", "N", kText, "of the random numbers"}, o.seed);
  visit(OptionInfo{"stop", "", "TEXT", kText, "stop before this text; repeatable"}, o.stop);
  visit(OptionInfo{"ignore-eos", "", "", kText, "go on past end-of-sequence tokens"}, o.ignore_eos);
}

// {"messages": [..], "tools": [..], ...} rendered by the checkpoint's chat template (contract: berth template).
Result<std::string> render_template(const std::string& model, std::string_view conversation_json, const Log& log);

struct Message {
  std::string role, content;
};

// What turns texts into token ids and back; small files beside the weights. Read them before the weights: what is
// broken or missing there shows at once.
struct TextParts {
  std::optional<text::Tokenizer> tokenizer;
  std::optional<Error> no_tokenizer;  // why it is not there
  std::optional<std::string> chat_template;
  format::GenerationConfig defaults;

  // Token ids of a prompt.
  Result<std::vector<int32_t>> prompt_ids(const GenerationOptions& options) const;
  Result<std::vector<int32_t>> render(const std::vector<Message>& messages) const;
  // Whether a run with these options can begin: its prompt can be put into ids; for a chat, the template be read.
  Status check(const GenerationOptions& options, bool interactive) const;
};
// Without a tokenizer only token ids can be prompts. Errors: a broken tokenizer or generation config.
Result<TextParts> read_text_parts(const format::Checkpoint& checkpoint);

class Generator {
 public:
  // `running` must outlive it. Errors: as read_text_parts().
  static Result<std::unique_ptr<Generator>> create(RunningModel& running);
  static Result<std::unique_ptr<Generator>> create(RunningModel& running, TextParts text);

  // One answer to one prompt (a chat turn of its own where options.chat).
  Result<generate::GenerateResult> answer(const GenerationOptions& options, const generate::TextCallback& on_text = {});
  // The next turn of a conversation.
  Result<generate::GenerateResult> chat_turn(const std::string& user, const GenerationOptions& options,
                                             const generate::TextCallback& on_text = {});
  bool has_chat_template() const { return text_.chat_template.has_value(); }
  const text::Tokenizer* tokenizer() const { return text_.tokenizer ? &*text_.tokenizer : nullptr; }
  // What the options come to: greedy or sampled with which values; for people.
  Result<generate::GenerateOptions> resolve(const GenerationOptions& options) const;

 private:
  Generator(RunningModel& running, TextParts text) : text_(std::move(text)), session_(*running.model, 0) {}
  TextParts text_;
  generate::Session session_;
  std::vector<Message> conversation_;
};

}  // namespace berth::engine
