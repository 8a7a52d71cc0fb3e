#include "berth/text/precompiled.h"

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/text/unicode.h"

namespace berth::text {
namespace {

// The library maps whole grapheme clusters below this size; longer ones go character by character.
constexpr size_t kMaxClusterBytes = 5;

Error malformed(const std::string& why) {
  return {ErrorCode::kCorruptData, "while reading \"precompiled_charsmap\": " + why};
}

size_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t unit_label(uint32_t unit) { return unit & ((1u << 31) | 0xFF); }
bool unit_has_leaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t unit_value(uint32_t unit) { return unit & 0x7FFFFFFF; }

}  // namespace

Result<std::string> decoded_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  if (text.size() % 4 != 0) return malformed("expected base64 in groups of four characters");
  size_t padding = 0;
  uint32_t group = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    uint32_t v = 0;
    if (c >= 'A' && c <= 'Z')
      v = static_cast<uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      v = static_cast<uint32_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      v = static_cast<uint32_t>(c - '0') + 52;
    else if (c == '+')
      v = 62;
    else if (c == '/')
      v = 63;
    else if (c == '=' && i + 2 >= text.size())
      ++padding;
    else
      return malformed("expected base64, found " + quoted(text.substr(i, 1)) + " at " + std::to_string(i));
    if (padding > 0 && c != '=') return malformed("expected nothing behind base64's padding");
    group = (group << 6) | v;
    if (i % 4 != 3) continue;
    out += static_cast<char>(group >> 16);
    if (padding < 2) out += static_cast<char>(group >> 8);
    if (padding < 1) out += static_cast<char>(group);
    group = 0;
  }
  return out;
}

Result<std::unique_ptr<Normalizer>> Precompiled::create(std::string_view charsmap) {
  if (charsmap.size() < 4) return malformed("expected a size of 4 bytes, found " + std::to_string(charsmap.size()));
  const auto bytes = load_le<uint32_t>(charsmap.data());
  if (bytes == 0 || bytes % 4 != 0 || bytes > charsmap.size() - 4)
    return malformed("expected a trie of whole units within " + std::to_string(charsmap.size() - 4) + " bytes, found " +
                     std::to_string(bytes));
  auto map = std::unique_ptr<Precompiled>(new Precompiled());
  map->trie_.resize(bytes / 4);
  for (size_t i = 0; i < map->trie_.size(); ++i) map->trie_[i] = load_le<uint32_t>(charsmap.data() + 4 + i * 4);
  map->replacements_ = charsmap.substr(4 + bytes);
  if (!is_valid_utf8(map->replacements_)) return malformed("expected replacements in UTF-8");
  return std::unique_ptr<Normalizer>(std::move(map));
}

bool Precompiled::mapped(std::string_view text, std::string_view& replacement) const {
  size_t at = unit_offset(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return false;
    at ^= byte;
    if (at >= trie_.size() || unit_label(trie_[at]) != byte) return false;
    const uint32_t unit = trie_[at];
    at ^= unit_offset(unit);
    if (!unit_has_leaf(unit)) continue;
    if (at >= trie_.size()) return false;
    const size_t value = unit_value(trie_[at]);
    if (value >= replacements_.size()) return false;
    // A value that points into the middle of a character would make broken text.
    if ((static_cast<uint8_t>(replacements_[value]) & 0xC0) == 0x80) return false;
    const size_t end = replacements_.find('\0', value);
    replacement = std::string_view(replacements_).substr(value, end == std::string::npos ? end : end - value);
    return true;
  }
  return false;
}

Status Precompiled::apply(Fragment& fragment) const {
  std::string out;
  out.reserve(fragment.text.size());
  const std::string_view text = fragment.text;
  std::string_view replacement;
  size_t start = 0;
  bool first_dropped = false;
  for (const size_t end : grapheme_ends(text)) {
    const std::string_view cluster = text.substr(start, end - start);
    if (cluster.size() <= kMaxClusterBytes && mapped(cluster, replacement)) {
      out += replacement;
      first_dropped |= start == 0 && replacement.empty();
    } else {
      for (size_t i = 0; i < cluster.size();) {
        const size_t begin = i;
        decode_utf8(cluster, i);
        const std::string_view character = cluster.substr(begin, i - begin);
        const bool found = mapped(character, replacement);
        out += found ? replacement : character;
        first_dropped |= start == 0 && begin == 0 && found && replacement.empty();
      }
    }
    start = end;
  }
  fragment.at_start &= !first_dropped;
  fragment.text = std::move(out);
  return {};
}

}  // namespace berth::text
