#include "berth/jinja/case.h"

#include <utf8proc.h>

#include <vector>

#include "berth/base/utf8.h"

namespace berth::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t simple_upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t simple_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t simple_title(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

// The full case folding of `c`: its characters.
std::vector<char32_t> folded(char32_t c) {
  utf8proc_int32_t buffer[8];
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 8,
                                         static_cast<utf8proc_option_t>(UTF8PROC_CASEFOLD), &boundary);
  std::vector<char32_t> out;
  for (utf8proc_ssize_t i = 0; i < n && i < 8; ++i) out.push_back(static_cast<char32_t>(buffer[i]));
  return out;
}

// The characters with upper or title forms of several characters are those whose case folding has several.
void append_upper(std::string& out, char32_t c) {
  if (c >= 0x80 && category(c) != UTF8PROC_CATEGORY_LU) {
    const std::vector<char32_t> parts = folded(c);
    if (parts.size() > 1) {
      for (const char32_t p : parts) append_utf8(out, simple_upper(p));
      return;
    }
  }
  append_utf8(out, simple_upper(c));
}

void append_title(std::string& out, char32_t c) {
  const char32_t simple = simple_title(c);
  if (c >= 0x80 && simple == c && category(c) == UTF8PROC_CATEGORY_LL) {
    const std::vector<char32_t> parts = folded(c);
    if (parts.size() > 1) {
      append_utf8(out, simple_title(parts[0]));
      for (size_t i = 1; i < parts.size(); ++i) append_utf8(out, parts[i]);
      return;
    }
  }
  append_utf8(out, simple);
}

// Characters that do not end a word for the final sigma: marks, modifiers, formats and a few signs.
bool case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xAD || c == 0xB7 || c == 0x2019) return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

bool final_sigma(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  for (size_t at = begin; at > 0;) {
    at = previous_utf8(text, at);
    size_t i = at;
    const char32_t c = decode_utf8(text, i);
    if (case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = decode_utf8(text, at);
    if (case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x130)
    out += "i\xCC\x87";
  else if (c == 0x3A3)
    append_utf8(out, final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  else
    append_utf8(out, simple_lower(c));
}

}  // namespace

std::string upper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) append_upper(out, decode_utf8(text, i));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    append_lower(out, text, begin, i, c);
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    if (inside)
      append_lower(out, text, begin, i, c);
    else
      append_title(out, c);
    inside = is_cased(c);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    if (begin == 0)
      append_title(out, c);
    else
      append_lower(out, text, begin, i, c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    if (is_upper(c))
      append_lower(out, text, begin, i, c);
    else
      append_upper(out, c);
  }
  return out;
}

std::string case_fold(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();)
    for (const char32_t p : folded(decode_utf8(text, i))) append_utf8(out, p);
  return out;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  const auto k = category(c);
  return c == 0x85 || k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0x2070 && c <= 0x2089 && c != 0x2071) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490);
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

std::string_view stripped(std::string_view text, bool left, bool right, const std::string* characters) {
  const auto strips = [&](std::string_view one, char32_t c) {
    return characters ? characters->find(one) != std::string::npos : is_space(c);
  };
  while (left && !text.empty()) {
    size_t i = 0;
    const char32_t c = decode_utf8(text, i);
    if (!strips(text.substr(0, i), c)) break;
    text.remove_prefix(i);
  }
  while (right && !text.empty()) {
    const size_t begin = previous_utf8(text, text.size());
    size_t i = begin;
    const char32_t c = decode_utf8(text, i);
    if (!strips(text.substr(begin), c)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace berth::jinja
