#include "berth/base/utf8.h"

namespace berth {
namespace {

// What starts at bytes[0]: a whole character (complete), or the longest part that a valid character could start with.
struct Part {
  size_t size = 1;
  bool complete = false;
  bool at_end = false;  // incomplete only because the bytes ran out
};

Part first_part(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t n = utf8_length(bytes[0]);
  // The second byte's range keeps out overlong forms, surrogates and what lies above U+10FFFF.
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < n; ++i) {
    if (i >= bytes.size()) return {i, false, true};
    if (at(i) < low || at(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {n, true, false};
}

}  // namespace

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

std::string repaired_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Part part = first_part(bytes);
    if (part.complete)
      out.append(bytes.substr(0, part.size));
    else
      append_utf8(out, kReplacementCharacter);
    bytes.remove_prefix(part.size);
  }
  return out;
}

size_t incomplete_utf8_tail(std::string_view bytes) {
  for (size_t n = 1; n <= 3 && n <= bytes.size(); ++n) {
    const std::string_view tail = bytes.substr(bytes.size() - n);
    if ((static_cast<unsigned char>(tail[0]) & 0xC0) == 0x80) continue;
    const Part part = first_part(tail);
    return part.at_end && part.size == n ? n : 0;
  }
  return 0;
}

}  // namespace berth
