// fuzz/template_fuzz.cc — any text as a chat template: no crash, bounded time and memory, and output that is UTF-8.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using berth::jinja::Template;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto t = Template::parse(source);
  if (!t) {
    CHECK(!t.error().message.empty());
    return 0;
  }
  static const berth::JsonDocument context =
      berth::JsonDocument::parse(
          R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"a":[1,2.5]}]}],)"
          R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"x":5,"y":-3,"f":2.5,)"
          R"("s":"Hello W\u00f6rld","L":[3,1,2],"D":{"b":1,"a":[1,{"k":null}]},"add_generation_prompt":true})")
          .value();
  static const berth::jinja::Value variables = berth::jinja::from_json(context.root());
  berth::jinja::RenderOptions options;
  options.now = berth::jinja::DateTime{2026, 1, 15, 12, 34, 56};
  options.max_steps = 200'000;
  options.max_bytes = size_t{16} << 20;
  options.max_output_bytes = size_t{4} << 20;
  const auto text = t->render(variables.as_dict(), options);
  if (text)
    CHECK(berth::is_valid_utf8(*text));
  else
    CHECK(!text.error().message.empty());
  return 0;
}
