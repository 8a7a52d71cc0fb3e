#include "berth/text/word_models.h"

#include "berth/base/strings.h"
#include "berth/base/utf8.h"

namespace berth::text {
namespace {

Status push_unknown(std::optional<int32_t> unknown, std::string_view name, std::string_view word,
                    std::vector<int32_t>& ids) {
  if (!unknown)
    return Error(ErrorCode::kCorruptData, "while encoding " + quoted(word, 40) + ": expected the unknown token " +
                                              quoted(name, 40) + " in the vocabulary, found it is not there");
  ids.push_back(*unknown);
  return {};
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, std::string unknown_token, std::string continuing_prefix,
                     size_t max_characters)
    : Model(std::move(vocabulary)), unknown_token_(std::move(unknown_token)), max_characters_(max_characters) {
  unknown_ = vocabulary_.find(unknown_token_);
  vocabulary_.for_each([&](std::string_view piece, int32_t id) { trie_.add(piece, id); });
  inside_ = 0;
  for (const char c : continuing_prefix) {
    const Trie::Node* node = trie_.step(*inside_, c);
    if (!node) {
      inside_.reset();
      break;
    }
    inside_ = node->number;
  }
}

Status WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (count_code_points(word) > max_characters_) return push_unknown(unknown_, unknown_token_, word, ids);
  const size_t before = ids.size();
  for (size_t start = 0; start < word.size();) {
    int32_t longest = -1;
    size_t next = start;
    std::optional<uint32_t> node = start == 0 ? 0 : inside_;
    for (size_t end = start; node && end < word.size();) {
      const Trie::Node* below = trie_.step(*node, word[end]);
      if (!below) break;
      ++end;
      node = below->number;
      if (below->value < 0) continue;
      longest = below->value;
      next = end;
    }
    if (longest < 0) {
      ids.resize(before);
      return push_unknown(unknown_, unknown_token_, word, ids);
    }
    ids.push_back(longest);
    start = next;
  }
  return {};
}

WordLevel::WordLevel(Vocabulary vocabulary, std::string unknown_token)
    : Model(std::move(vocabulary)), unknown_token_(std::move(unknown_token)) {
  unknown_ = vocabulary_.find(unknown_token_);
}

Status WordLevel::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_.find(word)) {
    ids.push_back(*id);
    return {};
  }
  return push_unknown(unknown_, unknown_token_, word, ids);
}

}  // namespace berth::text
