// base/cgroup.cc — see cgroup.h. Reads are small text files; whatever is absent or malformed counts as "no limit".
#include "berth/base/cgroup.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <vector>

#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth {
namespace {

// v1 writes "no limit" as the largest page-aligned int64; nothing real comes near.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::optional<std::string> text_of(const std::string& path) {
  auto text = read_kernel_file(path);
  if (!text) return std::nullopt;
  return std::move(*text);
}

std::optional<uint64_t> number_of(std::string_view text) {
  text = trimmed(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = text_of(path);
  return text ? number_of(*text) : std::nullopt;
}

// The value after `key` in lines of "key value".
uint64_t stat_value(const std::string& path, std::string_view key) {
  const auto text = text_of(path);
  if (!text) return 0;
  for (const std::string& line : split(*text, '\n')) {
    const std::string_view view = line;
    if (view.size() > key.size() && view.substr(0, key.size()) == key && view[key.size()] == ' ')
      return number_of(view.substr(key.size() + 1)).value_or(0);
  }
  return 0;
}

// The process's group in a v1 `controller` hierarchy, or in v2's single one ("").
std::optional<std::string> group_of(const std::string& root, std::string_view controller) {
  const auto text = text_of(root + "/proc/self/cgroup");
  if (!text) return std::nullopt;
  for (const std::string& line : split(*text, '\n')) {  // "4:cpu,cpuacct:/group" or "0::/group"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers =
        split(std::string_view(line).substr(first + 1, second - first - 1), ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    return line.substr(second + 1);
  }
  return std::nullopt;
}

// Calls visit(folder, group) for the group and each one above it, the hierarchy's root last.
void for_each_level(const std::string& mount, std::string group,
                    const std::function<void(const std::string&, const std::string&)>& visit) {
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    visit(mount + group, group.empty() ? "/" : group);
    if (group.empty()) return;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

}  // namespace

std::optional<CgroupMemory> cgroup_memory(const std::string& root) {
  std::optional<CgroupMemory> tightest;
  const auto consider = [&](const std::string& group, std::optional<uint64_t> limit, std::optional<uint64_t> usage,
                            uint64_t droppable) {
    if (!limit || *limit >= kUnlimited) return;
    const uint64_t used = usage.value_or(0);
    const CgroupMemory level{*limit, used > droppable ? used - droppable : 0, group};
    if (!tightest || level.available_bytes() < tightest->available_bytes()) tightest = level;
  };
  if (const auto group = group_of(root, "memory"))
    for_each_level(root + "/sys/fs/cgroup/memory", *group, [&](const std::string& folder, const std::string& name) {
      consider(name, number_in(folder + "/memory.limit_in_bytes"), number_in(folder + "/memory.usage_in_bytes"),
               stat_value(folder + "/memory.stat", "total_inactive_file"));
    });
  if (const auto group = group_of(root, ""))
    for_each_level(root + "/sys/fs/cgroup", *group, [&](const std::string& folder, const std::string& name) {
      consider(name, number_in(folder + "/memory.max"), number_in(folder + "/memory.current"),
               stat_value(folder + "/memory.stat", "inactive_file"));
    });
  return tightest;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  std::optional<double> least;
  const auto consider = [&](std::optional<uint64_t> quota, std::optional<uint64_t> period) {
    if (!quota || !period || *quota == 0 || *period == 0) return;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    if (!least || cores < *least) least = cores;
  };
  if (const auto group = group_of(root, "cpu"))
    for_each_level(root + "/sys/fs/cgroup/cpu", *group, [&](const std::string& folder, const std::string&) {
      consider(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"));  // "-1": no number
    });
  if (const auto group = group_of(root, ""))
    for_each_level(root + "/sys/fs/cgroup", *group, [&](const std::string& folder, const std::string&) {
      const auto text = text_of(folder + "/cpu.max");  // "max 100000" or "150000 100000"
      if (!text) return;
      const std::vector<std::string> parts = split(trimmed(*text), ' ');
      if (parts.size() == 2) consider(number_of(parts[0]), number_of(parts[1]));
    });
  return least;
}

}  // namespace berth
