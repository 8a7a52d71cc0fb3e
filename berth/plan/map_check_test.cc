// Maps that people write: every mistake is named, with the nearest name and what to do.
#include "berth/plan/map_check.h"

#include <gtest/gtest.h>

#include "berth/arch/tree_json.h"

namespace berth::plan {
namespace {

arch::ModuleTree model(const std::string& prefix = "") {
  const std::string block =
      R"({"c":"Block","m":[["attn",{"c":"Linear","p":[["weight",[2,2],"f32"]]}],["mlp",{"c":"Linear","p":[["weight",[2,2],"f32"]]}]],"b":[["scalar",[],"f32",true]]})";
  std::string inner =
      R"({"c":"Inner","m":[["embed_tokens",{"c":"Embedding","p":[["weight",[8,2],"f32"]]}],["layers",{"c":"ModuleList","m":[["0",)" +
      block + R"(],["1",)" + block +
      R"(]]}],["norm",{"c":"Norm","p":[["weight",[2],"f32"]]}],["rotary",{"c":"Rotary","b":[["inv_freq",[1],"f32",false]]}]]})";
  std::string root =
      R"({"c":"M","m":[["model",)" + inner + R"(],["lm_head",{"c":"Linear","p":[["weight",[8,2],"f32"]]}]]})";
  if (!prefix.empty()) root = R"({"c":"Peft","m":[["base_model",{"c":"Lora","m":[["model",)" + root + "]]}]]}";
  const auto tree = arch::parse_tree_json(R"({"tree":)" + root + "}", {.require_format = false});
  EXPECT_TRUE(tree) << (tree ? "" : tree.error().message);
  return *tree;
}

machine::Machine two_cards() {
  machine::Machine m;
  m.devices = {machine::emulated_device(0, 1 << 20), machine::emulated_device(1, 1 << 20),
               machine::default_cpu(1 << 30), machine::default_disk(1 << 30)};
  return m;
}

Result<CheckedMap> check(const char* json, const arch::ModuleTree& tree = model()) {
  const auto map = parse_device_map(json);
  EXPECT_TRUE(map) << (map ? "" : map.error().message);
  return check_device_map(tree, *map, two_cards());
}
std::string refusal(const char* json, const arch::ModuleTree& tree = model()) {
  const auto c = check(json, tree);
  EXPECT_FALSE(c) << json;
  if (c) return "";
  EXPECT_EQ(c.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(c.error().hints.empty());
  std::string s = c.error().message;
  for (const auto& h : c.error().hints) s += " | " + h;
  return s;
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(MapCheck, AcceptsAMapThatCoversTheModel) {
  const auto c = check(R"({"":0})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_TRUE(c->notes.empty());
}

TEST(MapCheck, NamesTheNearestModuleOfATypo) {
  EXPECT_SAYS(refusal(R"({"":0,"model.layer.1":1})"), "did you mean \"model.layers.1\"");
  EXPECT_SAYS(refusal(R"({"":0,"lm_haed":1})"), "did you mean \"lm_head\"");
  EXPECT_SAYS(refusal(R"({"":0,"model.layers.99":1})"), "\"model.layers.99\" names no module");
}

TEST(MapCheck, NamesWhatIsMissing) {
  const std::string text = refusal(R"({"model.embed_tokens":0,"model.layers.0":0,"model.norm":0,"lm_head":0})");
  EXPECT_SAYS(text, "have no device");
  EXPECT_SAYS(text, "model.layers.1.attn.weight");
}

TEST(MapCheck, CountsPersistentBuffersOfContainersAsMissing) {  // BR-013
  EXPECT_SAYS(
      refusal(
          R"({"model.embed_tokens":0,"model.layers.0":0,"model.layers.1.attn":0,"model.layers.1.mlp":1,"model.norm":0,"lm_head":0})"),
      "model.layers.1.scalar");
}

TEST(MapCheck, ComputedBuffersGoWithTheirNeighbours) {
  const auto c = check(R"({"model.embed_tokens":1,"model.layers":0,"model.norm":0,"lm_head":0})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->map.lookup("model.rotary.inv_freq")->text(), "1");
  ASSERT_EQ(c->notes.size(), 1u);
  EXPECT_SAYS(c->notes[0], "model.rotary.inv_freq");
}

TEST(MapCheck, ChildDecidesAboveItsParent) {
  const auto c = check(R"({"model":0,"model.layers.1":"cpu","lm_head":1})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->map.lookup("model.layers.1.mlp.weight")->text(), "cpu");
  EXPECT_EQ(c->map.lookup("model.layers.0.mlp.weight")->text(), "0");
  ASSERT_EQ(c->notes.size(), 1u);
  EXPECT_SAYS(c->notes[0], "\"model.layers.1\" is on cpu although \"model\" is on 0");
}

TEST(MapCheck, RefusesDevicesTheMachineLacks) {  // BR-058
  EXPECT_SAYS(refusal(R"({"":7})"), "it has 2 accelerators");
  EXPECT_SAYS(refusal(R"({"":"cuda:9"})"), "it has 2 accelerators");
  EXPECT_SAYS(refusal(R"({"":0,"lm_head":"meta"})"), "holds no data");
  EXPECT_SAYS(refusal(R"({"":0,"lm_head":"meta"})"), "\"lm_head\"");
  EXPECT_SAYS(refusal(R"({"":"gpu"})"), "Devices here: ");
  EXPECT_SAYS(refusal(R"({"":"dsik"})"), "did you mean \"disk\"");
}

TEST(MapCheck, ReadsTheUsualSpellingsOfADevice) {
  const auto c = check(R"({"model":"cuda","lm_head":"emu:1"})");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(device_map_json(c->map), R"({"lm_head":1,"model":0})");
  EXPECT_TRUE(check(R"({"model":"0","lm_head":"cuda:1"})"));
}

TEST(MapCheck, ExplainsAdapterPrefixes) {  // BR-060
  const std::string text = refusal(R"({"base_model.model.model":0,"base_model.model.lm_head":1})");
  EXPECT_SAYS(text, "none of the 2 keys is");
  EXPECT_SAYS(text, "all of them without the adapter prefix");
  EXPECT_SAYS(refusal(R"({"model":0,"lm_head":1})", model("peft")), "all of them with the adapter prefix");
}

TEST(MapCheck, TellsSeveralMistakesAtOnce) {
  const std::string text = refusal(R"({"":0,"lm_haed":1,"model.norm":5})");
  EXPECT_SAYS(text, "lm_head");
  EXPECT_SAYS(text, "model.norm");
  EXPECT_SAYS(refusal("{}"), "no entries");
}

TEST(MapCheck, CpuOnlyMapsAreFine) {  // BR-063
  EXPECT_TRUE(check(R"({"":"cpu"})"));
  EXPECT_TRUE(check(R"({"model":"cpu","lm_head":"disk"})"));
}

TEST(AccelerateCheck, WarnsAboutKeysThatAreNoModulesAndListsTheUncovered) {
  const auto a = accelerate_check(
      model(), *parse_device_map(R"({"model.layers":0,"model.layers.0.scalar":1,"typo":1,"model.norm.weight":0})"));
  EXPECT_EQ(a.unknown_keys, (std::vector<std::string>{"model.layers.0.scalar", "model.norm.weight", "typo"}));
  EXPECT_EQ(a.uncovered,
            (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"}));  // never the rotary table
  EXPECT_TRUE(accelerate_check(model(), *parse_device_map(R"({"":0})")).uncovered.empty());
}

}  // namespace
}  // namespace berth::plan
