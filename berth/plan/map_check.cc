// plan/map_check.cc — the rules for maps that people write.
#include "berth/plan/map_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "berth/base/strings.h"

namespace berth::plan {
namespace {

constexpr size_t kNamed = 5;           // of each kind of problem, this many are named
constexpr size_t kMaxNames = 2000000;  // second names may multiply paths

// "a, b, c and 12 more", each quoted.
std::string some_of(const std::vector<std::string>& names) {
  std::string s;
  for (size_t i = 0; i < names.size() && i < kNamed; ++i) s += (i == 0 ? "" : ", ") + quoted(names[i]);
  if (names.size() > kNamed) s += fmt::format(" and {} more", names.size() - kNamed);
  return s;
}

// Every name a key may be: modules (also second names), parameters, buffers.
struct Names {
  std::unordered_set<std::string> modules, tensors;
  std::vector<std::string> persistent;  // of the state dict, in definition order
  std::vector<std::string> candidates;  // modules then tensors, for the nearest match

  explicit Names(const arch::ModuleTree& tree) : tree_(tree) {
    walk(tree.root, "");
    candidates.assign(modules.begin(), modules.end());
    candidates.insert(candidates.end(), tensors.begin(), tensors.end());
    std::sort(candidates.begin(), candidates.end());
  }
  bool contains(const std::string& key) const { return key.empty() || modules.contains(key) || tensors.contains(key); }

 private:
  void walk(const arch::Module& named, const std::string& path) {
    if (modules.size() + tensors.size() > kMaxNames) return;
    const arch::Module* m = named.same_as.empty() ? &named : tree_.find(named.same_as);
    modules.insert(path);
    if (m == nullptr) return;
    for (const auto& p : m->parameters) {
      tensors.insert(arch::join_path(path, p.name));
      persistent.push_back(arch::join_path(path, p.name));
    }
    for (const auto& b : m->buffers) {
      tensors.insert(arch::join_path(path, b.name));
      if (b.persistent) persistent.push_back(arch::join_path(path, b.name));
    }
    for (const auto& c : m->children) walk(c, arch::join_path(path, c.name));
  }
  const arch::ModuleTree& tree_;
};

struct Problems {
  std::vector<std::string> texts, hints;
  void add(std::string text, std::string hint = "") {
    texts.push_back(std::move(text));
    if (!hint.empty() && std::find(hints.begin(), hints.end(), hint) == hints.end()) hints.push_back(std::move(hint));
  }
};

void check_keys(const Names& names, const DeviceMap& map, Problems& problems) {
  std::vector<std::string> unknown;
  for (const auto& [key, device] : map.entries)
    if (!names.contains(key)) unknown.push_back(key);
  if (unknown.empty()) return;
  const auto matching = [&](auto&& change) {
    return static_cast<size_t>(std::count_if(unknown.begin(), unknown.end(), [&](const std::string& k) {
      const std::optional<std::string> changed = change(k);
      return changed && names.contains(*changed);
    }));
  };
  const size_t without = matching([](const std::string& k) -> std::optional<std::string> {
    if (!k.starts_with(kAdapterPrefix)) return std::nullopt;
    return k.substr(kAdapterPrefix.size());
  });
  const size_t with =
      matching([](const std::string& k) -> std::optional<std::string> { return std::string(kAdapterPrefix) + k; });
  const std::string matched = unknown.size() == map.entries.size()
                                  ? fmt::format("none of the {} keys is", map.entries.size())
                                  : fmt::format("{} of the {} keys are not", unknown.size(), map.entries.size());
  if (without > 0 || with > 0) {
    const char* how = without > 0 ? "without" : "with";
    const size_t count = std::max(without, with);
    problems.add(fmt::format("{} a module of this model, but {} of them {} the adapter prefix {} in front: {}", matched,
                             count == unknown.size() ? "all" : std::to_string(count), how, quoted(kAdapterPrefix),
                             some_of(unknown)),
                 without > 0 ? "The map was made for the model with an adapter attached; cut the prefix off its keys."
                             : "The model has an adapter attached; put the prefix in front of the map's keys.");
    if (count == unknown.size()) return;
  }
  for (size_t i = 0; i < unknown.size() && i < kNamed; ++i)
    problems.add(fmt::format("key {} names no module or tensor of this model{}", quoted(unknown[i]),
                             did_you_mean(unknown[i], names.candidates)));
  if (unknown.size() > kNamed)
    problems.add(fmt::format("{} more keys name nothing of this model", unknown.size() - kNamed));
  problems.hints.push_back("`berth inspect` lists the modules.");
}

// The machine's device that a map's value means.
std::optional<DeviceName> device_of(const machine::Machine& machine, const DeviceName& given) {
  auto found = machine.find(given.text());
  if (!found) found = machine.find(given.normalized().text());
  if (!found) return std::nullopt;
  return DeviceName::from_key(machine.map_name(*found));
}

void check_devices(const machine::Machine& machine, const DeviceMap& map, Problems& problems, DeviceMap& out) {
  std::map<std::string, std::vector<std::string>> lacking;
  for (const auto& [key, given] : map.entries) {
    if (const auto device = device_of(machine, given))
      out.entries.emplace(key, *device);
    else
      lacking[given.text()].push_back(key);
  }
  const std::vector<std::string> known = machine.names();
  for (const auto& [device, keys] : lacking) {
    const size_t accelerators = machine.accelerators().size();
    std::string why;
    if (device == "meta")
      why = "; \"meta\" holds no data, so nothing can be loaded there";
    else if (DeviceName::named(device).normalized().index() || DeviceName::from_key(device).index())
      why = fmt::format("; it has {} accelerator{}", accelerators, accelerators == 1 ? "" : "s");
    else
      why = did_you_mean(device, known);
    problems.add(fmt::format("device {} of {} is not one of this machine{}", quoted(device), some_of(keys), why),
                 fmt::format("Devices here: {}.", join(known, ", ")));
  }
}

// Computed buffers that no key covers go with the first covered tensor of the nearest module that has one.
void complete_buffers(const arch::ModuleTree& tree, DeviceMap& map, std::vector<std::string>& notes) {
  const std::vector<TensorPlace> places = expanded(tree, map);
  std::unordered_map<std::string, DeviceName> first;  // module -> device of its first covered tensor
  bool any = false;
  for (const TensorPlace& p : places) {
    if (!p.device) {
      any = any || (p.is_buffer && !p.persistent);
      continue;
    }
    for (std::string_view m = p.module;;) {
      first.emplace(std::string(m), *p.device);
      if (m.empty()) break;
      const size_t dot = m.rfind('.');
      m = dot == std::string_view::npos ? std::string_view() : m.substr(0, dot);
    }
  }
  if (!any) return;
  std::map<DeviceName, std::vector<std::string>> moved;
  for (const TensorPlace& p : places) {
    if (p.device || !p.is_buffer || p.persistent) continue;
    for (std::string_view m = p.module;;) {
      if (const auto it = first.find(std::string(m)); it != first.end()) {
        map.entries.emplace(p.path, it->second);
        moved[it->second].push_back(p.path);
        break;
      }
      if (m.empty()) break;
      const size_t dot = m.rfind('.');
      m = dot == std::string_view::npos ? std::string_view() : m.substr(0, dot);
    }
  }
  for (const auto& [device, names] : moved)
    notes.push_back(fmt::format("No key covers the computed buffer{} {}: put on {}, beside the tensors next to {}.",
                                names.size() == 1 ? "" : "s", some_of(names), device.text(),
                                names.size() == 1 ? "it" : "them"));
}

void note_nested_keys(const DeviceMap& map, std::vector<std::string>& notes) {
  size_t count = 0;
  std::string example;
  for (const auto& [key, device] : map.entries) {
    if (key.empty()) continue;
    const size_t dot = key.rfind('.');
    const auto* above = map.find(dot == std::string::npos ? std::string_view() : std::string_view(key).substr(0, dot));
    if (above == nullptr || above->second == device) continue;
    if (count++ == 0)
      example = fmt::format("{} is on {} although {} is on {}", quoted(key), device.text(),
                            above->first.empty() ? "the model" : quoted(above->first), above->second.text());
  }
  if (count > 0)
    notes.push_back(fmt::format("{} inside other entries and {}: {}.",
                                count == 1 ? "1 entry is" : fmt::format("{} entries are", count),
                                count == 1 ? "decides for itself" : "decide for themselves", example));
}

}  // namespace

Result<CheckedMap> check_device_map(const arch::ModuleTree& tree, const DeviceMap& map,
                                    const machine::Machine& machine) {
  const Names names(tree);
  CheckedMap out;
  Problems problems;
  if (map.entries.empty())
    problems.add("it has no entries", "Give at least {\"\": 0}, which puts everything on accelerator 0.");
  check_keys(names, map, problems);
  check_devices(machine, map, problems, out.map);
  if (problems.texts.empty()) {
    complete_buffers(tree, out.map, out.notes);
    std::vector<std::string> uncovered;
    for (const TensorPlace& p : expanded(tree, out.map))
      if (!p.device) uncovered.push_back(p.path);
    if (!uncovered.empty())
      problems.add(
          fmt::format("{} no device: {}",
                      uncovered.size() == 1 ? "one tensor has" : fmt::format("{} tensors have", uncovered.size()),
                      some_of(uncovered)),
          "Add an entry for each, or \"\" for everything that is not named.");
    note_nested_keys(map, out.notes);
  }
  if (problems.texts.empty()) return out;
  return Error(ErrorCode::kInvalidArgument, "device map: " + join(problems.texts, "; "), problems.hints);
}

AccelerateCheck accelerate_check(const arch::ModuleTree& tree, const DeviceMap& map) {
  const Names names(tree);
  AccelerateCheck out;
  for (const auto& [key, device] : map.entries)
    if (!key.empty() && !names.modules.contains(key)) out.unknown_keys.push_back(key);
  for (const std::string& tensor : names.persistent)
    if (map.lookup(tensor) == nullptr) out.uncovered.push_back(tensor);
  return out;
}

}  // namespace berth::plan
