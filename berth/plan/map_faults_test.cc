// What goes wrong with a map on a machine: one line for each thing, and none where nothing does.
#include "berth/plan/map_faults.h"

#include <gtest/gtest.h>

#include "berth/arch/tree_json.h"
#include "berth/plan/strategies/compat_accelerate.h"
#include "berth/plan/strategies/compat_transformers.h"

namespace berth::plan {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// embed 40 MiB, `blocks` of 10 (8 + 2), head 40 tied to embed where `tied`. Sizes as stored: see stored().
arch::ModuleTree model(int blocks, bool tied = false, const std::string& linear = "Linear") {
  std::string layers;
  for (int i = 0; i < blocks; ++i)
    layers += (i ? "," : "") + ("[\"" + std::to_string(i)) + R"(",{"c":"Block","m":[["attn",{"c":")" + linear +
              R"(","p":[["weight",[8,1048576],"i8"]]}],["mlp",{"c":")" + linear +
              R"(","p":[["weight",[2,1048576],"i8"]]}]]}])";
  const std::string json =
      R"({"tree":{"c":"M","m":[["embed",{"c":"Embedding","p":[["weight",[40,1048576],"i8"]]}],["layers",{"c":"ModuleList","m":[)" +
      layers + R"(]}],["head",{"c":"Linear","p":[["weight",[40,1048576],"i8"]]}]]},"no_split":["Block"])" +
      (tied ? R"(,"ties":[["head.weight","embed.weight"]])" : "") + "}";
  const auto tree = arch::parse_tree_json(json, {.require_format = false});
  EXPECT_TRUE(tree) << (tree ? "" : tree.error().message);
  return *tree;
}

struct Case {
  arch::ModuleTree tree;
  DeviceMap map;
  std::vector<DeviceLimit> limits;
  MapFaultsRequest request;

  Case(arch::ModuleTree t, const char* json, std::vector<uint64_t> cards_mib, uint64_t cpu_mib = 100000)
      : tree(std::move(t)), map(*parse_device_map(json)) {
    for (size_t i = 0; i < cards_mib.size(); ++i)
      limits.push_back({DeviceName::accelerator(static_cast<int64_t>(i)), cards_mib[i] * kMiB});
    limits.push_back({DeviceName::cpu(), cpu_mib * kMiB});
  }
  std::vector<MapFault> run() {
    request.tree = &tree;
    request.map = &map;
    request.limits = limits;
    if (!request.stored_bytes)
      request.stored_bytes = [this](const std::string& path) {
        const size_t dot = path.rfind('.');
        const arch::Module* m = tree.find(path.substr(0, dot));
        return element_count(m->parameters[0].shape).value();
      };
    return map_faults(request);
  }
};

const MapFault* find(const std::vector<MapFault>& faults, MapFaultKind kind) {
  for (const auto& f : faults)
    if (f.kind == kind) return &f;
  return nullptr;
}
std::string kinds(const std::vector<MapFault>& faults) {
  std::string s;
  for (const auto& f : faults) s += std::string(map_fault_name(f.kind)) + " ";
  return s;
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(MapFaults, NothingToSayAboutAMapThatFits) {
  EXPECT_EQ(kinds(Case(model(4), R"({"embed":0,"layers":0,"head":1})", {100, 50}).run()), "");
}

TEST(MapFaults, OverBudgetOnceRealBytesCount) {
  Case c(model(4), R"({"embed":0,"layers":0,"head":1})", {82, 50});
  c.request.stored_bytes = [](const std::string& path) {
    return (path.find("layers") != std::string::npos ? 6 : 40) * kMiB;
  };  // 8 tensors of 6
  const auto faults = c.run();
  ASSERT_EQ(kinds(faults), "over_budget ");
  EXPECT_EQ(faults[0].needed_bytes, 88 * kMiB);
  EXPECT_EQ(faults[0].available_bytes, 82 * kMiB);
  EXPECT_EQ(faults[0].device, "0");
  EXPECT_SAYS(faults[0].message, "6.00 MiB more");
}

TEST(MapFaults, KvCacheIsNotCounted) {
  Case c(model(4), R"({"embed":0,"layers.0":0,"layers.1":0,"layers.2":1,"layers.3":1,"head":1})", {62, 100});
  const std::vector<KvShare> kv = {{"layers.0.attn", 2 * kMiB}, {"layers.1.attn", 2 * kMiB}, {"layers.2", 2 * kMiB}};
  c.request.kv = kv;
  c.request.kv_for = "8,500 tokens";
  const auto faults = c.run();
  ASSERT_EQ(kinds(faults), "kv_not_counted ");
  EXPECT_EQ(faults[0].device, "0");
  EXPECT_EQ(faults[0].needed_bytes, 64 * kMiB);
  EXPECT_SAYS(faults[0].message, "8,500 tokens");
}

TEST(MapFaults, EmptyAcceleratorsAndModulesOnTheCpuAlthoughAllFits) {
  Case c(model(4), R"({"embed":1,"layers":1,"head":"cpu"})", {100, 100, 0, 100});
  auto faults = c.run();
  ASSERT_EQ(kinds(faults), "no_room_to_stream empty_accelerators offloaded_although streamed ");
  EXPECT_SAYS(find(faults, MapFaultKind::kEmptyAccelerators)->message,
              "Accelerators 0 and 3");  // 2 is excluded, not empty
  EXPECT_SAYS(find(faults, MapFaultKind::kOffloadedAlthough)->message, "accelerators together 300 MiB");
  EXPECT_SAYS(find(faults, MapFaultKind::kStreamed)->message, "copied to device 1 for every token, 40.0 MiB");
  EXPECT_EQ(find(faults, MapFaultKind::kNoRoomToStream)->needed_bytes, 120 * kMiB);
  c.request.native = NativeAnswer{true, {DeviceName::accelerator(0), DeviceName::accelerator(1)}};
  faults = c.run();
  EXPECT_SAYS(find(faults, MapFaultKind::kOffloadedAlthough)->message, "everything fits on accelerators 0 and 1");
  c.request.native = NativeAnswer{false, {}};
  EXPECT_EQ(find(c.run(), MapFaultKind::kOffloadedAlthough), nullptr);
}

TEST(MapFaults, NamesWhatIsAwayWithItsBytes) {  // BR-066
  const auto faults =
      Case(model(3), R"({"embed":0,"layers.0":0,"layers.1":0,"layers.2":"disk","head":"disk"})", {70}).run();
  const auto* f = find(faults, MapFaultKind::kStreamed);
  ASSERT_NE(f, nullptr);
  EXPECT_SAYS(f->message, "3 modules (50.0 MiB: \"layers.2\" 10.0 MiB, \"head\" 40.0 MiB)");
}

TEST(MapFaults, TensorKeysThatCutABlockAreTold) {  // BR-056
  const auto faults =
      Case(
          model(2),
          R"({"embed.weight":0,"layers.0.attn.weight":0,"layers.0.mlp.weight":1,"layers.1.attn.weight":1,"layers.1.mlp.weight":1,"head.weight":1})",
          {100, 100})
          .run();
  ASSERT_EQ(kinds(faults), "block_split ");
  EXPECT_EQ(faults[0].module, "layers.0");
}

TEST(MapFaults, TensorOwnedBySplitBlockHasNoDevice) {  // BR-011: as the libraries' maps leave it; D15
  const auto tree = arch::parse_tree_json(
      R"({"tree":{"c":"M","m":[["l",{"c":"Block","m":[["attn",{"c":"L","p":[["w",[6],"i8"]]}],["mlp",{"c":"L","p":[["w",[8],"i8"]]}]],"b":[["scalar",[2],"i8",true]]}]]}})",
      {.require_format = false});
  ASSERT_TRUE(tree);
  compat::TransformersRequest r;
  r.mode = compat::Mode::kSequential;
  r.max_memory = {
      {{"0", compat::Number::whole(0)}, {"1", compat::Number::whole(8)}, {"2", compat::Number::whole(100)}}};
  const auto planned = compat::plan_as_transformers(*tree, r);
  ASSERT_TRUE(planned && planned->map);
  MapFaultsRequest request;
  request.tree = &*tree;
  request.map = &*planned->map;
  const std::vector<DeviceLimit> limits = {{DeviceName::accelerator(1), 8}, {DeviceName::accelerator(2), 100}};
  request.limits = limits;
  request.stored_bytes = [](const std::string& path) {
    return path.find("mlp") != std::string::npos ? 8 : path.find("attn") != std::string::npos ? 6 : 2;
  };
  const auto faults = map_faults(request);
  const auto* f = find(faults, MapFaultKind::kNoDevice);
  ASSERT_NE(f, nullptr) << device_map_json(*planned->map);
  EXPECT_EQ(f->module, "l.scalar");
  EXPECT_SAYS(f->message, "dispatching refuses");
}

TEST(MapFaults, QuantizedModulesOnTheCpuAreRefusedOrWidened) {
  Case c(model(2, false, "Linear4bit"), R"({"embed":0,"layers.0":0,"layers.1":"cpu","head":0})", {200});
  c.request.bitsandbytes = true;
  c.request.wide_bytes = [](const std::string&) { return 20 * kMiB; };
  EXPECT_SAYS(find(c.run(), MapFaultKind::kQuantizedRefused)->message,
              "2 quantized modules (\"layers.1.attn\" first) are there");
  c.request.enable_fp32_cpu_offload = true;
  c.request.map_is_users = true;
  auto faults = c.run();
  EXPECT_EQ(find(faults, MapFaultKind::kQuantizedRefused), nullptr);
  EXPECT_EQ(find(faults, MapFaultKind::kQuantizedWidened)->needed_bytes, 40 * kMiB);
  EXPECT_EQ(find(faults, MapFaultKind::kQuantizedWidened)->available_bytes, 10 * kMiB);
  c.request.map_is_users = false;
  EXPECT_SAYS(find(c.run(), MapFaultKind::kQuantizedWidened)->message, "stay quantized");
}

TEST(MapFaults, RefusesWhereOnlyTheHeadIsOnTheCpu) {
  Case c(model(2, false, "Linear4bit"), R"({"embed":0,"layers":0,"head":"cpu"})", {200});
  c.request.bitsandbytes = true;
  EXPECT_SAYS(find(c.run(), MapFaultKind::kQuantizedRefused)->message, "no quantized module is even there");
}

TEST(MapFaults, TiedTensorsOnTwoDevicesAreHeldTwice) {
  const auto faults = Case(model(2, true), R"({"embed":0,"layers":1,"head":1})", {100, 100}).run();
  ASSERT_EQ(kinds(faults), "ties_split ");
  EXPECT_SAYS(faults[0].message, "\"embed.weight\" on 0, \"head.weight\" on 1");
  EXPECT_EQ(faults[0].needed_bytes, 80 * kMiB);
  EXPECT_EQ(kinds(Case(model(2, true), R"({"":0})", {60}).run()), "");  // counted once: 40 + 20
}

TEST(MapFaults, DividedBlocksAndTensorsWithoutADevice) {
  const auto faults =
      Case(model(3), R"({"embed":0,"layers.0":0,"layers.1.attn":0,"layers.1.mlp":1,"head":1})", {100, 100}).run();
  ASSERT_EQ(kinds(faults), "no_device block_split ");
  EXPECT_SAYS(faults[0].message, "2 tensors have no device, \"layers.2.attn.weight\" first");
  EXPECT_EQ(faults[1].module, "layers.1");
}

TEST(MapFaults, LeafLargerThanAnyDeviceIsNamed) {
  const auto faults = Case(model(2), R"({"embed":"cpu","layers":0,"head":"cpu"})", {30, 35}).run();
  const auto* f = find(faults, MapFaultKind::kTooLargeForAny);
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->module, "embed");
  EXPECT_EQ(f->needed_bytes, 40 * kMiB);
  EXPECT_EQ(f->available_bytes, 35 * kMiB);
  EXPECT_SAYS(f->message, "1 more");
}

TEST(MapFaults, LoaderReadsAnotherDeviceThanTheMapSays) {  // D28
  const auto faults = Case(model(11), R"({"layers.1":0,"":1})", {300, 300}).run();
  const auto* f = find(faults, MapFaultKind::kLoaderReadsOtherwise);
  ASSERT_NE(f, nullptr);
  EXPECT_SAYS(f->message, "2 parameters elsewhere");
  EXPECT_SAYS(f->message, "layers.10");
}

TEST(MapFaults, LibraryThatStopsAndLibraryThatUsesNoRam) {
  Case c(model(12), "{}", {100});
  compat::AccelerateRequest r;
  r.mode = compat::Mode::kSequential;
  r.max_memory = {{{"0", compat::Number::whole(100 * kMiB)}}};
  auto planned = compat::plan_as_accelerate(c.tree, r);
  ASSERT_TRUE(planned && planned->map);
  c.map = *planned->map;
  c.request.planned = &*planned;
  auto faults = c.run();
  EXPECT_SAYS(find(faults, MapFaultKind::kNoCpuBudget)->message, "max_memory names no \"cpu\"");  // BR-045
  r.max_memory = {{{"0", compat::Number::whole(100)}, {"disk", compat::Number::whole(100)}}};
  r.mode = compat::Mode::kBalanced;
  planned = compat::plan_as_accelerate(c.tree, r);
  ASSERT_TRUE(planned && planned->error);
  faults = c.run();
  EXPECT_SAYS(find(faults, MapFaultKind::kRefused)->message,
              "accelerate stops while balancing with RuntimeError");  // BR-043
}

}  // namespace
}  // namespace berth::plan
