// machine/machine.h — devices and links as plain values: what a plan is made for. JSON in and out (contract.md 2).
//
//   {"devices": [{"id": "emu:0", "kind": "emulated", "memory_bytes": 17179869184, "read_bytes_per_s": 9e11, ...},
//                {"id": "cpu", "kind": "cpu", ...}, {"id": "disk", "kind": "disk", ...}],
//    "links": [{"from": "emu:0", "to": "emu:1", "bytes_per_s": 5e10, "latency_s": 1e-5}]}
//
// Rates are whole bytes (or operations) per second and latencies whole picoseconds, as the planner computes with them.
// In a device map, accelerator k (the k-th device that is neither cpu nor disk) is called "k"; "cpu" and "disk" are
// called so.
//
// Non-goals: measuring anything (device/probe.h), budgets and caps (budget.h). Start reading at: Machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/isa.h"
#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::machine {

enum class DeviceKind { kEmulated, kCuda, kCpu, kDisk };
std::string_view device_kind_name(DeviceKind kind);  // "emulated", "cuda", "cpu", "disk"

inline constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 60;
inline constexpr int64_t kMaxRate = int64_t{1'000'000'000'000'000'000};
inline constexpr size_t kMaxDevices = 256;

struct DeviceSpec {
  std::string id;  // unique; "cpu" and "disk" are the ids of those kinds and of no other
  DeviceKind kind = DeviceKind::kCpu;
  uint64_t memory_bytes = 0;
  // False where a probe gave nothing usable (JSON null): the device is listed, and used only under an explicit cap.
  bool memory_known = true;
  int64_t read_bytes_per_s = 0;  // > 0
  int64_t flops_per_s = 0;       // fp32 operations, an fma being two; 0 on the disk only
  int64_t link_bytes_per_s = 0;  // to the host; accelerators only, else 0
  int64_t link_latency_ps = 0;   // one way; accelerators only, else 0
  uint64_t overhead_bytes = 0;   // taken before the first allocation (a CUDA context)
  std::optional<Isa> kernels;    // CPU kernels of an emulated device or the cpu; nothing = "auto"
  std::string description;       // for people ("NVIDIA H200"); JSON "name", optional

  bool is_accelerator() const { return kind == DeviceKind::kEmulated || kind == DeviceKind::kCuda; }
  double link_latency_s() const { return static_cast<double>(link_latency_ps) / 1e12; }
  bool operator==(const DeviceSpec&) const = default;
};

// Replaces the way over the host between two devices, both ways.
struct LinkSpec {
  std::string from;  // device ids
  std::string to;
  int64_t bytes_per_s = 0;  // > 0
  int64_t latency_ps = 0;

  bool operator==(const LinkSpec&) const = default;
};

struct Machine {
  std::vector<DeviceSpec> devices;
  std::vector<LinkSpec> links;

  bool operator==(const Machine&) const = default;

  // Indices into `devices`, in order.
  std::vector<size_t> accelerators() const;
  std::optional<size_t> cpu() const;
  std::optional<size_t> disk() const;

  // "0", "1", .. "cpu", "disk".
  std::string map_name(size_t device_index) const;
  // By device-map name or id: "0", "cuda:0" where that is an id, "cpu". Only exact spellings ("00", " 0": nothing).
  std::optional<size_t> find(std::string_view name) const;
  // Every name find() accepts, for messages.
  std::vector<std::string> names() const;
  // The direct link between two devices, if the machine names one.
  const LinkSpec* link(size_t a, size_t b) const;
};

// Checks what the type cannot: unique ids, at most one cpu and one disk, positive rates, link ends that exist...
// Errors: kInvalidArgument naming device, key, expected and found.
Status validate(const Machine& machine);

// Errors: kInvalidArgument naming the place ("devices[1] (\"emu:1\")"), the key, what was expected and what was found.
// Keys it does not know are ignored.
Result<Machine> machine_from_json(JsonView json);
Result<Machine> parse_machine(std::string_view json_text);
Result<Machine> read_machine_file(const std::string& path);

// One JSON object that machine_from_json() reads back as an equal value.
void write_machine(const Machine& machine, JsonWriter& out);
std::string machine_json(const Machine& machine, int indent = 2);

// An emulated accelerator with the contract's rates: 9e11 B/s read, 6e13 flops, link 2.5e10 B/s with 10 us.
DeviceSpec emulated_device(size_t number, uint64_t memory_bytes);
// A cpu and a disk with planning rates, for where nothing is measured: 4e10 B/s and 5e11 flops, 2e9 B/s.
DeviceSpec default_cpu(uint64_t memory_bytes);
DeviceSpec default_disk(uint64_t memory_bytes);

// What `--emulate 2x16GiB,1x8GiB` or `16GiB` says: accelerators emu:0.. in that order.
struct EmulateSpec {
  std::vector<DeviceSpec> accelerators;
  std::vector<std::string> notes;  // about lower-case "gb"
};
// Errors: kInvalidArgument naming the part and the accepted form.
Result<EmulateSpec> parse_emulate(std::string_view text);

}  // namespace berth::machine
