// device/cpu/memory_test.cc — which limit binds, from hand-made trees; regions that are kept and given back.
#include "berth/device/cpu/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

namespace berth::device {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class HostMemoryOf : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / ("berth_memory_" + std::to_string(::getpid()))).string();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
};

TEST_F(HostMemoryOf, AFreeHostIsLimitedByFreeMemory) {
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n");
  const HostMemory host = host_memory(root_, {});
  EXPECT_EQ(host.total_bytes, 1000u * 1024);
  EXPECT_EQ(host.available_bytes, 600u * 1024);
  EXPECT_EQ(host.limited_by, "free memory");
}

TEST_F(HostMemoryOf, TheControlGroupBindsWhereItIsTighter) {
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
  put("/proc/self/cgroup", "0::/box\n");
  put("/sys/fs/cgroup/box/memory.max", "409600\n");
  put("/sys/fs/cgroup/box/memory.current", "102400\n");
  const HostMemory host = host_memory(root_, {});
  EXPECT_EQ(host.available_bytes, 300u * 1024);
  EXPECT_EQ(host.limited_by, "its control group /box");
}

TEST_F(HostMemoryOf, UlimitsBindLessWhatIsInUse) {
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
  put("/proc/self/status", "Name:\tx\nVmSize:\t     100 kB\nVmData:\t      40 kB\n");
  EXPECT_EQ(host_memory(root_, {.address_space_bytes = 300 * 1024, .data_bytes = {}}).available_bytes, 200u * 1024);
  const HostMemory data = host_memory(root_, {.address_space_bytes = 300 * 1024, .data_bytes = 50 * 1024});
  EXPECT_EQ(data.available_bytes, 10u * 1024);
  EXPECT_EQ(data.limited_by, "ulimit -d");
  EXPECT_EQ(host_memory(root_, {.address_space_bytes = 10, .data_bytes = {}}).available_bytes, 0u);
}

TEST_F(HostMemoryOf, NonsenseIsUnknown) {
  EXPECT_FALSE(host_memory(root_, {}).available_bytes);
  put("/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    2000 kB\n");
  EXPECT_FALSE(host_memory(root_, {}).available_bytes) << "more free than total";
  put("/proc/meminfo", "MemTotal:       x kB\nMemAvailable:    18446744073709551615 kB\n");
  EXPECT_FALSE(host_memory(root_, {}).available_bytes);
  put("/proc/meminfo", "MemAvailable: 12 MB\n");
  EXPECT_FALSE(host_memory(root_, {}).available_bytes);
}

TEST(HostMemoryOfThisProcess, IsKnownOnLinux) {
  const HostMemory host = host_memory();
  ASSERT_TRUE(host.total_bytes);
  ASSERT_TRUE(host.available_bytes);
  EXPECT_GT(*host.available_bytes, 0u);
}

TEST(HostRegions, AreAlignedToHugePagesAndWritable) {
  HostRegions regions;
  const auto region = regions.acquire(3 * kMiB);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->size(), 4 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region->data()) % HostRegions::kPageBytes, 0u);
  std::memset(region->data(), 1, region->size());
  regions.release(*region);
  EXPECT_EQ(regions.kept_bytes(), 4 * kMiB);
}

TEST(HostRegions, WhatIsKeptIsUsedAgainInPartsAndJoined) {
  HostRegions regions;
  const auto whole = regions.acquire(8 * kMiB);
  ASSERT_TRUE(whole);
  whole->data()[6 * kMiB] = std::byte{9};
  regions.release(*whole);
  const auto front = regions.acquire(2 * kMiB);
  const auto back = regions.acquire(6 * kMiB);
  ASSERT_TRUE(front && back);
  EXPECT_EQ(front->data(), whole->data());
  EXPECT_EQ(back->data(), whole->data() + 2 * kMiB);
  EXPECT_EQ(regions.kept_bytes(), 0u);
  regions.release(*front);
  regions.release(*back);
  const auto again = regions.acquire(8 * kMiB);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->data(), whole->data()) << "neighbours were joined";
  regions.release(*again);
  regions.drop_kept();
  EXPECT_EQ(regions.kept_bytes(), 0u);
}

TEST(HostRegions, PopulatingBringsTheRangeAsZerosAndLeavesWhatIsThereAlone) {
  HostRegions regions;
  const auto region = regions.acquire(64 * kMiB);
  ASSERT_TRUE(region);
  std::byte* const at = region->data() + 40 * kMiB;  // beyond the pages that are touched to be timed
  at[kMiB + 5] = std::byte{7};
  regions.populate({at + 4321, 2 * kMiB});
  std::vector<unsigned char> there(2 * kMiB / 4096);
  ASSERT_EQ(::mincore(at, 2 * kMiB, there.data()), 0);
#if defined(MADV_POPULATE_WRITE)
  EXPECT_EQ(std::count_if(there.begin(), there.end(), [](unsigned char page) { return (page & 1) != 0; }),
            std::ssize(there));
#endif
  EXPECT_EQ(at[kMiB + 5], std::byte{7});
  EXPECT_EQ(at[4321], std::byte{0});
  at[4321] = std::byte{8};
  regions.populate({at, 2 * kMiB});  // again
  EXPECT_EQ(at[4321], std::byte{8});
  std::byte elsewhere{3};
  regions.populate({&elsewhere, 1});
  EXPECT_EQ(elsewhere, std::byte{3});
  regions.release(*region);
  regions.populate({at, kMiB});  // kept for the next one: no longer new
}

TEST(HostRegions, ImpossibleSizesAreErrorsWithAReason) {
  HostRegions regions;
  for (const uint64_t bytes : {uint64_t{0}, UINT64_MAX, uint64_t{1} << 61, uint64_t{1} << 59}) {
    const auto region = regions.acquire(bytes);
    ASSERT_FALSE(region) << bytes;
    EXPECT_EQ(region.error().code, ErrorCode::kDevice);
    EXPECT_NE(region.error().message.find("host memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace berth::device
