#include "berth/text/pattern.h"

#include <algorithm>

#include "berth/text/json_fields.h"

namespace berth::text {
namespace {
constexpr size_t kMaxReplacedBytes = size_t{32} << 20;
}

Result<Regex> make_pattern(const JsonView& json) {
  if (const auto text = json.as_string()) return Regex::literal(*text);
  if (json.is_object() && json.size() == 1) {
    if (const auto text = json["String"].as_string()) return Regex::literal(*text);
    if (const auto text = json["Regex"].as_string()) return Regex::compile(*text);
  }
  return field_error("pattern", "{\"String\": text} or {\"Regex\": expression}", json);
}

Result<std::string> replaced(const Regex& pattern, std::string_view text, std::string_view content,
                             bool* first_replaced) {
  std::vector<Span> matches;
  TRY_STATUS(pattern.find_all(text, matches));
  if (first_replaced) *first_replaced = !matches.empty() && matches[0].begin == 0 && matches[0].end > 0;
  // Checked so that a chain of replacements in a hostile file cannot double a text without end.
  if (!content.empty() &&
      matches.size() > (kMaxReplacedBytes - std::min(kMaxReplacedBytes, text.size())) / content.size())
    return Error(ErrorCode::kUnsupported, "while replacing in a text of " + std::to_string(text.size()) +
                                              " bytes: expected at most 32 MiB to come out, found more");
  std::string out;
  size_t at = 0;
  for (const Span& m : matches) {
    out += text.substr(at, m.begin - at);
    out += content;
    at = m.end;
  }
  out += text.substr(at);
  return out;
}

}  // namespace berth::text
