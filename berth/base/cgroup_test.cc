// base/cgroup_test.cc — both versions, from hand-made trees.
#include "berth/base/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace berth {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / ("berth_cgroup_" + std::to_string(::getpid()))).string();
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

TEST_F(Cgroup, NothingWhereThereIsNoTree) {
  EXPECT_FALSE(cgroup_memory(root_));
  EXPECT_FALSE(cgroup_cpu_quota(root_));
}

TEST_F(Cgroup, V2LimitOfAParentBinds) {
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/memory.current", "100\n");
  put("/sys/fs/cgroup/a/memory.max", "1000\n");
  put("/sys/fs/cgroup/a/memory.current", "700\n");
  put("/sys/fs/cgroup/a/memory.stat", "anon 500\ninactive_file 150\nactive_file 50\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  const auto memory = cgroup_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->limit_bytes, 1000u);
  EXPECT_EQ(memory->usage_bytes, 550u) << "droppable page cache is not usage";
  EXPECT_EQ(memory->available_bytes(), 450u);
  EXPECT_EQ(memory->group, "/a");
  EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
}

TEST_F(Cgroup, V1TakesTheLevelWithLeastAvailable) {
  put("/proc/self/cgroup", "4:memory:/pod/box\n3:cpu,cpuacct:/pod/box\n0::/\n");
  put("/sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes", "5000\n");
  put("/sys/fs/cgroup/memory/pod/box/memory.usage_in_bytes", "1000\n");
  put("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "4500\n");
  put("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "4000\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/cpu/pod/box/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/pod/box/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "200000\n");
  put("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  const auto memory = cgroup_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->group, "/pod");
  EXPECT_EQ(memory->available_bytes(), 500u);
  EXPECT_EQ(cgroup_cpu_quota(root_), 2.0);
}

TEST_F(Cgroup, AGroupThatIsNotShownFallsBackToTheShownRoot) {
  put("/proc/self/cgroup", "7:memory:/docker/0123\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2048\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "48\n");
  const auto memory = cgroup_memory(root_);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->available_bytes(), 2000u);
}

TEST_F(Cgroup, UsageAboveTheLimitLeavesNothing) {
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/memory.max", "1000\n");
  put("/sys/fs/cgroup/memory.current", "1200\n");
  ASSERT_TRUE(cgroup_memory(root_));
  EXPECT_EQ(cgroup_memory(root_)->available_bytes(), 0u);
}

TEST_F(Cgroup, MalformedFilesCountAsNoLimit) {
  put("/proc/self/cgroup", "nonsense\n:::\n0::/x\n");
  put("/sys/fs/cgroup/x/memory.max", "12abc\n");
  put("/sys/fs/cgroup/x/cpu.max", "100000 0\n");
  put("/sys/fs/cgroup/cpu.max", "\n");
  EXPECT_FALSE(cgroup_memory(root_));
  EXPECT_FALSE(cgroup_cpu_quota(root_));
}

TEST(CgroupOfThisProcess, CanBeAsked) {
  if (const auto memory = cgroup_memory()) EXPECT_GT(memory->limit_bytes, 0u);
  if (const auto quota = cgroup_cpu_quota()) EXPECT_GT(*quota, 0.0);
}

}  // namespace
}  // namespace berth
