#include "berth/text/unigram.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"

namespace berth::text {
namespace {

constexpr double kUnknownPenalty = 10.0;

struct Piece {
  size_t begin = 0, end = 0;
};

Error no_unknown_token(std::string_view word) {
  return {ErrorCode::kCorruptData, "while encoding " + quoted(word, 40) +
                                       ": expected an unknown token (unk_id) for a character outside the vocabulary, "
                                       "found none"};
}

}  // namespace

Result<std::unique_ptr<Model>> Unigram::create(Vocabulary vocabulary, std::vector<double> scores,
                                               std::optional<int32_t> unknown, bool byte_fallback) {
  const auto failed = [](const std::string& why) {
    return Error(ErrorCode::kCorruptData, "while reading the Unigram vocabulary: " + why);
  };
  if (scores.empty()) return failed("expected at least one piece, found none");
  if (unknown && (*unknown < 0 || static_cast<size_t>(*unknown) >= scores.size()))
    return failed("expected unk_id below " + std::to_string(scores.size()) + ", found " + std::to_string(*unknown));
  auto model = std::unique_ptr<Unigram>(new Unigram(std::move(vocabulary)));
  model->unknown_ = unknown;
  model->byte_fallback_ = byte_fallback;
  model->unknown_score_ = *std::min_element(scores.begin(), scores.end()) - kUnknownPenalty;
  model->scores_ = std::move(scores);
  for (size_t b = 0; b < 256; ++b)
    model->bytes_[b] = model->vocabulary_.find(piece_of_byte(static_cast<uint8_t>(b))).value_or(-1);
  model->vocabulary_.for_each([&](std::string_view piece, int32_t id) { model->trie_.add(piece, id); });
  return std::unique_ptr<Model>(std::move(model));
}

Status Unigram::append_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_.find(piece)) {
    ids.push_back(*id);
    return {};
  }
  if (byte_fallback_ &&
      std::all_of(piece.begin(), piece.end(), [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; })) {
    for (const char c : piece) ids.push_back(bytes_[static_cast<uint8_t>(c)]);
    return {};
  }
  if (!unknown_) return no_unknown_token(piece);
  ids.push_back(*unknown_);
  return {};
}

Status Unigram::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  std::vector<Node> best(word.size() + 1);
  for (size_t start = 0; start < word.size();) {
    const size_t length = std::min(utf8_length(word[start]), word.size() - start);
    const double here = best[start].score;
    const auto offer = [&](size_t end, double score, int32_t id) {
      Node& node = best[end];
      if (node.start < 0 || score > node.score) node = {id, static_cast<int64_t>(start), score};
    };
    bool single = false;  // a piece covers exactly the character at `start`
    uint32_t node = 0;
    for (size_t end = start; end < word.size();) {
      const Trie::Node* below = trie_.step(node, word[end]);
      if (!below) break;
      ++end;
      node = below->number;
      if (below->value < 0) continue;
      offer(end, scores_[static_cast<size_t>(below->value)] + here, below->value);
      single |= end - start == length;
    }
    if (!single) {
      if (!unknown_) return no_unknown_token(word.substr(start, length));
      offer(start + length, unknown_score_ + here, *unknown_);
    }
    start += length;
  }
  // Back from the end; neighbouring unknown stretches are one piece.
  std::vector<Piece> pieces;
  bool fusing = false;
  for (size_t end = word.size(); end > 0;) {
    const Node& node = best[end];
    const auto start = static_cast<size_t>(node.start);
    const bool unknown = unknown_ && node.id == *unknown_;
    if (unknown && fusing)
      pieces.back().begin = start;
    else
      pieces.push_back({start, end});
    fusing = unknown;
    end = start;
  }
  for (size_t i = pieces.size(); i-- > 0;)
    TRY_STATUS(append_piece(word.substr(pieces[i].begin, pieces[i].end - pieces[i].begin), ids));
  return {};
}

}  // namespace berth::text
