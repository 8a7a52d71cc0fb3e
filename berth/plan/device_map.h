// plan/device_map.h — a device map: which device stores each module, by dotted path, as device_map={...} has it.
//
// A key covers its whole subtree, "" is the model; nested keys may stand together and the most specific one wins. A key
// may also name a single parameter or buffer. Accelerators are integers, "cpu" and "disk" texts.
//
// Non-goals: whether a map is right for a model and a machine (map_check.h), what goes wrong with it (map_faults.h).
// Start reading at: DeviceMap.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::plan {

// A device as maps and budgets name it: an accelerator's number, "mps", "cpu", "disk", or another text kept as given
// ("cuda:1"). Ordered as budgets are filled: numbers ascending, mps, cpu, disk, then other texts.
class DeviceName {
 public:
  DeviceName() = default;  // accelerator 0
  static DeviceName accelerator(int64_t index);
  static DeviceName cpu() { return named("cpu"); }
  static DeviceName disk() { return named("disk"); }
  static DeviceName mps() { return named("mps"); }
  static DeviceName named(std::string text);
  // "0", "-1" (digits, one sign) -> accelerator; anything else as named().
  static DeviceName from_key(std::string_view key);

  std::optional<int64_t> index() const { return named_ ? std::nullopt : std::optional(index_); }
  bool is_cpu() const { return text_ == "cpu"; }
  bool is_disk() const { return text_ == "disk"; }
  bool is_accelerator() const { return !is_cpu() && !is_disk(); }  // as Transformers counts: "mps" too
  std::string text() const { return named_ ? text_ : std::to_string(index_); }
  void write(JsonWriter& out) const;  // an integer or a text

  // "1", "cuda:1", "emu:1", "xpu:1"... -> 1 and "cuda" -> 0, the rest as it is: how Berth reads a user's map.
  DeviceName normalized() const;

  bool operator==(const DeviceName&) const = default;
  std::strong_ordering operator<=>(const DeviceName& other) const;

 private:
  bool named_ = false;  // by text_; otherwise the accelerator index_
  int64_t index_ = 0;
  std::string text_;
};

struct DeviceMap {
  std::map<std::string, DeviceName, std::less<>> entries;

  // The entry that decides about `path`: the path itself, else its parents upwards, "" last; null where none does.
  const std::pair<const std::string, DeviceName>* find(std::string_view path) const;
  const DeviceName* lookup(std::string_view path) const;
  // The different devices, in DeviceName's order.
  std::vector<DeviceName> devices() const;
  bool operator==(const DeviceMap&) const = default;
};

// {"model.layers.0": 0, "lm_head": "cpu"}: values are integers >= 0 or texts that are not empty.
// Errors: kInvalidArgument naming key and value. Duplicate keys are refused by the JSON reader.
Result<DeviceMap> device_map_from_json(JsonView object);
Result<DeviceMap> parse_device_map(std::string_view json_text);
std::string device_map_json(const DeviceMap& map, int indent = 0);  // keys in byte order

// accelerate's clean_device_map: wherever two or more entries under one module all name one device, they become one
// entry for that module, from the root down. A single entry is never renamed.
DeviceMap cleaned(const DeviceMap& map);

// One parameter or buffer of a tree and where a map puts it.
struct TensorPlace {
  std::string path;    // in the module's first spelling
  std::string module;  // the module that owns it
  bool is_buffer = false;
  bool persistent = true;            // parameters, and buffers that checkpoints hold
  std::optional<DeviceName> device;  // nothing: no entry covers it
};

// Every parameter and buffer of the tree, in definition order, with the device the map gives it.
std::vector<TensorPlace> expanded(const arch::ModuleTree& tree, const DeviceMap& map);

// The smallest map that gives these tensors their devices: a module whose tensors all have one device is one entry.
// Tensors without a device get none. expanded(tree, collapsed(expanded(tree, m))) equals expanded(tree, m).
DeviceMap collapsed(const arch::ModuleTree& tree, const std::vector<TensorPlace>& places);

}  // namespace berth::plan
