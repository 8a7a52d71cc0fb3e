// text/bpe.h — byte-pair encoding as the `tokenizers` library does it.
//
// A word starts as its characters; of all neighbouring pairs that have a merge, the one of lowest rank is joined, the
// leftmost first, until none is left. Gemma hands over whole texts as one word, so the work is n log n: a heap of
// candidate pairs over a linked list of symbols. (Short words take the plain scan, which is quicker there.)
//
// Characters not in the vocabulary become bytes "<0xHH>" (byte_fallback), then the unknown token, then nothing.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/text/flat_map.h"
#include "berth/text/model.h"

namespace berth::text {

inline constexpr size_t kMaxMerges = size_t{1} << 22;  // eight times what the largest published tokenizer has

struct BpeOptions {
  std::optional<std::string> unknown_token;
  std::string continuing_subword_prefix;  // in front of every character but a word's first
  std::string end_of_word_suffix;         // behind a word's last character
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a piece is taken at once
};

class Bpe final : public Model {
 public:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };
  // Two pieces and, where the maker knows it, the piece they make (else -1, for all: looked up). Rank = position in the
  // list.
  struct Rule {
    int32_t left = 0, right = 0, result = -1;
    auto operator<=>(const Rule&) const = default;
  };
  using MergeIds = std::vector<Rule>;

  // Errors: kCorruptData where a merge's result is no piece.
  static Result<std::unique_ptr<Model>> create(Vocabulary vocabulary, const MergeIds& merges, BpeOptions options);

  Status encode_word(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  struct Symbol {
    int32_t id = 0;
    int32_t previous = -1, next = -1;  // positions; -1: none
    bool live = true;
  };
  Bpe(Vocabulary vocabulary, BpeOptions options) : Model(std::move(vocabulary)), options_(std::move(options)) {}
  std::optional<int32_t> character_id(std::string_view word, size_t begin, size_t end) const;
  Status start_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  const Merge* merge_of(int32_t left, int32_t right) const { return merges_.find(pair_key(left, right)); }
  void merge_by_scan(std::vector<int32_t>& symbols) const;
  void merge_by_heap(std::vector<int32_t>& symbols) const;

  BpeOptions options_;
  std::optional<int32_t> unknown_;
  FlatMap<Merge> merges_;
  FlatMap<int32_t> characters_;       // code point -> id
  std::array<int32_t, 256> bytes_{};  // byte -> id of "<0xHH>", -1: none
};

}  // namespace berth::text
