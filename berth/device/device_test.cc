// device/device_test.cc — opening a machine's devices, their limits, copies and what they are counted as.
#include "berth/device/device.h"

#include <gtest/gtest.h>

#include <cstring>

#include "berth/machine/budget.h"

namespace berth::device {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

machine::Machine two_cards() {
  machine::Machine m;
  m.devices = {machine::default_cpu(1024 * kMiB), machine::emulated_device(0, 4 * kMiB),
               machine::emulated_device(1, 2 * kMiB), machine::default_disk(1024 * kMiB)};
  return m;
}

DeviceSet opened(const machine::Machine& m, std::string_view max_memory = "") {
  machine::MemoryCaps caps;
  if (!max_memory.empty()) caps = *machine::parse_max_memory(max_memory);
  const auto budgets = machine::device_budgets(m, caps);
  EXPECT_TRUE(budgets);
  auto set = open_devices(m, budgets->devices);
  EXPECT_TRUE(set) << (set ? "" : set.error().message);
  return std::move(*set);
}

TEST(OpenDevices, AcceleratorsComeFirstThenTheCpu) {
  const DeviceSet set = opened(two_cards());
  ASSERT_EQ(set.devices().size(), 3u);
  EXPECT_EQ(set.devices()[0]->id(), "emu:0");
  EXPECT_EQ(set.devices()[1]->map_name(), "1");
  EXPECT_EQ(set.devices()[2]->kind(), machine::DeviceKind::kCpu);
  EXPECT_EQ(set.find("emu:1"), set.find("1"));
  EXPECT_EQ(set.find("2"), nullptr);
  EXPECT_EQ(set.find("disk"), nullptr);
  EXPECT_EQ(&set.cpu(), set.find("cpu"));
}

TEST(OpenDevices, ArenasHaveTheUsableBytesAsTheirHardLimit) {
  const DeviceSet set = opened(two_cards(), "0=1MiB,1=2MiB");
  Arena& arena = set.find("0")->arena();
  EXPECT_EQ(arena.budget_bytes(), kMiB);
  auto full = arena.allocate(kMiB, Tag::kWeights);
  ASSERT_TRUE(full);
  const auto more = arena.allocate(1, Tag::kKv);
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message.find("emu:0"), std::string::npos);
  EXPECT_EQ(set.find("1")->arena().budget_bytes(), 2 * kMiB);
  EXPECT_EQ(set.cpu().arena().budget_bytes(), (1024 - 64) * kMiB) << "less the margin";
}

TEST(OpenDevices, DevicesLeftOutAreNotOpened) {
  const DeviceSet set = opened(two_cards(), "1=2MiB");
  EXPECT_EQ(set.find("0"), nullptr);
  ASSERT_NE(set.find("1"), nullptr);
  EXPECT_EQ(set.find("1")->id(), "emu:1");
}

TEST(OpenDevices, AMachineWithoutACpuStillHasTheHost) {
  machine::Machine m;
  m.devices = {machine::emulated_device(0, kMiB)};
  const DeviceSet set = opened(m);
  EXPECT_EQ(set.cpu().arena().budget_bytes(), 0u);
  EXPECT_FALSE(set.cpu().arena().allocate(1, Tag::kWeights));
}

TEST(OpenDevices, EachDeviceHasItsOwnKernels) {
  machine::Machine m = two_cards();
  m.devices[1].kernels = Isa::kRef;
  const auto budgets = machine::device_budgets(m);
  const auto set = open_devices(m, budgets->devices, {.isa = best_isa()});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->find("0")->isa(), Isa::kRef);
  EXPECT_EQ(set->find("1")->isa(), best_isa());
  EXPECT_EQ(set->cpu().isa(), best_isa());
}

TEST(OpenDevices, KernelsThatThisCpuLacksAreAnErrorNamingTheDevice) {
  Isa lacking = Isa::kRef;
  for (const Isa isa : all_isas())
    if (!isa_available(isa)) lacking = isa;
  ASSERT_NE(lacking, Isa::kRef) << "no CPU has both neon and avx2";
  machine::Machine m = two_cards();
  m.devices[2].kernels = lacking;
  const auto budgets = machine::device_budgets(m);
  const auto set = open_devices(m, budgets->devices);
  ASSERT_FALSE(set);
  EXPECT_EQ(set.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(set.error().message.find("\"emu:1\""), std::string::npos);
  EXPECT_NE(set.error().message.find(isa_name(lacking)), std::string::npos);
}

TEST(OpenDevices, BudgetsOfAnotherMachineAreRefused) {
  const auto budgets = machine::device_budgets(two_cards());
  machine::Machine other = two_cards();
  other.devices.pop_back();
  EXPECT_FALSE(open_devices(other, budgets->devices));
  machine::Machine renamed = two_cards();
  renamed.devices[1].id = "emu:9";
  EXPECT_FALSE(open_devices(renamed, budgets->devices));
}

TEST(OpenDevices, CudaNeedsABuildOrADevice) {
  machine::Machine m = two_cards();
  m.devices[1].kind = machine::DeviceKind::kCuda;
  m.devices[1].id = "cuda:9999";  // a number no host has
  const auto budgets = machine::device_budgets(m);
  const auto set = open_devices(m, budgets->devices);
  ASSERT_FALSE(set);
  EXPECT_NE(set.error().message.find("cuda:9999"), std::string::npos) << set.error().message;
  if (set.error().code == ErrorCode::kUnsupported) {
    ASSERT_FALSE(set.error().hints.empty());
    EXPECT_NE(set.error().hints[0].find("BERTH_CUDA=ON"), std::string::npos);
  } else {
    EXPECT_EQ(set.error().code, ErrorCode::kDevice);
  }
}

TEST(Copies, MoveBytesAndAreCountedPerWay) {
  DeviceSet set = opened(two_cards());
  Device& zero = *set.find("0");
  Device& one = *set.find("1");
  auto a = set.cpu().arena().allocate(1000, Tag::kStaging);
  auto b = zero.arena().allocate(1000, Tag::kWeights);
  auto c = one.arena().allocate(1000, Tag::kWeights);
  ASSERT_TRUE(a && b && c);
  for (size_t i = 0; i < 1000; ++i) a->data()[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(set.copy(zero, b->data(), set.cpu(), a->data(), 1000));
  ASSERT_TRUE(set.copy(one, c->data(), zero, b->data(), 600));
  ASSERT_TRUE(set.copy(one, c->data() + 600, zero, b->data() + 600, 400));
  ASSERT_TRUE(set.copy(one, c->data(), zero, b->data(), 0)) << "nothing is no copy";
  EXPECT_EQ(std::memcmp(a->data(), c->data(), 1000), 0);
  const std::vector<LinkTraffic> traffic = set.traffic();
  ASSERT_EQ(traffic.size(), 2u);
  EXPECT_EQ(traffic[0].from + ">" + traffic[0].to, "cpu>0");
  EXPECT_EQ(traffic[0].bytes, 1000u);
  EXPECT_EQ(traffic[1].from + ">" + traffic[1].to, "0>1");
  EXPECT_EQ(traffic[1].bytes, 1000u);
  EXPECT_EQ(traffic[1].copies, 2u);
  set.reset_traffic();
  EXPECT_TRUE(set.traffic().empty());
}

TEST(Streams, HostCopiesAreDoneWhenWaitedFor) {
  DeviceSet set = opened(two_cards());
  Device& zero = *set.find("0");
  auto stream = zero.make_stream();
  ASSERT_TRUE(stream);
  auto there = zero.arena().allocate(64, Tag::kStaging);
  ASSERT_TRUE(there);
  std::byte here[64], back[64];
  std::memset(here, 5, sizeof here);
  ASSERT_TRUE((*stream)->queue_from_host(there->data(), here, 64));
  ASSERT_TRUE((*stream)->queue_to_host(back, there->data(), 64));
  ASSERT_TRUE((*stream)->wait());
  EXPECT_EQ(std::memcmp(here, back, 64), 0);
}

}  // namespace
}  // namespace berth::device
