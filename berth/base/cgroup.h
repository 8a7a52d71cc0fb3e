// base/cgroup.h — what this process's control group allows it: memory and processor time, cgroup v1 and v2.
//
// The limit that binds is the smallest one from the process's own group up to the root. In a container whose /proc
// names a group that its /sys does not show, the root that it does show stands in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace berth {

struct CgroupMemory {
  uint64_t limit_bytes = 0;
  uint64_t usage_bytes = 0;  // of the group that has the limit; page cache that can be dropped is not counted
  std::string group;         // "/docker/ab12"
  uint64_t available_bytes() const { return limit_bytes > usage_bytes ? limit_bytes - usage_bytes : 0; }
};

// `root` is "" on a real system; tests pass a folder that holds proc/self/cgroup and sys/fs/cgroup/...
// The level with the least available bytes; nothing where no level has a limit.
std::optional<CgroupMemory> cgroup_memory(const std::string& root = "");
// Processor time as a number of cores (quota / period), the least of all levels; nothing where there is no quota.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

}  // namespace berth
