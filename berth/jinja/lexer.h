// jinja/lexer.h — a template's text as tokens, white space control included (trim_blocks and lstrip_blocks are on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth::jinja {

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kOutputBegin,
  kOutputEnd,
  kName,
  kText,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // data, name, digits, operator; of kText the value
  uint32_t line = 1;

  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool is_op(std::string_view t) const { return is(TokenKind::kOperator, t); }
  bool is_name(std::string_view t) const { return is(TokenKind::kName, t); }
  std::string shown() const;  // for messages
};

// The tokens of `source` (valid UTF-8), the last one kEnd. Errors: kCorruptData with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

Error syntax_error(uint32_t line, const std::string& what);

}  // namespace berth::jinja
