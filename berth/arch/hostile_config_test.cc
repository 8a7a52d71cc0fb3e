// Configs that lie: each is refused by name before anything is allocated by its numbers (bug_reports.md JS-15 to JS-18,
// GF-17, GF-20), or has its documented meaning.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {
namespace {

namespace fs = std::filesystem;

std::string model_folder(const std::string& name) { return shared_folder() + "/golden/models/" + name; }

// The config of a golden model with one member replaced ("key": value) or added at the front.
std::string edited(const std::string& model, const std::string& key, const std::string& value) {
  std::string text = *read_file(model_folder(model) + "/config.published.json", 1 << 20);
  const size_t at = text.find("\"" + key + "\"");
  const std::string member = "\"" + key + "\": " + value;
  if (at == std::string::npos) return text.insert(text.find('{') + 1, member + ",");
  size_t end = at;
  for (int depth = 0; depth > 0 || (text[end] != ',' && text[end] != '}' && text[end] != '\n'); ++end) {
    if (text[end] == '{' || text[end] == '[') ++depth;
    if (text[end] == '}' || text[end] == ']') --depth;
  }
  return text.replace(at, end - at, member);
}

Result<ModelDescription> describe_edited(const std::string& model, const std::string& config) {
  const std::string path =
      (fs::temp_directory_path() / ("berth_hostile_" + std::to_string(::getpid()) + ".json")).string();
  std::ofstream(path) << config;
  Result<ModelDescription> out = [&]() -> Result<ModelDescription> {
    TRY(const format::Checkpoint c,
        format::Checkpoint::open(model_folder(model), {}, {.hub_cache = "", .config_path = path}));
    return describe_model(c, {});
  }();
  fs::remove(path);
  return out;
}

struct Lie {
  const char* key;
  const char* value;
  const char* says;  // part of the message
};

TEST(HostileConfig, NumbersOutOfRangeAreRefusedByName) {
  BERTH_NEED_SHARED(model_folder("llama"));
  const Lie lies[] = {
      {"num_hidden_layers", "0", "num_hidden_layers"},
      {"num_hidden_layers", "-1", "num_hidden_layers"},
      {"num_hidden_layers", "1000000000", "num_hidden_layers"},
      {"num_hidden_layers", "2.5", "num_hidden_layers"},
      {"num_hidden_layers", "\"32\"", "num_hidden_layers"},
      {"num_hidden_layers", "2", "layer 2"},
      {"num_hidden_layers", "4", "num_hidden_layers says there are 4 layers"},
      {"num_attention_heads", "0", "num_attention_heads"},
      {"num_key_value_heads", "0", "num_key_value_heads"},
      {"num_key_value_heads", "3", "num_key_value_heads"},
      {"num_key_value_heads", "8", "num_key_value_heads"},
      {"num_attention_heads", "5", "attention heads"},
      {"head_dim", "0", "head_dim"},
      {"head_dim", "16", "head_dim = 64"},
      {"hidden_size", "104", "hidden_size = 104"},
      {"intermediate_size", "161", "intermediate_size = 161"},
      {"vocab_size", "-1", "vocab_size"},
      {"vocab_size", "2147483648", "vocab_size"},
      {"vocab_size", "204", "vocab_size = 204"},
      {"rope_theta", "0", "rope_theta"},
      {"rope_theta", "\"1e6\"", "rope_theta"},
      {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 0}", "factor"},
      {"rope_scaling", "{\"rope_type\": \"sideways\"}", "sideways"},
      {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor"},
      {"max_position_embeddings", "1099511627776", "max_position_embeddings"},
      {"rms_norm_eps", "-1", "rms_norm_eps"},
      {"tie_word_embeddings", "\"yes\"", "tie_word_embeddings"},
      {"hidden_act", "\"sine\"", "sine"},
      {"model_type", "\"lama\"", "did you mean \"llama\""},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(std::string(lie.key) + " " + lie.value);
    const auto d = describe_edited("llama", edited("llama", lie.key, lie.value));
    ASSERT_FALSE(d);
    EXPECT_TRUE(d.error().code == ErrorCode::kCorruptData || d.error().code == ErrorCode::kUnsupported);
    EXPECT_NE(d.error().message.find(lie.says), std::string::npos) << d.error().message;
  }
}

TEST(HostileConfig, ExpertsBeyondReasonAreRefusedBeforeTheyAreNamed) {
  BERTH_NEED_SHARED(model_folder("mixtral"));
  const auto many = describe_edited("mixtral", edited("mixtral", "num_local_experts", "1000000"));
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("num_local_experts"), std::string::npos) << many.error().message;
  const auto deep = describe_edited("mixtral", edited("mixtral", "num_hidden_layers", "4000"));
  ASSERT_FALSE(deep);
  std::string text = edited("mixtral", "num_local_experts", "4000");
  text.insert(text.find('{') + 1, "\"n_layers_of_no_class\": 1,");
  text.replace(text.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 2000");
  const auto both = describe_edited("mixtral", text);
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().message.find("experts"), std::string::npos) << both.error().message;
}

TEST(HostileConfig, AMessageNamesTensorKeyExpectedAndFound) {
  BERTH_NEED_SHARED(model_folder("llama"));
  const auto d = describe_edited("llama", edited("llama", "intermediate_size", "161"));
  ASSERT_FALSE(d);
  EXPECT_EQ(
      d.error().message,
      "describing \"llama\": tensor \"model.layers.0.mlp.gate_proj.weight\" has shape [160, 96], expected [161, 96]: "
      "rows follow intermediate_size = 161, columns hidden_size = 96");
}

TEST(HostileConfig, WindowsHaveTheirDocumentedMeaning) {
  BERTH_NEED_SHARED(model_folder("mistral"));
  const auto kind = [](const char* value) {
    const auto d = describe_edited("mistral", edited("mistral", "sliding_window", value));
    return d ? d->spec.layers[0].attention.window : -1;
  };
  EXPECT_EQ(kind("0"), 0);
  EXPECT_EQ(kind("null"), 0);
  EXPECT_EQ(kind("7"), 7);
  EXPECT_EQ(kind("-1"), -1);  // refused
}

TEST(HostileConfig, MoreRowsThanTheVocabularyArePadding) {
  BERTH_NEED_SHARED(model_folder("llama"));
  const auto d = describe_edited("llama", edited("llama", "vocab_size", "190"));
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(d->spec.vocab_size, 190);
  EXPECT_EQ(d->spec.vocab_rows, 203);
  EXPECT_EQ(d->spec.find(Role::kHead, -1)->rows, 203);
}

TEST(HostileConfig, ListsOfTheWrongLengthAreRefused) {
  BERTH_NEED_SHARED(model_folder("gemma3n_text"));
  const Lie lies[] = {
      {"layer_types", "[\"full_attention\"]", "layer_types"},
      {"layer_types", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "layer_types"},
      {"intermediate_size", "[96, 96]", "intermediate_size"},
      {"activation_sparsity_pattern", "[0.5]", "activation_sparsity_pattern"},
      {"num_kv_shared_layers", "5", "num_kv_shared_layers"},
      {"num_kv_shared_layers", "4", "num_kv_shared_layers"},
      {"altup_num_inputs", "0", "altup_num_inputs"},
      {"altup_active_idx", "7", "altup_active_idx"},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(std::string(lie.key) + " " + lie.value);
    const auto d = describe_edited("gemma3n_text", edited("gemma3n_text", lie.key, lie.value));
    ASSERT_FALSE(d);
    EXPECT_NE(d.error().message.find(lie.says), std::string::npos) << d.error().message;
  }
}

// Any single key of any golden config turned into nonsense: an answer, never a crash, and quickly.
TEST(HostileConfig, EveryKeyOfEveryFamilyMayBeNonsense) {
  BERTH_NEED_SHARED(model_folder("llama"));
  const char* nonsense[] = {"0", "-1", "1e300", "4611686018427387904", "\"x\"", "[]", "{}", "true", "null", "3"};
  int described = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(shared_folder() + "/golden/models")) {
    const std::string path = (entry.path() / "config.published.json").string();
    if (!path_exists(path)) continue;
    const std::string model = entry.path().filename().string();
    const auto document = JsonDocument::parse_file(path);
    ASSERT_TRUE(document);
    std::vector<std::string> keys;
    const JsonView nested = document->root()["text_config"];
    for (const auto& [key, value] : (nested.is_object() ? nested : document->root()).members()) keys.emplace_back(key);
    for (const std::string& key : keys)
      for (const char* value : nonsense) {
        const std::string text = edited(model, key, value);
        auto config = format::HfConfig::parse(text, "config.json");
        if (!config) {
          ++refused;
          continue;
        }
        const auto d = describe_config(*config, {});
        (d ? described : refused) += 1;
      }
  }
  std::printf("nonsense in configs: %d described, %d refused\n", described, refused);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace berth::arch
