#include "berth/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "berth/base/strings.h"
#include "berth/text/byte_level.h"
#include "berth/text/json_fields.h"
#include "berth/text/pattern.h"
#include "berth/text/script_split.h"
#include "berth/text/unicode.h"

namespace berth::text {
namespace {

constexpr size_t kMaxNesting = 32;
constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Words of word characters, and runs of what is neither word nor space (Rust's \w has the joiners too).
constexpr std::string_view kWhitespaceExpression =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

// A part of a text: what a match covers, or what lies between two.
struct Part {
  Span span;
  bool matched = false;
};

std::vector<Part> parts_of(size_t size, const std::vector<Span>& matches, bool invert) {
  std::vector<Part> parts;
  size_t at = 0;
  for (const Span& m : matches) {
    if (m.begin > at) parts.push_back({{at, m.begin}, invert});
    parts.push_back({m, !invert});
    at = m.end;
  }
  if (at < size || matches.empty()) parts.push_back({{at, size}, invert});
  return parts;
}

// Joins a part onto its neighbour where the behaviour asks for it. `parts` run in reading order, or reversed.
template <typename Join>
std::vector<Part> joined(const std::vector<Part>& parts, Join join) {
  std::vector<Part> out;
  bool previous_matched = false;
  for (const Part& p : parts) {
    if (!out.empty() && join(p.matched, previous_matched)) {
      out.back().span.begin = std::min(out.back().span.begin, p.span.begin);
      out.back().span.end = std::max(out.back().span.end, p.span.end);
    } else {
      out.push_back(p);
    }
    previous_matched = p.matched;
  }
  return out;
}

// The matches of single characters for which `is` holds.
template <typename Is>
std::vector<Span> characters_that(std::string_view text, Is is) {
  std::vector<Span> matches;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (is(decode_utf8(text, i))) matches.push_back({begin, i});
  }
  return matches;
}

class Split final : public PreTokenizer {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    thread_local std::vector<Span> matches;
    TRY_STATUS(pattern_.find_all(f.text, matches));
    split_fragment(f, matches, behavior_, invert_, out);
    return {};
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at single characters of one kind.
class CharacterSplit final : public PreTokenizer {
 public:
  using Is = bool (*)(char32_t);
  CharacterSplit(Is is, SplitBehavior behavior) : is_(is), behavior_(behavior) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    split_fragment(f, characters_that(f.text, is_), behavior_, false, out);
    return {};
  }

 private:
  Is is_;
  SplitBehavior behavior_;
};

class DelimiterSplit final : public PreTokenizer {
 public:
  explicit DelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    split_fragment(f, characters_that(f.text, [&](char32_t c) { return c == delimiter_; }), SplitBehavior::kRemoved,
                   false, out);
    return {};
  }

 private:
  char32_t delimiter_;
};

// White space goes, every punctuation character stands alone.
class BertSplit final : public PreTokenizer {
 public:
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    std::vector<Fragment> words;
    split_fragment(f, characters_that(f.text, is_white_space), SplitBehavior::kRemoved, false, words);
    for (const Fragment& w : words)
      split_fragment(w, characters_that(w.text, is_punctuation), SplitBehavior::kIsolated, false, out);
    return {};
  }
};

// Pieces of a fixed number of characters.
class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    std::vector<Span> runs;
    for (size_t i = 0; i < f.text.size();) {
      const size_t begin = i;
      for (size_t n = 0; n < length_ && i < f.text.size(); ++n) decode_utf8(f.text, i);
      runs.push_back({begin, i});
    }
    split_fragment(f, runs, SplitBehavior::kIsolated, false, out);
    return {};
  }

 private:
  size_t length_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> words)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    if (add_prefix_space_ && !f.text.starts_with(' ')) f.text.insert(0, 1, ' ');
    if (!words_) {
      f.text = to_byte_characters(f.text);
      out.push_back(std::move(f));
      return {};
    }
    thread_local std::vector<Span> matches;
    TRY_STATUS(words_->find_all(f.text, matches));
    const size_t first = out.size();
    split_fragment(f, matches, SplitBehavior::kIsolated, false, out);
    for (size_t i = first; i < out.size(); ++i) out[i].text = to_byte_characters(out[i].text);
    return {};
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> words_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool split) : scheme_(scheme), split_(split) {
    append_utf8(replacement_, replacement);
  }
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    std::string text;
    text.reserve(f.text.size() * 2);
    for (const char c : f.text) {
      if (c == ' ')
        text += replacement_;
      else
        text += c;
    }
    const bool wanted = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && f.at_start);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    f.text = std::move(text);
    std::vector<Span> matches;
    if (split_)
      for (size_t at = f.text.find(replacement_); at != std::string::npos; at = f.text.find(replacement_, at + 1))
        matches.push_back({at, at + replacement_.size()});
    split_fragment(f, matches, SplitBehavior::kMergedWithNext, false, out);
    return {};
  }

 private:
  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  Status apply(Fragment f, std::vector<Fragment>& out) const override {
    std::vector<Fragment> now, next;
    now.push_back(std::move(f));
    for (const auto& part : parts_) {
      next.clear();
      for (Fragment& piece : now) TRY_STATUS(part->apply(std::move(piece), next));
      now.swap(next);
    }
    for (Fragment& piece : now) out.push_back(std::move(piece));
    return {};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

using Made = Result<std::unique_ptr<PreTokenizer>>;
template <typename T, typename... A>
Made made(A&&... a) {
  return std::unique_ptr<PreTokenizer>(std::make_unique<T>(std::forward<A>(a)...));
}

Result<SplitBehavior> behavior_of(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Error(ErrorCode::kUnsupported, "split behaviour " + quoted(name) + " is not known");
}

Made make(const JsonView& json, size_t depth);

Made make_sequence(const JsonView& json, size_t depth) {
  TRY(const JsonView list, array_field(json, "pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const JsonView& item : list.elements()) {
    TRY(auto part, make(item, depth + 1));
    parts.push_back(std::move(part));
  }
  return made<PreTokenizerSequence>(std::move(parts));
}

Made make_split(const JsonView& json) {
  TRY(Regex pattern, make_pattern(json["pattern"]));
  TRY(const auto name, string_field(json, "behavior"));
  TRY(const SplitBehavior behavior, behavior_of(name));
  TRY(const bool invert, bool_field(json, "invert"));
  return made<Split>(std::move(pattern), behavior, invert);
}

Made make_byte_level(const JsonView& json) {
  TRY(const bool prefix, bool_field(json, "add_prefix_space"));
  TRY(const bool use_regex, bool_field_or(json, "use_regex", true));
  std::optional<Regex> words;
  if (use_regex) {
    TRY(words, Regex::compile(kGpt2Expression));
  }
  return made<ByteLevel>(prefix, std::move(words));
}

Made make_metaspace(const JsonView& json) {
  TRY(const char32_t replacement, character_field(json, "replacement"));
  TRY(const auto name, string_field_or(json, "prepend_scheme", "always"));
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first")
    scheme = PrependScheme::kFirst;
  else if (name == "never")
    scheme = PrependScheme::kNever;
  else if (name != "always")
    return field_error("prepend_scheme", "\"always\", \"first\" or \"never\"", json["prepend_scheme"]);
  if (json.contains("add_prefix_space")) {  // the old form, which must say the same
    TRY(const bool prefix, bool_field(json, "add_prefix_space"));
    if (!prefix && scheme != PrependScheme::kNever)
      return Error(ErrorCode::kCorruptData,
                   "add_prefix_space: expected it to agree with prepend_scheme, found false and " + quoted(name));
  }
  TRY(const bool split, bool_field_or(json, "split", true));
  return made<Metaspace>(replacement, scheme, split);
}

Made make(const JsonView& json, size_t depth) {
  if (depth > kMaxNesting) return Error(ErrorCode::kUnsupported, "expected at most 32 nested pre-tokenizers");
  if (!json.is_object()) return field_error("pre_tokenizer", "an object with a type", json);
  TRY(const auto type, string_field(json, "type"));
  if (type == "Sequence") return make_sequence(json, depth);
  if (type == "Split") return make_split(json);
  if (type == "ByteLevel") return make_byte_level(json);
  if (type == "Metaspace") return make_metaspace(json);
  if (type == "BertPreTokenizer") return made<BertSplit>();
  if (type == "WhitespaceSplit") return made<CharacterSplit>(is_white_space, SplitBehavior::kRemoved);
  if (type == "UnicodeScripts") return make_script_split();
  if (type == "Whitespace") {
    TRY(Regex words, Regex::compile(kWhitespaceExpression));
    return made<Split>(std::move(words), SplitBehavior::kRemoved, true);
  }
  if (type == "Digits") {
    TRY(const bool single, bool_field(json, "individual_digits"));
    return made<CharacterSplit>(is_numeric, single ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    TRY(const auto name, string_field_or(json, "behavior", "Isolated"));
    TRY(const SplitBehavior behavior, behavior_of(name));
    return made<CharacterSplit>(is_punctuation, behavior);
  }
  if (type == "CharDelimiterSplit") {
    TRY(const char32_t delimiter, character_field(json, "delimiter"));
    return made<DelimiterSplit>(delimiter);
  }
  if (type == "FixedLength") {
    TRY(const int64_t length, integer_field(json, "length"));
    if (length < 1) return field_error("length", "a number above 0", json["length"]);
    return made<FixedLength>(static_cast<size_t>(length));
  }
  return Error(ErrorCode::kUnsupported, "pre-tokenizer type " + quoted(type) + " is not known");
}

}  // namespace

void split_fragment(const Fragment& fragment, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                    std::vector<Fragment>& out) {
  const auto emit = [&](const Span& s) {
    if (s.begin < s.end)
      out.push_back({fragment.text.substr(s.begin, s.end - s.begin), fragment.at_start && s.begin == 0});
  };
  std::vector<Part> parts = parts_of(fragment.text.size(), matches, invert);
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& p : parts)
        if (!p.matched) emit(p.span);
      return;
    case SplitBehavior::kIsolated:
      for (const Part& p : parts) emit(p.span);
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (const Part& p : joined(parts, [](bool now, bool before) { return now && !before; })) emit(p.span);
      return;
    case SplitBehavior::kContiguous:
      for (const Part& p : joined(parts, [](bool now, bool before) { return now == before; })) emit(p.span);
      return;
    case SplitBehavior::kMergedWithNext: {
      std::reverse(parts.begin(), parts.end());
      auto merged = joined(parts, [](bool now, bool before) { return now && !before; });
      for (size_t i = merged.size(); i-- > 0;) emit(merged[i].span);
      return;
    }
  }
}

Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const JsonView& json) {
  if (!json.valid() || json.is_null()) return std::unique_ptr<PreTokenizer>();
  auto result = make(json, 0);
  if (!result) return result.error().with_context("in \"pre_tokenizer\"");
  return result;
}

}  // namespace berth::text
