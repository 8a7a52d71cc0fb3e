#include "berth/text/chat_template.h"

#include "berth/base/strings.h"

namespace berth::text {
namespace {

Error refused(const std::string& why) {
  return {ErrorCode::kInvalidArgument, "while reading the conversation: " + why};
}

// One message as templates see it: without null members, its reasoning under the names that templates ask for.
jinja::Value message_value(const JsonView& message) {
  jinja::Dict dict;
  message.for_each_member([&](std::string_view key, const JsonView& v) {
    if (!v.is_null()) dict.set(std::string(key), jinja::from_json(v));
    return true;
  });
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const jinja::Value* found = dict.find(name);
    if (!found) continue;
    const jinja::Value reasoning = *found;
    dict.set("reasoning_content", reasoning);
    dict.set("thinking", reasoning);
    break;
  }
  return jinja::Dict::make(std::move(dict));
}

Result<jinja::Value> messages_value(const JsonView& messages) {
  if (!messages.is_array()) return refused("expected \"messages\" to be a list");
  if (messages.size() == 0) return refused("expected at least one message, found none");
  jinja::Values items;
  Status status;
  messages.for_each_element([&](const JsonView& message) {
    if (!message.is_object())
      status = refused("expected message " + std::to_string(items.size()) + " to be an object, found " +
                       std::string(json_type_name(message.type())));
    else
      items.push_back(message_value(message));
    return status.has_value();
  });
  TRY_STATUS(status);
  return jinja::Sequence::list(std::move(items));
}

jinja::Value value_or_none(const JsonView& json) {
  return json.valid() ? jinja::from_json(json) : jinja::Value(jinja::None{});
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  TRY(jinja::Template t, jinja::Template::parse(source));
  return ChatTemplate(std::move(t));
}

Result<std::string> ChatTemplate::render(const ChatRequest& request,
                                         std::span<const std::pair<std::string, std::string>> special_tokens) const {
  jinja::Dict variables;
  for (const auto& [name, content] : special_tokens) variables.set(name, content);
  TRY(jinja::Value messages, messages_value(request.messages));
  variables.set("messages", std::move(messages));
  variables.set("tools", value_or_none(request.tools));
  variables.set("documents", value_or_none(request.documents));
  variables.set("add_generation_prompt", request.add_generation_prompt);
  if (request.variables.is_object())
    request.variables.for_each_member([&](std::string_view key, const JsonView& v) {
      variables.set(std::string(key), jinja::from_json(v));
      return true;
    });
  jinja::RenderOptions options;
  options.now = request.now;
  return template_.render(variables, options);
}

Result<ChatRequestDocument> read_chat_request(const JsonView& json) {
  if (!json.is_object()) return refused("expected an object with \"messages\"");
  ChatRequestDocument d;
  JsonWriter variables;
  variables.begin_object();
  Status status;
  json.for_each_member([&](std::string_view key, const JsonView& v) {
    if (key == "messages") {
      d.request.messages = v;
    } else if (key == "tools") {
      d.request.tools = v;
    } else if (key == "documents") {
      d.request.documents = v;
    } else if (key == "add_generation_prompt") {
      if (const auto b = v.as_bool())
        d.request.add_generation_prompt = *b;
      else
        status = refused("expected \"add_generation_prompt\" to be true or false");
    } else if (key == "now") {
      auto now = jinja::parse_date_time(v.as_string().value_or(""));
      if (now)
        d.request.now = *now;
      else
        status = now.error();
    } else {
      variables.key(key).raw(v.text());
    }
    return status.has_value();
  });
  TRY_STATUS(status);
  variables.end_object();
  TRY(d.variables, JsonDocument::parse(variables.str()));
  d.request.variables = d.variables->root();
  return d;
}

Result<std::optional<std::string>> chat_template_of_config(std::string_view config_json, bool with_tools) {
  auto document = JsonDocument::parse(config_json, {.large_integers_as_text = true});
  if (!document) return document.error().with_context("in tokenizer_config.json");
  const JsonView t = document->root()["chat_template"];
  if (!t.valid() || t.is_null()) return std::optional<std::string>();
  if (const auto text = t.as_string()) return std::optional(std::string(*text));
  std::optional<std::string> chosen, tool_use;
  if (t.is_array())
    for (const JsonView& entry : t.elements()) {
      const auto name = entry["name"].as_string(), text = entry["template"].as_string();
      if (name == "default" && text) chosen = std::string(*text);
      if (name == "tool_use" && text) tool_use = std::string(*text);
    }
  if (with_tools && tool_use) return tool_use;
  if (!chosen)
    return Error(ErrorCode::kCorruptData,
                 "in tokenizer_config.json: expected \"chat_template\" to be a text, or a list with one named "
                 "\"default\", found neither");
  return chosen;
}

}  // namespace berth::text
