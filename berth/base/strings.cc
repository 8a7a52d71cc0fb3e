// base/strings.cc — see strings.h.
#include "berth/base/strings.h"

#include <fmt/format.h>

#include <algorithm>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace berth {
namespace {

// Length of the well-formed UTF-8 sequence at text[i], or 0.
size_t utf8_length(std::string_view t, size_t i) {
  const auto at = [&](size_t k) { return k < t.size() ? static_cast<unsigned char>(t[k]) : 0u; };
  const unsigned c = at(i);
  const auto tail = [&](size_t k) { return (at(k) & 0xC0u) == 0x80u; };
  if (c < 0x80) return 1;
  if (c >= 0xC2 && c <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (c >= 0xE0 && c <= 0xEF) {
    if (!tail(i + 1) || !tail(i + 2)) return 0;
    const unsigned d = at(i + 1);
    if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F)) return 0;
    return 3;
  }
  if (c >= 0xF0 && c <= 0xF4) {
    if (!tail(i + 1) || !tail(i + 2) || !tail(i + 3)) return 0;
    const unsigned d = at(i + 1);
    if ((c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F)) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const size_t n = utf8_length(text, i);
    const bool control =
        c < 0x20 || c == 0x7F || (n == 2 && c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    if (n == 0 || control) {
      if (c == '\n')
        out += "\\n";
      else if (c == '\t')
        out += "\\t";
      else if (n == 2)
        out += fmt::format("\\x{:02x}\\x{:02x}", c, static_cast<unsigned char>(text[i + 1]));
      else
        out += fmt::format("\\x{:02x}", c);
      i += n == 2 ? 2 : 1;
    } else {
      out.append(text, i, n);
      i += n;
    }
  }
  return out;
}

std::string quoted(std::string_view name, size_t max_chars) {
  std::string e = escaped(name.substr(0, max_chars * 4));
  if (e.size() > max_chars || name.size() > max_chars * 4) {
    size_t cut = std::min(max_chars, e.size());
    while (cut > 0 && (static_cast<unsigned char>(e[cut < e.size() ? cut : e.size() - 1]) & 0xC0u) == 0x80u) --cut;
    e.resize(cut);
    e += "…";
  }
  return "\"" + e + "\"";
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::optional<std::string> nearest_match(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 256) return std::nullopt;
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::optional<std::string> found;
  std::vector<size_t> row;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > word.size() + best || word.size() > candidate.size() + best) continue;
    row.resize(candidate.size() + 1);
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substitute = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
      }
    }
    if (row.back() < best) {
      best = row.back();
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto near = nearest_match(word, candidates);
  return near ? ", did you mean " + quoted(*near) + "?" : "";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  size_t start = 0;
  for (;;) {
    const size_t end = text.find(separator, start);
    out.emplace_back(text.substr(start, end == std::string_view::npos ? end : end - start));
    if (end == std::string_view::npos) return out;
    start = end + 1;
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

namespace {

// How long the part of the pattern is that stands for one character, if it stands for `c`; 0: it does not.
size_t glob_one(std::string_view pattern, char c) {
  if (pattern.empty() || pattern[0] == '*') return 0;
  const size_t close =
      pattern.size() > 2 && pattern[0] == '[' ? pattern.find(']', pattern[1] == '!' ? 3 : 2) : std::string_view::npos;
  if (close == std::string_view::npos) return pattern[0] == '?' || pattern[0] == c ? 1 : 0;
  const bool negated = pattern[1] == '!';
  bool in = false;
  for (size_t i = negated ? 2 : 1; i < close; ++i) {
    if (i + 2 < close && pattern[i + 1] == '-') {
      in = in || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      in = in || pattern[i] == c;
    }
  }
  return in != negated ? close + 1 : 0;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (const size_t length = glob_one(pattern.substr(p), text[t]); length > 0) {
      p += length;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string xxh3_128_hex(const void* data, size_t size) {
  const XXH128_hash_t h = XXH3_128bits(data, size);
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace berth
