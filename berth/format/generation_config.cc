// format/generation_config.cc — see generation_config.h.
#include "berth/format/generation_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/format/hf_config.h"

namespace berth::format {
namespace {

constexpr IntRange kTokenId{-1, (int64_t{1} << 31) - 1};  // -1 is written for "none"
constexpr IntRange kLength{0, int64_t{1} << 62};

// Keys that change what is generated and that no option of Berth honours.
constexpr const char* kNotHonoured[] = {"guidance_scale",      "sequence_bias", "top_h",
                                        "epsilon_cutoff",      "eta_cutoff",    "forced_bos_token_id",
                                        "forced_eos_token_id", "penalty_alpha"};

std::optional<int64_t> none_below_zero(std::optional<int64_t> id) { return id && *id < 0 ? std::nullopt : id; }

void warn_of_overlap(GenerationConfig& g) {
  if (g.pad_token_id && g.eos_token_id.size() > 1 &&
      std::find(g.eos_token_id.begin(), g.eos_token_id.end(), *g.pad_token_id) != g.eos_token_id.end())
    g.warnings.push_back(fmt::format("pad_token_id {} is also one of the end tokens", *g.pad_token_id));
}

Status read_ids(const ConfigView& view, GenerationConfig& g) {
  TRY(auto ends, view.find_int_or_ints("eos_token_id", kTokenId));
  if (ends)
    for (const int64_t id : *ends)
      if (id >= 0 && std::find(g.eos_token_id.begin(), g.eos_token_id.end(), id) == g.eos_token_id.end())
        g.eos_token_id.push_back(id);
  TRY(const auto bos, view.find_int("bos_token_id", kTokenId));
  TRY(const auto pad, view.find_int("pad_token_id", kTokenId));
  g.bos_token_id = none_below_zero(bos);
  g.pad_token_id = none_below_zero(pad);
  TRY(auto suppress, view.find_ints("suppress_tokens", kTokenId));
  TRY(auto begin_suppress, view.find_ints("begin_suppress_tokens", kTokenId));
  if (suppress) g.suppress_tokens = std::move(*suppress);
  if (begin_suppress) g.begin_suppress_tokens = std::move(*begin_suppress);
  return {};
}

Status read_bad_words(const ConfigView& view, GenerationConfig& g) {
  const JsonView words = view.find("bad_words_ids");
  if (!words.valid()) return {};
  const char* expected = "a list of lists of token ids";
  if (!words.is_array()) return view.wrong("bad_words_ids", expected);
  for (JsonView::Cursor c(words); c.next();) {
    if (!c.value().is_array()) return view.wrong("bad_words_ids", expected);
    std::vector<int64_t> word;
    for (JsonView::Cursor w(c.value()); w.next();) {
      const auto id = w.value().as_int64();
      if (!id || !kTokenId.contains(*id)) return view.wrong("bad_words_ids", expected);
      word.push_back(*id);
    }
    g.bad_words_ids.push_back(std::move(word));
  }
  return {};
}

Status read_stop_strings(const ConfigView& view, GenerationConfig& g) {
  const JsonView stop = view.find("stop_strings");
  if (!stop.valid()) return {};
  if (const auto one = stop.as_string()) {
    g.stop_strings.emplace_back(*one);
  } else {
    if (!stop.is_array()) return view.wrong("stop_strings", "a text or a list of texts");
    TRY(auto texts, view.find_strings("stop_strings"));
    g.stop_strings = std::move(*texts);
  }
  for (const std::string& s : g.stop_strings)
    if (s.empty()) return view.wrong("stop_strings", "texts that are not empty");
  return {};
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json, std::string file_name) {
  auto document = JsonDocument::parse(json, {.max_bytes = 16u << 20});
  if (!document) return document.error().with_context("reading " + quoted(file_name, 400));
  const ConfigView view(document->root(), std::move(file_name), "");
  if (!view.json().is_object())
    return view.broken(fmt::format("a JSON object was expected, {} was found", json_type_name(view.json().type())));
  GenerationConfig g;
  TRY(g.do_sample, view.find_bool("do_sample"));
  TRY(g.temperature, view.find_double("temperature", {0}));
  TRY(g.top_p, view.find_double("top_p", {0, 1}));
  TRY(g.min_p, view.find_double("min_p", {0, 1}));
  TRY(g.typical_p, view.find_double("typical_p", {0, 1}));
  TRY(g.repetition_penalty, view.find_double("repetition_penalty", kPositive));
  TRY(g.top_k, view.find_int("top_k", kCountOrZero));
  TRY(g.max_length, view.find_int("max_length", kLength));
  TRY(g.max_new_tokens, view.find_int("max_new_tokens", kLength));
  TRY(g.min_length, view.find_int("min_length", kLength));
  TRY(g.min_new_tokens, view.find_int("min_new_tokens", kLength));
  TRY(g.no_repeat_ngram_size, view.find_int("no_repeat_ngram_size", kCountOrZero));
  TRY_STATUS(read_ids(view, g));
  TRY_STATUS(read_bad_words(view, g));
  TRY_STATUS(read_stop_strings(view, g));
  TRY(const auto beams, view.find_int("num_beams", kCount));
  if (beams.value_or(1) > 1)
    g.warnings.push_back(fmt::format("num_beams {} is not honoured: one sequence is decoded", *beams));
  for (const char* key : kNotHonoured)
    if (const JsonView v = view.find(key); v.valid() && !(v.as_double() == 0.0) && !(v.as_double() == 1.0))
      g.warnings.push_back(fmt::format("{} is not honoured", key));
  warn_of_overlap(g);
  return g;
}

GenerationConfig generation_config_from(const HfConfig& config) {
  GenerationConfig g;
  const CommonConfig& c = config.common();
  g.eos_token_id = c.eos_token_id;
  if (!c.bos_token_id.empty()) g.bos_token_id = c.bos_token_id.front();
  if (!c.pad_token_id.empty()) g.pad_token_id = c.pad_token_id.front();
  warn_of_overlap(g);
  return g;
}

Result<GenerationConfig> generation_config_from(const GgufMetadata& m) {
  GenerationConfig g;
  const auto id = [&](const char* name) -> Result<std::optional<int64_t>> {
    TRY(const auto value, m.find_int(fmt::format("tokenizer.ggml.{}_token_id", name)));
    return value && (*value < 0 || *value >= 0xFFFFFFFFll) ? std::nullopt : value;
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    TRY(const auto end, id(name));
    if (end && std::find(g.eos_token_id.begin(), g.eos_token_id.end(), *end) == g.eos_token_id.end())
      g.eos_token_id.push_back(*end);
  }
  TRY(g.bos_token_id, id("bos"));
  TRY(g.pad_token_id, id("padding"));
  TRY(auto suppress, m.find_ints("tokenizer.ggml.suppress_tokens"));
  if (suppress) g.suppress_tokens = std::move(*suppress);
  warn_of_overlap(g);
  return g;
}

}  // namespace berth::format
