#include "berth/text/tokenizer.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/tokenizer_parts.h"

namespace berth::text {
namespace {

// Ids that may wait for the rest of a character before they are shown as they are. A character has at most four bytes;
// the library would wait for ever, in quadratic time.
constexpr size_t kMaxWaitingIds = 256;

}  // namespace

std::optional<int32_t> TokenizerParts::id_of(std::string_view piece) const {
  if (const AddedToken* t = added.find(piece)) return t->id;
  return model->vocabulary().find(piece);
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(const TokenizerSource& source) {
  const std::string where = "while reading the tokenizer" + (source.name.empty() ? "" : " of " + quoted(source.name));
  if (source.tokenizer_json.empty() && !source.gguf)
    return Error(ErrorCode::kCorruptData, where + ": expected a tokenizer.json or GGUF metadata, found neither",
                 {"Fetch tokenizer.json into the checkpoint's folder."});
  auto parts = !source.tokenizer_json.empty() ? parts_from_json(source) : parts_from_gguf(*source.gguf);
  if (!parts) return parts.error().with_context(where);
  return TokenizerParts::finished(*std::move(parts));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (!is_valid_utf8(text))
    return Error(
        ErrorCode::kInvalidArgument,
        "while encoding a text of " + std::to_string(text.size()) + " bytes: expected valid UTF-8, found broken text",
        {"Convert the text to UTF-8."});
  const TokenizerParts& p = *parts_;
  std::vector<int32_t> ids;
  if (add_special) ids = p.frame.before;
  std::vector<Fragment> words;
  for (const AddedTokens::Cut& outer : p.added.cut_raw(text)) {
    if (outer.id >= 0) {
      ids.push_back(outer.id);
      continue;
    }
    Fragment piece{std::string(text.substr(outer.span.begin, outer.span.end - outer.span.begin)),
                   outer.span.begin == 0};
    if (p.normalizer) TRY_STATUS(p.normalizer->apply(piece));
    for (const AddedTokens::Cut& inner : p.added.cut_normalized(piece.text)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
        continue;
      }
      const bool whole = inner.span.begin == 0 && inner.span.end == piece.text.size();
      Fragment part{
          whole ? std::move(piece.text) : piece.text.substr(inner.span.begin, inner.span.end - inner.span.begin),
          piece.at_start && inner.span.begin == 0};
      words.clear();
      if (p.pre_tokenizer)
        TRY_STATUS(p.pre_tokenizer->apply(std::move(part), words));
      else
        words.push_back(std::move(part));
      for (const Fragment& word : words)
        if (!word.text.empty()) TRY_STATUS(p.model->encode_word(word.text, ids));
      if (whole) break;
    }
  }
  if (add_special) ids.insert(ids.end(), p.frame.after.begin(), p.frame.after.end());
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  const TokenizerParts& p = *parts_;
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) {
    const AddedToken* token = p.added.by_id(id);
    const std::optional<std::string_view> text =
        token ? std::optional(p.added.decoded(*token)) : p.model->vocabulary().piece(id);
    if (!text || (skip_special && p.added.is_special(*text))) continue;
    pieces.emplace_back(*text);
  }
  if (!p.decoder) return join(pieces, " ");
  TRY_STATUS(p.decoder->apply(pieces));
  return join(pieces, "");
}

std::optional<int32_t> Tokenizer::token_id(std::string_view piece) const { return parts_->id_of(piece); }

std::optional<std::string_view> Tokenizer::piece(int32_t id) const {
  if (const AddedToken* t = parts_->added.by_id(id)) return t->content;
  return parts_->model->vocabulary().piece(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const auto text = piece(id);
  return text && parts_->added.is_special(*text);
}

int64_t Tokenizer::vocab_size() const {
  int64_t limit = parts_->model->vocabulary().id_limit();
  for (const AddedToken& t : parts_->added.all()) limit = std::max(limit, int64_t{t.id} + 1);
  return limit;
}

std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos; }
std::optional<int32_t> Tokenizer::unknown_id() const { return parts_->unknown; }
std::optional<int32_t> Tokenizer::padding_id() const { return parts_->padding; }
const std::vector<int32_t>& Tokenizer::end_ids() const { return parts_->end_ids; }
const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }
const std::vector<std::pair<std::string, std::string>>& Tokenizer::special_tokens() const {
  return parts_->special_tokens;
}
bool Tokenizer::adds_bos() const {
  return parts_->bos && !parts_->frame.before.empty() && parts_->frame.before.front() == *parts_->bos;
}

Result<std::string> Tokenizer::normalize(std::string_view text) const {
  Fragment f{std::string(text), true};
  if (parts_->normalizer) TRY_STATUS(parts_->normalizer->apply(f));
  return std::move(f.text);
}

Result<std::vector<std::string>> Tokenizer::pre_tokenize(std::string_view normalized) const {
  std::vector<Fragment> pieces;
  Fragment f{std::string(normalized), true};
  if (!parts_->pre_tokenizer)
    pieces.push_back(std::move(f));
  else if (!f.text.empty())
    TRY_STATUS(parts_->pre_tokenizer->apply(std::move(f), pieces));
  std::vector<std::string> texts;
  for (Fragment& p : pieces) texts.push_back(std::move(p.text));
  return texts;
}

Result<std::string> StreamDecoder::step(int32_t id) {
  const auto unsettled = [](std::string_view text) { return text.ends_with("\xEF\xBF\xBD"); };
  if (settled_.empty() && !window_.empty()) {
    TRY(std::string text, tokenizer_->decode(window_, skip_special_));
    if (!unsettled(text)) {
      settled_ = std::move(text);
      settled_ids_ = window_.size();
    }
  }
  window_.push_back(id);
  TRY(const std::string text, tokenizer_->decode(window_, skip_special_));
  const bool patient = window_.size() - settled_ids_ <= kMaxWaitingIds;
  if (text.size() <= settled_.size() || (unsettled(text) && patient)) return std::string();
  size_t common = 0;
  while (common < settled_.size() && text[common] == settled_[common]) ++common;
  while (common > 0 && common < text.size() && (static_cast<unsigned char>(text[common]) & 0xC0) == 0x80) --common;
  std::string fresh = text.substr(common);
  const size_t waited = window_.size() - settled_ids_;
  window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(settled_ids_));
  TRY(settled_, tokenizer_->decode(window_, skip_special_));
  settled_ids_ = waited;
  return fresh;
}

Result<std::string> StreamDecoder::finish() {
  TRY(const std::string text, tokenizer_->decode(window_, skip_special_));
  std::string rest = text.size() > settled_.size() ? text.substr(settled_.size()) : std::string();
  window_.clear();
  settled_.clear();
  settled_ids_ = 0;
  return rest;
}

}  // namespace berth::text
