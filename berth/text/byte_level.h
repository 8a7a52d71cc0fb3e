// text/byte_level.h — GPT-2's bijection between bytes and printable characters.
//
// Bytes 33-126, 161-172 and 174-255 are the character of the same number; the others are U+0100, U+0101.. in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth::text {

std::string to_byte_characters(std::string_view bytes);
// The byte that character `c` stands for, or nothing.
std::optional<uint8_t> byte_of_character(char32_t c);
// Appends the bytes that `text` stands for; where a character of it stands for none, its own UTF-8.
void append_bytes_of(std::string_view text, std::string& bytes);

}  // namespace berth::text
