// jinja/template_golden_test.cc — 183 small templates, one feature each, as Jinja2 3.1.6 renders them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <regex>

#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/jinja/template.h"

namespace berth::jinja {
namespace {

std::string golden_folder() {
  const char* shared = std::getenv("BERTH_SHARED");
  return (shared && *shared ? std::string(shared) : std::string(BERTH_SOURCE_DIR) + "/../shared") +
         "/golden/chat_templates";
}

Result<std::string> rendered(std::string_view source, const Dict& variables) {
  RenderOptions options;
  options.now = DateTime{2026, 1, 15, 12, 34, 56};
  TRY(const Template t, Template::parse(source));
  return t.render(variables, options);
}

TEST(TemplateGoldens, EveryFeatureRendersOrFailsAsJinjaDoes) {
  const std::string folder = golden_folder();
  if (!path_exists(folder + "/features.jsonl")) {
    if (const char* ci = std::getenv("CI"); ci && std::string(ci) == "true") FAIL() << "missing in CI: " << folder;
    GTEST_SKIP() << "not here: " << folder;
  }
  const auto context = JsonDocument::parse_file(folder + "/features_context.json").value();
  const Value variables = from_json(context.root());
  const std::string lines = read_file(folder + "/features.jsonl").value();
  const std::regex address(" at 0x[0-9a-f]+");
  size_t right = 0, total = 0;
  for (size_t at = 0; at < lines.size();) {
    size_t end = lines.find('\n', at);
    if (end == std::string::npos) end = lines.size();
    const auto document = JsonDocument::parse(std::string_view(lines).substr(at, end - at)).value();
    at = end + 1;
    const JsonView golden = document.root();
    const std::string source(*golden["template"].as_string());
    const auto got = rendered(source, variables.as_dict());
    ++total;
    bool ok = false;
    std::string want;
    if (const auto text = golden["text"].as_string()) {
      // The one thing that cannot be equal: where Python keeps an object.
      want = std::regex_replace(std::string(*text), address, " at 0x0");
      ok = got && *got == want;
    } else {
      want = "error " + std::string(*golden["error"].as_string());
      ok = !got;
      if (*golden["error"].as_string() == "TemplateError")
        ok &= !got && got.error().message == *golden["message"].as_string();
    }
    right += ok;
    EXPECT_TRUE(ok) << json_quoted(source) << "\n  want " << json_quoted(want) << "\n  got  "
                    << (got ? json_quoted(*got) : "error " + got.error().message);
  }
  std::printf("features: %zu of %zu\n", right, total);
  EXPECT_EQ(total, 183u);
}

}  // namespace
}  // namespace berth::jinja
