// machine/machine_test.cc — machine files both ways, and each way of getting one wrong.
#include "berth/machine/machine.h"

#include <gtest/gtest.h>

namespace berth::machine {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// The contract's example, with kernels and overhead spelled out.
constexpr std::string_view kExample = R"({"devices": [
  {"id": "emu:0", "kind": "emulated", "memory_bytes": 17179869184, "read_bytes_per_s": 9e11, "flops_per_s": 6e13,
   "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5, "overhead_bytes": 0, "kernels": "avx2"},
  {"id": "emu:1", "kind": "emulated", "memory_bytes": 8589934592, "read_bytes_per_s": 4.5e11, "flops_per_s": 3e13,
   "link_bytes_per_s": 2.5e10},
  {"id": "cpu", "kind": "cpu", "memory_bytes": 51539607552, "read_bytes_per_s": 4e10, "flops_per_s": 5e11},
  {"id": "disk", "kind": "disk", "memory_bytes": 1099511627776, "read_bytes_per_s": 2e9}],
 "links": [{"from": "emu:0", "to": "emu:1", "bytes_per_s": 5e10, "latency_s": 1e-5}], "unknown": {"kept": "no"}})";

Machine example() {
  auto machine = parse_machine(kExample);
  EXPECT_TRUE(machine) << machine.error().message;
  return std::move(*machine);
}

TEST(MachineFile, ContractExampleIsRead) {
  const Machine m = example();
  ASSERT_EQ(m.devices.size(), 4u);
  EXPECT_EQ(m.devices[0].kind, DeviceKind::kEmulated);
  EXPECT_EQ(m.devices[0].memory_bytes, 16 * kGiB);
  EXPECT_EQ(m.devices[0].read_bytes_per_s, 900'000'000'000);
  EXPECT_EQ(m.devices[0].flops_per_s, 60'000'000'000'000);
  EXPECT_EQ(m.devices[0].link_latency_ps, 10'000'000);
  EXPECT_EQ(m.devices[0].kernels, Isa::kAvx2);
  EXPECT_EQ(m.devices[1].kernels, std::nullopt);
  EXPECT_EQ(m.devices[1].link_latency_ps, 0);
  EXPECT_EQ(m.devices[3].flops_per_s, 0);
  ASSERT_EQ(m.links.size(), 1u);
  EXPECT_EQ(m.links[0].bytes_per_s, 50'000'000'000);
}

TEST(MachineFile, WritingAndReadingGivesTheSameMachineAndTheSameText) {
  Machine m = example();
  m.devices[0].description = "a \"card\"";
  m.devices[1].memory_known = false;
  m.devices[1].memory_bytes = 0;
  m.devices[2].kernels = Isa::kRef;
  m.devices[2].overhead_bytes = 12345;
  const std::string text = machine_json(m);
  auto again = parse_machine(text);
  ASSERT_TRUE(again) << again.error().message << text;
  EXPECT_EQ(*again, m);
  EXPECT_EQ(machine_json(*again), text);
  EXPECT_EQ(*parse_machine(machine_json(m, 0)), m);
}

TEST(MachineFile, LatencyKeepsItsSpelling) {
  EXPECT_NE(machine_json(example(), 0).find("\"link_latency_s\":1e-05,"), std::string::npos)
      << machine_json(example(), 0);
}

struct Bad {
  const char* find;     // replaced once in the example...
  const char* replace;  // ...by this
  const char* message;  // which must be in the error
};

class MalformedMachineFile : public ::testing::TestWithParam<Bad> {};

TEST_P(MalformedMachineFile, IsRefusedNamingPlaceKeyAndFound) {
  std::string text(kExample);
  const size_t at = text.find(GetParam().find);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(GetParam().find).size(), GetParam().replace);
  const auto machine = parse_machine(text);
  ASSERT_FALSE(machine) << "accepted: " << GetParam().replace;
  EXPECT_EQ(machine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(machine.error().message.find(GetParam().message), std::string::npos) << machine.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    ByHand, MalformedMachineFile,
    ::testing::Values(
        Bad{"\"read_bytes_per_s\": 9e11", "\"read_bytes_per_s\": 0",
            "devices[0] (\"emu:0\"): \"read_bytes_per_s\" must be a number above 0 and at most 1e18, found 0"},
        Bad{"\"flops_per_s\": 6e13", "\"flops_per_s\": -6e13", "\"flops_per_s\" must be a number above 0"},
        Bad{"\"flops_per_s\": 6e13", "\"flops_per_s\": \"fast\"", "found \"fast\""},
        Bad{"\"flops_per_s\": 6e13", "\"flops_per_s\": 1e300", "at most 1e18"},
        Bad{"\"flops_per_s\": 6e13", "\"flops\": 6e13",
            "\"flops_per_s\" must be a number above 0 and at most 1e18, found nothing"},
        Bad{"\"link_bytes_per_s\": 2.5e10", "\"link_bytes_per_s\": null", "\"link_bytes_per_s\" must be"},
        Bad{"\"link_latency_s\": 1e-5", "\"link_latency_s\": -1", "\"link_latency_s\" must be a number of seconds"},
        Bad{"\"memory_bytes\": 17179869184", "\"memory_bytes\": -1",
            "\"memory_bytes\" must be a whole number of bytes"},
        Bad{"\"memory_bytes\": 17179869184", "\"memory_bytes\": 1.5", "found 1.5"},
        Bad{"\"memory_bytes\": 17179869184", "\"memory_bytes\": \"16GiB\"", "found \"16GiB\""},
        Bad{"\"memory_bytes\": 17179869184", "\"memory_bytes\": 9223372036854775807", "from 0 to 2^60"},
        Bad{"\"memory_bytes\": 17179869184, ", "",
            "\"memory_bytes\" must be a whole number of bytes from 0 to 2^60, found nothing"},
        Bad{"\"kernels\": \"avx2\"", "\"kernels\": \"avx1\"", "found \"avx1\", did you mean \"avx2\"?"},
        Bad{"\"kernels\": \"avx2\"", "\"kernels\": 2", "\"kernels\" must be one of auto, ref"},
        Bad{"\"kind\": \"emulated\"", "\"kind\": \"emulatd\"", "did you mean \"emulated\"?"},
        Bad{"\"kind\": \"emulated\"", "\"kind\": \"cuda\"", "\"kernels\" chooses CPU kernels"},
        Bad{"\"kind\": \"emulated\"", "\"kind\": \"cpu\"", "cannot have the id \"emu:0\""},
        Bad{"\"id\": \"emu:1\"", "\"id\": \"emu:0\"",
            "devices[1] (\"emu:0\"): \"id\" must be unique, devices[0] has the same"},
        Bad{"\"id\": \"emu:1\"", "\"id\": \"\"", "devices[1]: \"id\" must be a string, found \"\""},
        Bad{"\"id\": \"emu:1\"", "\"id\": 1", "devices[1]: \"id\" must be a string, found 1"},
        Bad{"\"id\": \"emu:1\"", "\"id\": \"0\"", "is the device-map name of another accelerator"},
        Bad{"\"id\": \"emu:1\"", "\"id\": \"cpu\"", "cannot have the id \"cpu\""},
        Bad{"\"id\": \"emu:1\"", "\"id\": \"emu\\u001b[2J\"", "there are emu:0, emu\\x1b[2J, cpu"},
        Bad{"\"to\": \"emu:1\"", "\"to\": \"emu:9\"",
            "links[0] (\"emu:0\" to \"emu:9\"): \"to\" must be the id of a device"},
        Bad{"\"to\": \"emu:1\"", "\"to\": \"emu:0\"", "must be two devices"},
        Bad{"\"bytes_per_s\": 5e10", "\"bytes_per_s\": 0", "links[0]: \"bytes_per_s\" must be a number above 0"},
        Bad{"\"links\": [{", "\"links\": [7, {", "links[0] must be an object, found 7"},
        Bad{"{\"devices\": [", "{\"devices\": [[], ", "devices[0] must be an object, found a list"},
        Bad{"\"latency_s\": 1e-5}",
            "\"latency_s\": 1e-5}, {\"from\": \"emu:1\", \"to\": \"emu:0\", \"bytes_per_s\": 1}",
            "links[1] (\"emu:1\" to \"emu:0\"): links[0] already joins"},
        Bad{"{\"devices\"", "{\"device\"", "\"devices\" must be an array of objects, found nothing"}));

std::string error_of(std::string_view text) {
  const auto machine = parse_machine(text);
  EXPECT_FALSE(machine) << text;
  if (machine) return "";
  EXPECT_EQ(machine.error().code, ErrorCode::kInvalidArgument) << text;
  return machine.error().message;
}

TEST(MachineFile, OtherTextsAreRefused) {
  EXPECT_NE(error_of("").find("reading a machine"), std::string::npos);
  EXPECT_NE(error_of("[1]").find("must be an object with \"devices\", found a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"devices": []})").find("at least one device"), std::string::npos);
  EXPECT_NE(error_of(R"({"devices": [], "devices": []})"), "");
  std::string many = R"({"devices": [)";
  for (int i = 0; i < 300; ++i) many += i == 0 ? "{}" : ",{}";
  EXPECT_NE(error_of(many + "]}").find("at most 256 entries, found 300"), std::string::npos);
}

TEST(MachineFile, AnAbsentFileIsNotFoundAndNamed) {
  const auto machine = read_machine_file("no/such/machine.json");
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kNotFound);
  EXPECT_NE(machine.error().message.find("no/such/machine.json"), std::string::npos);
}

TEST(Machine, AcceleratorsAreNumberedInOrderWhateverStandsBetween) {
  Machine m;
  m.devices = {default_cpu(kGiB), emulated_device(5, kGiB), default_disk(kGiB), emulated_device(3, 2 * kGiB)};
  ASSERT_TRUE(validate(m));
  EXPECT_EQ(m.accelerators(), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(m.cpu(), 0u);
  EXPECT_EQ(m.disk(), 2u);
  EXPECT_EQ(m.map_name(0), "cpu");
  EXPECT_EQ(m.map_name(1), "0");
  EXPECT_EQ(m.map_name(2), "disk");
  EXPECT_EQ(m.map_name(3), "1");
  EXPECT_EQ(m.find("1"), 3u);
  EXPECT_EQ(m.find("emu:3"), 3u);
  EXPECT_EQ(m.find("cpu"), 0u);
  for (const char* none : {"2", "00", "01", " 0", "0 ", "+0", "-1", "0x0", "emu:1", "gpu", "", "99999999999999999999"})
    EXPECT_EQ(m.find(none), std::nullopt) << none;
}

TEST(Machine, LinksGoBothWays) {
  const Machine m = example();
  ASSERT_NE(m.link(0, 1), nullptr);
  EXPECT_EQ(m.link(0, 1), m.link(1, 0));
  EXPECT_EQ(m.link(0, 2), nullptr);
}

TEST(Emulate, CountsAndSizes) {
  const auto spec = parse_emulate("2x16GiB,1x8GiB,512MiB");
  ASSERT_TRUE(spec) << spec.error().message;
  ASSERT_EQ(spec->accelerators.size(), 4u);
  EXPECT_EQ(spec->accelerators[0], emulated_device(0, 16 * kGiB));
  EXPECT_EQ(spec->accelerators[1], emulated_device(1, 16 * kGiB));
  EXPECT_EQ(spec->accelerators[2], emulated_device(2, 8 * kGiB));
  EXPECT_EQ(spec->accelerators[3], emulated_device(3, kGiB / 2));
  EXPECT_TRUE(spec->notes.empty());
  EXPECT_EQ(spec->accelerators[0].read_bytes_per_s, 900'000'000'000);
}

TEST(Emulate, LowerCaseBIsBytesAndNoted) {
  const auto spec = parse_emulate("1x16gb");
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->accelerators[0].memory_bytes, 16'000'000'000u);
  ASSERT_EQ(spec->notes.size(), 1u);
  EXPECT_NE(spec->notes[0].find("bytes, not bits"), std::string::npos);
}

TEST(Emulate, MalformedTextsAreRefused) {
  for (const char* text : {"", ",", "2x", "x16GiB", "0x16GiB", "-1x16GiB", "2x16GiB,", "2x0", "2x16XB", "65x1GiB",
                           "60x1GiB,5x1GiB", "2x2x16GiB", "1e3x1GiB", "99999999999999999999x1GiB", "2x1e6TB"}) {
    const auto spec = parse_emulate(text);
    EXPECT_FALSE(spec) << text;
    if (!spec) EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace berth::machine
