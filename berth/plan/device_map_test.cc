// Device maps as values: reading, looking up, cleaning, spreading over a tree and back.
#include "berth/plan/device_map.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "berth/arch/golden_tree.h"
#include "berth/arch/tree_json.h"
#include "berth/base/file.h"

namespace berth::plan {
namespace {

DeviceMap map_of(const char* json) {
  auto m = parse_device_map(json);
  EXPECT_TRUE(m) << (m ? "" : m.error().message);
  return m ? *std::move(m) : DeviceMap{};
}
std::string clean(const char* json) { return device_map_json(cleaned(map_of(json))); }

TEST(DeviceMap, MostSpecificEntryWins) {
  const DeviceMap m = map_of(R"({"":0,"model.layers":1,"model.layers.3":"cpu","model.layers.3.mlp.up.weight":"disk"})");
  EXPECT_EQ(m.lookup("lm_head.weight")->text(), "0");
  EXPECT_EQ(m.lookup("model.layers.12.mlp.up.weight")->text(), "1");
  EXPECT_EQ(m.lookup("model.layers.3.attn.q.weight")->text(), "cpu");
  EXPECT_EQ(m.lookup("model.layers.3.mlp.up.weight")->text(), "disk");
  EXPECT_EQ(map_of(R"({"a":0})").lookup("ab.weight"), nullptr);
}

TEST(DeviceMap, DevicesAreOrderedAsBudgetsAreFilled) {
  const auto devices = map_of(R"({"a":"disk","b":"cpu","c":10,"d":2,"e":"mps"})").devices();
  std::string text;
  for (const auto& d : devices) text += d.text() + " ";
  EXPECT_EQ(text, "2 10 mps cpu disk ");
}

// BR-046, BR-058
TEST(DeviceMap, DeviceTextsBecomeNumbersWhereTheyMeanOne) {
  EXPECT_EQ(DeviceName::named("cuda").normalized(), DeviceName::accelerator(0));
  EXPECT_EQ(DeviceName::named("cuda:1").normalized(), DeviceName::accelerator(1));
  EXPECT_EQ(DeviceName::named("emu:3").normalized(), DeviceName::accelerator(3));
  EXPECT_EQ(DeviceName::named("2").normalized(), DeviceName::accelerator(2));
  for (const char* other : {"gpu", "meta", "cuda:", "cuda:-1", "cuda:1x", "CUDA:0", "cpu", "disk", "mps", "-1"})
    EXPECT_EQ(DeviceName::named(other).normalized().text(), other);
}

TEST(DeviceMap, RefusesValuesThatAreNoDevice) {
  for (const char* json : {R"({"a":-1})", R"({"a":true})", R"({"a":null})", R"({"a":1.5})", R"({"a":""})",
                           R"({"a":[0]})", "[]", "3", R"({"a":0,"a":1})", "{"}) {
    const auto m = parse_device_map(json);
    ASSERT_FALSE(m) << json;
    EXPECT_EQ(m.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_NE(parse_device_map(R"({"model.norm":-1})").error().message.find("model.norm"), std::string::npos);
}

TEST(DeviceMap, CleaningMergesEqualSiblings) {
  EXPECT_EQ(clean(R"({"a":0,"b":0,"c":0})"), R"({"":0})");
  EXPECT_EQ(clean(R"({"a.x":0,"a.y":0,"b.x":1,"b.y":1,"c":1})"), R"({"a":0,"b":1,"c":1})");
  EXPECT_EQ(clean(R"({"a.x":0,"a.y":0,"b.x.0":1,"b.x.1":1,"b.y.0":2,"b.y.1":2,"c":2})"),
            R"({"a":0,"b.x":1,"b.y":2,"c":2})");
  EXPECT_EQ(clean(R"({"a.b.c":0,"a.b.d":0})"), R"({"":0})");
  EXPECT_EQ(clean(R"({"a":0})"), R"({"a":0})");                  // one entry is never renamed
  EXPECT_EQ(clean(R"({"a":1,"a.x":0,"a.y":0})"), R"({"a":0})");  // the merged value replaces the module's own
  EXPECT_EQ(clean(R"({"a.x":0,"a.y":"cuda:0"})"), R"({"a.x":0,"a.y":"cuda:0"})");  // equal by value only
  EXPECT_EQ(clean(R"({"":0,"a":1,"b":1})"), R"({"":0,"a":1,"b":1})");
  EXPECT_EQ(clean("{}"), "{}");
}

TEST(DeviceMap, CollapsingKeepsEveryTensorsDevice) {
  const std::string folder = arch::shared_folder() + "/golden/device_maps/trees";
  BERTH_NEED_SHARED(folder);
  std::mt19937 random(7);
  for (const char* name : {"Mixtral-8x7B-v0.1", "gemma-4-E2B-it", "Qwen3-Next-80B-A3B"}) {
    const auto golden = arch::read_golden_tree_named(name);
    ASSERT_TRUE(golden) << golden.error().message;
    for (int round = 0; round < 20; ++round) {
      DeviceMap m;
      m.entries.emplace("", DeviceName::accelerator(0));
      if (round % 4 == 1) m.entries.clear();  // then some tensors have no device
      arch::for_each_module(golden->tree, [&](const std::string& path, const arch::Module&) {
        if (random() % 40 == 0)
          m.entries.insert_or_assign(path, random() % 3 == 0
                                               ? DeviceName::cpu()
                                               : DeviceName::accelerator(static_cast<int64_t>(random() % 3)));
      });
      const auto places = expanded(golden->tree, m);
      const DeviceMap small = collapsed(golden->tree, places);
      const auto again = expanded(golden->tree, small);
      ASSERT_EQ(places.size(), again.size());
      for (size_t i = 0; i < places.size(); ++i)
        ASSERT_EQ(places[i].device, again[i].device) << name << " " << places[i].path;
    }
  }
}

TEST(DeviceMap, CollapsingGivesOneEntryForOneDevice) {
  const auto tree = arch::parse_tree_json(
      R"({"tree":{"c":"M","m":[["a",{"c":"A","p":[["w",[1],"f32"]]}],["act",{"c":"Act"}],["b",{"c":"B","p":[["w",[1],"f32"]],"b":[["s",[1],"f32",false]]}]]}})",
      {.require_format = false});
  ASSERT_TRUE(tree);
  EXPECT_EQ(device_map_json(collapsed(*tree, expanded(*tree, map_of(R"({"a.w":1,"b":1})")))), R"({"":1})");
  EXPECT_EQ(device_map_json(collapsed(*tree, expanded(*tree, map_of(R"({"a":1,"b.w":1,"b.s":"cpu"})")))),
            R"({"a":1,"b.s":"cpu","b.w":1})");
}

}  // namespace
}  // namespace berth::plan
