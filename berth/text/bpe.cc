#include "berth/text/bpe.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"

namespace berth::text {
namespace {

constexpr size_t kScanLimit = 24;  // symbols up to which the plain scan wins (measured: equal near 32)

// A pair that may be merged; the heap's top is the lowest rank, then the leftmost.
struct Candidate {
  uint32_t rank = 0;
  int32_t position = 0;
  int32_t id = 0;
  bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : position > o.position; }
};

}  // namespace

Result<std::unique_ptr<Model>> Bpe::create(Vocabulary vocabulary, const MergeIds& merges, BpeOptions options) {
  if (merges.size() > kMaxMerges)
    return Error(ErrorCode::kUnsupported, "expected at most 4194304 merges, found " + std::to_string(merges.size()));
  auto bpe = std::unique_ptr<Bpe>(new Bpe(std::move(vocabulary), std::move(options)));
  const Vocabulary& pieces = bpe->vocabulary_;
  if (bpe->options_.unknown_token) bpe->unknown_ = pieces.find(*bpe->options_.unknown_token);
  for (size_t b = 0; b < 256; ++b) bpe->bytes_[b] = pieces.find(piece_of_byte(static_cast<uint8_t>(b))).value_or(-1);
  pieces.for_each([&](std::string_view piece, int32_t id) {
    if (piece.empty() || piece.size() != utf8_length(piece[0])) return;
    size_t at = 0;
    bpe->characters_[decode_utf8(piece, at)] = id;
  });

  // In batches, so that the look-ups of results can ask for memory ahead.
  constexpr size_t kBatch = 64;
  bpe->merges_.reserve(merges.size());
  const size_t prefix = bpe->options_.continuing_subword_prefix.size();
  std::array<std::string, kBatch> joined;
  std::array<std::string_view, kBatch> names;
  std::array<int32_t, kBatch> results;
  for (size_t first = 0; first < merges.size(); first += kBatch) {
    const size_t n = std::min(kBatch, merges.size() - first);
    for (size_t i = 0; i < n; ++i) {
      const Rule& rule = merges[first + i];
      joined[i].clear();
      if (rule.result < 0) {
        const std::string_view right = pieces.piece(rule.right).value_or("");
        joined[i] = pieces.piece(rule.left).value_or("");
        if (right.size() < prefix)
          return Error(ErrorCode::kCorruptData, "while reading merge " + std::to_string(first + i) + ": expected " +
                                                    quoted(right, 40) + " to start with the continuing prefix");
        joined[i] += right.substr(prefix);
      }
      names[i] = joined[i];
    }
    if (merges[first].result < 0) pieces.find_all(std::span(names).first(n), std::span(results).first(n));
    for (size_t i = 0; i < n; ++i) {
      const Rule& rule = merges[first + i];
      const int32_t id = rule.result < 0 ? results[i] : rule.result;
      if (id < 0)
        return Error(ErrorCode::kCorruptData, "while reading merge " + std::to_string(first + i) + ": expected " +
                                                  quoted(joined[i], 60) +
                                                  " to be a piece, found it is not in the vocabulary");
      bpe->merges_[pair_key(rule.left, rule.right)] = {static_cast<uint32_t>(first + i), id};
    }
  }
  return std::unique_ptr<Model>(std::move(bpe));
}

std::optional<int32_t> Bpe::character_id(std::string_view word, size_t begin, size_t end) const {
  const bool prefixed = begin > 0 && !options_.continuing_subword_prefix.empty();
  const bool suffixed = end == word.size() && !options_.end_of_word_suffix.empty();
  if (prefixed || suffixed) {
    std::string s;
    if (prefixed) s = options_.continuing_subword_prefix;
    s += word.substr(begin, end - begin);
    if (suffixed) s += options_.end_of_word_suffix;
    return vocabulary_.find(s);
  }
  const int32_t* id = characters_.find(decode_utf8(word, begin));
  return id ? std::optional(*id) : std::nullopt;
}

Status Bpe::start_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool pending_unknown = false;
  for (size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    decode_utf8(word, end);
    if (const auto id = character_id(word, begin, end)) {
      if (pending_unknown) symbols.push_back(*unknown_);
      pending_unknown = false;
      symbols.push_back(*id);
      continue;
    }
    if (options_.byte_fallback) {
      // The library looks up the bytes of the character with its prefix and suffix, all of them or none; an unknown
      // token that waits stays waiting.
      std::string s;
      if (begin > 0) s = options_.continuing_subword_prefix;
      s += word.substr(begin, end - begin);
      if (end == word.size()) s += options_.end_of_word_suffix;
      const bool all = std::all_of(s.begin(), s.end(), [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
      if (all) {
        for (const char c : s) symbols.push_back(bytes_[static_cast<uint8_t>(c)]);
        continue;
      }
    }
    if (!options_.unknown_token) continue;  // dropped, as the library does
    if (!unknown_)
      return Error(ErrorCode::kCorruptData, "while encoding " + quoted(word, 40) + ": expected the unknown token " +
                                                quoted(*options_.unknown_token, 40) +
                                                " in the vocabulary, found it is not there");
    if (pending_unknown && !options_.fuse_unknown) symbols.push_back(*unknown_);
    pending_unknown = true;
  }
  if (pending_unknown) symbols.push_back(*unknown_);
  return {};
}

Status Bpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(word)) {
      ids.push_back(*id);
      return {};
    }
  }
  if (word.size() > INT32_MAX) return Error(ErrorCode::kInvalidArgument, "while encoding: expected a word below 2 GiB");
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  TRY_STATUS(start_symbols(word, symbols));
  if (symbols.size() <= kScanLimit)
    merge_by_scan(symbols);
  else
    merge_by_heap(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (symbols.capacity() > (1 << 16)) std::vector<int32_t>().swap(symbols);
  return {};
}

void Bpe::merge_by_scan(std::vector<int32_t>& symbols) const {
  constexpr uint32_t kNone = UINT32_MAX;
  size_t n = symbols.size();
  if (n < 2) return;
  std::array<Merge, kScanLimit> pair;  // pair[i]: the merge of symbols i and i + 1
  const auto look_up = [&](size_t i) {
    const Merge* m = merge_of(symbols[i], symbols[i + 1]);
    pair[i] = m ? *m : Merge{kNone, 0};
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pair[i].rank < pair[best].rank) best = i;
    if (pair[best].rank == kNone) break;
    symbols[best] = pair[best].id;
    std::copy(symbols.begin() + static_cast<ptrdiff_t>(best) + 2, symbols.begin() + static_cast<ptrdiff_t>(n),
              symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(pair.begin() + best + 1, pair.begin() + n - 1, pair.begin() + best);
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols.resize(n);
}

void Bpe::merge_by_heap(std::vector<int32_t>& symbols) const {
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  std::vector<Candidate> heap;
  heap.reserve(symbols.size());
  const auto propose = [&](int32_t left, int32_t right) -> const Merge* {
    return merge_of(list[static_cast<size_t>(left)].id, list[static_cast<size_t>(right)].id);
  };
  for (int32_t i = 0; i < n; ++i)
    list[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1, true};
  for (int32_t i = 0; i + 1 < n; ++i)
    if (const Merge* m = propose(i, i + 1)) heap.push_back({m->rank, i, m->id});
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](int32_t left, int32_t right) {
    if (const Merge* m = propose(left, right)) {
      heap.push_back({m->rank, left, m->id});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = list[static_cast<size_t>(top.position)];
    if (!left.live || left.next < 0) continue;
    Symbol& right = list[static_cast<size_t>(left.next)];
    const Merge* now = merge_of(left.id, right.id);
    if (!now || now->id != top.id) continue;  // the pair is no longer what was proposed
    left.id = top.id;
    right.live = false;
    left.next = right.next;
    if (right.next >= 0) list[static_cast<size_t>(right.next)].previous = top.position;
    if (left.previous >= 0) push(left.previous, top.position);
    if (left.next >= 0) push(top.position, left.next);
  }
  symbols.clear();
  for (int32_t i = 0; i >= 0 && i < n; i = list[static_cast<size_t>(i)].next)
    symbols.push_back(list[static_cast<size_t>(i)].id);
}

}  // namespace berth::text
