// text/model.cc — the model of a tokenizer.json: which kind it is, its vocabulary and its merges.
#include "berth/text/model.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "berth/base/strings.h"
#include "berth/text/bpe.h"
#include "berth/text/json_fields.h"
#include "berth/text/unigram.h"
#include "berth/text/word_models.h"

namespace berth::text {
namespace {

// A longer one would make WordPiece's bound on a word's work meaningless; BERT's is 100.
constexpr int64_t kMaxWordCharacters = 1 << 20;

Result<Vocabulary> vocabulary_of(const JsonView& json) {
  const JsonView vocab = json["vocab"];
  if (!vocab.is_object()) return field_error("vocab", "an object of pieces and ids", vocab);
  Vocabulary vocabulary;
  vocabulary.reserve(vocab.size(), 0);
  Status status;
  vocab.for_each_member([&](std::string_view piece, const JsonView& id) {
    const auto n = id.is_integer() ? id.as_int64() : std::nullopt;
    status = n ? vocabulary.add(piece, *n) : Status(field_error("vocab", "an integer id for " + quoted(piece, 40), id));
    return status.has_value();
  });
  if (!status) return status.error();
  return vocabulary;
}

// The two sides of one entry of "merges": ["a", "b"] or "a b".
Result<std::pair<std::string_view, std::string_view>> merge_sides(const JsonView& entry, size_t rank) {
  const auto failed = [&](const JsonView& found) {
    return Error(ErrorCode::kCorruptData,
                 "while reading merge " + std::to_string(rank) +
                     ": expected two pieces, \"a b\" or [\"a\", \"b\"], in one form throughout, found " +
                     quoted(found.text(), 60));
  };
  if (const auto text = entry.as_string()) {
    const size_t space = text->find(' ');
    if (space == std::string_view::npos || text->find(' ', space + 1) != std::string_view::npos) return failed(entry);
    return std::pair(text->substr(0, space), text->substr(space + 1));
  }
  if (!entry.is_array() || entry.size() != 2) return failed(entry);
  std::optional<std::string_view> sides[2];
  size_t n = 0;
  for (JsonView::Cursor side(entry); side.next();) sides[n++] = side.value().as_string();
  if (!sides[0] || !sides[1]) return failed(entry);
  return std::pair(*sides[0], *sides[1]);
}

Result<Bpe::MergeIds> merges_of(const JsonView& json, const Vocabulary& vocabulary) {
  TRY(const JsonView merges, array_field(json, "merges"));
  if (merges.size() > kMaxMerges)
    return Error(ErrorCode::kUnsupported,
                 "at key \"merges\": expected at most 4194304, found " + std::to_string(merges.size()));
  std::vector<std::string_view> sides;  // left, right, left, right...
  sides.reserve(merges.size() * 2);
  std::optional<bool> as_text;
  Status status;
  merges.for_each_element([&](const JsonView& entry) {
    const size_t rank = sides.size() / 2;
    if (!as_text) as_text = entry.is_string();
    if (*as_text != entry.is_string()) {
      status = Error(ErrorCode::kCorruptData, "while reading merge " + std::to_string(rank) +
                                                  ": expected one form throughout, found strings and arrays");
      return false;
    }
    const auto both = merge_sides(entry, rank);
    if (!both) {
      status = both.error();
      return false;
    }
    sides.push_back(both->first);
    sides.push_back(both->second);
    return true;
  });
  TRY_STATUS(status);
  std::vector<int32_t> found(sides.size());
  vocabulary.find_all(sides, found);
  Bpe::MergeIds ids;
  ids.reserve(sides.size() / 2);
  for (size_t i = 0; i < sides.size(); i += 2) {
    if (found[i] < 0 || found[i + 1] < 0)
      return Error(ErrorCode::kCorruptData, "while reading merge " + std::to_string(i / 2) + ": expected " +
                                                quoted(sides[found[i] < 0 ? i : i + 1], 60) +
                                                " to be a piece, found it is not in the vocabulary");
    ids.push_back({found[i], found[i + 1], -1});
  }
  return ids;
}

Result<std::unique_ptr<Model>> make_bpe(const JsonView& json) {
  BpeOptions options;
  const JsonView dropout = json["dropout"];
  if (dropout.valid() && !dropout.is_null() && (!dropout.is_number() || *dropout.as_double() != 0.0))
    return Error(ErrorCode::kUnsupported, "at key \"dropout\": expected null or 0, found " +
                                              quoted(dropout.text(), 40) + "; random merges are not supported");
  TRY(options.unknown_token, optional_string_field(json, "unk_token"));
  TRY(options.continuing_subword_prefix, string_field_or(json, "continuing_subword_prefix", ""));
  TRY(options.end_of_word_suffix, string_field_or(json, "end_of_word_suffix", ""));
  TRY(options.fuse_unknown, bool_field_or(json, "fuse_unk", false));
  TRY(options.byte_fallback, bool_field_or(json, "byte_fallback", false));
  TRY(options.ignore_merges, bool_field_or(json, "ignore_merges", false));
  TRY(Vocabulary vocabulary, vocabulary_of(json));
  TRY(const Bpe::MergeIds merges, merges_of(json, vocabulary));
  return Bpe::create(std::move(vocabulary), merges, std::move(options));
}

// A score as the library reads it: the digits as one integer, divided by a power of ten, which is now and then one unit
// in the last place off the nearest double. Where two segmentations tie but for that unit, it decides between them.
double score_as_read(double nearest) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, std::abs(nearest), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false;
  const char* at = text;
  for (; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    exponent -= fraction;
  }
  if (at == end) return nearest;
  int stated = 0;
  std::from_chars(at + (at[1] == '+' ? 2 : 1), end, stated);
  exponent += stated;
  if (exponent < -300 || exponent >= 0) return nearest;
  double power = 1;
  const std::string one = "1e" + std::to_string(-exponent);
  std::from_chars(one.data(), one.data() + one.size(), power);
  return std::copysign(static_cast<double>(digits) / power, nearest);
}

Result<std::unique_ptr<Model>> make_unigram(const JsonView& json) {
  TRY(const JsonView vocab, array_field(json, "vocab"));
  Vocabulary vocabulary;
  vocabulary.reserve(vocab.size(), 0);
  std::vector<double> scores;
  scores.reserve(vocab.size());
  Status status;
  vocab.for_each_element([&](const JsonView& entry) {
    std::vector<JsonView> pair;
    if (entry.is_array() && entry.size() == 2) pair = entry.elements();
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
      status =
          field_error("vocab", "pairs [piece, score]", entry).with_context("at piece " + std::to_string(scores.size()));
      return false;
    }
    status = vocabulary.add_or_replace(*pair[0].as_string(), static_cast<int64_t>(scores.size()));
    scores.push_back(score_as_read(*pair[1].as_double()));
    return status.has_value();
  });
  if (!status) return status.error();
  std::optional<int32_t> unknown;
  const JsonView unk = json["unk_id"];
  if (unk.valid() && !unk.is_null()) {
    TRY(const int64_t id, integer_field(json, "unk_id"));
    if (id < 0 || id > kMaxTokenId) return field_error("unk_id", "an id of the vocabulary", unk);
    unknown = static_cast<int32_t>(id);
  }
  TRY(const bool byte_fallback, bool_field_or(json, "byte_fallback", false));
  return Unigram::create(std::move(vocabulary), std::move(scores), unknown, byte_fallback);
}

Result<std::unique_ptr<Model>> make_word_piece(const JsonView& json) {
  TRY(Vocabulary vocabulary, vocabulary_of(json));
  TRY(const auto unknown, string_field_or(json, "unk_token", "[UNK]"));
  TRY(const auto prefix, string_field_or(json, "continuing_subword_prefix", "##"));
  int64_t characters = 100;
  if (json.contains("max_input_chars_per_word")) {
    TRY(characters, integer_field(json, "max_input_chars_per_word"));
  }
  if (characters < 0 || characters > kMaxWordCharacters)
    return field_error("max_input_chars_per_word", "a number from 0 to 1048576", json["max_input_chars_per_word"]);
  return std::unique_ptr<Model>(std::make_unique<WordPiece>(std::move(vocabulary), std::string(unknown),
                                                            std::string(prefix), static_cast<size_t>(characters)));
}

Result<std::unique_ptr<Model>> make_word_level(const JsonView& json) {
  TRY(Vocabulary vocabulary, vocabulary_of(json));
  TRY(const auto unknown, string_field_or(json, "unk_token", "<unk>"));
  return std::unique_ptr<Model>(std::make_unique<WordLevel>(std::move(vocabulary), std::string(unknown)));
}

// The kind of a model that does not say it, as old files do not.
std::string_view guessed_type(const JsonView& json) {
  if (json["vocab"].is_array()) return "Unigram";
  if (json.contains("merges")) return "BPE";
  return json.contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const JsonView& json) {
  if (!json.is_object()) return field_error("model", "an object", json);
  std::string_view type = guessed_type(json);
  if (json.contains("type")) {
    TRY(type, string_field(json, "type"));
  }
  auto made =
      type == "BPE"         ? make_bpe(json)
      : type == "Unigram"   ? make_unigram(json)
      : type == "WordPiece" ? make_word_piece(json)
      : type == "WordLevel"
          ? make_word_level(json)
          : Error(ErrorCode::kUnsupported, "expected type BPE, Unigram, WordPiece or WordLevel, found " + quoted(type));
  if (!made) return made.error().with_context("in \"model\"");
  return made;
}

std::optional<uint8_t> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const int low = digit(piece[4]);
  const int high = piece[3] == '+' ? 0 : digit(piece[3]);  // the library's number parser takes a sign
  if (low < 0 || high < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

std::string piece_of_byte(uint8_t byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

}  // namespace berth::text
