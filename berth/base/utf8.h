// base/utf8.h — UTF-8 by hand: one code point at a time, counting, and repair of broken text.
//
// decode_utf8() and friends take text that is_valid_utf8() (strings.h) accepts; repaired_utf8() takes any bytes.
// Non-goals: properties of characters, case, normal forms (text/unicode.h, jinja/case.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace berth {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// Bytes of the sequence that `lead` opens (1 for a byte that opens none).
constexpr size_t utf8_length(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0xC0 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

// The code point at text[at]; moves `at` behind it. `text` is valid UTF-8 and at < text.size().
inline char32_t decode_utf8(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  const size_t n = utf8_length(text[at]);
  if (n == 1 || at + n > text.size()) {
    ++at;
    return lead;
  }
  char32_t c = lead & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; ++i) c = (c << 6) | (byte(i) & 0x3F);
  at += n;
  return c;
}

// The start of the code point that ends at `end` (> 0).
inline size_t previous_utf8(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Appends code point `c` (below 0x110000).
void append_utf8(std::string& out, char32_t c);

size_t count_code_points(std::string_view text);

// `bytes` as valid UTF-8: every maximal part that cannot be continued becomes one U+FFFD (Unicode chapter 3.9).
std::string repaired_utf8(std::string_view bytes);

// Length of the incomplete sequence at the end of `bytes` that more bytes could still complete; 0 where there is none.
size_t incomplete_utf8_tail(std::string_view bytes);

}  // namespace berth
