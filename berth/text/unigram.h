// text/unigram.h — the Unigram model: the segmentation of a word whose pieces' scores have the greatest sum.
//
// Scores are doubles summed from the left, as the `tokenizers` library does, so that ties fall the same way.
// A character that no piece covers costs the least score minus 10 and becomes the unknown token; neighbouring ones
// fuse.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "berth/text/model.h"
#include "berth/text/trie.h"

namespace berth::text {

class Unigram final : public Model {
 public:
  // scores[id] for every piece. Errors: kCorruptData where the vocabulary is empty or `unknown` is not in it.
  static Result<std::unique_ptr<Model>> create(Vocabulary vocabulary, std::vector<double> scores,
                                               std::optional<int32_t> unknown, bool byte_fallback);

  Status encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Node {
    int32_t id = -1;     // of the last piece on the best way here
    int64_t start = -1;  // where that piece starts; -1: not reached
    double score = 0;
  };
  explicit Unigram(Vocabulary vocabulary) : Model(std::move(vocabulary)) {}
  Status append_piece(std::string_view piece, std::vector<int32_t>& ids) const;

  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<int32_t> unknown_;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> bytes_{};
  Trie trie_;
};

}  // namespace berth::text
