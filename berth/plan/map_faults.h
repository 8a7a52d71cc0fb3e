// plan/map_faults.h — what goes wrong with a device map on a machine, one line each: for maps that Transformers or
// accelerate plan, and for those people write for them.
//
// The libraries' planners count bytes their own way, no KV cache and no room for streaming, and refuse nothing. This
// looks at the finished map with real bytes and budgets. It plans nothing itself; where a line says "although", it
// needs the native planner's answer, which the caller passes in.
//
// Start reading at: map_faults.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/arch/module.h"
#include "berth/plan/device_map.h"
#include "berth/plan/strategies/compat_result.h"

namespace berth::plan {

struct DeviceLimit {
  DeviceName device;
  uint64_t budget_bytes = 0;  // what weights, KV and the rest may fill; 0: excluded
};

// KV cache (or other state) that a module keeps for the context and batch asked for.
struct KvShare {
  std::string module;  // "model.layers.3.self_attn"
  uint64_t bytes = 0;
};

// What the native planner says about the same model and budgets.
struct NativeAnswer {
  bool on_accelerators_only = false;  // it found a placement without cpu and disk
  std::vector<DeviceName> uses;       // accelerators of that placement
};

struct MapFaultsRequest {
  const arch::ModuleTree* tree = nullptr;
  const DeviceMap* map = nullptr;
  std::span<const DeviceLimit> limits;
  // Bytes of a tensor as stored, quantization data included; by its path in the first spelling. A tie's two names give
  // the same number; this code counts it once a device.
  std::function<uint64_t(const std::string&)> stored_bytes;
  std::span<const KvShare> kv;
  std::string kv_for;  // "8,500 tokens", for the text
  // bitsandbytes: whether the plan quantizes (the tree's Linear4bit / Linear8bitLt modules), and how it treats the cpu.
  bool bitsandbytes = false;
  bool enable_fp32_cpu_offload = false;
  bool map_is_users = false;  // a dict given by the user: with the flag, its cpu and disk modules stay wide
  std::function<uint64_t(const std::string&)> wide_bytes;  // the same tensor not quantized; may be empty
  const compat::CompatResult* planned = nullptr;           // by the library, where it planned the map
  std::optional<NativeAnswer> native;
};

enum class MapFaultKind {
  kRefused,               // the library stops with an error
  kNoDevice,              // tensors that no entry covers
  kLoaderReadsOtherwise,  // Transformers' loader matches a key without its boundary
  kOverBudget,            // real weights exceed a budget
  kKvNotCounted,          // weights fit, the KV cache beside them does not
  kNoRoomToStream,        // what is streamed in, and the buffers that stay, find no room on the main accelerator
  kEmptyAccelerators,
  kOffloadedAlthough,  // on cpu or disk although the accelerators could hold everything
  kStreamed,           // on cpu or disk: what every token costs
  kNoCpuBudget,        // on the disk because max_memory names no cpu
  kQuantizedRefused,   // 4 or 8 bit modules on the cpu or the disk: bitsandbytes refuses the map
  kQuantizedWidened,   // ... or keeps them wide
  kTiesSplit,          // one tensor on several devices
  kBlockSplit,         // a block that must stay whole is not
  kTooLargeForAny,     // a leaf that no accelerator can hold
};
std::string_view map_fault_name(MapFaultKind kind);  // "over_budget"...

struct MapFault {
  MapFaultKind kind;
  std::string message;                             // one line
  std::string device;                              // "" where several or none
  std::string module;                              // "" where several or none
  uint64_t needed_bytes = 0, available_bytes = 0;  // 0 where they do not apply
};

// In the order of MapFaultKind, then devices. Empty: nothing goes wrong that can be told from a map.
std::vector<MapFault> map_faults(const MapFaultsRequest& request);

}  // namespace berth::plan
