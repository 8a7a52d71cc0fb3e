#include "berth/text/byte_level.h"

#include <array>

#include "berth/base/utf8.h"

namespace berth::text {
namespace {

constexpr size_t kCharacters = 0x144;  // one above the greatest character in use

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};
};

constexpr Tables make_tables() {
  Tables t;
  for (auto& b : t.byte) b = -1;
  char32_t next = 256;
  for (size_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    t.character[b] = itself ? static_cast<char32_t>(b) : next++;
    t.byte[t.character[b]] = static_cast<int16_t>(b);
  }
  return t;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::string to_byte_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char b : bytes) append_utf8(out, kTables.character[static_cast<uint8_t>(b)]);
  return out;
}

std::optional<uint8_t> byte_of_character(char32_t c) {
  if (c >= kCharacters || kTables.byte[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kTables.byte[c]);
}

void append_bytes_of(std::string_view text, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < text.size();) {
    const auto byte = byte_of_character(decode_utf8(text, i));
    if (!byte) {
      bytes.resize(before);
      bytes += text;
      return;
    }
    bytes += static_cast<char>(*byte);
  }
}

}  // namespace berth::text
