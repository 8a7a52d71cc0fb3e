// Which modules 4 and 8 bit replace: against the flags bitsandbytes left in the golden trees, and rule by rule.
#include "berth/arch/quantize_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "berth/arch/golden_tree.h"
#include "berth/arch/tree_json.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

ModuleTree tree_of(const std::string& json) {
  auto t = parse_tree_json(json, {.require_format = false});
  EXPECT_TRUE(t) << (t ? "" : t.error().message);
  return t ? *std::move(t) : ModuleTree{};
}

// Two blocks numbered 1 and 10 with a gate and a gate_proj each, fused experts in 10, an untied head.
ModuleTree small_model() {
  return tree_of(R"({"tree":{"c":"M","m":[["model",{"c":"Inner","m":[
    ["embed_tokens",{"c":"Embedding","p":[["weight",[8,4],"bf16"]]}],
    ["layers",{"c":"ModuleList","m":[
      ["1",{"c":"L","m":[["gate",{"c":"Linear","p":[["weight",[4,4],"bf16"]]}],["gate_proj",{"c":"Linear","p":[["weight",[4,4],"bf16"]]}]]}],
      ["10",{"c":"L","m":[["gate",{"c":"Linear","p":[["weight",[4,4],"bf16"]]}],["gate_proj",{"c":"Linear","p":[["weight",[4,4],"bf16"]]}],
        ["experts",{"c":"Experts","p":[["gate_up_proj",[2,4,4],"bf16"]]}],["odd",{"c":"FalconLinear","p":[["weight",[4,4],"bf16"]]}],
        ["conv",{"c":"Conv1D","p":[["weight",[4,4],"bf16"]]}],["patch",{"c":"Conv2d","p":[["weight",[4,4,2,2],"bf16"]]}]]}]]}]]}],
    ["lm_head",{"c":"Linear","p":[["weight",[8,4],"bf16"]]}]]}})");
}

std::vector<std::string> replaced(const ModuleTree& tree, const QuantizeOptions& options = {}) {
  auto rules = quantize_rules(tree, options);
  EXPECT_TRUE(rules) << (rules ? "" : rules.error().message);
  std::vector<std::string> out;
  if (rules)
    for (const auto& d : rules->decisions)
      if (d.replaced) out.push_back(d.path);
  return out;
}

QuantizeDecision decision(const QuantizeRules& rules, const std::string& path) {
  for (const auto& d : rules.decisions)
    if (d.path == path) return d;
  ADD_FAILURE() << "no decision about " << path;
  return {};
}

TEST(QuantizeRules, AgreeWithBitsandbytesOnEveryLinearOfTheGoldenTrees) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/device_maps/trees");
  const auto names = golden_tree_names();
  ASSERT_TRUE(names);
  size_t trees = 0, modules = 0, agree = 0, lists = 0;
  for (const std::string& name : *names) {
    if (name.ends_with(".native")) continue;
    const auto golden = read_golden_tree_named(name);
    ASSERT_TRUE(golden) << golden.error().message;
    const auto rules = quantize_rules(golden->tree);
    ASSERT_TRUE(rules) << rules.error().message;
    std::map<std::string, bool> ours;
    for (const auto& d : rules->decisions)
      if (d.class_name == "Linear") ours[d.path] = d.replaced;
    for (const auto& [path, flag] : golden->nf4) {
      ++modules;
      const bool same = ours.contains(path) && ours[path] == flag && ours[path] == golden->int8.at(path);
      agree += same;
      EXPECT_TRUE(same) << name << ": " << path;
    }
    EXPECT_EQ(ours.size(), golden->nf4.size()) << name;
    std::vector<std::string> expected = split(golden->header.at("bnb modules_to_not_convert nf4"), ' ');
    std::vector<std::string> list = rules->skip_list;
    std::sort(list.begin(), list.end());
    EXPECT_EQ(list, expected) << name;
    lists += list == expected;
    ++trees;
  }
  std::printf("[ counts   ] %zu trees: %zu/%zu Linear modules agree, %zu/%zu skip lists equal\n", trees, agree, modules,
              lists, trees);
  EXPECT_GT(trees, 40u);
}

TEST(QuantizeRules, KeepHeadAndGiveReasons) {
  const ModuleTree tree = small_model();
  const auto rules = quantize_rules(tree);
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->skip_list, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(decision(*rules, "lm_head").reason, QuantizeReason::kSkippedByModel);
  EXPECT_EQ(decision(*rules, "model.layers.10.experts").reason, QuantizeReason::kFusedExperts);
  EXPECT_EQ(decision(*rules, "model.layers.10.odd").reason, QuantizeReason::kSubclass);
  EXPECT_TRUE(decision(*rules, "model.layers.10.conv").replaced);
  for (const auto& d : rules->decisions) EXPECT_NE(d.path, "model.layers.10.patch");
  EXPECT_EQ(std::count_if(rules->decisions.begin(), rules->decisions.end(), [](const auto& d) { return d.replaced; }),
            5);
}

// BR-034
TEST(QuantizeRules, SkipOneLayerAndNotThoseThatShareItsFirstDigit) {
  const auto kept = replaced(small_model(), {.skip_modules = std::vector<std::string>{"model.layers.1"}});
  EXPECT_EQ(kept, (std::vector<std::string>{"model.layers.10.gate", "model.layers.10.gate_proj", "model.layers.10.conv",
                                            "lm_head"}));
}

// BR-036: as in Transformers the user's list replaces the automatic one; the decision says so, so that it can be told.
TEST(QuantizeRules, UserListReplacesTheProtectionOfTheHead) {
  const auto rules = quantize_rules(small_model(), {.skip_modules = std::vector<std::string>{"vision_tower"}});
  ASSERT_TRUE(rules);
  EXPECT_TRUE(decision(*rules, "lm_head").replaced);
  EXPECT_EQ(rules->unmatched_keys, std::vector<std::string>{"vision_tower"});
}

// A list may name what stays wide anyway (a router that is no Linear, a norm, experts), as the library's own lists do.
TEST(QuantizeRules, NamesOfWhatStaysWideAnywayAreNoMistakes) {
  for (const char* key : {"model.layers.10.experts", "experts", "model.layers.10.odd", "patch"}) {
    const auto rules = quantize_rules(small_model(), {.skip_modules = std::vector<std::string>{key}});
    ASSERT_TRUE(rules);
    EXPECT_EQ(rules->unmatched_keys, std::vector<std::string>()) << key;
  }
}

// BR-033, BR-116: what 4 bit leaves wide is said with its bytes.
TEST(QuantizeRules, NotesTellWhatStaysWideAndWhy) {
  const ModuleTree tree = small_model();
  const auto rules = quantize_rules(tree);
  ASSERT_TRUE(rules);
  std::string text = join(quantize_notes(tree, *rules), "\n");
  EXPECT_NE(text.find("160 B of 512 B are in 5 modules that are replaced"), std::string::npos) << text;
  EXPECT_NE(text.find("64 B of 512 B stay wide: experts in one stacked tensor"), std::string::npos) << text;
  EXPECT_NE(text.find("model.layers.10.experts"), std::string::npos) << text;
  const auto given = quantize_rules(tree, {.skip_modules = std::vector<std::string>{"vision_tower"}});
  ASSERT_TRUE(given);
  text = join(quantize_notes(tree, *given), "\n");
  EXPECT_NE(text.find("match no module: \"vision_tower\""), std::string::npos) << text;
  EXPECT_NE(text.find("The head \"lm_head\" is replaced as well"), std::string::npos) << text;
}

TEST(QuantizeRules, MatchKeysAtModuleBoundaries) {
  const auto hit = [](std::string_view key, std::string_view path) {
    const auto r = skip_key_matches(key, path);
    EXPECT_TRUE(r);
    return r && *r;
  };
  EXPECT_TRUE(hit("model.layers.1", "model.layers.1.mlp"));
  EXPECT_FALSE(hit("model.layers.1", "model.layers.12.mlp"));
  EXPECT_TRUE(hit("model.layers.1.", "model.layers.1.mlp"));
  EXPECT_FALSE(hit("mlp.gate", "mlp.gate_proj"));
  EXPECT_TRUE(hit("proj", "a.q_proj"));  // the end of the name has no boundary
  EXPECT_FALSE(hit("vision_tower", "model.vision_tower.q"));
  EXPECT_TRUE(hit("model.layers.\\d+.mlp", "model.layers.12.mlp.up"));
  EXPECT_TRUE(hit("model.(a|ab)", "model.ab.c"));  // alternatives are grouped and tried
  EXPECT_TRUE(hit("model.a|model.b", "model.b.c"));
  EXPECT_FALSE(hit("model.a|model.b", "model.bc"));
  EXPECT_TRUE(hit("modelxlayers", "modelxlayers.1"));
  EXPECT_TRUE(hit("model.layers", "model_layers.1"));  // a dot is any character
  EXPECT_TRUE(hit("", "anything"));
  EXPECT_TRUE(hit("model.*", "model.layers.3"));
}

TEST(QuantizeRules, EmptyKeyOfAMapSkipsEverything) {
  EXPECT_TRUE(replaced(small_model(), {.kept_off_accelerators = {""}}).empty());
}

TEST(QuantizeRules, MapEntriesOnTheCpuStayWide) {
  const auto rules = quantize_rules(small_model(), {.kept_off_accelerators = {"model.layers.10"}});
  ASSERT_TRUE(rules);
  EXPECT_EQ(decision(*rules, "model.layers.10.gate").reason, QuantizeReason::kSkippedByMap);
  EXPECT_EQ(decision(*rules, "model.layers.10.gate").key, "model.layers.10");
  EXPECT_TRUE(decision(*rules, "model.layers.1.gate").replaced);
}

TEST(QuantizeRules, BrokenAndRunawayPatternsAreErrors) {
  const auto broken = quantize_rules(small_model(), {.skip_modules = std::vector<std::string>{"model.("}});
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("model.("), std::string::npos);
  const auto slow = skip_key_matches("(a*)*(a*)*(a*)*b", std::string(200, 'a') + ".x");
  if (slow) {
    EXPECT_FALSE(*slow);
  } else {
    EXPECT_EQ(slow.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(QuantizeRules, TiedNamesAreSkippedOnBothSides) {
  ModuleTree tree = small_model();
  tree.ties.emplace_back("lm_head.weight", "model.embed_tokens.weight");
  EXPECT_EQ(automatic_skip_list(tree, "lm_head"), (std::vector<std::string>{"lm_head", "model.embed_tokens"}));
}

TEST(QuantizeRules, BiasOfTheLastModuleKeepsItsName) {
  const ModuleTree tree =
      tree_of(R"({"tree":{"c":"M","m":[["score",{"c":"Linear","p":[["weight",[2,2],"f32"],["bias",[2],"f32"]]}]]}})");
  EXPECT_EQ(automatic_skip_list(tree, ""), std::vector<std::string>{"score.bias"});
  EXPECT_EQ(replaced(tree), std::vector<std::string>{"score"});  // so a biased last module is not protected
}

TEST(QuantizeRules, QuantizedTreeChangesClassesOnly) {
  const ModuleTree tree = small_model();
  const auto rules = quantize_rules(tree);
  ASSERT_TRUE(rules);
  const ModuleTree out = with_quantized_linears(tree, *rules, QuantizedLinear::kLinear4bit);
  EXPECT_EQ(out.find("model.layers.1.gate")->class_name, "Linear4bit");
  EXPECT_EQ(out.find("lm_head")->class_name, "Linear");
  EXPECT_EQ(out.find("model.layers.10.conv")->class_name, "Linear4bit");
}

}  // namespace
}  // namespace berth::arch
