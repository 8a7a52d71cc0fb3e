// machine/budget_test.cc — caps, margins and what is left out.
#include "berth/machine/budget.h"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

Machine two_cards() {
  Machine m;
  m.devices = {emulated_device(0, 16 * kGiB), emulated_device(1, 8 * kGiB), default_cpu(48 * kGiB),
               default_disk(1000 * kGiB)};
  return m;
}

MemoryCaps caps(std::string_view text) {
  auto parsed = parse_max_memory(text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? std::move(*parsed) : MemoryCaps{};
}

std::vector<uint64_t> budget_bytes(const Machine& m, std::string_view text) {
  const auto budgets = device_budgets(m, caps(text), {.bytes = 0, .share = {}});
  EXPECT_TRUE(budgets) << text;
  std::vector<uint64_t> out;
  if (budgets)
    for (const DeviceBudget& b : budgets->devices) out.push_back(b.budget_bytes);
  return out;
}

TEST(MaxMemory, ContractFormIsRead) {
  const MemoryCaps c = caps("0=18GiB,1=10GiB,cpu=48GiB");
  ASSERT_EQ(c.entries.size(), 3u);
  EXPECT_EQ(c.entries[0].name, "0");
  EXPECT_EQ(c.entries[0].bytes, 18 * kGiB);
  EXPECT_EQ(c.entries[2].name, "cpu");
  EXPECT_TRUE(c.notes.empty());
}

TEST(MaxMemory, JsonFormIsTheSame) {
  const MemoryCaps c = caps(R"({"0": "16GB", "cuda:1": 1234, "cpu": "64GB", "disk": 0})");
  ASSERT_EQ(c.entries.size(), 4u);
  EXPECT_EQ(c.entries[0].bytes, 16'000'000'000u);
  EXPECT_EQ(c.entries[1].bytes, 1234u);
  EXPECT_EQ(c.entries[3].bytes, 0u);
}

TEST(MaxMemory, LowerCaseBIsBytesAndNoted) {
  const MemoryCaps c = caps("0=10gb");
  EXPECT_EQ(c.entries[0].bytes, 10'000'000'000u);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_NE(c.notes[0].find("bytes, not bits"), std::string::npos);
}

TEST(MaxMemory, MalformedEntriesAreRefused) {
  for (const char* text : {"",
                           "0",
                           "0=",
                           "=1GiB",
                           "00=1GiB",
                           " 0=1GiB",
                           "0 =1GiB",
                           "0x0=1GiB",
                           "-1=1GiB",
                           "+1=1GiB",
                           "0=1GiB,,1=2GiB",
                           "0=-1",
                           "0=1XB",
                           "0=1GiB,0=2GiB",
                           "{",
                           "[1]",
                           "{\"0\": -1}",
                           "{\"0\": 1.5}",
                           "{\"0\": null}",
                           "{\"0\": 1, \"0\": 2}",
                           "0=9000000TB"}) {
    const auto parsed = parse_max_memory(text);
    EXPECT_FALSE(parsed) << text;
    if (!parsed) EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

TEST(Budgets, WithoutCapsEveryDeviceHasItsMemory) {
  const auto b = device_budgets(two_cards());
  ASSERT_TRUE(b);
  ASSERT_EQ(b->devices.size(), 4u);
  EXPECT_EQ(b->devices[0].map_name, "0");
  EXPECT_EQ(b->devices[0].machine_id, "emu:0");
  EXPECT_EQ(b->devices[0].budget_bytes, 16 * kGiB);
  EXPECT_EQ(b->devices[0].usable_bytes(), 16 * kGiB) << "no margin on an emulated device";
  EXPECT_EQ(b->devices[2].map_name, "cpu");
  EXPECT_EQ(b->devices[2].margin_bytes, (48 * kGiB + 99) / 100) << "1 % on the cpu";
  EXPECT_EQ(b->devices[3].margin_bytes, 0u) << "none on the disk";
  EXPECT_TRUE(b->notes.empty());
}

TEST(Budgets, OneNamedAcceleratorLeavesTheOthersOutButNotCpuAndDisk) {
  EXPECT_EQ(budget_bytes(two_cards(), "1=4GiB"), (std::vector<uint64_t>{0, 4 * kGiB, 48 * kGiB, 1000 * kGiB}));
  const auto b = device_budgets(two_cards(), caps("1=4GiB"));
  EXPECT_TRUE(b->devices[0].left_out);
  EXPECT_EQ(b->devices[1].map_name, "1") << "the number stays";
  ASSERT_EQ(b->notes.size(), 1u);
}

TEST(Budgets, NamingOnlyTheCpuKeepsTheAccelerators) {
  EXPECT_EQ(budget_bytes(two_cards(), "cpu=1GiB"), (std::vector<uint64_t>{16 * kGiB, 8 * kGiB, kGiB, 1000 * kGiB}));
}

TEST(Budgets, ZeroExcludes) {
  EXPECT_EQ(budget_bytes(two_cards(), "0=0,1=1GiB,cpu=0,disk=0"), (std::vector<uint64_t>{0, kGiB, 0, 0}));
  const auto b = device_budgets(two_cards(), caps("0=0,cpu=0"));
  EXPECT_TRUE(b->devices[0].left_out);
  EXPECT_TRUE(b->devices[2].left_out);
  EXPECT_EQ(b->devices[2].margin_bytes, 0u);
  EXPECT_EQ(b->devices[2].usable_bytes(), 0u);
}

TEST(Budgets, ACapAboveTheMemoryChangesNothingAndSaysSo) {
  const auto b = device_budgets(two_cards(), caps("0=18GiB,1=8GiB"));
  EXPECT_EQ(b->devices[0].budget_bytes, 16 * kGiB);
  ASSERT_EQ(b->notes.size(), 1u);
  EXPECT_NE(b->notes[0].find("18.0 GiB changes nothing"), std::string::npos) << b->notes[0];
}

TEST(Budgets, NumbersAndIdsNameTheSameDevice) {
  EXPECT_EQ(budget_bytes(two_cards(), "cuda:0=1GiB"), budget_bytes(two_cards(), "0=1GiB"));
  EXPECT_EQ(budget_bytes(two_cards(), "emu:0=1GiB"), budget_bytes(two_cards(), "0=1GiB"));
  for (const char* twice : {"0=1GiB,cuda:0=1GiB", "emu:1=1GiB,1=1GiB"}) {
    const auto b = device_budgets(two_cards(), caps(twice));
    ASSERT_FALSE(b) << twice;
    EXPECT_NE(b.error().message.find("the same device"), std::string::npos);
  }
}

TEST(Budgets, MixedMachinesAreNamedById) {
  Machine m = two_cards();
  m.devices[0].id = "cuda:0";
  m.devices[0].kind = DeviceKind::kCuda;
  m.devices[1].id = "emu:0";
  ASSERT_TRUE(validate(m));
  EXPECT_EQ(budget_bytes(m, "cuda:0=2GiB,emu:0=1GiB"), (std::vector<uint64_t>{2 * kGiB, kGiB, 48 * kGiB, 1000 * kGiB}));
}

TEST(Budgets, AbsentAcceleratorsAreRefusedWithTheNumberThereIs) {
  const auto b = device_budgets(two_cards(), caps("7=1GiB"));
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(b.error().message.find("accelerator \"7\", but the machine has 2 accelerators"), std::string::npos)
      << b.error().message;
  const auto unknown = device_budgets(two_cards(), caps("gpu0=1GiB"));
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("no device \"gpu0\""), std::string::npos);
  EXPECT_NE(unknown.error().message.find("cpu, disk"), std::string::npos) << "lists the legal names";
}

TEST(MachineForCaps, AddsWhatOnlyTheCapsName) {
  const auto m = machine_for_caps(two_cards(), caps("0=1GiB,4=3GiB"), BeyondMachine::kEmulate);
  ASSERT_TRUE(m);
  ASSERT_EQ(m->accelerators().size(), 5u);
  EXPECT_EQ(m->map_name(4), "4");
  EXPECT_EQ(m->devices[4].memory_bytes, 3 * kGiB);
  EXPECT_EQ(m->devices[4].id, "emu:4");
  EXPECT_EQ(m->devices[3].memory_bytes, 0u) << "3 comes along with nothing";
  EXPECT_EQ(m->devices[5].kind, DeviceKind::kCpu);
  EXPECT_EQ(budget_bytes(*m, "0=1GiB,4=3GiB"),
            (std::vector<uint64_t>{kGiB, 0, 0, 0, 3 * kGiB, 48 * kGiB, 1000 * kGiB}));
}

TEST(MachineForCaps, WorksWithoutAnyAccelerator) {
  Machine m;
  m.devices = {default_cpu(4 * kGiB)};
  const auto wide = machine_for_caps(m, caps("0=18GiB,1=10GiB,cpu=2GiB,disk=0"), BeyondMachine::kEmulate);
  ASSERT_TRUE(wide);
  EXPECT_EQ(wide->map_name(0), "0");
  EXPECT_EQ(wide->devices[1].memory_bytes, 10 * kGiB);
  EXPECT_EQ(budget_bytes(*wide, "0=18GiB,1=10GiB,cpu=2GiB,disk=0"),
            (std::vector<uint64_t>{18 * kGiB, 10 * kGiB, 2 * kGiB}));
}

TEST(MachineForCaps, AnIdThatIsTakenIsNotGivenTwice) {
  Machine m;
  m.devices = {emulated_device(1, kGiB), default_cpu(kGiB)};  // accelerator 0 is called emu:1
  const auto wide = machine_for_caps(m, caps("0=1GiB,1=2GiB"), BeyondMachine::kEmulate);
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ(wide->devices[1].memory_bytes, 2 * kGiB);
  EXPECT_TRUE(validate(*wide));
}

TEST(MachineForCaps, RefusesWhereAskedToAndUnknownNamesAlways) {
  EXPECT_FALSE(machine_for_caps(two_cards(), caps("7=1GiB"), BeyondMachine::kRefuse));
  EXPECT_FALSE(machine_for_caps(two_cards(), caps("gpu=1GiB"), BeyondMachine::kEmulate));
  EXPECT_FALSE(machine_for_caps(two_cards(), caps("4000000000=1GiB"), BeyondMachine::kEmulate));
  EXPECT_EQ(*machine_for_caps(two_cards(), caps("0=1GiB,cpu=1GiB"), BeyondMachine::kRefuse), two_cards());
}

TEST(Margin, FormsAreRead) {
  EXPECT_EQ(parse_margin("512MiB")->bytes, 512 * kMiB);
  EXPECT_EQ(parse_margin("0")->bytes, 0u);
  EXPECT_EQ(parse_margin("2%")->share, 0.02);
  EXPECT_EQ(parse_margin("2.5%")->share, 0.025);
  for (const char* bad : {"", "%", "-1%", "100%", "nan%", "1e3%", "big", "-5"}) EXPECT_FALSE(parse_margin(bad)) << bad;
}

TEST(Margin, SmallBudgetsKeep64MiBAndNeverGoBelowZero) {
  const auto b = device_budgets(two_cards(), caps("cpu=1GiB"));
  EXPECT_EQ(b->devices[2].margin_bytes, 64 * kMiB);
  EXPECT_EQ(b->devices[2].usable_bytes(), kGiB - 64 * kMiB);
  EXPECT_EQ(device_budgets(two_cards(), caps("cpu=32MiB"))->devices[2].usable_bytes(), 0u);
}

TEST(Margin, OverheadComesOffAndTheOptionReplacesTheDefault) {
  Machine m = two_cards();
  m.devices[0].overhead_bytes = 300 * kMiB;
  const auto b = device_budgets(m, {}, *parse_margin("1GiB"));
  EXPECT_EQ(b->devices[0].usable_bytes(), 16 * kGiB - 300 * kMiB - kGiB);
  EXPECT_EQ(b->devices[2].usable_bytes(), 47 * kGiB);
  EXPECT_EQ(b->devices[3].usable_bytes(), 1000 * kGiB);
  EXPECT_EQ(device_budgets(m, {}, *parse_margin("25%"))->devices[1].usable_bytes(), 6 * kGiB);
}

TEST(UnknownMemory, IsLeftOutWithANoteUnlessCapped) {
  Machine m = two_cards();
  m.devices[1].memory_known = false;
  m.devices[1].memory_bytes = 0;
  const auto b = device_budgets(m);
  EXPECT_TRUE(b->devices[1].left_out);
  EXPECT_EQ(b->devices[1].budget_bytes, 0u);
  ASSERT_EQ(b->notes.size(), 1u);
  EXPECT_NE(b->notes[0].find("--max-memory 1=SIZE"), std::string::npos);
  EXPECT_EQ(budget_bytes(m, "0=16GiB,1=6GiB"), (std::vector<uint64_t>{16 * kGiB, 6 * kGiB, 48 * kGiB, 1000 * kGiB}));
}

}  // namespace
}  // namespace berth::machine
