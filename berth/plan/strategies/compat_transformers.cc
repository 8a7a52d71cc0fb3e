// plan/strategies/compat_transformers.cc — the steps of Transformers' _get_device_map.
#include "berth/plan/strategies/compat_transformers.h"

#include <algorithm>

namespace berth::plan::compat {

Result<CompatResult> plan_as_transformers(const arch::ModuleTree& tree, const TransformersRequest& request) {
  CompatResult out;
  out.library = Library::kTransformers;
  SizeRules sizes;
  sizes.library = Library::kTransformers;
  sizes.built_as_f32 = request.built_as_f32;
  sizes.quantizer = request.quantizer;
  sizes.counted_width = request.counted_width;
  TRY(const Model model, Model::build(tree, sizes, tree.no_split_classes));
  out.total = model.root().size;

  Budgets budgets;
  if (request.max_memory) {
    auto read = read_max_memory(*request.max_memory);
    if (raised(read)) {
      out.error = CompatError{Stage::kBalance, std::get<Raised>(std::move(read))};
      return out;
    }
    budgets = std::get<Budgets>(std::move(read));
  } else {
    budgets = default_max_memory(Library::kTransformers, request.free_bytes, request.available_ram);
  }
  if (!request.map && request.mode != Mode::kSequential) {
    auto balanced =
        balanced_memory(model, budgets, request.mode == Mode::kBalancedLow0, !request.max_memory, request.revision);
    if (raised(balanced)) {
      out.error = CompatError{Stage::kBalance, std::get<Raised>(std::move(balanced))};
      return out;
    }
    budgets = std::get<Budgets>(std::move(balanced));
  }
  if (!request.map) out.balanced = budgets;
  if (!request.map && request.quantizer != Quantizer::kNone) {
    if (request.quantizer == Quantizer::kBitsandbytes)
      for (auto& [device, bytes] : budgets.entries) bytes = bytes * Number::real(0.90);
    out.adjusted = budgets;
  }
  out.filled = std::move(budgets);

  InferOptions options;
  options.offload_buffers = request.offload_buffers;
  options.revision = request.revision;
  options.no_placement = tree.no_placement;
  if (request.map)
    take_map(model, *request.map, out);
  else
    run_loop(model, options, out);
  if (out.map && request.quantizer == Quantizer::kBitsandbytes &&
      bitsandbytes_refuses(*out.map, request.enable_fp32_cpu_offload))
    out.error = CompatError{Stage::kValidate,
                            {"ValueError",
                             "bitsandbytes refuses the map: some modules are on the cpu or the disk, and "
                             "llm_int8_enable_fp32_cpu_offload is off"}};
  return out;
}

bool bitsandbytes_refuses(const DeviceMap& map, bool enable_fp32_cpu_offload) {
  if (enable_fp32_cpu_offload || map.entries.empty()) return false;
  bool away = false, only_cpu = true;
  for (const auto& [key, device] : map.entries) {
    away = away || device.is_cpu() || device.is_disk();
    only_cpu = only_cpu && device.is_cpu();
  }
  return away && !only_cpu;
}

std::optional<DeviceName> loader_device(const DeviceMap& map, std::string_view tensor) {
  const std::pair<const std::string, DeviceName>* best = nullptr;
  const auto rank = [](std::string_view key) { return std::pair(std::count(key.begin(), key.end(), '.'), key.size()); };
  for (const auto& entry : map.entries) {
    const std::string& key = entry.first;
    if (key.empty() || key.size() > tensor.size()) continue;
    const bool matches =
        std::equal(key.begin(), key.end(), tensor.begin(), [](char k, char t) { return k == '.' || k == t; });
    if (matches && (best == nullptr || rank(key) > rank(best->first))) best = &entry;
  }
  if (best != nullptr) {
    const auto it = map.entries.find(tensor.substr(0, best->first.size()));
    return it == map.entries.end() ? std::nullopt : std::optional(it->second);
  }
  const auto root = map.entries.find("");
  return root == map.entries.end() ? DeviceName::cpu() : root->second;
}

}  // namespace berth::plan::compat
