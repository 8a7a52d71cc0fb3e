#include "berth/text/normalizer.h"

#include <utility>
#include <vector>

#include "berth/base/strings.h"
#include "berth/text/byte_level.h"
#include "berth/text/json_fields.h"
#include "berth/text/pattern.h"
#include "berth/text/precompiled.h"
#include "berth/text/unicode.h"

namespace berth::text {
namespace {

constexpr size_t kMaxNesting = 32;

class NormalFormNormalizer final : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}
  Status apply(Fragment& f) const override {
    TRY(f.text, to_normal_form(f.text, form_));
    return {};
  }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  Status apply(Fragment& f) const override {
    f.text = to_lower(f.text);
    return {};
  }
};

// Keeps the characters for which `keep` holds.
template <typename Keep>
void filter(Fragment& f, Keep keep) {
  std::string out;
  out.reserve(f.text.size());
  for (size_t i = 0; i < f.text.size();) {
    const size_t start = i;
    if (keep(decode_utf8(f.text, i)))
      out.append(f.text, start, i - start);
    else if (start == 0)
      f.at_start = false;
  }
  f.text = std::move(out);
}

// Replaces every character by what `map` makes of it.
template <typename Map>
void map_characters(Fragment& f, Map map) {
  std::string out;
  out.reserve(f.text.size());
  for (size_t i = 0; i < f.text.size();) append_utf8(out, map(decode_utf8(f.text, i)));
  f.text = std::move(out);
}

class StripAccents final : public Normalizer {
 public:
  Status apply(Fragment& f) const override {
    filter(f, [](char32_t c) { return !is_mark(c); });
    return {};
  }
};

// White space off the ends.
class StripEnds final : public Normalizer {
 public:
  StripEnds(bool left, bool right) : left_(left), right_(right) {}
  Status apply(Fragment& f) const override {
    size_t begin = 0, end = f.text.size();
    while (left_ && begin < end) {
      size_t next = begin;
      if (!is_white_space(decode_utf8(f.text, next))) break;
      begin = next;
    }
    while (right_ && end > begin) {
      const size_t last = previous_utf8(f.text, end);
      size_t at = last;
      if (!is_white_space(decode_utf8(f.text, at))) break;
      end = last;
    }
    if (begin > 0) f.at_start = false;
    f.text = f.text.substr(begin, end - begin);
    return {};
  }

 private:
  bool left_, right_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  Status apply(Fragment& f) const override {
    if (!f.text.empty()) f.text.insert(0, text_);
    return {};
  }

 private:
  std::string text_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(Fragment& f) const override {
    bool first = false;
    TRY(f.text, replaced(pattern_, f.text, content_, &first));
    if (first && content_.empty()) f.at_start = false;
    return {};
  }

 private:
  Regex pattern_;
  std::string content_;
};

// SentencePiece's nmt rules: controls go, other white space becomes a space.
class Nmt final : public Normalizer {
 public:
  Status apply(Fragment& f) const override {
    filter(f, [](char32_t c) {
      return !((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
               c == 0x9F);
    });
    map_characters(f, [](char32_t c) -> char32_t {
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                         c == 0xFFFD;
      return space ? U' ' : c;
    });
    return {};
  }
};

struct BertOptions {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertOptions options) : options_(options) {}
  Status apply(Fragment& f) const override {
    if (options_.clean_text) {
      filter(f, [](char32_t c) {
        if (c == '\t' || c == '\n' || c == '\r') return true;
        return c != 0 && c != kReplacementCharacter && !is_control_like(c);
      });
      map_characters(f, [](char32_t c) { return is_white_space(c) ? U' ' : c; });
    }
    if (options_.handle_chinese_chars) {
      std::string out;
      for (size_t i = 0; i < f.text.size();) {
        const char32_t c = decode_utf8(f.text, i);
        const bool apart = is_bert_chinese(c);
        if (apart) out += ' ';
        append_utf8(out, c);
        if (apart) out += ' ';
      }
      f.text = std::move(out);
    }
    if (options_.strip_accents) {
      TRY(f.text, to_normal_form(f.text, NormalForm::kNfd));
      filter(f, [](char32_t c) { return !is_nonspacing_mark(c); });
    }
    if (options_.lowercase) f.text = to_lower(f.text);
    return {};
  }

 private:
  BertOptions options_;
};

// Every byte as a printable character (byte_level.h).
class ByteLevelNormalizer final : public Normalizer {
 public:
  Status apply(Fragment& f) const override {
    f.text = to_byte_characters(f.text);
    return {};
  }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  Status apply(Fragment& f) const override {
    for (const auto& part : parts_) TRY_STATUS(part->apply(f));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

using Made = Result<std::unique_ptr<Normalizer>>;
template <typename T, typename... A>
Made made(A&&... a) {
  return std::unique_ptr<Normalizer>(std::make_unique<T>(std::forward<A>(a)...));
}

Made make(const JsonView& json, size_t depth);

Made make_sequence(const JsonView& json, size_t depth) {
  TRY(const JsonView list, array_field(json, "normalizers"));
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const JsonView& item : list.elements()) {
    TRY(auto part, make(item, depth + 1));
    parts.push_back(std::move(part));
  }
  return made<NormalizerSequence>(std::move(parts));
}

Made make_bert(const JsonView& json) {
  BertOptions o;
  TRY(o.clean_text, bool_field(json, "clean_text"));
  TRY(o.handle_chinese_chars, bool_field(json, "handle_chinese_chars"));
  TRY(o.lowercase, bool_field(json, "lowercase"));
  TRY(o.strip_accents, bool_field_or(json, "strip_accents", o.lowercase));
  return made<BertNormalizer>(o);
}

Made make(const JsonView& json, size_t depth) {
  if (depth > kMaxNesting) return Error(ErrorCode::kUnsupported, "expected at most 32 nested normalizers");
  if (!json.is_object()) return field_error("normalizer", "an object with a type", json);
  TRY(const auto type, string_field(json, "type"));
  if (type == "Sequence") return make_sequence(json, depth);
  if (type == "NFC") return made<NormalFormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return made<NormalFormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return made<NormalFormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return made<NormalFormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return made<Lowercase>();
  if (type == "StripAccents") return made<StripAccents>();
  if (type == "Nmt") return made<Nmt>();
  if (type == "ByteLevel") return made<ByteLevelNormalizer>();
  if (type == "BertNormalizer") return make_bert(json);
  if (type == "Strip") {
    TRY(const bool left, bool_field(json, "strip_left"));
    TRY(const bool right, bool_field(json, "strip_right"));
    return made<StripEnds>(left, right);
  }
  if (type == "Prepend") {
    TRY(const auto text, string_field(json, "prepend"));
    return made<Prepend>(std::string(text));
  }
  if (type == "Replace") {
    TRY(Regex pattern, make_pattern(json["pattern"]));
    TRY(const auto content, string_field(json, "content"));
    return made<Replace>(std::move(pattern), std::string(content));
  }
  if (type == "Precompiled") {
    TRY(const auto text, string_field(json, "precompiled_charsmap"));
    TRY(const std::string bytes, decoded_base64(text));
    return Precompiled::create(bytes);
  }
  return Error(ErrorCode::kUnsupported, "normalizer type " + quoted(type) + " is not known");
}

}  // namespace

Result<std::unique_ptr<Normalizer>> make_normalizer(const JsonView& json) {
  if (!json.valid() || json.is_null()) return std::unique_ptr<Normalizer>();
  auto result = make(json, 0);
  if (!result) return result.error().with_context("in \"normalizer\"");
  return result;
}

}  // namespace berth::text
