// base/strings.h — text that people and logs see: escaping, nearest match, UTF-8 validity, small splitting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace berth {

// One printable line: control characters, escape sequences and broken UTF-8 become \xNN. For names from files.
std::string escaped(std::string_view text);

// "\"name\"", escaped and cut to `max_chars` with "…": how a foreign name appears in a message.
std::string quoted(std::string_view name, size_t max_chars = 120);

// True where `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_valid_utf8(std::string_view text);

// The candidate with the least edit distance, if it is near enough to be a plausible typo.
std::optional<std::string> nearest_match(std::string_view word, std::span<const std::string> candidates);
// ", did you mean \"x\"?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string_view trimmed(std::string_view text);

// Shell-like pattern: * (any run), ? (one character), [a-c] and [!a-c] (one of them, none of them), all else literal.
bool glob_match(std::string_view pattern, std::string_view text);

// xxHash3, 128 bits, as 32 hex digits.
std::string xxh3_128_hex(const void* data, size_t size);

}  // namespace berth
