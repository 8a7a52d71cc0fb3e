// text/added_tokens.h — tokens that are cut out of a text as they stand, before anything else happens to it.
//
// Two passes, leftmost-longest each: tokens with normalized = false on the raw text, then the others (their contents
// normalized) on what the normalizer made of the rest. Thread-safe once made.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "berth/base/result.h"
#include "berth/text/normalizer.h"
#include "berth/text/regex.h"
#include "berth/text/trie.h"

namespace berth::text {

inline constexpr size_t kMaxAddedTokenBytes = 1024;  // longer ones are refused: it bounds the work per character

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;             // only where no word character stands beside it
  bool lstrip = false, rstrip = false;  // takes the white space beside it
  bool normalized = false;
  bool special = false;  // left out by skip_special
};

class AddedTokens {
 public:
  // A stretch of text, and the added token it is (-1: none, ordinary text).
  struct Cut {
    Span span;
    int32_t id = -1;
  };

  // Errors: kCorruptData for an empty or repeated content or id, kUnsupported for one over kMaxAddedTokenBytes; those
  // of the normalizer.
  static Result<AddedTokens> create(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  std::vector<Cut> cut_raw(std::string_view text) const { return cut(text, raw_); }
  std::vector<Cut> cut_normalized(std::string_view text) const { return cut(text, normalized_); }

  const AddedToken* by_id(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  // What decoding writes for `token`: its content, normalized where the token is.
  std::string_view decoded(const AddedToken& token) const {
    return decoded_[static_cast<size_t>(&token - tokens_.data())];
  }
  // Whether `piece` is the content of a special token (some vocabularies hold such a piece under a second id).
  bool is_special(std::string_view piece) const { return specials_.contains(std::string(piece)); }
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  // The tokens of one pass.
  struct Pass {
    Trie trie;
    std::array<bool, 256> starts{};  // bytes that a token starts with
    bool empty = true;
    void add(std::string_view content, int32_t index);
  };
  std::vector<Cut> cut(std::string_view text, const Pass& pass) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::string> decoded_;
  std::unordered_set<std::string> specials_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  Pass raw_, normalized_;
};

}  // namespace berth::text
