// device/probe_test.cc — what is found is a valid machine; nonsense becomes unknown; rates survive in their file.
#include "berth/device/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "berth/device/backend.h"
#include "berth/machine/budget.h"

namespace berth::device {
namespace {

class InFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / ("berth_probe_" + std::to_string(::getpid()))).string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

using Probe = InFolder;
using RatesFile = InFolder;

TEST_F(Probe, FindsAValidMachineWithCpuAndDisk) {
  const Found found = probe_machine({.disk_folder = folder_, .cuda = true, .rates_file = folder_ + "/none.json"});
  ASSERT_TRUE(machine::validate(found.machine)) << machine::machine_json(found.machine);
  ASSERT_TRUE(found.machine.cpu());
  ASSERT_TRUE(found.machine.disk());
  EXPECT_GT(found.machine.devices[*found.machine.cpu()].memory_bytes, 0u);
  EXPECT_GT(found.machine.devices[*found.machine.disk()].memory_bytes, 0u);
  EXPECT_EQ(*machine::parse_machine(machine::machine_json(found.machine)), found.machine) << "`berth devices --json`";
}

TEST_F(Probe, AFolderThatIsNotThereMakesTheDiskUnknown) {
  const Found found =
      probe_machine({.disk_folder = folder_ + "/no", .cuda = false, .rates_file = folder_ + "/none.json"});
  const machine::DeviceSpec& disk = found.machine.devices[*found.machine.disk()];
  EXPECT_FALSE(disk.memory_known);
  bool noted = false;
  for (const std::string& note : found.notes) noted |= note.find("max-memory disk") != std::string::npos;
  EXPECT_TRUE(noted);
}

TEST_F(Probe, UsesMeasuredRates) {
  const std::string file = folder_ + "/rates.json";
  Rates rates;
  rates.read_bytes_per_s = 123e9;
  rates.flops_per_s = 456e9;
  rates.disk_read_bytes_per_s = 0;  // not measured: the planning value stays
  rates.threads = 2;
  ASSERT_TRUE(save_rates(file, cpu_identity(), rates));
  const Found found = probe_machine({.disk_folder = folder_, .cuda = false, .rates_file = file});
  EXPECT_EQ(found.machine.devices[0].read_bytes_per_s, 123'000'000'000);
  EXPECT_EQ(found.machine.devices[0].flops_per_s, 456'000'000'000);
  EXPECT_EQ(found.machine.devices[1].read_bytes_per_s, machine::default_disk(0).read_bytes_per_s);
}

CudaDeviceInfo card(uint64_t free_bytes, uint64_t total_bytes, std::string problem = "") {
  CudaDeviceInfo info;
  info.number = 1;
  info.name = "A card";
  info.free_bytes = free_bytes;
  info.total_bytes = total_bytes;
  info.problem = std::move(problem);
  return info;
}

TEST(CudaDeviceSpec, SoundAnswersAreTaken) {
  std::vector<std::string> notes;
  CudaDeviceInfo info = card(70, 80);
  info.read_bytes_per_s = 5;
  const machine::DeviceSpec d = cuda_device_spec(info, notes);
  EXPECT_EQ(d.id, "cuda:1");
  EXPECT_EQ(d.kind, machine::DeviceKind::kCuda);
  EXPECT_TRUE(d.memory_known);
  EXPECT_EQ(d.memory_bytes, 70u);
  EXPECT_EQ(d.read_bytes_per_s, 5);
  EXPECT_GT(d.flops_per_s, 0) << "a planning value where the driver gives none";
  EXPECT_TRUE(notes.empty());
}

// EN-11 of the bug list: 0, an error, or more free than total.
TEST(CudaDeviceSpec, NonsenseIsUnknownNotedAndUsedOnlyUnderACap) {
  for (const CudaDeviceInfo& info : {card(0, 80), card(0, 0), card(81, 80), card(70, 80, "out of memory")}) {
    std::vector<std::string> notes;
    machine::Machine m;
    m.devices = {cuda_device_spec(info, notes), machine::default_cpu(1 << 30)};
    EXPECT_FALSE(m.devices[0].memory_known);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("cuda:1 is unknown"), std::string::npos) << notes[0];
    ASSERT_TRUE(machine::validate(m));
    EXPECT_EQ(machine::device_budgets(m)->devices[0].budget_bytes, 0u);
    const auto capped = machine::device_budgets(m, *machine::parse_max_memory("0=6GiB"));
    EXPECT_EQ(capped->devices[0].budget_bytes, uint64_t{6} << 30);
  }
}

TEST_F(RatesFile, KeepsOneEntryPerCpu) {
  const std::string file = folder_ + "/deep/er/rates.json";
  const CpuIdentity a{"CPU \"A\"", 2}, b{"CPU B", 2}, c{"CPU B", 4};
  Rates rates;
  rates.threads = 2;
  rates.read_bytes_per_s = 1e9;
  ASSERT_TRUE(save_rates(file, a, rates));
  rates.read_bytes_per_s = 2e9;
  ASSERT_TRUE(save_rates(file, b, rates));
  rates.read_bytes_per_s = 3e9;
  ASSERT_TRUE(save_rates(file, b, rates));
  ASSERT_TRUE(load_rates(file, a));
  EXPECT_EQ(load_rates(file, a)->read_bytes_per_s, 1e9);
  EXPECT_EQ(load_rates(file, b)->read_bytes_per_s, 3e9);
  EXPECT_EQ(load_rates(file, b)->threads, 2);
  EXPECT_FALSE(load_rates(file, c));
}

TEST_F(RatesFile, AbsentOrMalformedIsNothing) {
  const CpuIdentity cpu{"X", 1};
  EXPECT_FALSE(load_rates("", cpu));
  EXPECT_FALSE(load_rates(folder_ + "/none.json", cpu));
  const std::string file = folder_ + "/rates.json";
  for (const char* text :
       {"", "{", "[]", R"({"format": "other", "cpus": []})", R"({"format": "berth-rates-1", "cpus": 3})",
        R"({"format": "berth-rates-1", "cpus": [7, {"model": "X"}, {"model": "X", "cores": -1}]})",
        R"({"format": "berth-rates-1", "cpus": [{"model": "X", "cores": 1, "threads": 1,
                               "read_bytes_per_s_1_thread": 1, "read_bytes_per_s": -1, "flops_per_s_1_thread": 1,
                               "flops_per_s": 1, "disk_read_bytes_per_s": 1}]})"}) {
    std::ofstream(file) << text;
    EXPECT_FALSE(load_rates(file, cpu)) << text;
  }
  Rates rates;
  rates.threads = 1;
  EXPECT_TRUE(save_rates(file, cpu, rates)) << "a broken file is replaced";
  EXPECT_TRUE(load_rates(file, cpu));
  EXPECT_FALSE(save_rates("", cpu, rates));
  EXPECT_FALSE(save_rates(file + "/below", cpu, rates)) << "a file is no folder";
}

TEST(RatesFilePath, FollowsTheEnvironment) {
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("XDG_CACHE_HOME", "/somewhere/cache", 1);
  EXPECT_EQ(default_rates_file(), "/somewhere/cache/berth/machine-rates.json");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // the specification: ignored
  EXPECT_NE(default_rates_file().substr(0, 8), "relative");
  if (before == nullptr)
    ::unsetenv("XDG_CACHE_HOME");
  else
    ::setenv("XDG_CACHE_HOME", saved.c_str(), 1);
}

TEST_F(Probe, MeasuringGivesPositiveRates) {
  ThreadPool pool(2);
  const auto rates =
      measure_rates(pool, {.read_bytes = 8 << 20, .seconds = 0.02, .disk_folder = folder_, .disk_bytes = 8 << 20});
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_EQ(rates->threads, 2);
  for (const double r : {rates->read_bytes_per_s_1_thread, rates->read_bytes_per_s, rates->flops_per_s_1_thread,
                         rates->flops_per_s, rates->disk_read_bytes_per_s})
    EXPECT_GT(r, 1e6);
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the disk's test file is gone";
  EXPECT_FALSE(measure_rates(
      pool, {.read_bytes = 1 << 20, .seconds = 0, .disk_folder = folder_ + "/no", .disk_bytes = 1 << 20}));
}

TEST(CpuIdentityOfThisHost, HasANameAndCores) {
  EXPECT_FALSE(cpu_identity().model.empty());
  EXPECT_GE(cpu_identity().cores, 1);
}

}  // namespace
}  // namespace berth::device
