// text/tokenizer.h — text to token ids and back, as the published tokenizers do it.
//
// A Tokenizer is made from a value, TokenizerSource, that the engine fills from a checkpoint folder (tokenizer.json,
// tokenizer_config.json) or from GGUF metadata. From the same bytes it gives the ids that the `tokenizers` library
// gives; what that library repairs in silence is refused here, or said in notes(). From GGUF metadata it gives the ids
// of the published tokenizer, which differ from llama.cpp's in a few places (tokenizer_gguf.cc).
//
// All input is hostile: files are checked on the way in, and encoding takes bounded time whatever the file says.
//
// Thread-safe once made. Non-goals: pairs of texts, truncation, padding, training; chat templates (chat_template.h).
// Start reading at: Tokenizer::create and Tokenizer::encode.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"

namespace berth::text {

// The tokenizer.ggml.* metadata of a GGUF file. Views must outlive Tokenizer::create().
struct GgufTokenizer {
  std::string model;  // "llama" (SentencePiece), "gpt2" (byte-level BPE), "gemma4"
  std::string pre;    // which expression splits words: "smollm", "qwen2", "llama-bpe"...
  std::vector<std::string_view> tokens;
  std::vector<int32_t> token_types;      // 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; or empty
  std::vector<float> scores;             // or empty
  std::vector<std::string_view> merges;  // "left right"; or empty
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unknown_id, padding_id;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

struct TokenizerSource {
  std::string name;                      // what messages call it: a path
  std::string_view tokenizer_json;       // the text of tokenizer.json, or empty; must outlive create()
  std::string_view config_json;          // of tokenizer_config.json (special tokens' names), or empty
  std::string_view special_tokens_json;  // of special_tokens_map.json, or empty
  const GgufTokenizer* gguf = nullptr;   // used where tokenizer_json is empty
};

class Tokenizer {
 public:
  // Errors: kCorruptData, kUnsupported, naming the file and the key.
  static Result<Tokenizer> create(const TokenizerSource& source);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of `text`; with `add_special` in the tokenizer's frame (begin token and the like). Special tokens written
  // out in the text become their ids either way. Errors: kInvalidArgument where `text` is not valid UTF-8,
  // kCorruptData where an expression of the file runs into its limits.
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special) const;

  // The text of `ids`, always valid UTF-8; ids that do not exist are passed over. With `skip_special` without special
  // tokens. Errors: kCorruptData where an expression runs into its limits.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> token_id(std::string_view piece) const;
  // The piece as the vocabulary writes it ("Ġthe", "▁the"), or nothing where the id does not exist.
  std::optional<std::string_view> piece(int32_t id) const;
  bool is_special(int32_t id) const;
  int64_t vocab_size() const;  // greatest id + 1

  // Where the file says so; bos_token, eos_token and so on for chat templates by name.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> unknown_id() const;
  std::optional<int32_t> padding_id() const;
  // Ids that end a turn or a message besides eos_id (GGUF's eot and eom).
  const std::vector<int32_t>& end_ids() const;
  // ("bos_token", "<s>") and the like, in the order of the file.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const;
  // Whether add_special puts the begin token first.
  bool adds_bos() const;

  // What was odd about the file but could be read one way only; for people.
  const std::vector<std::string>& notes() const;

  // The stages of encode() for a text without added tokens.
  Result<std::string> normalize(std::string_view text) const;
  Result<std::vector<std::string>> pre_tokenize(std::string_view normalized) const;

 private:
  friend struct TokenizerParts;
  explicit Tokenizer(std::unique_ptr<const struct TokenizerParts> parts);
  std::unique_ptr<const struct TokenizerParts> parts_;
};

// Text as ids arrive: each step gives what has become certain, never half a character. Equal to the incremental
// decoder of the `tokenizers` library; where that one raises because text changed backwards, this one goes on with what
// is new. The tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  // The text that `id` makes certain; empty while it waits. Errors: those of decode().
  Result<std::string> step(int32_t id);
  // What still waits, with U+FFFD for what never became a character.
  Result<std::string> finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<int32_t> window_;  // ids whose text is not settled, and those before them that decide spaces
  std::string settled_;          // the text of the window's front that was handed out
  size_t settled_ids_ = 0;
};

}  // namespace berth::text
