// text/word_models.h — the models that look whole words up: WordPiece (longest piece first) and WordLevel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "berth/text/model.h"
#include "berth/text/trie.h"

namespace berth::text {

// BERT's: from the left, the longest piece that fits; pieces inside a word carry `continuing_prefix`. A word that no
// sequence of pieces covers, or of more than `max_characters`, is the unknown token.
class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, std::string unknown_token, std::string continuing_prefix, size_t max_characters);
  Status encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  std::string unknown_token_;
  std::optional<int32_t> unknown_;
  size_t max_characters_;
  Trie trie_;
  std::optional<uint32_t> inside_;  // the trie's node behind the continuing prefix, where pieces start with it
};

// A word is a piece, or the unknown token.
class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, std::string unknown_token);
  Status encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  std::string unknown_token_;
  std::optional<int32_t> unknown_;
};

}  // namespace berth::text
