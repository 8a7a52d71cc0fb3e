// text/chat_template.h — a conversation as the text that its model was trained on, by the checkpoint's chat template.
//
// What Transformers' apply_chat_template(tokenize=False) does: the template is Jinja (berth/jinja), the conversation
// JSON. Null members of a message are left out, the three names of a model's reasoning are made one, the tokenizer's
// special tokens are variables, and any further variable may be given.
//
// Thread-safe once parsed. Non-goals: tokenizing the text (tokenizer.h; use add_special = false, templates write the
// begin token themselves). Start reading at: ChatTemplate::render.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/jinja/template.h"

namespace berth::text {

struct ChatRequest {
  JsonView messages;   // an array of objects, not empty
  JsonView tools;      // an array, null, or not valid: none
  JsonView documents;  // the same
  bool add_generation_prompt = false;
  JsonView variables;                  // an object of further variables, which win over special tokens; or not valid
  std::optional<jinja::DateTime> now;  // for strftime_now; absent: the clock
};

class ChatTemplate {
 public:
  // Errors: kCorruptData (syntax), kUnsupported; messages say the line.
  static Result<ChatTemplate> parse(std::string_view source);

  // `special_tokens`: ("bos_token", "<s>") and the like (Tokenizer::special_tokens). Errors: kInvalidArgument where the
  // conversation is malformed or the template refuses it (in the template's own words), kUnsupported at a limit.
  Result<std::string> render(const ChatRequest& request,
                             std::span<const std::pair<std::string, std::string>> special_tokens) const;

 private:
  explicit ChatTemplate(jinja::Template t) : template_(std::move(t)) {}
  jinja::Template template_;
};

// The request that `berth template` reads: {"messages", "tools", "documents", "add_generation_prompt", "now", and any
// further variables}. The views stay in `json`, which must outlive the result. Errors: kInvalidArgument.
struct ChatRequestDocument {
  ChatRequest request;
  std::optional<JsonDocument> variables;  // what request.variables refers to
};
Result<ChatRequestDocument> read_chat_request(const JsonView& json);

// The template in a tokenizer_config.json: "chat_template" is a text, or a list of {"name", "template"} of which
// "tool_use" is taken `with_tools` and "default" otherwise. Nothing where there is none. Errors: kCorruptData.
Result<std::optional<std::string>> chat_template_of_config(std::string_view config_json, bool with_tools);

}  // namespace berth::text
