// base/bytes.cc — size texts, both ways.
#include "berth/base/bytes.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace berth {

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double v = static_cast<double>(bytes);
  size_t u = 0;
  while (v >= 1023.5 && u + 1 < std::size(kUnits)) {
    v /= 1024;
    ++u;
  }
  return fmt::format("{:.{}f} {}", v, v < 9.995 ? 2 : v < 99.95 ? 1 : 0, kUnits[u]);
}

std::string group_digits(uint64_t n) {
  std::string s = std::to_string(n);
  for (size_t i = s.size(); i > 3; i -= 3) s.insert(i - 3, ",");
  return s;
}

Result<ParsedSize> parse_size(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Error(ErrorCode::kInvalidArgument, fmt::format("size \"{}\" {}", text, why),
                 {"Write sizes as 18GiB (2^30), 18GB (1e9), 512MiB, 1.5GiB or plain bytes."});
  };
  size_t i = 0;
  while (i < text.size() && (text[i] == ' ')) ++i;
  const size_t start = i;
  while (i < text.size() && ((text[i] >= '0' && text[i] <= '9') || text[i] == '.')) ++i;
  const std::string_view number = text.substr(start, i - start);
  while (i < text.size() && text[i] == ' ') ++i;
  std::string_view unit = text.substr(i);
  while (!unit.empty() && unit.back() == ' ') unit.remove_suffix(1);
  if (number.empty()) return bad("has no number");

  ParsedSize out;
  double scale = 1;
  if (!unit.empty()) {
    std::string_view u = unit;
    const char last = u.back();
    if (last != 'b' && last != 'B' && u.size() > 1) return bad("has an unknown unit");
    out.lower_case_b = last == 'b';
    if (last == 'b' || last == 'B') u.remove_suffix(1);
    bool binary = false;
    if (!u.empty() && (u.back() == 'i')) {
      binary = true;
      u.remove_suffix(1);
    }
    if (u.size() > 1) return bad("has an unknown unit");
    if (u.empty()) {
      if (binary) return bad("has an unknown unit");
    } else {
      static constexpr std::string_view kPrefixes = "kmgtp";
      const char c = static_cast<char>(u[0] | 0x20);
      const size_t p = kPrefixes.find(c);
      if (p == std::string_view::npos) return bad("has an unknown unit");
      scale = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(p + 1));
    }
  }
  if (number.find('.') == std::string_view::npos) {
    uint64_t n = 0;
    const auto [end, err] = std::from_chars(number.data(), number.data() + number.size(), n);
    if (err != std::errc() || end != number.data() + number.size()) return bad("is out of range");
    const auto total = checked_mul<uint64_t>(n, static_cast<uint64_t>(scale));
    if (!total || *total > uint64_t{INT64_MAX}) return bad("is out of range");
    out.bytes = *total;
    return out;
  }
  double v = 0;
  const auto [end, err] = std::from_chars(number.data(), number.data() + number.size(), v);
  if (err != std::errc() || end != number.data() + number.size()) return bad("has a malformed number");
  v *= scale;
  if (!(v < 9.2e18)) return bad("is out of range");
  out.bytes = static_cast<uint64_t>(v);
  return out;
}

}  // namespace berth
