// text/tokenizer_gguf.cc — a tokenizer from a GGUF file's tokenizer.ggml.* metadata.
//
// The metadata says less than tokenizer.json; what is missing follows the published tokenizers, not llama.cpp:
// - "gpt2" (byte-level BPE): `pre` names the expression; qwen2 normalizes to NFC, smollm cuts digits one by one.
// - "llama" (SentencePiece): no merges but scores; the merges are every split of a piece into two known pieces, in
//   order of falling score, then of the left and the right id. Without add_space_prefix nothing is put in front
//   (Gemma).
// Token types: 2 unknown and 3 control are special added tokens, 4 user defined are added tokens that are not special,
// 5 unused are left out of byte-level vocabularies, 6 are the bytes that unknown characters fall back to.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/bpe.h"
#include "berth/text/tokenizer_parts.h"

namespace berth::text {
namespace {

enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Splitting a long piece at every character costs its length squared; real ones stay below 100 bytes.
constexpr size_t kMaxPieceBytes = 512;

#define BERTH_SPLIT(regex) R"({"type":"Split","pattern":{"Regex":")" regex R"("},"behavior":"Isolated","invert":false})"
#define BERTH_BYTES R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})"
#define BERTH_GPT2 R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})"
#define BERTH_SEQUENCE(items) R"({"type":"Sequence","pretokenizers":[)" items "]}"
#define BERTH_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BERTH_TAIL R"(|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"
#define BERTH_UPPER R"([\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])"
#define BERTH_LOWER R"([\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])"
#define BERTH_CASED(suffix)                                                                                   \
  R"([^\\r\\n\\p{L}\\p{N}]?)" BERTH_UPPER "*" BERTH_LOWER "+" suffix R"(|[^\\r\\n\\p{L}\\p{N}]?)" BERTH_UPPER \
  "+" BERTH_LOWER "*" suffix

constexpr std::string_view kGpt2 = BERTH_GPT2;
constexpr std::string_view kDigitsGpt2 = BERTH_SEQUENCE(R"({"type":"Digits","individual_digits":true},)" BERTH_GPT2);
constexpr std::string_view kLlama3 = BERTH_SEQUENCE(BERTH_SPLIT(
    BERTH_CONTRACTIONS
    R"(|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kQwen2 = BERTH_SEQUENCE(
    BERTH_SPLIT(BERTH_CONTRACTIONS
                R"(|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kQwen35 = BERTH_SEQUENCE(BERTH_SPLIT(
    BERTH_CONTRACTIONS
    R"(|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kO200k = BERTH_SEQUENCE(BERTH_SPLIT(
    BERTH_CASED(BERTH_CONTRACTIONS "?") R"(|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kTekken = BERTH_SEQUENCE(
    BERTH_SPLIT(BERTH_CASED("") R"(|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kDeepSeekV3 = BERTH_SEQUENCE(
    BERTH_SPLIT(R"(\\p{N}{1,3})") "," BERTH_SPLIT(R"([\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+)") "," BERTH_SPLIT(
        R"([!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+)"
        R"(| ?[\\p{P}\\p{S}]+[\\r\\n]*)" BERTH_TAIL) "," BERTH_BYTES);
constexpr std::string_view kFalcon =
    BERTH_SEQUENCE(R"({"type":"Punctuation","behavior":"Contiguous"},)" BERTH_GPT2
                   R"(,{"type":"Digits","individual_digits":false},)" BERTH_SPLIT("[0-9][0-9][0-9]"));
constexpr std::string_view kBloom = BERTH_SEQUENCE(
    BERTH_SPLIT(R"( ?[^(\\s|[.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c])]+)") "," BERTH_BYTES);

struct PreTokenizerRow {
  std::string_view name;
  std::string_view json;
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};
constexpr std::array<PreTokenizerRow, 23> kPreTokenizers{{
    {"gpt-2", kGpt2},
    {"gpt2", kGpt2},
    {"phi-2", kGpt2},
    {"roberta-bpe", kGpt2},
    {"smollm", kDigitsGpt2},
    {"starcoder", kDigitsGpt2},
    {"refact", kDigitsGpt2},
    {"codeshell", kDigitsGpt2},
    {"command-r", kDigitsGpt2, true},
    {"qwen2", kQwen2, true},
    {"deepseek-r1-qwen", kQwen2, true},
    {"qwen35", kQwen35, true},
    {"llama-bpe", kLlama3, false, true, true},
    {"llama3", kLlama3, false, true, true},
    {"llama-v3", kLlama3, false, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"deepseek-v3", kDeepSeekV3},
    {"gpt-4o", kO200k, false, true},
    {"llama4", kO200k, false, true},
    {"tekken", kTekken, false, true, true},
    {"falcon", kFalcon},
    {"bloom", kBloom},
}};

constexpr std::string_view kPrependSpace = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
                                           R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})";
constexpr std::string_view kReplaceSpace = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
constexpr std::string_view kSplitSpaces =
    R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false})";
constexpr std::string_view kPieceDecoder =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"}]})";
constexpr std::string_view kStrippingPieceDecoder =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

template <typename T>
Result<std::unique_ptr<T>> from_text(Result<std::unique_ptr<T>> (*make)(const JsonView&), std::string_view json) {
  TRY(const JsonDocument document, JsonDocument::parse(json));
  return make(document.root());
}

class GgufReader {
 public:
  explicit GgufReader(const GgufTokenizer& gguf) : gguf_(gguf) {}

  Result<std::unique_ptr<TokenizerParts>> read() {
    TRY_STATUS(check_arrays());
    parts_ = std::make_unique<TokenizerParts>();
    if (gguf_.model == "gpt2") {
      TRY_STATUS(read_byte_level());
    } else if (gguf_.model == "llama" || gguf_.model == "gemma4") {
      TRY_STATUS(read_sentence_piece());
    } else {
      return Error(ErrorCode::kUnsupported,
                   "tokenizer.ggml.model " + quoted(gguf_.model) + " is not supported (gpt2, llama and gemma4 are)",
                   {"Put the model's tokenizer.json beside the file."});
    }
    TRY_STATUS(read_added_tokens());
    TRY_STATUS(read_special_ids());
    return std::move(parts_);
  }

 private:
  int32_t type_of(size_t id) const { return gguf_.token_types.empty() ? kNormal : gguf_.token_types[id]; }

  Status check_arrays() const {
    const auto failed = [](const std::string& key, const std::string& why) {
      return Error(ErrorCode::kCorruptData, "tokenizer.ggml." + key + ": " + why);
    };
    const size_t n = gguf_.tokens.size();
    if (n == 0) return failed("tokens", "expected at least one, found none");
    if (gguf_.merges.size() > kMaxMerges)
      return failed("merges", "expected at most 4194304, found " + std::to_string(gguf_.merges.size()));
    if (n > static_cast<size_t>(kMaxTokenId)) return failed("tokens", "expected at most 16777215");
    if (!gguf_.token_types.empty() && gguf_.token_types.size() != n)
      return failed("token_type", "expected " + std::to_string(n) + " entries, one for each token, found " +
                                      std::to_string(gguf_.token_types.size()));
    if (!gguf_.scores.empty() && gguf_.scores.size() != n)
      return failed("scores", "expected " + std::to_string(n) + " entries, one for each token, found " +
                                  std::to_string(gguf_.scores.size()));
    for (const float s : gguf_.scores)
      if (!std::isfinite(s)) return failed("scores", "expected finite numbers, found " + std::to_string(s));
    for (size_t i = 0; i < n; ++i) {
      if (!is_valid_utf8(gguf_.tokens[i]))
        return failed("tokens", "expected UTF-8, found broken text in token " + std::to_string(i) + ", " +
                                    quoted(gguf_.tokens[i], 40));
      if (type_of(i) < kNormal || type_of(i) > kByte)
        return failed("token_type",
                      "expected 1 to 6, found " + std::to_string(type_of(i)) + " for token " + std::to_string(i));
    }
    return {};
  }

  // The vocabulary of every token for whose type `wanted` holds.
  template <typename Wanted>
  Result<Vocabulary> vocabulary(Wanted wanted) const {
    size_t bytes = 0;
    for (const std::string_view t : gguf_.tokens) bytes += t.size();
    Vocabulary pieces;
    pieces.reserve(gguf_.tokens.size(), bytes);
    for (size_t i = 0; i < gguf_.tokens.size(); ++i)
      if (wanted(type_of(i))) TRY_STATUS(pieces.add(gguf_.tokens[i], static_cast<int64_t>(i)));
    return pieces;
  }

  Result<Bpe::MergeIds> listed_merges(const Vocabulary& pieces) const {
    Bpe::MergeIds ids;
    ids.reserve(gguf_.merges.size());
    for (size_t rank = 0; rank < gguf_.merges.size(); ++rank) {
      const std::string_view text = gguf_.merges[rank];
      const size_t space = text.find(' ', 1);
      const auto left = space == std::string_view::npos ? std::nullopt : pieces.find(text.substr(0, space));
      const auto right = space == std::string_view::npos ? std::nullopt : pieces.find(text.substr(space + 1));
      if (!left || !right)
        return Error(ErrorCode::kCorruptData, "tokenizer.ggml.merges: entry " + std::to_string(rank) +
                                                  ": expected two known pieces with a space between, found " +
                                                  quoted(text, 60));
      ids.push_back({*left, *right, -1});
    }
    return ids;
  }

  Status read_byte_level() {
    const auto row = std::find_if(kPreTokenizers.begin(), kPreTokenizers.end(),
                                  [&](const PreTokenizerRow& r) { return r.name == gguf_.pre; });
    if (row == kPreTokenizers.end())
      return Error(ErrorCode::kUnsupported, "tokenizer.ggml.pre " + quoted(gguf_.pre) + " is not supported",
                   {"Put the model's tokenizer.json beside the file."});
    TRY(Vocabulary pieces, vocabulary([](int32_t type) { return type != kUnused; }));
    TRY(const Bpe::MergeIds merges, listed_merges(pieces));
    BpeOptions options;
    options.ignore_merges = row->ignore_merges;
    TRY(parts_->model, Bpe::create(std::move(pieces), merges, std::move(options)));
    if (row->nfc) {
      TRY(parts_->normalizer, from_text(make_normalizer, R"({"type":"NFC"})"));
    }
    TRY(parts_->pre_tokenizer, from_text(make_pre_tokenizer, row->json));
    TRY(parts_->decoder, from_text(make_decoder, BERTH_GPT2));
    add_bos_ = gguf_.add_bos.value_or(row->add_bos);
    return {};
  }

  // Every split of every normal piece into two known ones; see the top of this file.
  Result<Bpe::MergeIds> scored_merges(const Vocabulary& pieces) const {
    if (gguf_.scores.empty())
      return Error(ErrorCode::kCorruptData, "tokenizer.ggml.scores: expected one for each token, found none");
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < gguf_.tokens.size(); ++i)
      if (type_of(i) == kNormal) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return gguf_.scores[a] > gguf_.scores[b]; });
    const auto part = [&](std::string_view text) {
      const auto id = pieces.find(text);
      if (!id) return -1;
      const int32_t type = type_of(static_cast<size_t>(*id));
      return type == kNormal || type == kUserDefined ? *id : -1;
    };
    Bpe::MergeIds merges;
    merges.reserve(order.size() * 2);
    for (const uint32_t i : order) {
      const std::string_view piece = gguf_.tokens[i];
      if (piece.size() > kMaxPieceBytes)
        return Error(ErrorCode::kUnsupported, "tokenizer.ggml.tokens: token " + std::to_string(i) +
                                                  ": expected at most 512 bytes, found " +
                                                  std::to_string(piece.size()));
      const size_t first = merges.size();
      for (size_t cut = piece.empty() ? 0 : utf8_length(piece[0]); cut < piece.size(); cut += utf8_length(piece[cut])) {
        const int32_t left = part(piece.substr(0, cut));
        const int32_t right = left < 0 ? -1 : part(piece.substr(cut));
        if (right >= 0) merges.push_back({left, right, static_cast<int32_t>(i)});
        if (merges.size() > kMaxMerges)
          return Error(ErrorCode::kUnsupported, "tokenizer.ggml.tokens: their pieces make over 4194304 merges");
      }
      std::sort(merges.begin() + static_cast<ptrdiff_t>(first), merges.end());
    }
    return merges;
  }

  Status read_sentence_piece() {
    TRY(Vocabulary pieces, vocabulary([](int32_t) { return true; }));
    auto merges = gguf_.merges.empty() ? scored_merges(pieces) : listed_merges(pieces);
    if (!merges) return merges.error();
    BpeOptions options;
    options.fuse_unknown = true;
    options.byte_fallback = true;
    for (size_t i = 0; i < gguf_.tokens.size() && !options.unknown_token; ++i)
      if (type_of(i) == kUnknown) options.unknown_token = std::string(gguf_.tokens[i]);
    TRY(parts_->model, Bpe::create(std::move(pieces), *merges, std::move(options)));
    const bool prefix = gguf_.add_space_prefix.value_or(gguf_.model == "llama");
    TRY(parts_->normalizer, from_text(make_normalizer, prefix ? kPrependSpace : kReplaceSpace));
    TRY(parts_->decoder, from_text(make_decoder, prefix ? kStrippingPieceDecoder : kPieceDecoder));
    // As the published files have it where no prefix is added: nothing is left to split by then.
    if (!prefix) {
      TRY(parts_->pre_tokenizer, from_text(make_pre_tokenizer, kSplitSpaces));
    }
    add_bos_ = gguf_.add_bos.value_or(true);
    return {};
  }

  Status read_added_tokens() {
    std::vector<AddedToken> tokens;
    for (size_t i = 0; i < gguf_.tokens.size(); ++i) {
      const int32_t type = type_of(i);
      if (type != kUnknown && type != kControl && type != kUserDefined) continue;
      AddedToken t;
      t.content = std::string(gguf_.tokens[i]);
      t.id = static_cast<int32_t>(i);
      t.special = type != kUserDefined;
      tokens.push_back(std::move(t));
    }
    TRY(parts_->added, AddedTokens::create(std::move(tokens), parts_->normalizer.get()));
    return {};
  }

  Status special_id(std::string_view key, const std::optional<int64_t>& stated, std::optional<int32_t>& id) const {
    if (!stated) return {};
    if (*stated < 0 || *stated >= static_cast<int64_t>(gguf_.tokens.size()))
      return Error(ErrorCode::kCorruptData, "tokenizer.ggml." + std::string(key) + "_token_id: expected an id below " +
                                                std::to_string(gguf_.tokens.size()) + ", found " +
                                                std::to_string(*stated));
    id = static_cast<int32_t>(*stated);
    return {};
  }

  Status read_special_ids() {
    TokenizerParts& p = *parts_;
    std::optional<int32_t> eot, eom;
    TRY_STATUS(special_id("bos", gguf_.bos_id, p.bos));
    TRY_STATUS(special_id("eos", gguf_.eos_id, p.eos));
    TRY_STATUS(special_id("eot", gguf_.eot_id, eot));
    TRY_STATUS(special_id("eom", gguf_.eom_id, eom));
    TRY_STATUS(special_id("unknown", gguf_.unknown_id, p.unknown));
    TRY_STATUS(special_id("padding", gguf_.padding_id, p.padding));
    for (const auto& id : {eot, eom})
      if (id) p.end_ids.push_back(*id);
    const auto name = [&](std::string_view key, const std::optional<int32_t>& id) {
      if (id) p.special_tokens.emplace_back(key, gguf_.tokens[static_cast<size_t>(*id)]);
    };
    name("bos_token", p.bos);
    name("eos_token", p.eos);
    name("unk_token", p.unknown);
    name("pad_token", p.padding);
    if (add_bos_ && p.bos) p.frame.before.push_back(*p.bos);
    if (gguf_.add_eos.value_or(false) && p.eos) p.frame.after.push_back(*p.eos);
    return {};
  }

  const GgufTokenizer& gguf_;
  std::unique_ptr<TokenizerParts> parts_;
  bool add_bos_ = false;
};

}  // namespace

Result<std::unique_ptr<TokenizerParts>> parts_from_gguf(const GgufTokenizer& gguf) {
  auto parts = GgufReader(gguf).read();
  if (!parts) return parts.error().with_context("in GGUF metadata");
  return parts;
}

}  // namespace berth::text
