// text/tokenizer_json.cc — a tokenizer from tokenizer.json, and its special tokens from tokenizer_config.json.
//
// The `tokenizers` library numbers added tokens itself: a token that is no piece of the model gets the next free id,
// whatever the file says. Where file and library agree (all published files), nothing is to decide. Where ids only have
// holes, the library's numbers are taken and a note says so; any other disagreement is refused.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "berth/base/strings.h"
#include "berth/text/json_fields.h"
#include "berth/text/tokenizer_parts.h"

namespace berth::text {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr size_t kMaxNotes = 20;
constexpr std::array<std::string_view, 7> kSpecialNames{"bos_token", "eos_token", "unk_token", "sep_token",
                                                        "pad_token", "cls_token", "mask_token"};

Result<AddedToken> added_token(const JsonView& json) {
  if (!json.is_object()) return field_error("added_tokens", "objects", json);
  AddedToken t;
  TRY(t.content, string_field(json, "content"));
  TRY(const int64_t id, integer_field(json, "id"));
  if (id < 0 || id > kMaxTokenId) return field_error("id", "an id below 16777216", json["id"]);
  t.id = static_cast<int32_t>(id);
  TRY(t.single_word, bool_field(json, "single_word"));
  TRY(t.lstrip, bool_field(json, "lstrip"));
  TRY(t.rstrip, bool_field(json, "rstrip"));
  TRY(t.normalized, bool_field(json, "normalized"));
  TRY(t.special, bool_field(json, "special"));
  return t;
}

// Gives added tokens the ids that the library gives them; see the top of this file.
class Numbering {
 public:
  Numbering(const Vocabulary& pieces, std::vector<std::string>& notes) : pieces_(pieces), notes_(notes) {}

  Status number(AddedToken& t) {
    const auto failed = [&](const std::string& why) {
      return Error(ErrorCode::kCorruptData, "while reading added token " + quoted(t.content, 60) + ": " + why,
                   {"The `tokenizers` library would renumber it without a word; fetch the file again."});
    };
    if (const auto known = pieces_.find(t.content)) {
      if (*known != t.id)
        return failed("expected id " + std::to_string(*known) + ", which its piece has, found " + std::to_string(t.id));
      greatest_ = std::max(greatest_, int64_t{t.id});
      return {};
    }
    const auto size = static_cast<int64_t>(pieces_.size());
    const int64_t next = greatest_ < 0 ? size : (greatest_ >= size || size == 0 ? greatest_ + 1 : size);
    if (t.id < next || t.id <= last_stated_)
      return failed("expected id " + std::to_string(next) + ", the next free one, found " + std::to_string(t.id));
    last_stated_ = t.id;
    if (t.id != next && notes_.size() < kMaxNotes)
      notes_.push_back("Added token " + quoted(t.content, 60) + ": the file says id " + std::to_string(t.id) +
                       ", the tokenizers library numbers it " + std::to_string(next) + "; taken as the library does.");
    t.id = static_cast<int32_t>(next);
    greatest_ = std::max(greatest_, next);
    if (const auto taken = pieces_.piece(t.id))
      return failed("expected a free id, found that " + std::to_string(t.id) + " belongs to the piece " +
                    quoted(*taken, 60));
    return {};
  }

 private:
  const Vocabulary& pieces_;
  std::vector<std::string>& notes_;
  int64_t greatest_ = -1;     // id among added tokens so far
  int64_t last_stated_ = -1;  // by the file, for tokens that are no pieces
};

Result<std::vector<AddedToken>> added_tokens(const JsonView& list, const Vocabulary& pieces,
                                             std::vector<std::string>& notes) {
  std::vector<AddedToken> tokens;
  if (!list.valid()) return tokens;
  if (!list.is_array()) return field_error("added_tokens", "an array", list);
  Numbering numbering(pieces, notes);
  for (const JsonView& item : list.elements()) {
    TRY(AddedToken t, added_token(item));
    if (t.content.empty())
      return Error(ErrorCode::kCorruptData,
                   "in \"added_tokens\": expected some text, found an empty token with id " + std::to_string(t.id));
    TRY_STATUS(numbering.number(t));
    tokens.push_back(std::move(t));
  }
  return tokens;
}

// A special token of tokenizer_config.json: a text or an object with "content".
std::optional<std::string_view> token_text(const JsonView& json) {
  if (const auto text = json.as_string()) return text;
  return json.is_object() ? json["content"].as_string() : std::nullopt;
}

Status read_special_tokens(std::string_view text, std::string_view file, TokenizerParts& parts) {
  if (text.empty()) return {};
  auto document = JsonDocument::parse(text, {kMaxTokenizerBytes, true, /*large_integers_as_text=*/true});
  if (!document) return document.error().with_context("in " + std::string(file));
  const JsonView root = document->root();
  for (const std::string_view name : kSpecialNames) {
    const auto content = token_text(root[name]);
    const bool known = std::any_of(parts.special_tokens.begin(), parts.special_tokens.end(),
                                   [&](const auto& t) { return t.first == name; });
    if (content && !known) parts.special_tokens.emplace_back(name, *content);
  }
  return {};
}

Status read_parts(const JsonView& root, TokenizerParts& parts) {
  if (!root.is_object()) return field_error("tokenizer.json", "an object", root);
  if (root.contains("version")) {
    TRY(const auto version, string_field(root, "version"));
    if (version != "1.0")
      return Error(ErrorCode::kUnsupported, "at key \"version\": expected \"1.0\", found " + quoted(version, 40));
  }
  constexpr std::array<std::string_view, 9> kKeys{"version",        "truncation", "padding",
                                                  "added_tokens",   "normalizer", "pre_tokenizer",
                                                  "post_processor", "decoder",    "model"};
  Status status;
  root.for_each_member([&](std::string_view key, const JsonView&) {
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end())
      status = Error(ErrorCode::kUnsupported, "key " + quoted(key, 60) + " is not known; this may be a newer format");
    return status.has_value();
  });
  TRY_STATUS(status);
  TRY(parts.model, make_model(root["model"]));
  TRY(parts.normalizer, make_normalizer(root["normalizer"]));
  TRY(parts.pre_tokenizer, make_pre_tokenizer(root["pre_tokenizer"]));
  TRY(parts.decoder, make_decoder(root["decoder"]));
  TRY(auto tokens, added_tokens(root["added_tokens"], parts.model->vocabulary(), parts.notes));
  TRY(parts.added, AddedTokens::create(std::move(tokens), parts.normalizer.get()));
  TRY(parts.frame, make_special_frame(root["post_processor"], [&](int64_t id) {
        if (id < 0 || id > kMaxTokenId) return false;
        const auto n = static_cast<int32_t>(id);
        return parts.added.by_id(n) || parts.model->vocabulary().piece(n).has_value();
      }));
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenizerParts>> parts_from_json(const TokenizerSource& source) {
  auto document = JsonDocument::parse(source.tokenizer_json, {kMaxTokenizerBytes, true});
  if (!document) return document.error().with_context("in tokenizer.json");
  auto parts = std::make_unique<TokenizerParts>();
  if (auto status = read_parts(document->root(), *parts); !status)
    return status.error().with_context("in tokenizer.json");
  TRY_STATUS(read_special_tokens(source.config_json, "tokenizer_config.json", *parts));
  TRY_STATUS(read_special_tokens(source.special_tokens_json, "special_tokens_map.json", *parts));
  for (const auto& [name, content] : parts->special_tokens) {
    if (name == "bos_token") parts->bos = parts->id_of(content);
    if (name == "eos_token") parts->eos = parts->id_of(content);
    if (name == "unk_token") parts->unknown = parts->id_of(content);
    if (name == "pad_token") parts->padding = parts->id_of(content);
  }
  return parts;
}

}  // namespace berth::text
