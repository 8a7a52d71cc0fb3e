// plan/strategies/compat_accelerate.cc — the steps of accelerate's load_checkpoint_and_dispatch for a named map.
#include "berth/plan/strategies/compat_accelerate.h"

namespace berth::plan::compat {

Result<CompatResult> plan_as_accelerate(const arch::ModuleTree& tree, const AccelerateRequest& request) {
  CompatResult out;
  out.library = Library::kAccelerate;
  const std::vector<std::string>& no_split = request.no_split ? *request.no_split : tree.no_split_classes;
  SizeRules sizes;
  sizes.library = Library::kAccelerate;
  sizes.built_as_f32 = request.built_as_f32;
  sizes.dtype = request.dtype;
  const bool balance = !request.map && request.mode != Mode::kSequential;
  const Stage first = balance ? Stage::kBalance : Stage::kPlan;  // where max_memory is read
  if (request.max_memory) {
    auto read = read_max_memory(*request.max_memory);
    if (raised(read)) {
      out.error = CompatError{first, std::get<Raised>(std::move(read))};
      return out;
    }
    out.filled = std::get<Budgets>(std::move(read));
  } else {
    out.filled = default_max_memory(Library::kAccelerate, request.free_bytes, request.available_ram);
  }
  TRY(Model model, Model::build(tree, sizes, no_split));
  out.total = model.root().size;
  if (balance) {
    auto balanced = balanced_memory(model, out.filled, request.mode == Mode::kBalancedLow0, !request.max_memory);
    if (raised(balanced)) {
      out.error = CompatError{Stage::kBalance, std::get<Raised>(std::move(balanced))};
      return out;
    }
    out.filled = std::get<Budgets>(std::move(balanced));
    out.balanced = out.filled;
  }
  if (!request.special_dtypes.empty()) {
    sizes.special_dtypes = request.special_dtypes;
    TRY(model, Model::build(tree, sizes, no_split));
    out.total = model.root().size;
  }
  InferOptions options;
  options.offload_buffers = request.offload_buffers;
  options.fallback_allocation = request.fallback_allocation;
  if (request.map)
    take_map(model, *request.map, out);
  else
    run_loop(model, options, out);
  return out;
}

}  // namespace berth::plan::compat
