#include "berth/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/case.h"

namespace berth::jinja {
namespace {

constexpr std::array<std::string_view, 31> kOperators{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%",
                                                      "~",  "[",  "]",  "(",  ")",  "{",  "}", ">", "<", "=", ".",
                                                      ":",  "|",  ",",  ";",  "^",  "&",  "!", "?", "@"};

std::string with_unix_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), in_(source_) {
    if (in_.ends_with('\n')) in_.remove_suffix(1);
  }

  Result<std::vector<Token>> run() {
    while (at_ < in_.size()) TRY_STATUS(root());
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  void advance(size_t n) {
    line_ += static_cast<uint32_t>(
        std::count(in_.begin() + static_cast<ptrdiff_t>(at_), in_.begin() + static_cast<ptrdiff_t>(at_ + n), '\n'));
    at_ += n;
  }
  void skip_space() {
    while (at_ < in_.size()) {
      size_t next = at_;
      if (!is_space(decode_utf8(in_, next))) break;
      advance(next - at_);
    }
  }
  // Behind a closing tag: "-" takes all white space, a block or comment one line end.
  void after_tag(bool minus, bool plus, bool trims) {
    if (minus)
      skip_space();
    else if (trims && !plus && peek() == '\n')
      advance(1);
    line_starting_ = at_ > 0 && in_[at_ - 1] == '\n';
  }

  // Emits `data`, the text in front of a tag whose sign is '-', '+' or none.
  void emit_data(std::string_view data, char sign, bool strips_line) {
    if (sign == '-') {
      data = stripped(data, false, true);
    } else if (sign != '+' && strips_line) {
      const size_t newline = data.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((start > 0 || line_starting_) && stripped(data.substr(start), true, false).empty())
        data = data.substr(0, start);
    }
    if (!data.empty()) push(TokenKind::kData, std::string(data));
  }

  Status root() {
    size_t tag = at_;
    while (tag = in_.find('{', tag), tag != std::string_view::npos) {
      const char next = tag + 1 < in_.size() ? in_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      push(TokenKind::kData, std::string(in_.substr(at_)));
      advance(in_.size() - at_);
      return {};
    }
    const char kind = in_[tag + 1];
    const char sign = tag + 2 < in_.size() ? in_[tag + 2] : '\0';
    const bool signed_tag = sign == '-' || (sign == '+' && kind != '#') || (sign == '+' && kind == '#');
    emit_data(in_.substr(at_, tag - at_), signed_tag ? sign : '\0', kind != '{');
    advance(tag - at_);
    const uint32_t opened = line_;
    advance(signed_tag ? 3 : 2);
    if (kind == '#') return comment(opened);
    if (kind == '%' && is_raw()) return raw(opened);
    push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kOutputBegin, "");
    return code(kind == '%' ? '%' : '}');
  }

  Status comment(uint32_t opened) {
    const size_t close = in_.find("#}", at_);
    if (close == std::string_view::npos) return syntax_error(opened, "Missing end of comment tag");
    const char sign = close > at_ ? in_[close - 1] : '\0';
    advance(close + 2 - at_);
    after_tag(sign == '-', sign == '+', true);
    return {};
  }

  // Whether "raw" and the end of its tag follow; moves behind them.
  bool is_raw() {
    size_t i = at_;
    const auto space = [&] {
      while (i < in_.size()) {
        size_t next = i;
        if (!is_space(decode_utf8(in_, next))) break;
        i = next;
      }
    };
    space();
    if (in_.substr(i, 3) != "raw") return false;
    i += 3;
    space();
    const bool minus = i < in_.size() && in_[i] == '-';
    if (minus) ++i;
    if (in_.substr(i, 2) != "%}") return false;
    advance(i + 2 - at_);
    after_tag(minus, false, false);
    return true;
  }

  Status raw(uint32_t opened) {
    for (size_t tag = in_.find("{%", at_); tag != std::string_view::npos; tag = in_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      const char sign = i < in_.size() && (in_[i] == '-' || in_[i] == '+') ? in_[i++] : '\0';
      const auto space = [&] {
        while (i < in_.size() && (in_[i] == ' ' || (in_[i] >= '\t' && in_[i] <= '\r'))) ++i;
      };
      space();
      if (in_.substr(i, 6) != "endraw") continue;
      i += 6;
      space();
      const char end_sign = i < in_.size() && (in_[i] == '-' || in_[i] == '+') ? in_[i++] : '\0';
      if (in_.substr(i, 2) != "%}") continue;
      emit_data(in_.substr(at_, tag - at_), sign, true);
      advance(i + 2 - at_);
      after_tag(end_sign == '-', end_sign == '+', true);
      return {};
    }
    return syntax_error(opened, "Missing end of raw directive");
  }

  // Tokens up to the end of the tag: "%}" or "}}".
  Status code(char end) {
    std::vector<char> open;  // brackets that wait
    while (true) {
      skip_space();
      if (at_ >= in_.size()) return {};  // the parser says what is missing
      if (open.empty()) {
        const bool minus = peek() == '-', plus = peek() == '+' && end == '%';
        const size_t sign = minus || plus ? 1 : 0;
        if (peek(sign) == end && peek(sign + 1) == '}') {
          push(end == '%' ? TokenKind::kBlockEnd : TokenKind::kOutputEnd, "");
          advance(sign + 2);
          after_tag(minus, plus, end == '%');
          return {};
        }
      }
      TRY_STATUS(token(open));
    }
  }

  Status token(std::vector<char>& open) {
    const char c = peek();
    if (c == '"' || c == '\'') return text(c);
    if (is_digit_char(c)) return number();
    size_t next = at_;
    char32_t point = decode_utf8(in_, next);
    if (c == '_' || is_alpha(point)) {
      const size_t start = at_;
      while (next < in_.size()) {
        size_t after = next;
        point = decode_utf8(in_, after);
        if (point != '_' && !is_alpha(point) && !is_numeric(point)) break;
        next = after;
      }
      push(TokenKind::kName, std::string(in_.substr(start, next - start)));
      advance(next - start);
      return {};
    }
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op == "(" || op == "[" || op == "{") open.push_back(op[0]);
      if (op == ")" || op == "]" || op == "}") {
        const char wanted = op == ")" ? '(' : op == "]" ? '[' : '{';
        if (open.empty()) return syntax_error(line_, "unexpected '" + std::string(op) + "'");
        if (open.back() != wanted)
          return syntax_error(line_, "unexpected '" + std::string(op) + "', a bracket before it waits");
        open.pop_back();
      }
      if (std::string_view(";^&!?@").find(op) != std::string_view::npos) break;
      push(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return {};
    }
    return syntax_error(line_, "unexpected char " + quoted(in_.substr(at_, utf8_length(in_[at_]))));
  }

  Status number() {
    size_t i = at_;
    const auto digits = [&](auto accepted) {
      const size_t start = i;
      while (i < in_.size() && (accepted(in_[i]) || (in_[i] == '_' && i > start))) ++i;
      return i > start;
    };
    bool is_float = false;
    if (in_[i] == '0' && i + 1 < in_.size() && std::string_view("xXoObB").find(in_[i + 1]) != std::string_view::npos) {
      i += 2;
      digits([](char c) { return is_digit_char(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
    } else {
      digits(is_digit_char);
      if (i + 1 < in_.size() && in_[i] == '.' && is_digit_char(in_[i + 1]) && !(at_ > 0 && in_[at_ - 1] == '.')) {
        is_float = true;
        ++i;
        digits(is_digit_char);
      }
      size_t e = i;
      if (e < in_.size() && (in_[e] == 'e' || in_[e] == 'E')) {
        ++e;
        if (e < in_.size() && (in_[e] == '+' || in_[e] == '-')) ++e;
        if (e < in_.size() && is_digit_char(in_[e])) {
          is_float = true;
          i = e;
          digits(is_digit_char);
        }
      }
    }
    if (!is_float && in_[at_] == '0' && i > at_ + 1 && is_digit_char(in_[at_ + 1])) {  // "01" is 0, then 1
      i = at_;
      while (i < in_.size() && in_[i] == '0') ++i;
    }
    std::string digits_text(in_.substr(at_, i - at_));
    digits_text.erase(std::remove(digits_text.begin(), digits_text.end(), '_'), digits_text.end());
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(digits_text));
    advance(i - at_);
    return {};
  }

  // Python's escapes; unknown ones stay as they are.
  Status text(char quote) {
    const size_t start = at_;
    std::string value;
    size_t i = at_ + 1;
    const auto code_point = [&](size_t digits) -> bool {
      char32_t c = 0;
      if (i + digits > in_.size()) return false;
      for (size_t k = 0; k < digits; ++k) {
        const char h = in_[i + k];
        const int v = is_digit_char(h)       ? h - '0'
                      : h >= 'a' && h <= 'f' ? h - 'a' + 10
                      : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                             : -1;
        if (v < 0) return false;
        c = c * 16 + static_cast<char32_t>(v);
      }
      if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
      append_utf8(value, c);
      i += digits;
      return true;
    };
    while (true) {
      if (i >= in_.size())
        return syntax_error(line_,
                            "unexpected char " + quoted(std::string_view(&in_[start], 1)) + ": a text does not end");
      const char c = in_[i++];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (i >= in_.size()) continue;
      const char e = in_[i++];
      constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      const size_t simple = kFrom.find(e);
      if (simple != std::string_view::npos) {
        value += kTo[simple];
      } else if (e == '\n') {
        continue;
      } else if (e == 'x' || e == 'u' || e == 'U') {
        if (!code_point(e == 'x' ? 2 : e == 'u' ? 4 : 8)) return syntax_error(line_, "a text holds a malformed escape");
      } else if (e >= '0' && e <= '7') {
        char32_t octal = static_cast<char32_t>(e - '0');
        for (int k = 0; k < 2 && i < in_.size() && in_[i] >= '0' && in_[i] <= '7'; ++k)
          octal = octal * 8 + static_cast<char32_t>(in_[i++] - '0');
        append_utf8(value, octal);
      } else if (e == 'N') {
        return syntax_error(line_, "character names (\\N{...}) are not supported");
      } else {
        value += '\\';
        value += e;
      }
    }
    push(TokenKind::kText, std::move(value));
    advance(i - at_);
    return {};
  }

  std::string source_;
  std::string_view in_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Error syntax_error(uint32_t line, const std::string& what) {
  return {ErrorCode::kCorruptData, "in the chat template, line " + std::to_string(line) + ": " + what};
}

std::string Token::shown() const {
  switch (kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kOutputEnd:
      return "end of print statement";
    case TokenKind::kData:
      return "template data";
    default:
      return quoted(text, 40);
  }
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(with_unix_lines(source)).run(); }

}  // namespace berth::jinja
