// base/bytes.h — sizes: checked arithmetic, alignment, "1.5 GiB" both ways, little-endian reads.
//
// GiB = 2^30 and GB = 1e9 are both parsed and never mixed up. Nothing here allocates by an unchecked number.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "berth/base/result.h"

namespace berth {

static_assert(std::endian::native == std::endian::little, "Berth reads little-endian files in place");

// a*b and a+b, or nothing where they overflow.
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// The least multiple of `alignment` (a power of two) that is >= n.
template <std::integral T>
constexpr T align_up(T n, T alignment) {
  return (n + alignment - 1) & ~(alignment - 1);
}
template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// A little-endian T at `p`, which need not be aligned.
template <typename T>
T load_le(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void store_le(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// "512 B", "13.4 MiB", "1.50 GiB": three significant digits, binary units.
std::string format_bytes(uint64_t bytes);
// "1,234,567"
std::string group_digits(uint64_t n);

struct ParsedSize {
  uint64_t bytes = 0;
  bool lower_case_b = false;  // "18gb": read as bytes (never bits); callers say so in a note
};
// "18GiB", "18GB", "512 MiB", "1.5GiB", "4096", "10kb". Errors: kInvalidArgument naming the text and the accepted forms.
Result<ParsedSize> parse_size(std::string_view text);

}  // namespace berth
