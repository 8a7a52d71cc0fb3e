// device/device.h — a device that runs: its memory (an Arena), its kernels (an Isa), and copies between devices.
//
// cpu and emulated devices are host-addressable: their buffers may be read and written in place, and the CPU kernels of
// isa() compute on them. An emulated device is a separate arena with a hard limit; the way to and from it is a counted
// memcpy. CUDA devices have their own memory and copy through their stream (cuda/, or no_cuda/ in builds without it).
//
// The disk is no Device: nothing computes there and files have no arena (load/ owns the offload folder).
//
// Non-goals: finding devices (probe.h), planning (plan/). Start reading at: open_devices().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/isa.h"
#include "berth/base/result.h"
#include "berth/device/arena.h"
#include "berth/device/stream.h"
#include "berth/machine/budget.h"
#include "berth/machine/machine.h"

namespace berth::device {

class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& id() const { return id_; }              // the machine's: "emu:0", "cuda:1", "cpu"
  const std::string& map_name() const { return map_name_; }  // the device map's: "0", "1", "cpu"
  machine::DeviceKind kind() const { return kind_; }
  // The CPU kernels that compute on this device; kRef for CUDA, whose kernels are its own.
  Isa isa() const { return isa_; }
  Arena& arena() { return arena_; }
  const Arena& arena() const { return arena_; }
  // Whether its buffers may be dereferenced by the CPU.
  bool host_addressable() const { return kind_ != machine::DeviceKind::kCuda; }
  // To what every tensor is rounded up here: 512 on CUDA, 64 elsewhere.
  size_t alignment() const { return arena_.granularity_bytes(); }

  // Copies between this device's memory and the host's, complete on return. Host-addressable devices: memcpy.
  virtual Status copy_from_host(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  virtual Status copy_to_host(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Copies from another device of the same kind. Host-addressable devices: memcpy.
  virtual Status copy_from_peer(std::byte* to, const Device& from_device, const std::byte* from, uint64_t bytes) = 0;
  // A new queue of copies between the host and this device.
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
  // Waits for everything queued on the device. Nothing is ever queued on a host-addressable one.
  virtual Status synchronize() = 0;

 protected:
  Device(std::string id, std::string map_name, machine::DeviceKind kind, Isa isa, Arena arena);

 private:
  std::string id_;
  std::string map_name_;
  machine::DeviceKind kind_;
  Isa isa_;
  Arena arena_;
};

// What a copy carries.
enum class Cargo : uint8_t {
  kActivations,  // the residual stream, what experts read and give, rows of a shared KV cache
  kRows,         // gathered rows of a table
  kWeights,      // streamed weights
};
std::string_view cargo_name(Cargo cargo);  // "activations", "rows", "weights"

// Bytes that went over one way between two devices so far (map names; "disk" where a file was read).
struct LinkTraffic {
  std::string from;
  std::string to;
  Cargo cargo = Cargo::kActivations;
  uint64_t bytes = 0;
  uint64_t copies = 0;
  uint64_t decode_bytes = 0;  // of those, while decoding (DeviceSet::set_decoding)
};

struct OpenOptions {
  // Kernels of the cpu and of emulated devices whose machine entry says "auto".
  Isa isa = best_isa();
};

// The devices of a run, in machine order (accelerators by index, then the cpu).
class DeviceSet {
 public:
  DeviceSet() = default;
  DeviceSet(DeviceSet&&) noexcept;
  DeviceSet& operator=(DeviceSet&&) noexcept;

  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  // By map name ("0", "cpu") or machine id; nullptr where there is none or it was left out (budget 0).
  Device* find(std::string_view name) const;
  Device& cpu() const;  // always there; its budget may be 0

  // Copies `bytes` from one device's memory to another's (or within one), counting the link. `from` and `to` must not
  // overlap. Complete on return.
  Status copy(Device& to_device, std::byte* to, Device& from_device, const std::byte* from, uint64_t bytes,
              Cargo cargo = Cargo::kActivations);
  // Counts what went another way than copy(): streams, files ("disk").
  void count(std::string_view from, std::string_view to, Cargo cargo, uint64_t bytes);
  // Whether what is counted from now on belongs to decoding: one token of each sequence, not a prompt.
  void set_decoding(bool decoding);
  // Every way that carried something, in order of first use.
  std::vector<LinkTraffic> traffic() const;
  void reset_traffic();

 private:
  friend Result<DeviceSet> open_devices(const machine::Machine&, std::span<const machine::DeviceBudget>,
                                        const OpenOptions&);
  std::vector<std::unique_ptr<Device>> devices_;
  mutable std::mutex mutex_;
  std::vector<LinkTraffic> traffic_;
  bool decoding_ = false;
};

// Opens the machine's accelerators with a budget above 0, and its cpu, each with an arena of usable_bytes().
// `budgets`: machine::device_budgets(), one per device of `machine`, in order.
//
// Errors: kUnsupported where a device's kernels are not available on this CPU, or for CUDA in a build without it;
// kDevice where a CUDA device does not answer; kInvalidArgument where budgets and machine disagree.
Result<DeviceSet> open_devices(const machine::Machine& machine, std::span<const machine::DeviceBudget> budgets,
                               const OpenOptions& options = {});

}  // namespace berth::device
