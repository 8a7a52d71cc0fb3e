// plan/strategies/compat_transformers.h — the map that transformers 5.24.0 gives for device_map="auto" and the like.
//
// from_pretrained's own planner to the letter: max_memory, sizes with a quantizer, balancing (largest block, largest
// layer), the quantizer's discount of 10 %, the loop, ties, _no_placement_params, cleaning, messages, and
// bitsandbytes' refusal of maps with cpu or disk entries.
//
// Start reading at: plan_as_transformers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/plan/strategies/compat_result.h"

namespace berth::plan::compat {

struct TransformersRequest {
  Mode mode = Mode::kBalanced;
  std::optional<DeviceMap> map;  // a dict as device_map: nothing is planned, `mode` is not looked at
  // Nothing: max_memory=None, from the machine's free bytes below.
  std::optional<std::vector<MemoryEntry>> max_memory;
  std::vector<uint64_t> free_bytes;
  uint64_t available_ram = 0;

  bool built_as_f32 = false;  // the tree's types as built in float32
  // kBitsandbytes: the tree's Linear4bit / Linear8bitLt modules are quantized ones (arch::with_quantized_linears).
  Quantizer quantizer = Quantizer::kNone;
  std::function<std::optional<Number>(std::string_view)> counted_width;  // kOther: bytes an element by tensor path
  bool enable_fp32_cpu_offload = false;                                  // llm_int8_enable_fp32_cpu_offload
  bool offload_buffers = false;
  Revision revision = Revision::kCurrent;
};

// Errors (of Berth, not of the library): kUnsupported for trees beyond Model::build's limits.
Result<CompatResult> plan_as_transformers(const arch::ModuleTree& tree, const TransformersRequest& request);

// Whether bitsandbytes' validate_environment refuses this map: its values, as texts, include "cpu" or "disk", are not
// all "cpu", and llm_int8_enable_fp32_cpu_offload is off.
bool bitsandbytes_refuses(const DeviceMap& map, bool enable_fp32_cpu_offload);

// Where Transformers' loader puts a tensor: not by walking up, but by the first of the keys (most dots first, then
// longest) that matches at the start of the name, dots standing for any character and no boundary after the key; then
// "" and then the cpu. Nothing: it raises KeyError, because the text that matched is itself no key (1.2).
std::optional<DeviceName> loader_device(const DeviceMap& map, std::string_view tensor);

}  // namespace berth::plan::compat
