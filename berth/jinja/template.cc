#include "berth/jinja/template.h"

#include "berth/base/strings.h"
#include "berth/jinja/interpreter.h"
#include "berth/jinja/parser.h"

namespace berth::jinja {

namespace {
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
}

struct Template::Parsed {
  Body body;
};

Template::Template(std::unique_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxTemplateBytes)
    return Error(ErrorCode::kUnsupported, "while reading the chat template: expected at most 4 MiB, found " +
                                              std::to_string(source.size()) + " bytes");
  if (!is_valid_utf8(source))
    return Error(ErrorCode::kCorruptData, "while reading the chat template: expected UTF-8, found broken text");
  auto parsed = std::make_unique<Parsed>();
  TRY(parsed->body, jinja::parse(source));
  return Template(std::move(parsed));
}

Result<std::string> Template::render(const Dict& variables, const RenderOptions& options) const {
  return Interpreter(variables, options).render(parsed_->body);
}

}  // namespace berth::jinja
