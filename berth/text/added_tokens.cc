#include "berth/text/added_tokens.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/text/unicode.h"

namespace berth::text {
namespace {

bool word_before(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t begin = previous_utf8(text, at);
  return is_word_character(decode_utf8(text, begin));
}

bool word_behind(std::string_view text, size_t at) {
  return at < text.size() && is_word_character(decode_utf8(text, at));
}

size_t space_start_before(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t begin = previous_utf8(text, at);
    size_t i = begin;
    if (!is_white_space(decode_utf8(text, i))) break;
    at = begin;
  }
  return at;
}

size_t space_end_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_white_space(decode_utf8(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

void AddedTokens::Pass::add(std::string_view content, int32_t index) {
  if (content.empty()) return;
  trie.add(content, index);
  starts[static_cast<uint8_t>(content[0])] = true;
  empty = false;
}

Result<AddedTokens> AddedTokens::create(std::vector<AddedToken> tokens, const Normalizer* normalizer) {
  AddedTokens added;
  added.tokens_ = std::move(tokens);
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& t = added.tokens_[i];
    const auto failed = [&](ErrorCode code, const std::string& why) {
      return Error(
          code, "while reading added token " + quoted(t.content, 60) + " with id " + std::to_string(t.id) + ": " + why);
    };
    if (t.content.empty()) return failed(ErrorCode::kCorruptData, "expected some text, found none");
    if (t.content.size() > kMaxAddedTokenBytes)
      return failed(ErrorCode::kUnsupported, "expected at most 1024 bytes, found " + std::to_string(t.content.size()));
    if (!added.by_content_.emplace(t.content, i).second)
      return failed(ErrorCode::kCorruptData, "expected the text once, found it twice");
    if (!added.by_id_.emplace(t.id, i).second)
      return failed(ErrorCode::kCorruptData,
                    "expected an id of its own, found that " + quoted(added.by_id(t.id)->content, 60) + " has it");
    if (t.special) added.specials_.insert(t.content);
    added.decoded_.push_back(t.content);
    if (!t.normalized) {
      added.raw_.add(t.content, static_cast<int32_t>(i));
      continue;
    }
    Fragment content{t.content, true};
    if (normalizer) TRY_STATUS(normalizer->apply(content));
    if (content.text.size() > kMaxAddedTokenBytes * 4)
      return failed(ErrorCode::kUnsupported, "it is too long when normalized");
    added.normalized_.add(content.text, static_cast<int32_t>(i));
    added.decoded_.back() = std::move(content.text);
  }
  return added;
}

const AddedToken* AddedTokens::by_id(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

std::vector<AddedTokens::Cut> AddedTokens::cut(std::string_view text, const Pass& pass) const {
  std::vector<Cut> cuts;
  size_t done = 0;  // the end of what is cut
  for (size_t at = 0; !pass.empty && at < text.size();) {
    if (!pass.starts[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    int32_t longest = -1;
    size_t match_end = at;
    uint32_t node = 0;
    for (size_t end = at; end < text.size();) {
      const Trie::Node* below = pass.trie.step(node, text[end]);
      if (!below) break;
      ++end;
      node = below->number;
      if (below->value < 0) continue;
      longest = below->value;
      match_end = end;
    }
    if (longest < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(longest)];
    size_t begin = at, end = match_end;
    at = match_end;  // the search goes on behind the match, whatever becomes of it
    if (token.single_word && (word_before(text, begin) || word_behind(text, end))) continue;
    if (token.lstrip) begin = std::max(space_start_before(text, begin), done);
    if (token.rstrip) end = space_end_behind(text, end);
    if (begin > done) cuts.push_back({{done, begin}, -1});
    cuts.push_back({{begin, end}, token.id});
    done = end;
  }
  if (done < text.size()) cuts.push_back({{done, text.size()}, -1});
  return cuts;
}

}  // namespace berth::text
