// jinja/template.h — Jinja templates as chat templates use them: parse once, render with JSON-like variables.
//
// What is supported is what Transformers' sandboxed environment gives to published chat templates: trim_blocks and
// lstrip_blocks, all statements but those that read other templates, loop controls, `generation`, namespaces, macros,
// Jinja's filters and tests, Python's string and dict methods, raise_exception, strftime_now.
//
//   TRY(const jinja::Template t, jinja::Template::parse(source));
//   TRY(const std::string text, t.render(variables, {}));
//
// Templates are hostile input: no file, process or attribute can be reached, and rendering ends within the limits of
// RenderOptions. Thread-safe: a Template may be rendered by many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "berth/base/result.h"
#include "berth/jinja/value.h"

namespace berth::jinja {

// A moment as strftime_now shows it; local time without a zone.
struct DateTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};
// Reads "2026-01-15T12:34:56" (or with a space, or the date alone). Errors: kInvalidArgument.
Result<DateTime> parse_date_time(std::string_view text);

struct RenderOptions {
  std::optional<DateTime> now;           // absent: the clock
  size_t max_steps = 5'000'000;          // nodes and loop rounds
  size_t max_bytes = size_t{256} << 20;  // made along the way, all together
  size_t max_output_bytes = size_t{64} << 20;
};

class Template {
 public:
  // Errors: kCorruptData (syntax), kUnsupported; messages say the line.
  static Result<Template> parse(std::string_view source);

  // Errors: kInvalidArgument where the template refuses the variables (its own words where it raises), kUnsupported
  // where a limit is reached; messages say the line.
  Result<std::string> render(const Dict& variables, const RenderOptions& options) const;

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

 private:
  struct Parsed;
  explicit Template(std::unique_ptr<const Parsed> parsed);
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace berth::jinja
