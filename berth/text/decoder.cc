#include "berth/text/decoder.h"

#include <array>
#include <utility>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/byte_level.h"
#include "berth/text/json_fields.h"
#include "berth/text/model.h"
#include "berth/text/pattern.h"

namespace berth::text {
namespace {

constexpr size_t kMaxNesting = 32;

std::string with_replaced(std::string_view text, std::string_view from, std::string_view to, size_t most = SIZE_MAX) {
  std::string out;
  size_t at = 0;
  for (size_t n = 0; n < most && !from.empty(); ++n) {
    const size_t next = text.find(from, at);
    if (next == std::string_view::npos) break;
    out += text.substr(at, next - at);
    out += to;
    at = next + from.size();
  }
  out += text.substr(at);
  return out;
}

// English spacing as BERT's decoder tidies it, rule after rule.
std::string without_token_spaces(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules{{{" .", "."},
                                                                                  {" ?", "?"},
                                                                                  {" !", "!"},
                                                                                  {" ,", ","},
                                                                                  {" ' ", "'"},
                                                                                  {" n't", "n't"},
                                                                                  {" 'm", "'m"},
                                                                                  {" do not", " don't"},
                                                                                  {" 's", "'s"},
                                                                                  {" 've", "'ve"},
                                                                                  {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) text = with_replaced(text, from, to);
  return text;
}

class ByteLevelDecoder final : public Decoder {
 public:
  Status apply(std::vector<std::string>& pieces) const override {
    std::string bytes;
    for (const std::string& p : pieces) append_bytes_of(p, bytes);
    pieces.assign(1, repaired_utf8(bytes));
    return {};
  }
};

class ByteFallback final : public Decoder {
 public:
  Status apply(std::vector<std::string>& pieces) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (is_valid_utf8(bytes))
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (std::string& p : pieces) {
      if (const auto byte = byte_of_piece(p)) {
        bytes += static_cast<char>(*byte);
        continue;
      }
      flush();
      out.push_back(std::move(p));
    }
    flush();
    pieces = std::move(out);
    return {};
  }
};

class Fuse final : public Decoder {
 public:
  Status apply(std::vector<std::string>& pieces) const override {
    pieces.assign(1, join(pieces, ""));
    return {};
  }
};

// At most `start` times the character off each piece's front, `stop` times off its back.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(char32_t content, size_t start, size_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }
  Status apply(std::vector<std::string>& pieces) const override {
    for (std::string& p : pieces) {
      std::string_view rest = p;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      p = std::string(rest);
    }
    return {};
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(char32_t replacement, bool prepended) : prepended_(prepended) {
    append_utf8(replacement_, replacement);
  }
  Status apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      pieces[i] = with_replaced(pieces[i], replacement_, i == 0 && prepended_ ? "" : " ");
    return {};
  }

 private:
  std::string replacement_;
  bool prepended_;
};

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  Status apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string& p = pieces[i];
      if (i > 0) p = p.starts_with(prefix_) ? p.substr(prefix_.size()) : " " + p;
      if (cleanup_) p = without_token_spaces(std::move(p));
    }
    return {};
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  Status apply(std::vector<std::string>& pieces) const override {
    for (size_t i = 0; i < pieces.size(); ++i)
      pieces[i] = with_replaced(pieces[i], suffix_, i + 1 == pieces.size() ? "" : " ");
    return {};
  }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  Status apply(std::vector<std::string>& pieces) const override {
    std::vector<std::string> out;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0 && pieces[i] == pieces[i - 1]) continue;
      std::string p = with_replaced(pieces[i], pad_, "");
      if (cleanup_) p = with_replaced(without_token_spaces(std::move(p)), delimiter_, " ");
      if (!p.empty()) out.push_back(std::move(p));
    }
    pieces = std::move(out);
    return {};
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status apply(std::vector<std::string>& pieces) const override {
    for (std::string& p : pieces) {
      TRY(p, replaced(pattern_, p, content_));
    }
    return {};
  }

 private:
  Regex pattern_;
  std::string content_;
};

class DecoderSequence final : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}
  Status apply(std::vector<std::string>& pieces) const override {
    for (const auto& part : parts_) TRY_STATUS(part->apply(pieces));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

using Made = Result<std::unique_ptr<Decoder>>;
template <typename T, typename... A>
Made made(A&&... a) {
  return std::unique_ptr<Decoder>(std::make_unique<T>(std::forward<A>(a)...));
}

Made make(const JsonView& json, size_t depth);

Made make_sequence(const JsonView& json, size_t depth) {
  TRY(const JsonView list, array_field(json, "decoders"));
  std::vector<std::unique_ptr<Decoder>> parts;
  for (const JsonView& item : list.elements()) {
    TRY(auto part, make(item, depth + 1));
    parts.push_back(std::move(part));
  }
  return made<DecoderSequence>(std::move(parts));
}

Made make(const JsonView& json, size_t depth) {
  if (depth > kMaxNesting) return Error(ErrorCode::kUnsupported, "expected at most 32 nested decoders");
  if (!json.is_object()) return field_error("decoder", "an object with a type", json);
  TRY(const auto type, string_field(json, "type"));
  if (type == "Sequence") return make_sequence(json, depth);
  if (type == "ByteLevel") return made<ByteLevelDecoder>();
  if (type == "ByteFallback") return made<ByteFallback>();
  if (type == "Fuse") return made<Fuse>();
  if (type == "Strip") {
    TRY(const char32_t content, character_field(json, "content"));
    TRY(const int64_t start, integer_field(json, "start"));
    TRY(const int64_t stop, integer_field(json, "stop"));
    if (start < 0 || stop < 0) return field_error("start", "numbers from 0", json["start"]);
    return made<StripDecoder>(content, static_cast<size_t>(start), static_cast<size_t>(stop));
  }
  if (type == "Metaspace") {
    TRY(const char32_t replacement, character_field(json, "replacement"));
    TRY(const auto scheme, string_field_or(json, "prepend_scheme", "always"));
    if (scheme != "always" && scheme != "first" && scheme != "never")
      return field_error("prepend_scheme", "\"always\", \"first\" or \"never\"", json["prepend_scheme"]);
    TRY(const bool prefix, bool_field_or(json, "add_prefix_space", true));
    if (!prefix && scheme != "never")
      return field_error("add_prefix_space", "true, as prepend_scheme has it", json["add_prefix_space"]);
    return made<MetaspaceDecoder>(replacement, scheme != "never");
  }
  if (type == "WordPiece") {
    TRY(const auto prefix, string_field(json, "prefix"));
    TRY(const bool cleanup, bool_field(json, "cleanup"));
    return made<WordPieceDecoder>(std::string(prefix), cleanup);
  }
  if (type == "BPEDecoder") {
    TRY(const auto suffix, string_field(json, "suffix"));
    return made<BpeDecoder>(std::string(suffix));
  }
  if (type == "CTC") {
    TRY(const auto pad, string_field(json, "pad_token"));
    TRY(const auto delimiter, string_field(json, "word_delimiter_token"));
    TRY(const bool cleanup, bool_field(json, "cleanup"));
    return made<CtcDecoder>(std::string(pad), std::string(delimiter), cleanup);
  }
  if (type == "Replace") {
    TRY(Regex pattern, make_pattern(json["pattern"]));
    TRY(const auto content, string_field(json, "content"));
    return made<ReplaceDecoder>(std::move(pattern), std::string(content));
  }
  return Error(ErrorCode::kUnsupported, "decoder type " + quoted(type) + " is not known");
}

}  // namespace

Result<std::unique_ptr<Decoder>> make_decoder(const JsonView& json) {
  if (!json.valid() || json.is_null()) return std::unique_ptr<Decoder>();
  auto result = make(json, 0);
  if (!result) return result.error().with_context("in \"decoder\"");
  return result;
}

}  // namespace berth::text
