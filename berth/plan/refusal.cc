// plan/refusal.cc — see refusal.h.
#include "berth/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/tensor/dtype.h"

namespace berth::plan {
namespace {

constexpr int64_t kTryEffort = 20000;  // whether a change helps is asked often: a plan is wanted, not the best one
constexpr int64_t kTryNodes = 20000;
constexpr uint64_t kCapStep = uint64_t{64} << 20;

struct Setting {
  const sizing::UnitTable* units = nullptr;
  sizing::RunShape shape;
  std::vector<machine::DeviceBudget> budgets;
  Rules rules;
};

class Remedies {
 public:
  Remedies(const PlanRequest& request, const Rules& rules) : r_(request) {
    base_.units = request.assign.units;
    base_.shape = request.assign.shape;
    base_.budgets.assign(request.assign.budgets.begin(), request.assign.budgets.end());
    base_.rules = rules;
    base_bytes_ = bytes_of(*base_.units);
  }

  std::vector<Remedy> find() {
    let_out();
    fewer(Change::Kind::kPrefillChunk, r_.assign.shape.prefill_chunk, 16, "a prefill chunk of {} tokens",
          "--prefill-chunk {}");
    fewer(Change::Kind::kCtxSize, r_.assign.shape.ctx_size, 128, "a context of {} positions", "--ctx-size {}");
    fewer(Change::Kind::kBatch, r_.assign.shape.batch, 1, "a batch of {} sequences", "--batch {}");
    Change kv{Change::Kind::kKvDtype, 0, DType::kF16};
    if (dtype_info(r_.assign.shape.kv_dtype).block_bytes > 2)
      try_change(kv, "a KV cache in float16", "--kv-dtype float16");
    try_change({Change::Kind::kLoadIn8Bit, 0, DType::kF16}, "weights in 8 bit", "--load-in-8bit");
    try_change({Change::Kind::kLoadIn4Bit, 0, DType::kF16}, "weights in 4 bit", "--load-in-4bit");
    try_change({Change::Kind::kQuantizeExperts, 0, DType::kF16}, "fused experts quantized as well",
               "--quantize-experts");
    more_memory();
    return std::move(found_);
  }

  // Least bytes that device d must have more for a plan to exist; nothing where no size helps.
  std::optional<uint64_t> missing_on(size_t d) const {
    Setting s = base_;
    machine::DeviceBudget& b = s.budgets[d];
    const uint64_t had = b.budget_bytes;
    const auto with = [&](uint64_t more) {
      b.budget_bytes = had + more;
      b.left_out = false;
      return fits(s);
    };
    uint64_t most = base_bytes_ + kCapStep;
    if (!with(most)) return std::nullopt;
    const uint64_t step = std::max<uint64_t>(1, std::min(kCapStep, most / 64));
    uint64_t least = 0;
    while (most - least > step) {
      const uint64_t middle = least + (most - least) / 2;
      (with(middle) ? most : least) = middle;
    }
    return most;
  }

 private:
  static uint64_t bytes_of(const sizing::UnitTable& units) {
    uint64_t sum = 0, workspace = 0;
    for (const sizing::Unit& u : units.units) {
      sum += u.stored_bytes_512 + u.kv_bytes;
      workspace = std::max(workspace, u.workspace_bytes);
    }
    return sum + workspace;
  }

  bool fits(const Setting& s) const {
    const CostModel model = CostModel::make(*s.units, *r_.assign.machine, s.budgets, s.shape, s.rules);
    return finds_placement(model, kTryEffort, kTryNodes);
  }

  void note(std::string change, uint64_t saves, std::string option) {
    found_.push_back({std::move(change), saves, std::move(option)});
  }

  // Host memory and the disk, where they are not used.
  void let_out() {
    Setting s = base_;
    s.rules.offload = true;
    const auto& devices = r_.assign.machine->devices;
    const auto use = [&](std::optional<size_t> d) {
      if (!d || !s.budgets[*d].left_out || !devices[*d].memory_known || devices[*d].memory_bytes == 0) return false;
      s.budgets[*d].left_out = false;
      s.budgets[*d].budget_bytes = devices[*d].memory_bytes;
      return true;
    };
    if (!base_.rules.offload && fits(s)) return note("host memory used as well", 0, "without --no-offload");
    const auto cpu = r_.assign.machine->cpu();
    if (use(cpu) && fits(s))
      return note("host memory used as well", devices[*cpu].memory_bytes,
                  fmt::format("--max-memory cpu={}", devices[*cpu].memory_bytes));
    const auto disk = r_.assign.machine->disk();
    if (use(disk) && fits(s))
      note("the disk used as well", devices[*disk].memory_bytes,
           fmt::format("--max-memory disk={}", devices[*disk].memory_bytes));
  }

  bool try_change(const Change& change, const std::string& text, const std::string& option) {
    if (!r_.with_change) return false;
    const auto changed = r_.with_change(change);
    if (!changed) return false;
    Setting s = base_;
    s.units = &changed->units;
    s.shape = changed->shape;
    if (!fits(s)) return false;
    const uint64_t bytes = bytes_of(changed->units);
    note(text, base_bytes_ > bytes ? base_bytes_ - bytes : 0, option);
    return true;
  }

  // The largest multiple of `step` below `value` that fits.
  void fewer(Change::Kind kind, int64_t value, int64_t step, const char* text, const char* option) {
    if (!r_.with_change || value <= step) return;
    const auto fits_with = [&](int64_t v) {
      const auto changed = r_.with_change({kind, v, DType::kF16});
      if (!changed) return false;
      Setting s = base_;
      s.units = &changed->units;
      s.shape = changed->shape;
      return fits(s);
    };
    if (!fits_with(step)) return;
    int64_t least = 1, most = (value + step - 1) / step;  // in steps: least fits, most does not
    while (most - least > 1) {
      const int64_t middle = least + (most - least) / 2;
      (fits_with(middle * step) ? least : most) = middle;
    }
    const int64_t answer = least * step;
    try_change({kind, answer, DType::kF16}, fmt::format(fmt::runtime(text), answer),
               fmt::format(fmt::runtime(option), answer));
  }

  void more_memory() {
    const auto& devices = r_.assign.machine->devices;
    std::optional<size_t> largest;
    for (size_t d = 0; d < devices.size(); ++d) {
      if (!devices[d].is_accelerator() || base_.budgets[d].left_out) continue;
      if (!largest || base_.budgets[d].budget_bytes > base_.budgets[*largest].budget_bytes) largest = d;
    }
    for (const std::optional<size_t> d : {largest, r_.assign.machine->cpu()}) {
      if (!d || base_.budgets[*d].left_out) continue;
      const auto more = missing_on(*d);
      if (!more) continue;
      const uint64_t needed = base_.budgets[*d].budget_bytes + *more;
      const std::string name = base_.budgets[*d].map_name;
      // A cap can only rise as far as the device's memory.
      const bool has = devices[*d].memory_known && needed <= devices[*d].memory_bytes;
      note(fmt::format("device {} with {} instead of {}", name, format_bytes(needed),
                       format_bytes(base_.budgets[*d].budget_bytes)),
           *more, has ? fmt::format("--max-memory {}", caps_with(*d, needed)) : "");
    }
  }

  // Naming one accelerator leaves the others out, so all are named.
  std::string caps_with(size_t raised, uint64_t bytes) const {
    std::vector<std::string> parts;
    const auto& devices = r_.assign.machine->devices;
    for (size_t d = 0; d < devices.size(); ++d) {
      const machine::DeviceBudget& b = base_.budgets[d];
      if (d == raised)
        parts.push_back(fmt::format("{}={}", b.map_name, bytes));
      else if (devices[d].is_accelerator() ? devices[raised].is_accelerator() && !b.left_out : b.capped)
        parts.push_back(fmt::format("{}={}", b.map_name, b.budget_bytes));
    }
    return join(parts, ",");
  }

  const PlanRequest& r_;
  Setting base_;
  uint64_t base_bytes_ = 0;
  std::vector<Remedy> found_;
};

struct Shortage {
  std::string device, module;
  uint64_t needed = 0, available = 0;
  Proof proof = Proof::kNoneFound;
};

void write_remedies(JsonWriter& out, const std::vector<Remedy>& remedies) {
  out.key("remedies").begin_array();
  for (const Remedy& r : remedies)
    out.begin_object()
        .member("change", r.change)
        .member("saves_bytes", r.saves_bytes)
        .member("option", r.option)
        .end_object();
  out.end_array();
}

std::vector<std::string> hints_of(const std::vector<Remedy>& remedies) {
  std::vector<std::string> hints;
  for (const Remedy& r : remedies) {
    std::string text = "It fits with " + r.change;
    if (!r.option.empty()) text += " (" + r.option + ")";
    if (r.saves_bytes > 0) text += ": " + format_bytes(r.saves_bytes);
    hints.push_back(text + ".");
  }
  if (hints.empty())
    hints.push_back("No single change that was tried mends it: try several at once, or a smaller model.");
  return hints;
}

class Refusal {
 public:
  Refusal(const PlanRequest& request, const Rules& rules, const CostModel& model, const BestResult& search)
      : r_(request), rules_(rules), m_(model), search_(search) {}

  Error make() const {
    if (!r_.explain_refusal) return {ErrorCode::kDoesNotFit, "no placement fits"};
    Shortage s = search_.proof == Proof::kUnit     ? of_unit()
                 : search_.proof == Proof::kVolume ? of_volume()
                                                   : of_search();
    s.proof = search_.proof;
    const std::vector<Remedy> remedies = find_remedies(r_, rules_);
    const uint64_t missing = s.needed > s.available ? s.needed - s.available : 0;
    JsonWriter details;
    details.begin_object()
        .member("device", s.device)
        .member("module", s.module)
        .member("needed_bytes", s.needed)
        .member("available_bytes", s.available)
        .member("missing_bytes", missing)
        .member("proof", proof_name(s.proof));
    write_remedies(details, remedies);
    details.end_object();
    Error e(ErrorCode::kDoesNotFit, text(s, missing), hints_of(remedies));
    e.details_json = details.take();
    return e;
  }

 private:
  const sizing::Unit& unit(int u) const { return r_.assign.units->units[static_cast<size_t>(u)]; }
  const std::string& name(int d) const { return r_.assign.budgets[static_cast<size_t>(d)].map_name; }
  // Where units may be put at all: without offloading, accelerators alone (a machine without any has nothing to
  // offload).
  bool is_choice(int d) const {
    return m_.device(d).usable && (rules_.offload || !m_.has_accelerator() || m_.device(d).accelerator);
  }

  std::string text(const Shortage& s, uint64_t missing) const {
    const std::string sizes = fmt::format("{} needed, {} there, {} missing", format_bytes(s.needed),
                                          format_bytes(s.available), format_bytes(missing));
    switch (s.proof) {
      case Proof::kUnit:
        return fmt::format("{} with its KV cache and workspace fits on no device; nearest is device {}: {}",
                           quoted(s.module), s.device, sizes);
      case Proof::kVolume:
        return fmt::format(
            "the model does not fit: weights and KV cache are more than all devices ({}) together hold: {}; the "
            "largest module is {}",
            s.device, sizes, quoted(s.module));
      case Proof::kRuns:
        return fmt::format(
            "no placement fits, which is proven: least is missing on device {}: {}; the largest module is {}", s.device,
            sizes, quoted(s.module));
      default:
        return fmt::format(
            "no placement was found; the search was cut off before it had tried all. Least is missing on device {}: "
            "{}; the "
            "largest module is {}",
            s.device, sizes, quoted(s.module));
    }
  }

  Shortage of_unit() const {
    Shortage s;
    const int u = search_.proof_unit;
    const bool table = u >= m_.unit_count();
    s.module = unit(u).path;
    int64_t least = INT64_MAX;
    for (int d = 0; d < m_.device_count(); ++d) {
      const CostModel::Device& device = m_.device(d);
      if (!is_choice(d) || (device.kind == machine::DeviceKind::kDisk && !table)) continue;
      int64_t needed = m_.unit_weights(u, d);
      if (!table) {
        const CostModel::Unit& c = m_.unit(u);
        needed += c.kv + c.workspace + (c.kv_source >= 0 ? m_.unit(c.kv_source).kv : 0);
      } else if (m_.gatherer(d) == d) {
        needed += m_.table(u - m_.unit_count()).workspace;
      }
      if (needed - device.budget >= least) continue;
      least = needed - device.budget;
      s.device = name(d);
      s.needed = static_cast<uint64_t>(needed);
      s.available = static_cast<uint64_t>(device.budget);
    }
    return s;
  }

  std::string largest() const {
    const sizing::Unit* most = nullptr;
    for (const sizing::Unit& u : r_.assign.units->units)
      if (most == nullptr || u.stored_bytes + u.kv_bytes > most->stored_bytes + most->kv_bytes) most = &u;
    return most == nullptr ? "" : most->path;
  }

  Shortage of_volume() const {
    Shortage s;
    std::vector<std::string> names;
    for (int d = 0; d < m_.device_count(); ++d)
      if (is_choice(d) && m_.device(d).kind != machine::DeviceKind::kDisk) names.push_back(name(d));
    s.device = join(names, ",");
    s.module = largest();
    s.needed = static_cast<uint64_t>(search_.volume_needed);
    s.available = static_cast<uint64_t>(search_.volume_available);
    return s;
  }

  // The device on which the fewest more bytes would make a plan possible.
  Shortage of_search() const {
    Shortage s;
    s.module = largest();
    const Remedies remedies(r_, rules_);
    uint64_t least = UINT64_MAX;
    for (int d = 0; d < m_.device_count(); ++d) {
      if (!is_choice(d) || m_.device(d).kind == machine::DeviceKind::kDisk) continue;
      const auto more = remedies.missing_on(static_cast<size_t>(d));
      if (!more || *more >= least) continue;
      least = *more;
      s.device = name(d);
      s.available = r_.assign.budgets[static_cast<size_t>(d)].budget_bytes;
      s.needed = s.available + *more;
    }
    if (s.device.empty()) return of_volume();
    return s;
  }

  const PlanRequest& r_;
  const Rules& rules_;
  const CostModel& m_;
  const BestResult& search_;
};

}  // namespace

std::vector<Remedy> find_remedies(const PlanRequest& request, const Rules& rules) {
  return Remedies(request, rules).find();
}

Error refusal(const PlanRequest& request, const Rules& rules, const CostModel& model, const BestResult& search) {
  return Refusal(request, rules, model, search).make();
}

Error with_remedies(const PlanRequest& request, const Rules& rules, Error e) {
  std::vector<Remedy> remedies;
  const CostModel model = CostModel::make(*request.assign.units, *request.assign.machine, request.assign.budgets,
                                          request.assign.shape, rules);
  const bool best_fits = finds_placement(model, kTryEffort, kTryNodes);
  if (best_fits)
    remedies.push_back({"another placement of the same model", 0, "--device-map best"});
  else
    remedies = find_remedies(request, rules);
  const auto document = JsonDocument::parse(e.details_json.empty() ? "{}" : e.details_json);
  JsonWriter details;
  details.begin_object();
  if (document)
    for (const auto& [key, value] : document->root().members())
      if (key != "remedies") details.key(key).raw(value.text());
  write_remedies(details, remedies);
  details.end_object();
  e.details_json = details.take();
  e.hints = hints_of(remedies);
  return e;
}

}  // namespace berth::plan
