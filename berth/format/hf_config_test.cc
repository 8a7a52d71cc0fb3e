// format/hf_config_test.cc — typed keys, the one form of old and new spellings, and what is refused. Names of tests
// hold the ids of the fault classes they cover.
#include "berth/format/hf_config.h"

#include <fmt/format.h>

#include <set>

#include "berth/format/test_files.h"

namespace berth::format {
namespace {

Result<HfConfig> parse(std::string_view json) { return HfConfig::parse(json, "config.json"); }
// A small llama with keys changed or added: later ones of `more` replace nothing, so `more` must name other keys.
std::string llama(std::string_view more, std::string_view without = "") {
  std::string out = "{\"model_type\":\"llama\"";
  for (const char* pair :
       {"\"hidden_size\":64", "\"num_hidden_layers\":2", "\"num_attention_heads\":4", "\"vocab_size\":100"})
    if (without.empty() || std::string_view(pair).find(without) == std::string_view::npos)
      out += std::string(",") + pair;
  return out + (more.empty() ? "" : ",") + std::string(more) + "}";
}
void refused(std::string_view id, std::string_view json, std::vector<std::string_view> words) {
  words.push_back("config.json");
  expect_refused(id, parse(json), words);
}
// One key of the small llama with another value.
void refused_value(std::string_view id, std::string_view key, std::string_view value,
                   std::vector<std::string_view> words) {
  words.push_back(key);
  refused(id, llama(fmt::format("\"{}\":{}", key, value), key), words);
}

TEST(HfConfig, ReadsPlainKeys) {
  const auto c = parse(
      llama("\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"torch_dtype\":\"bfloat16\",\"eos_token_id\":[1,2],"
            "\"architectures\":[\"LlamaForCausalLM\"],\"tie_word_embeddings\":true,\"max_position_embeddings\":4096"));
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->model_type(), "llama");
  EXPECT_EQ(c->architectures(), (std::vector<std::string>{"LlamaForCausalLM"}));
  EXPECT_EQ(c->common().hidden_size, 64);
  EXPECT_EQ(c->common().norm_eps, 1e-5);
  EXPECT_EQ(c->common().dtype, DType::kBF16);
  EXPECT_EQ(c->common().tie_word_embeddings, true);
  EXPECT_EQ(c->common().eos_token_id, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(c->common().rope.all.rope_type, "default");
  EXPECT_EQ(c->text().int_or("absent", 7).value(), 7);
  EXPECT_EQ(c->text().int_or("num_hidden_layers", 7).value(), 2);
  expect_refused("key", c->text().find_int("hidden_act"),
                 {"\"hidden_act\"", "an integer", "a text was found: \"silu\""});
  expect_refused("key", c->text().require_int("absent"), {"\"absent\"", "nothing was found"});
  expect_refused("key", c->text().find_ints("eos_token_id", {2}), {"\"eos_token_id\"", "element 0"});
}

TEST(HfConfig, FindsTheLanguageModelInWrappers) {
  const std::string inner = llama("");
  for (const std::string& outer :
       {R"({"model_type":"vl","text_config":)" + inner + "}", R"({"model_type":"vl","language_config":)" + inner + "}",
        R"({"model_type":"vl","llm_config":)" + inner + "}",
        R"({"model_type":"vl","thinker_config":{"text_config":)" + inner + "}}"}) {
    const auto c = parse(outer);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->model_type(), "vl");
    EXPECT_EQ(c->text_model_type(), "llama");
    EXPECT_EQ(c->common().hidden_size, 64);
  }
  refused("nested", R"({"text_config":{"num_hidden_layers":0}})", {"\"text_config.num_hidden_layers\""});
  refused("nested", R"({"thinker_config":{"text_config":{"vocab_size":-1}}})",
          {"\"thinker_config.text_config.vocab_size\""});
}

TEST(HfConfig, BR080_TheTextPartsDtypeWinsOverTheWrappers) {
  EXPECT_EQ(parse(R"({"dtype":"bfloat16","text_config":{"dtype":"float32"}})")->common().dtype, DType::kF32);
  EXPECT_EQ(parse(R"({"torch_dtype":"float16","text_config":{}})")->common().dtype, DType::kF16);
  EXPECT_EQ(parse(R"({"torch_dtype":"auto"})")->common().dtype, std::nullopt);
  EXPECT_EQ(parse(R"({"torch_dtype":"torch.bfloat16"})")->common().dtype, DType::kBF16);
  refused("dtype", R"({"torch_dtype":"bf17"})", {"\"torch_dtype\"", "bf17"});
}

// What may be stated in one file of a pair and left to a class default in the other.
template <typename T>
void expect_same(const std::optional<T>& a, const std::optional<T>& b, const std::string& what) {
  if (a && b) {
    EXPECT_EQ(*a, *b) << what;
  }
}

void expect_same_rope(const RopeParameters& a, const RopeParameters& b, const std::string& what) {
  EXPECT_EQ(a.rope_type, b.rope_type) << what;
  expect_same(a.rope_theta, b.rope_theta, what + " rope_theta");
  EXPECT_EQ(a.partial_rotary_factor.value_or(1), b.partial_rotary_factor.value_or(1)) << what;
  EXPECT_EQ(a.factor, b.factor) << what;
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor) << what;
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor) << what;
  EXPECT_EQ(a.beta_fast, b.beta_fast) << what;
  EXPECT_EQ(a.beta_slow, b.beta_slow) << what;
  EXPECT_EQ(a.attention_factor, b.attention_factor) << what;
  EXPECT_EQ(a.mscale, b.mscale) << what;
  EXPECT_EQ(a.mscale_all_dim, b.mscale_all_dim) << what;
  EXPECT_EQ(a.truncate, b.truncate) << what;
  EXPECT_EQ(a.original_max_position_embeddings, b.original_max_position_embeddings) << what;
  EXPECT_EQ(a.short_factor, b.short_factor) << what;
  EXPECT_EQ(a.long_factor, b.long_factor) << what;
  EXPECT_EQ(a.mrope_section, b.mrope_section) << what;
}

TEST(HfConfig, AnswersEqualFromOldAndNewFormOfEveryGolden) {
  SKIP_WITHOUT_SHARED(golden, "golden/models");
  const auto names = list_folder(golden);
  ASSERT_TRUE(names);
  size_t pairs = 0, stated_layer_types = 0;
  for (const std::string& name : *names) {
    if (!is_directory(path_join(golden, name))) continue;
    const auto now = HfConfig::open(path_join(golden, name + "/config.json"));
    const auto old = HfConfig::open(path_join(golden, name + "/config.published.json"));
    ASSERT_TRUE(now) << now.error().message;
    ASSERT_TRUE(old) << old.error().message;
    const CommonConfig &a = now->common(), &b = old->common();
    EXPECT_EQ(now->model_type(), old->model_type()) << name;
    EXPECT_EQ(now->text_model_type(), old->text_model_type()) << name;
    EXPECT_EQ(now->architectures(), old->architectures()) << name;
    EXPECT_EQ(a.vocab_size, b.vocab_size) << name;
    EXPECT_EQ(a.hidden_size, b.hidden_size) << name;
    EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers) << name;
    EXPECT_EQ(a.num_attention_heads, b.num_attention_heads) << name;
    EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings) << name;
    EXPECT_EQ(a.intermediate_size_by_layer, b.intermediate_size_by_layer) << name;
    EXPECT_EQ(a.num_experts, b.num_experts) << name;
    EXPECT_EQ(a.num_experts_per_tok, b.num_experts_per_tok) << name;
    EXPECT_EQ(a.norm_eps, b.norm_eps) << name;
    EXPECT_EQ(a.dtype, b.dtype) << name;
    EXPECT_EQ(a.bos_token_id, b.bos_token_id) << name;
    EXPECT_EQ(a.eos_token_id, b.eos_token_id) << name;
    EXPECT_EQ(a.pad_token_id, b.pad_token_id) << name;
    EXPECT_EQ(a.sliding_window.tokens, b.sliding_window.tokens) << name;
    expect_same(a.intermediate_size, b.intermediate_size, name + " intermediate_size");
    expect_same(a.num_key_value_heads, b.num_key_value_heads, name + " num_key_value_heads");
    expect_same(a.head_dim, b.head_dim, name + " head_dim");
    expect_same(a.tie_word_embeddings, b.tie_word_embeddings, name + " tie_word_embeddings");
    // MiniMax-M3's old name of its activation is informational (specs).
    if (name != "minimax_m3") expect_same(a.activation, b.activation, name + " activation");
    // Patterns that only the family knows (Gemma 2, Llama 4, MiniMax-M3, gpt-oss..) are empty in one of the two.
    if (!a.layer_types.empty() && !b.layer_types.empty()) {
      EXPECT_EQ(a.layer_types, b.layer_types) << name;
      ++stated_layer_types;
    }
    // Families whose two ropes only the class knows when the file is old have them by type in the new form only.
    std::set<std::string> types;
    for (const auto& [type, set] : a.rope.by_layer_type) types.insert(type);
    for (const auto& [type, set] : b.rope.by_layer_type) types.insert(type);
    for (const std::string& type : types) expect_same_rope(a.rope.of(type), b.rope.of(type), name + " " + type);
    expect_same_rope(a.rope.all, b.rope.all, name);
    for (size_t layer = 0; layer < static_cast<size_t>(a.num_hidden_layers.value_or(0)); ++layer)
      for (const char* key : {"head_dim", "num_key_value_heads"}) {
        const auto x = now->find_int_for_layer(key, layer), y = old->find_int_for_layer(key, layer);
        ASSERT_TRUE(x && y) << name;
        expect_same(*x, *y, fmt::format("{} layer {} {}", name, layer, key));
      }
    ASSERT_EQ(now->quantization().has_value(), old->quantization().has_value()) << name;
    if (now->quantization()) EXPECT_EQ(now->quantization()->method, old->quantization()->method) << name;
    ++pairs;
  }
  EXPECT_EQ(pairs, 57u);
  EXPECT_GE(stated_layer_types, 15u);
}

TEST(HfConfig, ReadsEveryPublishedConfig) {
  SKIP_WITHOUT_SHARED(folder, "checkpoints");
  const auto names = list_folder(folder);
  ASSERT_TRUE(names);
  size_t read = 0;
  for (const std::string& name : *names) {
    const std::string path = path_join(folder, name + "/config.json");
    if (!path_exists(path)) continue;
    const auto c = HfConfig::open(path);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_FALSE(c->model_type().empty()) << name;
    EXPECT_TRUE(c->common().num_hidden_layers) << name;
    ++read;
  }
  EXPECT_EQ(read, 45u);
}

TEST(HfConfig, MergesRopeKeysOfEveryForm) {
  const auto rope = [](std::string_view more) {
    auto c = parse(llama(more));
    EXPECT_TRUE(c) << c.error().message;
    return c->common().rope;
  };
  EXPECT_EQ(rope("\"rope_theta\":5e5").all.rope_theta, 5e5);
  EXPECT_EQ(rope("\"rope_theta\":1,\"rope_parameters\":{\"rope_theta\":2,\"rope_type\":\"linear\",\"factor\":4}")
                .all.rope_theta,
            2);
  EXPECT_EQ(rope("\"rope_theta\":1,\"rope_parameters\":{\"rope_type\":\"default\"}").all.rope_theta, 1);
  EXPECT_EQ(rope("\"rope_scaling\":{\"type\":\"su\",\"factor\":2}").all.rope_type, "su");
  EXPECT_EQ(rope("\"rope_scaling\":{\"rope_type\":\"yarn\",\"type\":\"linear\"}").all.rope_type, "yarn");
  EXPECT_EQ(rope("\"rotary_pct\":0.25,\"rotary_emb_base\":10000").all.partial_rotary_factor, 0.25);
  EXPECT_EQ(rope("\"rotary_emb_base\":10000").all.rope_theta, 10000);
  EXPECT_EQ(rope("\"rotary_dim\":8").all.partial_rotary_factor, 0.5);
  EXPECT_EQ(rope("\"rotary_dim\":8,\"partial_rotary_factor\":0.25").all.partial_rotary_factor, 0.25);
  EXPECT_EQ(rope("\"rotary_dim\":8,\"head_dim\":32").all.partial_rotary_factor, 0.25);
  // The original context: named inside, at the top, or the context itself.
  EXPECT_EQ(
      rope("\"rope_scaling\":{\"type\":\"yarn\",\"original_max_position_embeddings\":5},\"max_position_embeddings\":9")
          .all.original_max_position_embeddings,
      5);
  EXPECT_EQ(rope("\"rope_scaling\":{\"type\":\"longrope\"},\"original_max_position_embeddings\":5,\"max_position_"
                 "embeddings\":9")
                .all.original_max_position_embeddings,
            5);
  EXPECT_EQ(
      rope("\"rope_scaling\":{\"type\":\"yarn\"},\"max_position_embeddings\":9").all.original_max_position_embeddings,
      9);
  const RopeConfig gemma =
      rope("\"rope_theta\":1e6,\"rope_local_base_freq\":1e4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}");
  EXPECT_EQ(gemma.of("full_attention").rope_theta, 1e6);
  EXPECT_EQ(gemma.of("full_attention").factor, 8);
  EXPECT_EQ(gemma.of("sliding_attention").rope_theta, 1e4);
  EXPECT_EQ(gemma.of("sliding_attention").rope_type, "default");
  const RopeConfig by_type = rope(
      "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\",\"rope_theta\":1e6,"
      "\"partial_rotary_factor\":0.25},\"sliding_attention\":{\"rope_theta\":1e4}}");
  EXPECT_EQ(by_type.of("full_attention").partial_rotary_factor, 0.25);
  EXPECT_EQ(by_type.of("sliding_attention").rope_theta, 1e4);
}

TEST(HfConfig, DerivesLayerTypesFromEveryFormOfPattern) {
  const auto types = [](std::string_view more) {
    auto c = parse("{\"num_hidden_layers\":4," + std::string(more) + "}");
    EXPECT_TRUE(c) << c.error().message;
    std::string letters;
    for (const std::string& t : c->common().layer_types) letters += t[0];
    return letters;
  };
  EXPECT_EQ(types("\"sliding_window\":9,\"sliding_window_pattern\":2"), "sfsf");
  EXPECT_EQ(types("\"_sliding_window_pattern\":4"), "sssf");
  EXPECT_EQ(types("\"sliding_window_pattern\":\"LLG\""), "ssfs");
  EXPECT_EQ(types("\"full_attention_interval\":4"), "lllf");
  EXPECT_EQ(types("\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":3"), "fffs");
  EXPECT_EQ(types("\"sliding_window\":9,\"use_sliding_window\":false,\"max_window_layers\":3"), "ffff");
  EXPECT_EQ(types("\"sliding_window\":null,\"use_sliding_window\":true,\"max_window_layers\":0"), "ffff");
  EXPECT_EQ(types("\"sliding_window\":9"), "");
  refused("layer_types", R"({"num_hidden_layers":3,"layer_types":["full_attention"]})",
          {"layer_types", "each of 3 layers"});
  refused("layer_types", R"({"num_hidden_layers":3,"layer_types":[1,2,3]})", {"layer_types", "element 0"});
}

TEST(HfConfig, TellsAbsentFromNullWindows) {
  EXPECT_EQ(parse(llama(""))->common().sliding_window, (SlidingWindow{false, std::nullopt}));
  EXPECT_EQ(parse(llama("\"sliding_window\":null"))->common().sliding_window, (SlidingWindow{true, std::nullopt}));
  EXPECT_EQ(parse(llama("\"sliding_window\":0"))->common().sliding_window, (SlidingWindow{true, std::nullopt}));
  EXPECT_EQ(parse(llama("\"sliding_window\":9"))->common().sliding_window, (SlidingWindow{true, 9}));
  EXPECT_EQ(parse(llama("\"sliding_window\":9,\"use_sliding_window\":false"))->common().sliding_window,
            (SlidingWindow{true, std::nullopt}));
}

TEST(HfConfig, ReadsOverridesOfSingleLayersInBothForms) {
  const std::string base =
      "\"num_hidden_layers\":2,\"head_dim\":16,\"num_key_value_heads\":2,\"num_attention_heads\":4,"
      "\"layer_types\":[\"sliding_attention\",\"full_attention\"]";
  for (const char* form : {"\"global_head_dim\":32,\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true",
                           "\"per_layer_config\":{\"1\":{\"head_dim\":32,\"num_key_value_heads\":1}}"}) {
    const auto c = parse("{" + base + "," + form + "}");
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->find_int_for_layer("head_dim", 0).value(), 16);
    EXPECT_EQ(c->find_int_for_layer("head_dim", 1).value(), 32);
    EXPECT_EQ(c->find_int_for_layer("num_key_value_heads", 0).value(), 2);
    EXPECT_EQ(c->find_int_for_layer("num_key_value_heads", 1).value(), 1);
  }
  const auto plain = parse("{" + base + ",\"num_global_key_value_heads\":1}");
  EXPECT_EQ(plain->find_int_for_layer("num_key_value_heads", 1).value(), 2);
}

TEST(HfConfig, RefusesSpellingsThatContradictEachOther) {
  refused("alias", R"({"num_hidden_layers":2,"n_layer":3})", {"\"num_hidden_layers\" is 2", "\"n_layer\" is 3"});
  EXPECT_TRUE(parse(R"({"num_experts_per_tok":2,"experts_per_token":2})"));
}

TEST(HfConfig, RefusesWhatIsNoObject) {
  refused("JS-01", "", {"line 1, column 1"});
  refused("JS-01", "[]", {"a JSON object was expected, a list"});
  refused("JS-01", "{\"a\": \n nul}", {"line 2"});
  refused("JS-01", "{\"text_config\":{},}", {"not valid JSON"});
}

TEST(HfConfig, JS14_RefusesDuplicateKeys) {
  refused("JS-14", llama("\"hidden_size\":128"), {"\"hidden_size\" occurs twice"});
  refused("JS-14", R"({"text_config":{"a":1,"\u0061":2}})", {"\"a\" occurs twice"});
}

TEST(HfConfig, JS15_RefusesLayerCountsThatAreNone) {
  for (const char* value : {"0", "-1", "1000000000", "1e9", "2.5", "\"32\"", "[2]", "true", "{}"})
    refused_value("JS-15", "num_hidden_layers", value, {"an integer of 1 to 65536"});
}

TEST(HfConfig, JS16_RefusesHeadsThatDoNotDivide) {
  refused_value("JS-16", "num_attention_heads", "0", {"1 to 65536"});
  refused_value("JS-16", "num_attention_heads", "-4", {"1 to 65536"});
  refused_value("JS-16", "num_key_value_heads", "0", {"1 to 65536"});
  refused_value("JS-16", "num_key_value_heads", "8", {"a divisor of the 4 attention heads"});
  refused_value("JS-16", "num_key_value_heads", "3", {"a divisor of the 4 attention heads"});
  refused_value("JS-16", "head_dim", "0", {"an integer of 1"});
  refused_value("JS-16", "hidden_size", "66", {"66 is no multiple of the 4 attention heads", "head_dim"});
  EXPECT_TRUE(parse(llama("\"hidden_size\":66,\"head_dim\":8", "hidden_size")));
  EXPECT_TRUE(parse(llama("\"head_dim\":null")));
  EXPECT_EQ(parse(llama("\"hidden_size\":40,\"head_dim\":8", "hidden_size"))->common().head_dim, 8);  // BR-173
}

TEST(HfConfig, JS17_RefusesVocabulariesThatAreNone) {
  for (const char* value : {"-1", "0", "2147483648", "\"100\"", "1e5"})
    refused_value("JS-17", "vocab_size", value, {"1 to 2147483647"});
}

TEST(HfConfig, JS18_RefusesRopeAndWindowNumbersWithoutMeaning) {
  for (const char* value : {"0", "-1", "\"1e6\"", "\"NaN\"", "[1]", "true"}) {
    refused_value("JS-18", "rope_theta", value, {"a number above 0"});
    refused_value("JS-18", "rope_local_base_freq", value, {"a number above 0"});
    refused("JS-18", llama(fmt::format("\"rope_parameters\":{{\"full_attention\":{{\"rope_theta\":{}}}}}", value)),
            {"\"rope_parameters.full_attention.rope_theta\""});
    refused("JS-18", llama(fmt::format("\"rope_scaling\":{{\"factor\":{}}}", value)),
            {"\"rope_scaling.factor\"", "a number above 0"});
    refused("JS-18", llama(fmt::format("\"rope_parameters\":{{\"factor\":{}}}", value)),
            {"\"rope_parameters.factor\""});
  }
  refused("JS-18", llama("\"rope_theta\":NaN"), {"not valid JSON"});
  refused("JS-18", llama("\"rope_scaling\":7"), {"\"rope_scaling\"", "an object"});
  refused("JS-18", llama("\"rope_scaling\":{\"short_factor\":[1,0]}"), {"short_factor", "element 1"});
  refused_value("JS-18", "partial_rotary_factor", "1.5", {"above 0 and of at most 1"});
  refused_value("JS-18", "rotary_dim", "1000", {"at most the head's width of 16"});
  for (const char* value : {"1099511627776", "0", "-1"})
    refused_value("JS-18", "max_position_embeddings", value, {"1 to 2147483647"});
  refused_value("JS-18", "sliding_window", "-1", {"0 to 2147483647"});
  refused_value("JS-18", "sliding_window_pattern", "0", {"1 to 2147483647"});
}

TEST(HfConfig, JS23_IgnoresCodeOfTheCheckpointWithANote) {
  const auto c = parse(llama("\"auto_map\":{\"AutoModelForCausalLM\":\"modeling_x.X\"}"));
  ASSERT_TRUE(c);
  ASSERT_EQ(c->notes().size(), 1u);
  EXPECT_NE(c->notes()[0].find("nothing is executed"), std::string::npos);
}

TEST(HfConfig, JS29_NumbersAreExactOrRefused) {
  const auto c = parse(R"({"a":9007199254740993,"b":9223372036854775807})");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->root().find_int("a").value(), 9007199254740993);
  EXPECT_EQ(c->root().find_int("b").value(), 9223372036854775807);
  expect_refused("JS-29", parse(R"({"a":18446744073709551616})"), {"does not fit 64 bits"});
  const auto large = parse(R"({"a":18446744073709551615})");
  ASSERT_TRUE(large);
  expect_refused("JS-29", large->root().find_int("a"), {"18446744073709551615"});
  expect_refused("JS-29", parse(R"({"a":1e400})"), {"config.json", "not valid JSON"});
}

}  // namespace
}  // namespace berth::format
