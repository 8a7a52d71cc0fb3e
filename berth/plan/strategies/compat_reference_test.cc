// The libraries' own test cases (device map specification, section 9), the line protocol, the loader's look-up, speed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "berth/arch/golden_tree.h"
#include "berth/arch/quantize_rules.h"
#include "berth/arch/tree_json.h"
#include "berth/base/file.h"
#include "berth/plan/strategies/compat_accelerate.h"
#include "berth/plan/strategies/compat_jsonl.h"
#include "berth/plan/strategies/compat_transformers.h"

namespace berth::plan::compat {
namespace {

std::string linear(int in, int out, const std::string& buffer = "") {
  return R"({"c":"Linear","p":[["weight",[)" + std::to_string(out) + "," + std::to_string(in) +
         R"(],"f32"],["bias",[)" + std::to_string(out) + R"(],"f32"]])" +
         (buffer.empty() ? "" : R"(,"b":[["mem",[)" + buffer + R"(],"f32",true]])") + "}";
}
std::string norm(const std::string& buffer = "") {
  return R"({"c":"BatchNorm1d","p":[["weight",[4],"f32"],["bias",[4],"f32"]],"b":[["running_mean",[4],"f32",true],["running_var",[4],"f32",true],["num_batches_tracked",[],"i64",true])" +
         (buffer.empty() ? "" : R"(,["mem",[)" + buffer + R"(],"f32",true])") + "]}";
}
std::string module(const std::string& cls, const std::vector<std::pair<std::string, std::string>>& children) {
  std::string s = R"({"c":")" + cls + R"(","m":[)";
  for (size_t i = 0; i < children.size(); ++i)
    s += (i ? "," : "") + std::string("[\"") + children[i].first + "\"," + children[i].second + "]";
  return s + "]}";
}
std::string m0() {
  return module("ModelForTest", {{"linear1", linear(3, 4)}, {"batchnorm", norm()}, {"linear2", linear(4, 5)}});
}

struct Answer {
  std::string map, error, log;
};
Answer accelerate(const std::string& tree, const std::string& memory, const std::string& more = "") {
  const std::string line = R"({"id":1,"library":"accelerate","mode":"sequential","max_memory":)" + memory +
                           R"(,"tree":)" + tree + (more.empty() ? "" : "," + more) + "}";
  const std::string out = plan_compat_line(line);
  const auto doc = JsonDocument::parse(out);
  EXPECT_TRUE(doc) << out;
  const JsonView r = doc->root();
  return {r["map"].valid() ? r["map"].text() : "", r["error"].valid() ? r["error"].text() : "",
          r["log"].valid() ? r["log"].text() : ""};
}

const std::string kM3 = module("Sequential", {{"0", m0()}, {"1", m0()}, {"2", m0()}});
const std::string kLayers = module("N", {{"layer1", m0()}, {"layer2", m0()}, {"layer3", m0()}});

// The specification's basic cases: 64 + 72 on device 0 would leave no room for linear2 to be streamed.
TEST(CompatReference, KeepsAReserveOnTheFirstDevice) {
  const Answer a = accelerate(m0(), R"({"0":200,"1":200})");
  EXPECT_EQ(a.map, R"({"batchnorm":1,"linear1":0,"linear2":1})");
  EXPECT_EQ(a.log, "");
  EXPECT_EQ(accelerate(m0(), R"({"0":200,"1":172,"2":200})").map,
            R"({"batchnorm":1,"linear1":0,"linear2":1})");  // an exact fit
}

TEST(CompatReference, SplitsWhatIsNotABlock) {
  EXPECT_EQ(accelerate(kM3, R"({"0":500,"1":500})").map,
            R"({"0":0,"1.batchnorm":0,"1.linear1":0,"1.linear2":1,"2":1})");
  EXPECT_EQ(accelerate(kM3, R"({"0":500,"1":500})", R"("no_split":["ModelForTest"])").map, R"({"0":0,"1":1,"2":1})");
  EXPECT_EQ(accelerate(m0(), R"({"0":300,"1":300})", R"("no_split":["Linear"])").map, R"({"":0})");
}

TEST(CompatReference, TiedTensorsGoTogether) {
  const std::string budgets = R"({"0":400,"1":500})";
  EXPECT_EQ(accelerate(m0(), R"({"0":200,"1":200})", R"("ties":[["linear1.weight","linear2.weight"]])").map,
            R"({"":0})");
  std::string ties = R"(["layer3.linear2.weight","layer1.linear2.weight"])";
  EXPECT_EQ(accelerate(kLayers, budgets, R"("ties":[)" + ties + "]").map,
            R"({"layer1":0,"layer2":1,"layer3.batchnorm":1,"layer3.linear1":1,"layer3.linear2":0})");
  ties += R"(,["layer2.linear2.weight","layer1.linear2.weight"])";
  EXPECT_EQ(
      accelerate(kLayers, budgets, R"("ties":[)" + ties + "]").map,
      R"({"layer1":0,"layer2.batchnorm":1,"layer2.linear1":1,"layer2.linear2":0,"layer3.batchnorm":1,"layer3.linear1":1,"layer3.linear2":0})");
  ties += R"(,["layer2.linear1.weight","layer1.linear1.weight"])";
  EXPECT_EQ(
      accelerate(kLayers, budgets, R"("ties":[)" + ties + "]").map,
      R"({"layer1":0,"layer2.batchnorm":1,"layer2.linear1":0,"layer2.linear2":0,"layer3.batchnorm":1,"layer3.linear1":1,"layer3.linear2":0})");
}

// BR-019: two tied pairs inside one module.
TEST(CompatReference, TwoTiedPairsInOneModuleCountOnce) {
  const std::string tree = module(
      "N",
      {{"linear1", linear(4, 4)}, {"linear2", linear(6, 6)}, {"linear3", linear(4, 4)}, {"linear4", linear(6, 6)}});
  const std::string ties = R"("ties":[["linear3.weight","linear1.weight"],["linear3.bias","linear1.bias"]])";
  EXPECT_EQ(accelerate(tree, R"({"0":250,"1":400})", ties).map, R"({"linear1":0,"linear2":1,"linear3":0,"linear4":1})");
  const std::string pair = module("N", {{"layer1", linear(3, 3)}, {"layer2", linear(3, 3)}});
  EXPECT_EQ(
      accelerate(pair, R"({"0":1000})", R"("ties":[["layer2.weight","layer1.weight"],["layer2.bias","layer1.bias"]])")
          .map,
      R"({"":0})");
  const auto parsed = arch::parse_tree_json(
      R"({"tree":)" + pair + R"(,"ties":[["layer2.weight","layer1.weight"],["layer2.bias","layer1.bias"]]})",
      {.require_format = false});
  ASSERT_TRUE(parsed);
  for (const Library library : {Library::kTransformers, Library::kAccelerate}) {
    SizeRules sizes;
    sizes.library = library;
    EXPECT_EQ(Model::build(*parsed, sizes, {})->root().size.text(), "48") << library_name(library);
  }
}

TEST(CompatReference, BuffersOfOffloadedLayersAreTold) {
  const std::string tree =
      module("M", {{"linear1", linear(3, 4, "20")}, {"batchnorm", norm("30")}, {"linear2", linear(4, 5, "30")}});
  const std::string map = R"({"batchnorm":"cpu","linear1":0,"linear2":"cpu"})";
  Answer a = accelerate(tree, R"({"0":400,"cpu":"1GB"})");
  EXPECT_EQ(a.map, map);
  EXPECT_EQ(a.log, R"([{"kind":"offloaded-buffers","bytes":280}])");
  a = accelerate(tree, R"({"0":400,"cpu":"1GB"})", R"("offload_buffers":true)");
  EXPECT_EQ(a.map, map);
  EXPECT_EQ(a.log, "");
  const std::string four = module("M", {{"linear1", linear(3, 4, "20")},
                                        {"batchnorm", norm("30")},
                                        {"linear2", linear(4, 5, "30")},
                                        {"linear3", linear(4, 5, "20")}});
  const std::string four_map = R"({"batchnorm":1,"linear1":0,"linear2":"cpu","linear3":"cpu"})";
  a = accelerate(four, R"({"0":400,"1":400,"cpu":"1GB"})");
  EXPECT_EQ(a.map, four_map);
  EXPECT_EQ(a.log, "");
  a = accelerate(four, R"({"0":400,"1":200,"cpu":"1GB"})");
  EXPECT_EQ(a.map, four_map);
  EXPECT_EQ(a.log, R"([{"kind":"offloaded-buffers","bytes":200}])");
}

TEST(CompatReference, FallbackRescuesOneModule) {
  const std::string nested = module(
      "W",
      {{"module", module("N", {{"linear1", linear(10, 4)}, {"linear2", linear(4, 4)}, {"linear3", linear(4, 8)}})}});
  Answer a = accelerate(nested, R"({"0":256})");
  EXPECT_EQ(a.map, R"({"":"disk"})");
  EXPECT_EQ(a.log, R"([{"kind":"empty-devices","required":{"0":336}}])");
  a = accelerate(nested, R"({"0":256})", R"("fallback_allocation":true)");
  EXPECT_EQ(a.map, R"({"module.linear1":"disk","module.linear2":0,"module.linear3":"disk"})");
  EXPECT_EQ(a.log, "");
  const std::string big = module(
      "W", {{"module",
             module("N", {{"linear1", linear(10, 10)}, {"linear2", linear(10, 10)}, {"linear3", linear(10, 10)}})}});
  a = accelerate(big, R"({"0":30})", R"("fallback_allocation":true)");
  EXPECT_EQ(a.map, R"({"":"disk"})");
  EXPECT_NE(a.log, "");
  a = accelerate(big, R"({"0":45.5})", R"("fallback_allocation":true)");  // D17
  EXPECT_EQ(a.error, R"({"stage":"plan","type":"AttributeError"})");
}

TEST(CompatReference, UnmetTieRaisesIndexError) {  // D14: "head." is found inside "lm_head.weight."
  const std::string tree = module("M", {{"embed", linear(2, 4)}, {"head", linear(2, 2)}, {"lm_head", linear(2, 4)}});
  EXPECT_EQ(accelerate(tree, R"({"0":900})", R"("ties":[["lm_head.weight","embed.weight"]])").error,
            R"({"stage":"plan","type":"IndexError"})");
}

// What Transformers' repairs changed, on the cases that led to them (specification 7 and 9.6).
CompatResult planned(const arch::ModuleTree& tree, Revision revision, std::vector<uint64_t> cards,
                     std::optional<uint64_t> cpu, bool bnb = false) {
  TransformersRequest r;
  r.revision = revision;
  r.quantizer = bnb ? Quantizer::kBitsandbytes : Quantizer::kNone;
  r.max_memory.emplace();
  for (size_t i = 0; i < cards.size(); ++i)
    r.max_memory->push_back({std::to_string(i), Number::whole(static_cast<Wide>(cards[i]))});
  if (cpu) r.max_memory->push_back({"cpu", Number::whole(static_cast<Wide>(*cpu))});
  auto result = plan_as_transformers(tree, r);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return *std::move(result);
}

std::string layer_counts(const CompatResult& r, const arch::ModuleTree& tree, const std::string& block_class) {
  std::map<DeviceName, int> counts;
  arch::for_each_module(tree, [&](const std::string& path, const arch::Module& m) {
    if (m.class_name == block_class) ++counts[*r.map->lookup(path)];
  });
  std::string s;
  for (const auto& [device, n] : counts) s += device.text() + ":" + std::to_string(n) + " ";
  return s;
}

arch::ModuleTree blocks_of(const std::vector<int>& sizes, int embed, int head) {
  std::string inner;
  for (size_t i = 0; i < sizes.size(); ++i)
    inner += ",[\"l" + std::to_string(i) + R"(",{"c":"Layer","m":[["a",{"c":"L","p":[["w",[)" +
             std::to_string(sizes[i] / 2) + R"(],"i8"]]}],["b",{"c":"L","p":[["w",[)" +
             std::to_string(sizes[i] - sizes[i] / 2) + R"(],"i8"]]}]]}])";
  const auto leaf = [](const char* name, int n) {
    return std::string("[\"") + name + R"(",{"c":"L","p":[["w",[)" + std::to_string(n) + R"(],"i8"]]}])";
  };
  const auto tree = arch::parse_tree_json(R"({"tree":{"c":"M","m":[)" + leaf("embed", embed) + inner + "," +
                                              leaf("head", head) + R"(]},"no_split":["Layer"]})",
                                          {.require_format = false});
  EXPECT_TRUE(tree);
  return *tree;
}

TEST(CompatRevisions, LargeEmbeddingsEmptiedCardsBefore47211) {  // D2, BR-006
  const arch::ModuleTree tree = blocks_of(std::vector<int>(8, 5), 100, 100);
  const CompatResult before = planned(tree, Revision::kBefore47211, {150, 150, 150, 150}, 1000);
  EXPECT_EQ(before.balanced->find(DeviceName::accelerator(0))->text(), "76");
  EXPECT_EQ(before.map->lookup("head")->text(), "cpu");
  EXPECT_EQ(layer_counts(before, tree, "Layer"), "3:8 ");
  const CompatResult now = planned(tree, Revision::kCurrent, {150, 150, 150, 150}, 1000);
  EXPECT_EQ(now.map->lookup("head")->text(), "2");
}

TEST(CompatRevisions, SmallFirstLayersSetTheCapBefore47203) {  // D7
  std::vector<int> sizes(3, 6);
  sizes.insert(sizes.end(), 6, 130);
  const arch::ModuleTree tree = blocks_of(sizes, 10, 10);
  const CompatResult before = planned(tree, Revision::kBefore47203, {300, 300, 300, 300}, 1000);
  EXPECT_EQ(before.map->lookup("head")->text(), "cpu");
  EXPECT_EQ(layer_counts(before, tree, "Layer"), "0:3 1:1 2:1 3:2 cpu:2 ");
  EXPECT_EQ(layer_counts(planned(tree, Revision::kBefore47211, {300, 300, 300, 300}, 1000), tree, "Layer"),
            "0:4 1:2 2:2 3:1 ");
}

TEST(CompatRevisions, PublishedModelsBeforeAndAfter) {
  const std::string folder = arch::shared_folder() + "/golden/device_maps/trees";
  BERTH_NEED_SHARED(folder);
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const auto nf4 = [](const char* name) {
    auto golden = arch::read_golden_tree_named(name);
    EXPECT_TRUE(golden);
    const auto rules = arch::quantize_rules(golden->tree);
    return arch::with_quantized_linears(golden->tree, *rules, arch::QuantizedLinear::kLinear4bit);
  };
  const arch::ModuleTree llama = nf4("Meta-Llama-3-8B");
  const std::string block = "LlamaDecoderLayer";
  EXPECT_EQ(layer_counts(planned(llama, Revision::kBefore47211, {24 * kGiB, 24 * kGiB}, {}, true), llama, block),
            "0:4 1:28 ");
  EXPECT_EQ(layer_counts(planned(llama, Revision::kCurrent, {24 * kGiB, 24 * kGiB}, {}, true), llama, block),
            "0:14 1:18 ");
  const std::vector<uint64_t> four(4, 24 * kGiB);
  EXPECT_EQ(layer_counts(planned(llama, Revision::kBefore47211, four, {}, true), llama, block), "1:3 2:12 3:17 ");
  EXPECT_EQ(layer_counts(planned(llama, Revision::kCurrent, four, {}, true), llama, block), "0:3 1:22 2:7 ");
  // MiniMax-M3 in 4 bit (experts stay 16 bit) on 8 x 165 GiB, the case that started this planner: issue 46823.
  const arch::ModuleTree m3 = nf4("MiniMax-M3");
  for (const Revision r : {Revision::kBefore47203, Revision::kBefore47211, Revision::kCurrent}) {
    const CompatResult result = planned(m3, r, std::vector<uint64_t>(8, 165 * kGiB), {}, true);
    std::printf("[ counts   ] MiniMax-M3 nf4, 8 x 165 GiB, revision %d: layers %s%s\n", static_cast<int>(r),
                layer_counts(result, m3, "MiniMaxM3VLDecoderLayer").c_str(), result.error ? "refused" : "");
    EXPECT_EQ(result.error.has_value(), r == Revision::kBefore47203);
  }
}

// BR-048: no mode loses max_memory. BR-053: an excluded card does not count in the average.
TEST(CompatTransformers, EveryModeKeepsWithinMaxMemory) {
  const arch::ModuleTree tree = blocks_of(std::vector<int>(10, 10), 0, 0);
  for (const Mode mode : {Mode::kBalanced, Mode::kBalancedLow0, Mode::kSequential}) {
    TransformersRequest r;
    r.mode = mode;
    r.max_memory = {{{"0", Number::whole(20)}, {"1", Number::whole(20)}, {"cpu", Number::whole(200)}}};
    const auto result = plan_as_transformers(tree, r);
    ASSERT_TRUE(result);
    for (const auto& [device, bytes] : result->counted)
      if (device.index()) EXPECT_LE(bytes, Number::whole(20));
  }
  const arch::ModuleTree twelve = blocks_of(std::vector<int>(12, 10), 0, 0);
  TransformersRequest r;
  r.max_memory = {
      {{"0", Number::whole(100)}, {"1", Number::whole(0)}, {"2", Number::whole(100)}, {"cpu", Number::whole(1000)}}};
  const auto result = plan_as_transformers(twelve, r);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->balanced->find(DeviceName::accelerator(0))->text(), "72");
  EXPECT_EQ(layer_counts(*result, twelve, "Layer"), "0:6 2:6 ");
}

// BR-029: ties by name between two stacks; what is tied goes together while it fits, and counts once.
TEST(CompatTransformers, TiedStacksCountOnceAndAreTold) {
  const auto stack = [](const char* name) {
    std::string s;
    for (int i = 0; i < 4; ++i)
      s += (i ? "," : "") + ("[\"" + std::to_string(i)) +
           R"(",{"c":"Layer","m":[["w",{"c":"L","p":[["weight",[10],"i8"]]}]]}])";
    return std::string("[\"") + name + R"(",{"c":"Stack","m":[["layers",{"c":"ModuleList","m":[)" + s + "]}]]}]";
  };
  std::string ties;
  for (int i = 0; i < 4; ++i) {
    const std::string tail = ".layers." + std::to_string(i) + ".w.weight\"";
    ties += (i ? "," : "") + ("[\"decoder" + tail + ",\"encoder" + tail + "]");
  }
  const auto tree = arch::parse_tree_json(R"({"tree":{"c":"M","m":[)" + stack("encoder") + "," + stack("decoder") +
                                              R"(]},"no_split":["Layer"],"ties":[)" + ties + "]}",
                                          {.require_format = false});
  ASSERT_TRUE(tree) << tree.error().message;
  const CompatResult roomy = planned(*tree, Revision::kCurrent, {30, 60}, 1000);
  EXPECT_EQ(roomy.total.text(), "40");
  const CompatResult tight = planned(*tree, Revision::kCurrent, {30, 40}, 1000);
  ASSERT_TRUE(tight.error);  // as there: the whole decoder went with the encoder's first layer
  EXPECT_EQ(tight.error->raised.type, "IndexError");
  EXPECT_NE(tight.error->raised.message.find("decoder.layers.1.w.weight"), std::string::npos);
  const CompatResult one = planned(*tree, Revision::kCurrent, {50}, 1000);
  ASSERT_TRUE(one.map);
  for (const auto& [target, source] : tree->ties)
    EXPECT_EQ(*one.map->lookup(target), *one.map->lookup(source)) << target;
  // a tie that names nothing is an error before planning
  EXPECT_FALSE(arch::parse_tree_json(
      R"({"tree":{"c":"M","m":[)" + stack("encoder") + R"(]},"ties":[["decoder.layers.*","encoder.layers.*"]]})",
      {.require_format = false}));
}

TEST(CompatJsonl, AnswersUnreadableLinesWithTheReason) {
  const auto answer = [](const std::string& line) { return plan_compat_line(line); };
  EXPECT_NE(answer("{").find(R"("id":null,"error":{"stage":"read","type":"corrupt_data"})"), std::string::npos);
  EXPECT_NE(answer(R"({"id":7,"library":"vllm"})")
                .find(R"({"id":7,"error":{"stage":"read","type":"invalid_argument"},"message":"\"library\" must be)"),
            std::string::npos);
  EXPECT_NE(answer(R"({"library":"accelerate","mode":"best"})").find("\\\"mode\\\" must be"), std::string::npos);
  EXPECT_NE(answer(R"({"library":"accelerate","mode":"auto"})").find("max_memory"), std::string::npos);
  EXPECT_NE(answer(R"({"library":"accelerate","mode":"auto","max_memory":{"0":[]}})").find("must be bytes"),
            std::string::npos);
  EXPECT_NE(answer(R"({"library":"accelerate","mode":"auto","max_memory":{"0":1},"tree":{"c":"M"},"dtype":"f17"})")
                .find("a type's name"),
            std::string::npos);
  EXPECT_NE(answer(R"({"library":"transformers","mode":"auto","max_memory":{"0":1},"tree":{"c":"M"},"quant":"gptq"})")
                .find("\\\"quant\\\" must be"),
            std::string::npos);
  EXPECT_EQ(answer(R"({"id":"x","library":"accelerate","mode":"sequential","max_memory":{"0":1},"tree":{"c":"M"}})"),
            R"({"id":"x","map":{}})");
}

TEST(CompatJsonl, BadBudgetsAreTheLibrarysErrors) {
  const std::string more = R"(,"mode":"sequential","tree":{"c":"M"},"max_memory":)";
  EXPECT_NE(plan_compat_line(R"({"id":1,"library":"transformers")" + more + R"({"0":"1TB"}})")
                .find(R"("error":{"stage":"balance","type":"ValueError"})"),
            std::string::npos);
  EXPECT_NE(plan_compat_line(R"({"id":1,"library":"accelerate")" + more + R"({"cuda:0":1}})")
                .find(R"("error":{"stage":"plan","type":"ValueError"})"),
            std::string::npos);
}

TEST(CompatTransformers, LoaderMatchesKeysWithoutABoundary) {  // D28
  const auto map = [](const char* json) { return *parse_device_map(json); };
  EXPECT_EQ(loader_device(map(R"({"model.layers.1":0,"":"cpu"})"), "model.layers.12.mlp.weight")->text(), "0");
  EXPECT_EQ(loader_device(map(R"({"model.layers.1":0,"model.layers.12":1})"), "model.layers.12.mlp.weight")->text(),
            "1");  // longest first
  EXPECT_EQ(loader_device(map(R"({"model.layers.1":0})"), "lm_head.weight")->text(), "cpu");
  EXPECT_EQ(loader_device(map(R"({"":3})"), "lm_head.weight")->text(), "3");
  EXPECT_EQ(loader_device(map(R"({"a.b":0,"":1})"), "aXb.weight"), std::nullopt);  // the dot matched an X: KeyError
}

TEST(CompatTransformers, OffloadFlagLetsTheMapThrough) {
  const DeviceMap mixed = *parse_device_map(R"({"a":0,"b":"cpu"})"), cpu = *parse_device_map(R"({"":"cpu"})"),
                  disk = *parse_device_map(R"({"":"disk"})");
  EXPECT_TRUE(bitsandbytes_refuses(mixed, false));
  EXPECT_FALSE(bitsandbytes_refuses(mixed, true));
  EXPECT_FALSE(bitsandbytes_refuses(cpu, false));
  EXPECT_TRUE(bitsandbytes_refuses(disk, false));
}

// D21: one card without max_memory is cut twice, and the RAM twice as well.
TEST(CompatTransformers, UnsetBudgetsAreDiscountedTwice) {
  std::string blocks;
  for (int i = 0; i < 9; ++i)
    blocks += (i ? "," : "") + ("[\"l" + std::to_string(i)) + R"(",{"c":"Linear4bit","p":[["weight",[20],"i8"]]}])";
  const auto tree = arch::parse_tree_json(R"({"tree":{"c":"M","m":[)" + blocks + "]}}", {.require_format = false});
  ASSERT_TRUE(tree);
  TransformersRequest r;
  r.quantizer = Quantizer::kBitsandbytes;
  r.free_bytes = {100};
  r.available_ram = 1000;
  const auto result = plan_as_transformers(*tree, r);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->balanced->find(DeviceName::accelerator(0))->text(), "90.0");
  EXPECT_EQ(result->adjusted->find(DeviceName::accelerator(0))->text(), "81.0");
  EXPECT_EQ(result->adjusted->find(DeviceName::cpu())->text(), "810.0");
  EXPECT_EQ(device_map_json(*result->map),
            R"({"l0":0,"l1":0,"l2":0,"l3":0,"l4":0,"l5":0,"l6":0,"l7":"cpu","l8":"cpu"})");
  ASSERT_TRUE(result->error);
  EXPECT_EQ(result->error->stage, Stage::kValidate);
  EXPECT_EQ(result->counted.size(), 2u);
  EXPECT_EQ(result->counted[0].second.text(), "70.0");
}

// Cards past the first are no help to a planner that must end: 10^5 leaves of many sizes, in well under a second.
TEST(CompatSpeed, PlansAHundredThousandModules) {
  std::string leaves;
  constexpr int kLeaves = 100000;
  for (int i = 0; i < kLeaves; ++i)
    leaves += (i ? "," : "") + ("[\"x" + std::to_string(i)) + R"(",{"c":"L","p":[["w",[)" +
              std::to_string(kLeaves + 5 - i) + R"(],"i8"]]}])";
  const auto tree = arch::parse_tree_json(R"({"tree":{"c":"M","m":[["body",{"c":"B","m":[)" + leaves + "]}]]}}",
                                          {.require_format = false});
  ASSERT_TRUE(tree);
  const uint64_t total = uint64_t{kLeaves} * (kLeaves + 1) / 2;
  AccelerateRequest r;
  r.max_memory.emplace();
  for (int i = 0; i < 8; ++i)
    r.max_memory->push_back({std::to_string(i), Number::whole(static_cast<Wide>(total / 10))});
  const std::clock_t start = std::clock();
  const auto result = plan_as_accelerate(*tree, r);
  const double s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(result);
  EXPECT_EQ(result->map->devices().size(), 9u);
  std::printf("[ counts   ] %d leaves on 8 devices: %.3f s\n", kLeaves, s);
  EXPECT_LT(s, 30.0);  // of the processor; loose for sanitizers
}

}  // namespace
}  // namespace berth::plan::compat
