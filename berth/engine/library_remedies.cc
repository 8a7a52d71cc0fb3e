// engine/library_remedies.cc — see library_remedies.h.
#include "berth/engine/library_remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/engine/plan_questions.h"
#include "berth/plan/refusal.h"

namespace berth::engine {
namespace {

constexpr size_t kMost = 4;    // remedies: each costs plans
constexpr size_t kEnough = 2;  // with fewer, it is said that nothing else helps

class Search {
 public:
  using Works = std::function<bool(const OpenedModel&, const Options&)>;
  // `target`: of Berth's own placement, "transformers" or "berth".
  Search(const OpenedModel& model, const Options& options, const PlannedModel& planned, std::string target, Works works)
      : model_(model), o_(options), planned_(planned), target_(std::move(target)), works_(std::move(works)) {}

  std::vector<plan::Remedy> find(const Reopen& reopen) {
    berths_own();
    other_modes();
    const sizing::RunShape& shape = planned_.inputs.shape;
    fewer(shape.ctx_size, 128, &Options::ctx_size, "a context of {} positions", "--ctx-size {}");
    fewer(shape.batch, 1, &Options::batch, "a batch of {} sequences", "--batch {}");
    fewer(shape.prefill_chunk, 16, &Options::prefill_chunk, "a prefill chunk of {} tokens", "--prefill-chunk {}");
    offload_flag();
    if (reopen) narrower(reopen);
    more_memory();
    return std::move(found_);
  }

 private:
  bool full() const { return found_.size() >= kMost; }

  bool works(const Options& o) const { return works_(model_, o); }

  void note(std::string change, uint64_t saves, std::string option) {
    found_.push_back({std::move(change), saves, std::move(option)});
  }

  // The same budgets, as the library read them, under Berth's planner: for the library, of whole layers.
  void berths_own() {
    Options own = o_;
    own.compat.clear();
    own.device_map = "best";
    own.target = target_;
    std::vector<std::string> caps;
    for (const machine::DeviceBudget& b : planned_.inputs.budgets.devices)
      if (!b.left_out || b.map_name == "cpu")
        if (b.map_name != "disk") caps.push_back(fmt::format("{}={}", b.map_name, b.left_out ? 0 : b.budget_bytes));
    own.max_memory = join(caps, ",");
    auto inputs = plan_inputs(model_, own);
    if (!inputs) return;
    auto request = plan_request(model_, *inputs, own);
    if (!request) return;
    request->strategy = "best";
    request->effort = 50000;
    const auto exists = plan::plan_exists(*request);
    if (!exists || !*exists) return;
    if (target_ == "berth")
      note("Berth's own placement", 0,
           fmt::format("--device-map best --max-memory {}, without --compat", own.max_memory));
    else
      note("Berth's own placement of whole layers, which from_pretrained takes as device_map", 0,
           fmt::format("--device-map best --target transformers --max-memory {}, without --compat", own.max_memory));
  }

  void other_modes() {
    constexpr std::string_view kModes[] = {"balanced", "balanced_low_0", "sequential"};
    const std::string now = o_.device_map == "best" || o_.device_map == "auto" ? "balanced" : o_.device_map;
    if (std::find(std::begin(kModes), std::end(kModes), now) == std::end(kModes)) return;  // a map of the user's own
    for (const std::string_view mode : kModes) {
      if (mode == now || full()) continue;
      Options o = o_;
      o.device_map = mode;
      if (works(o)) note(fmt::format("the library's mode {}", mode), 0, fmt::format("--device-map {}", mode));
    }
  }

  // About the largest multiple of `step` below `value` under which the map works: to a 16th of the value.
  void fewer(int64_t value, int64_t step, int64_t Options::*option, const char* text, const char* flag) {
    if (value <= step || full()) return;
    const auto with = [&](int64_t steps) {
      Options o = o_;
      o.*option = steps * step;
      return works(o);
    };
    int64_t least = 1, most = (value + step - 1) / step;
    const int64_t coarse = std::max<int64_t>(1, most / 16);
    if (!with(least)) return;
    while (most - least > coarse) {
      const int64_t middle = least + (most - least) / 2;
      (with(middle) ? least : most) = middle;
    }
    note(fmt::format(fmt::runtime(text), least * step), 0, fmt::format(fmt::runtime(flag), least * step));
  }

  void offload_flag() {
    if (o_.llm_int8_enable_fp32_cpu_offload || full()) return;
    Options o = o_;
    o.llm_int8_enable_fp32_cpu_offload = true;
    if (works(o)) note("modules on the cpu allowed by the quantizer", 0, "--llm-int8-enable-fp32-cpu-offload");
  }

  void narrower(const Reopen& reopen) {
    if (o_.compat == "accelerate" || o_.load_in_4bit || model_.quantization() != "none") return;
    for (const bool four : {false, true}) {
      if (full() || (!four && o_.load_in_8bit)) continue;
      Options o = o_;
      o.load_in_8bit = !four;
      o.load_in_4bit = four;
      const auto opened = reopen(o);
      if (!opened || !works_(*opened, o)) continue;
      uint64_t before = 0, after = 0;
      for (const sizing::TensorStorage& t : model_.storage) before += t.bytes;
      for (const sizing::TensorStorage& t : opened->storage) after += t.bytes;
      note(four ? "weights in 4 bit" : "weights in 8 bit", before - std::min(before, after),
           four ? "--load-in-4bit" : "--load-in-8bit");
    }
  }

  // Accelerators with more each, in the same proportions, where the machine has it.
  void more_memory() {
    if (full()) return;
    for (const int percent : {105, 110, 125, 150, 200, 300, 500, 1000}) {
      std::vector<std::string> caps;
      uint64_t added = 0;
      bool any = false;
      for (const machine::DeviceBudget& b : planned_.inputs.budgets.devices) {
        if (b.left_out || b.map_name == "disk") continue;
        const bool accelerator = b.map_name != "cpu";
        const uint64_t bytes = accelerator ? b.budget_bytes / 100 * static_cast<uint64_t>(percent) : b.budget_bytes;
        const auto d = planned_.inputs.machine.find(b.map_name);
        if (accelerator && (!d || bytes > planned_.inputs.machine.devices[*d].memory_bytes)) return;
        any = any || accelerator;
        added += bytes - std::min(bytes, b.budget_bytes);
        caps.push_back(fmt::format("{}={}", b.map_name, bytes));
      }
      if (!any) return;
      Options o = o_;
      o.max_memory = join(caps, ",");
      if (!works(o)) continue;
      return note(fmt::format("{} % of the memory on accelerators", percent), added, "--max-memory " + o.max_memory);
    }
  }

  const OpenedModel& model_;
  const Options& o_;
  const PlannedModel& planned_;
  std::string target_;
  Works works_;
  std::vector<plan::Remedy> found_;
};

bool works_in_library(const OpenedModel& model, const Options& o) {
  LibraryAsk ask;
  ask.judge_only = true;
  const auto planned = plan_as_library(model, o, ask);
  return planned && !planned->fails_here;
}

// Into the error's details and hints.
void attach(const std::vector<plan::Remedy>& remedies, Error& e) {
  plan::put_remedies(remedies, e);
  e.hints.clear();
  for (const plan::Remedy& r : remedies) e.hints.push_back(fmt::format("It works with {} ({}).", r.change, r.option));
  if (remedies.size() < kEnough)
    e.hints.push_back(
        fmt::format("No {}change that was tried makes this map work by itself.", remedies.empty() ? "" : "other "));
}

}  // namespace

std::vector<plan::Remedy> library_remedies(const OpenedModel& model, const Options& options, const LibraryPlan& planned,
                                           const Reopen& reopen) {
  return Search(model, options, planned.planned, "transformers", works_in_library).find(reopen);
}

void explain_failure(const OpenedModel& model, const Options& options, const Reopen& reopen, LibraryPlan& planned) {
  if (!planned.fails_here) return;
  attach(library_remedies(model, options, planned, reopen), *planned.fails_here);
  for (const std::string& hint : planned.fails_here->hints) planned.planned.plan.warnings.push_back(hint);
}

void explain_run_failure(const OpenedModel& model, const Options& options, const PlannedModel& planned,
                         const std::function<bool(const Options&)>& runs, Error& refused) {
  const auto works = [&](const OpenedModel&, const Options& o) { return runs(o); };
  attach(Search(model, options, planned, "berth", works).find({}), refused);
}

}  // namespace berth::engine
