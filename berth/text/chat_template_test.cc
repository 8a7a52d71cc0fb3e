// text/chat_template_test.cc — 24 published chat templates over 38 conversations, byte for byte, errors included.
#include "berth/text/chat_template.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "berth/text/test_files.h"

namespace berth::text {
namespace {

TEST(ChatTemplateGoldens, PublishedTemplatesRenderByteForByte) {
  const std::string folder = golden_folder("chat_templates");
  REQUIRE_PATH(folder);
  const auto index = JsonDocument::parse_file(folder + "/index.json").value();
  const auto conversations = JsonDocument::parse_file(folder + "/conversations.json").value();
  size_t right = 0, total = 0, templates = 0;
  for (const JsonView& entry : index.root().elements()) {
    const std::string name(*entry["name"].as_string());
    const auto source = read_file(folder + "/" + name + ".jinja").value();
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed) << name << ": " << parsed.error().message;
    ++templates;
    std::vector<std::pair<std::string, std::string>> specials;
    for (const char* token : {"bos_token", "eos_token"})
      if (const auto text = entry[token].as_string()) specials.emplace_back(token, *text);
    size_t template_right = 0, template_total = 0;
    for (const JsonDocument& line : read_json_lines(folder + "/" + name + ".jsonl")) {
      const JsonView golden = line.root();
      ChatRequest request;
      for (const JsonView& c : conversations.root().elements()) {
        if (c["case"].as_string() != golden["case"].as_string()) continue;
        request.messages = c["messages"];
        request.tools = c["tools"];
        request.variables = c["kwargs"];
      }
      request.add_generation_prompt = *golden["add_generation_prompt"].as_bool();
      request.now = jinja::DateTime{2026, 1, 15, 12, 34, 56};
      const auto got = parsed->render(request, specials);
      bool ok = false;
      if (const auto text = golden["text"].as_string()) {
        ok = got && *got == *text;
        EXPECT_TRUE(ok) << name << " " << *golden["case"].as_string() << "\n  want " << json_quoted(*text)
                        << "\n  got  " << (got ? json_quoted(*got) : "error " + got.error().message);
      } else {
        ok = !got;
        if (*golden["error"].as_string() == "TemplateError")
          ok &= !got && got.error().message == *golden["message"].as_string();
        EXPECT_TRUE(ok) << name << " " << *golden["case"].as_string() << "\n  want error " << golden["message"].text()
                        << "\n  got  " << (got ? json_quoted(*got) : "error " + got.error().message);
      }
      template_right += ok;
      ++template_total;
    }
    std::printf("%-30s %zu/%zu\n", name.c_str(), template_right, template_total);
    right += template_right;
    total += template_total;
  }
  std::printf("chat templates: %zu of %zu results\n", right, total);
  EXPECT_EQ(templates, 24u);
  EXPECT_EQ(total, 1824u);
}

TEST(ChatTemplate, ReadsTheRequestOfTheTemplateCommand) {
  const auto json =
      JsonDocument::parse(R"({"messages":[{"role":"user","content":"hi","name":null}],"add_generation_prompt":true,)"
                          R"("now":"2026-01-15T12:34:56","style":{"x":[1,2]}})")
          .value();
  const auto document = read_chat_request(json.root());
  ASSERT_TRUE(document) << document.error().message;
  const auto t = ChatTemplate::parse(
      "{{ bos_token }}{{ messages[0] }}{{ add_generation_prompt }}{{ strftime_now('%d %b %Y') }}{{ style.x }}{{ tools "
      "}}");
  ASSERT_TRUE(t) << t.error().message;
  const std::vector<std::pair<std::string, std::string>> specials{{"bos_token", "<s>"}};
  EXPECT_EQ(t->render(document->request, specials).value(),
            "<s>{'role': 'user', 'content': 'hi'}True15 Jan 2026[1, 2]None");
}

TEST(ChatTemplate, FindsTheTemplateInTokenizerConfig) {
  EXPECT_EQ(*chat_template_of_config(R"({"chat_template":"a"})", false).value(), "a");
  EXPECT_FALSE(chat_template_of_config(R"({"bos_token":"<s>"})", false).value());
  const char* named = R"({"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]})";
  EXPECT_EQ(*chat_template_of_config(named, false).value(), "d");
  EXPECT_EQ(*chat_template_of_config(named, true).value(), "t");
  EXPECT_FALSE(chat_template_of_config(R"({"chat_template":[]})", false));
}

TEST(ChatTemplate, RefusesConversationsThatAreNone) {
  const auto t = ChatTemplate::parse("x").value();
  for (const char* messages : {"[]", "{}", "null", "[1]", "[[]]"}) {
    const auto json = JsonDocument::parse(messages).value();
    ChatRequest request;
    request.messages = json.root();
    const auto got = t.render(request, {});
    ASSERT_FALSE(got) << messages;
    EXPECT_EQ(got.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace berth::text
