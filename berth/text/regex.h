// text/regex.h — the regular expressions of tokenizer files, run by PCRE2 within bounded time.
//
// Tokenizer files hold Oniguruma's (Ruby's) syntax, because the `tokenizers` library runs them with Oniguruma. What
// differs from PCRE2 is translated (regex_syntax.h): Unicode \s \w \d, \h, \uHHHH, nested and intersected classes.
// A match has a step limit and find_all() a time limit, so that a hostile expression ends in an error, never in a hang.
//
// Thread-safe: any number of threads may use one Regex. Start reading at: Regex::compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth::text {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

class Regex {
 public:
  // Errors: kCorruptData (malformed), kUnsupported (a construct that PCRE2 reads otherwise); both name the pattern.
  static Result<Regex> compile(std::string_view pattern);
  // Matches `text` itself, nothing in it being special. Errors: kUnsupported where it is empty.
  static Result<Regex> literal(std::string_view text);

  // Replaces `matches` by all matches in `text` (valid UTF-8), from the left, none overlapping; an empty match right
  // behind the match before it is left out. Errors: kCorruptData where a limit ends the search.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Program;
  explicit Regex(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  std::shared_ptr<const Program> program_;
};

}  // namespace berth::text
