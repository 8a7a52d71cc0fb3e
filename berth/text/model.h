// text/model.h — what turns one word (a piece of pre-tokenized text) into ids: BPE, Unigram, WordPiece or WordLevel.
//
// Thread-safe once made. Start reading at: bpe.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/text/vocabulary.h"

namespace berth::text {

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of `word` (valid UTF-8, not empty). Errors: kCorruptData where the model cannot express the word
  // and has no unknown token.
  virtual Status encode_word(std::string_view word, std::vector<int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

// The model of a tokenizer.json ("model"). Errors: kCorruptData, kUnsupported, naming the key.
Result<std::unique_ptr<Model>> make_model(const JsonView& json);

// The one byte that "<0xHH>" stands for, or nothing.
std::optional<uint8_t> byte_of_piece(std::string_view piece);
// "<0x0A>" for 10.
std::string piece_of_byte(uint8_t byte);

}  // namespace berth::text
