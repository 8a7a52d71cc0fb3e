// text/tokenizer_parts.h — what a Tokenizer is made of, and its two makers. Private to text/.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "berth/text/added_tokens.h"
#include "berth/text/decoder.h"
#include "berth/text/model.h"
#include "berth/text/normalizer.h"
#include "berth/text/post_processor.h"
#include "berth/text/pre_tokenizer.h"
#include "berth/text/tokenizer.h"

namespace berth::text {

struct TokenizerParts {
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;       // or null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // or null
  std::unique_ptr<Model> model;
  std::unique_ptr<Decoder> decoder;  // or null: pieces are joined by spaces
  SpecialFrame frame;
  std::optional<int32_t> bos, eos, unknown, padding;
  std::vector<int32_t> end_ids;
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::vector<std::string> notes;

  static Tokenizer finished(std::unique_ptr<const TokenizerParts> parts) { return Tokenizer(std::move(parts)); }
  std::optional<int32_t> id_of(std::string_view piece) const;
};

// From tokenizer.json; from tokenizer.ggml.* metadata.
Result<std::unique_ptr<TokenizerParts>> parts_from_json(const TokenizerSource& source);
Result<std::unique_ptr<TokenizerParts>> parts_from_gguf(const GgufTokenizer& gguf);

}  // namespace berth::text
