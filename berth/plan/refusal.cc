// plan/refusal.cc — see refusal.h.
#include "berth/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/plan/strategies/probe.h"
#include "berth/tensor/dtype.h"

namespace berth::plan {
namespace {

constexpr int64_t kTryEffort = 20000;  // whether a change helps is asked often: a plan is wanted, not the best one
constexpr int64_t kTryNodes = 2000;
constexpr size_t kEnough = 2;  // remedies; where there are fewer, more far-reaching changes are tried
// Sizes are found to one part in this many: the first where a refusal has taken less than kSearchEffort (0.15 s), the
// second where less than twice that, the last from there on.
constexpr uint64_t kFineness[] = {256, 32, 16};
constexpr int64_t kSearchEffort = 1'500'000;
constexpr int kMostAdded = 64;  // accelerators

struct Setting {
  const sizing::UnitTable* units = nullptr;
  const machine::Machine* machine = nullptr;
  sizing::RunShape shape;
  std::vector<machine::DeviceBudget> budgets;
  Rules rules;

  CostModel model() const { return CostModel::make(*units, *machine, budgets, shape, rules); }
};

// Whether a setting has a plan, and the effort of finding out.
using Fits = std::function<Probe(const Setting&)>;

Probe best_fits(const Setting& s) { return probe_placement(s.model(), kTryEffort, kTryNodes); }

class Remedies {
 public:
  // `fits`: what a remedy must lead to. `pinned_down`: the user's own map, which no added device and no pin changes.
  Remedies(const PlanRequest& request, const Rules& rules, Fits fits = best_fits, bool pinned_down = false)
      : r_(request), fits_(std::move(fits)), pinned_down_(pinned_down) {
    base_.units = request.assign.units;
    base_.machine = request.assign.machine;
    base_.shape = request.assign.shape;
    base_.budgets = searched_budgets(request);
    base_.rules = rules;
    base_bytes_ = bytes_of(*base_.units);
  }

  std::vector<Remedy> find() {
    if (!pinned_down_) let_out();
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
    if (!pinned_down_ || found_.size() < kEnough) every_accelerator();
    if (found_.size() < kEnough && !pinned_down_) more_accelerators();
    if (found_.size() < kEnough && !pinned_down_) without_pins();
    return std::move(found_);
  }

  // Bytes that device d must have more for a plan to exist, to one part in fineness(); nothing where no size helps, or
  // none that is `below` that many by as much.
  std::optional<uint64_t> missing_on(size_t d, uint64_t below = UINT64_MAX) {
    // Equal devices lack the same.
    const auto& devices = base_.machine->devices;
    const auto same = [&](size_t e) {
      machine::DeviceSpec spec = devices[e];
      spec.id = devices[d].id;
      const machine::DeviceBudget &x = base_.budgets[e], &y = base_.budgets[d];
      return spec == devices[d] && x.budget_bytes == y.budget_bytes && x.left_out == y.left_out &&
             base_.machine->links.empty() && r_.pins.empty() && !pinned_down_;
    };
    for (const auto& [e, missing] : missing_)
      if (e == d || same(e)) return missing;
    const auto missing = missing_in(base_, {d}, below);
    if (missing || below == UINT64_MAX) missing_[d] = missing;
    return missing;
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
    const Probe probe = fits_(s);
    effort_ += probe.effort;
    return probe.found;
  }

  uint64_t fineness() const {
    return kFineness[static_cast<size_t>(std::clamp<int64_t>(effort_ / kSearchEffort, 0, 2))];
  }

  // A margin may be a share of the budget, and grows with it.
  static void set_budget(machine::DeviceBudget& b, uint64_t bytes) {
    b.left_out = false;
    if (b.margin_bytes == machine::kDefaultMarginBytes)
      b.margin_bytes = std::max(b.margin_bytes, bytes / 100);
    else if (b.budget_bytes > 0)
      b.margin_bytes = static_cast<uint64_t>(static_cast<double>(b.margin_bytes) / static_cast<double>(b.budget_bytes) *
                                             static_cast<double>(bytes));
    b.budget_bytes = bytes;
  }

  // How much each of these devices must have more than the one of them that has most, so that a plan exists.
  // Nothing where it is not less than `below` to one part in fineness().
  std::optional<uint64_t> missing_in(const Setting& base, const std::vector<size_t>& which,
                                     uint64_t below = UINT64_MAX) const {
    uint64_t had = 0;
    for (const size_t d : which) had = std::max(had, base.budgets[d].budget_bytes);
    const auto with = [&](uint64_t more) {
      Setting s = base;
      for (const size_t d : which) set_budget(s.budgets[d], had + more);
      return fits(s);
    };
    uint64_t staging = 0;
    for (const sizing::Unit& u : base.units->units) staging = std::max(staging, 2 * u.grain_bytes);
    const uint64_t most = base_bytes_ + staging + base_bytes_ / 64 + (uint64_t{64} << 20);
    // Volume says where to begin: nothing less can do.
    const VolumeCheck volume = check_volume(base.model());
    uint64_t least = 0;
    if (volume.needed > volume.available)
      least = static_cast<uint64_t>(volume.needed - volume.available) / which.size();
    const uint64_t scale = had + least;
    const auto step = [&] { return std::max<uint64_t>(1, scale / fineness()); };
    if (which.size() > 1) least = 0;  // devices below `had` gain more than the rest
    uint64_t fails = least, reach = step(), more = least + reach;
    if (below < UINT64_MAX) {  // downwards from what is known to do elsewhere
      reach = std::max(reach, below / fineness());
      if (below <= least + reach || !with(below - reach)) return std::nullopt;
      more = below - reach;
      for (reach *= 3; more > least + reach; reach *= 3) {
        if (!with(more - reach)) {
          fails = more - reach;
          break;
        }
        more -= reach;
      }
    } else {
      while (!with(std::min(more, most))) {
        if (more >= most) return std::nullopt;
        fails = more;
        reach *= 3;
        more = least + reach;
      }
      more = std::min(more, most);
    }
    while (more - fails > step()) {
      const uint64_t middle = fails + (more - fails) / 2;
      (with(middle) ? more : fails) = middle;
    }
    // In whole MiB where that is small beside it.
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    const uint64_t under = (had + more) / kMiB * kMiB;
    if (step() < kMiB && under > had + fails && with(under - had)) return under - had;
    const uint64_t whole = (had + more + kMiB - 1) / kMiB * kMiB;
    return whole - had < more + step() && with(whole - had) ? whole - had : more;
  }

  void note(std::string change, uint64_t saves, std::string option) {
    found_.push_back({std::move(change), saves, std::move(option)});
  }

  // Host memory and the disk, where they are not used.
  void let_out() {
    Setting s = base_;
    s.rules.offload = true;
    if (!r_.may_let_out) return;
    const auto& devices = base_.machine->devices;
    const auto use = [&](std::optional<size_t> d) {
      if (!d || !s.budgets[*d].left_out || !devices[*d].memory_known || devices[*d].memory_bytes == 0) return false;
      s.budgets[*d].budget_bytes = 0;
      set_budget(s.budgets[*d], devices[*d].memory_bytes);
      return true;
    };
    if (r_.prefill_room_bytes > 0) {
      Setting filled = base_;
      filled.budgets.assign(r_.assign.budgets.begin(), r_.assign.budgets.end());
      if (fits(filled)) note("no room kept for prompts", 0, "without --prefill-room");
    }
    if (!base_.rules.offload && fits(s)) return note("host memory used as well", 0, "without --no-offload");
    const auto cpu = base_.machine->cpu();
    if (use(cpu) && fits(s))
      return note("host memory used as well", devices[*cpu].memory_bytes,
                  fmt::format("--max-memory cpu={}", devices[*cpu].memory_bytes));
    const auto disk = base_.machine->disk();
    if (use(disk) && fits(s))
      note("the disk used as well", devices[*disk].memory_bytes,
           fmt::format("--max-memory disk={}", devices[*disk].memory_bytes));
  }

  bool fits_under(const Change& change, std::optional<ChangedUnits>& changed) const {
    if (!r_.with_change) return false;
    changed = r_.with_change(change);
    if (!changed) return false;
    Setting s = base_;
    s.units = &changed->units;
    s.shape = changed->shape;
    return fits(s);
  }

  bool try_change(const Change& change, const std::string& text, const std::string& option) {
    std::optional<ChangedUnits> changed;
    if (!fits_under(change, changed)) return false;
    const uint64_t bytes = bytes_of(changed->units);
    note(text, base_bytes_ > bytes ? base_bytes_ - bytes : 0, option);
    return true;
  }

  // About the largest multiple of `step` below `value` that fits: to a 64th of the value, or as fineness() has it.
  void fewer(Change::Kind kind, int64_t value, int64_t step, const char* text, const char* option) {
    if (!r_.with_change || value <= step) return;
    std::optional<ChangedUnits> changed;
    if (!fits_under({kind, step, DType::kF16}, changed)) return;
    const auto coarse = [&] {
      return std::max<int64_t>(1, value / step / std::min<int64_t>(64, static_cast<int64_t>(fineness())));
    };                                                    // in steps
    int64_t least = 1, most = (value + step - 1) / step;  // in steps: least fits, most does not
    while (most - least > coarse()) {
      const int64_t middle = least + (most - least) / 2;
      (fits_under({kind, middle * step, DType::kF16}, changed) ? least : most) = middle;
    }
    const int64_t answer = least * step;
    try_change({kind, answer, DType::kF16}, fmt::format(fmt::runtime(text), answer),
               fmt::format(fmt::runtime(option), answer));
  }

  std::vector<size_t> used_accelerators() const {
    std::vector<size_t> used;
    for (const size_t d : base_.machine->accelerators())
      if (!base_.budgets[d].left_out) used.push_back(d);
    return used;
  }

  // A cap can only rise as far as the device's memory.
  bool has(size_t d, uint64_t bytes) const {
    const machine::DeviceSpec& device = base_.machine->devices[d];
    return device.memory_known && bytes <= device.memory_bytes;
  }

  void more_memory() {
    std::optional<size_t> largest;
    for (const size_t d : used_accelerators())
      if (!largest || base_.budgets[d].budget_bytes > base_.budgets[*largest].budget_bytes) largest = d;
    // Where something is pinned, more elsewhere may not help.
    std::vector<std::optional<size_t>> which = {largest, base_.machine->cpu()};
    for (const auto& pin : base_.rules.pins)
      if (pin && std::find(which.begin(), which.end(), pin) == which.end()) which.push_back(pin);
    for (const std::optional<size_t> d : which) {
      if (!d || base_.budgets[*d].left_out || base_.machine->devices[*d].kind == machine::DeviceKind::kDisk) continue;
      const auto more = missing_on(*d);
      if (!more) continue;
      const uint64_t needed = base_.budgets[*d].budget_bytes + *more;
      note(fmt::format("device {} with {} instead of {}", base_.budgets[*d].map_name, format_bytes(needed),
                       format_bytes(base_.budgets[*d].budget_bytes)),
           *more, has(*d, needed) ? fmt::format("--max-memory {}", caps_with({*d}, needed)) : "");
    }
  }

  void every_accelerator() {
    const std::vector<size_t> used = used_accelerators();
    if (used.size() < 2) return;
    const auto more = missing_in(base_, used);
    if (!more) return;
    uint64_t had = 0, added = 0;
    for (const size_t d : used) had = std::max(had, base_.budgets[d].budget_bytes);
    bool all_have = true;
    for (const size_t d : used) {
      added += had + *more - base_.budgets[d].budget_bytes;
      all_have = all_have && has(d, had + *more);
    }
    note(fmt::format("all {} accelerators with {} each", used.size(), format_bytes(had + *more)), added,
         all_have ? fmt::format("--max-memory {}", caps_with(used, had + *more)) : "");
  }

  // An accelerator beside a machine without any, as large as it has to be.
  void an_accelerator() {
    Setting s = base_;
    machine::Machine machine = *base_.machine;
    s.machine = &machine;
    machine.devices.push_back(machine::emulated_device(0, 0));
    machine.devices.back().id = "added:0";
    s.budgets.push_back({});
    s.budgets.back().map_name = machine.map_name(machine.devices.size() - 1);
    const auto more = missing_in(s, {machine.devices.size() - 1});
    if (more) note(fmt::format("an accelerator of {}", format_bytes(*more)), *more, "");
  }

  // More of the largest accelerator.
  void more_accelerators() {
    std::optional<size_t> largest;
    for (const size_t d : used_accelerators())
      if (!largest || base_.budgets[d].budget_bytes > base_.budgets[*largest].budget_bytes) largest = d;
    if (!largest) return an_accelerator();
    const VolumeCheck volume = check_volume(base_.model());
    const uint64_t usable = std::max<uint64_t>(1, base_.budgets[*largest].usable_bytes());
    uint64_t count = 1;
    if (volume.needed > volume.available)
      count = std::max<uint64_t>(1, static_cast<uint64_t>(volume.needed - volume.available) / usable);
    for (int tries = 0; tries < 6 && count <= kMostAdded; ++tries, count += std::max<uint64_t>(1, count / 4)) {
      machine::Machine machine = *base_.machine;
      Setting s = base_;
      s.machine = &machine;
      for (uint64_t k = 0; k < count; ++k) {
        machine.devices.push_back(machine.devices[*largest]);
        machine.devices.back().id = fmt::format("added:{}", k);
        s.budgets.push_back(base_.budgets[*largest]);
        s.budgets.back().map_name = machine.map_name(machine.devices.size() - 1);
      }
      if (!fits(s)) continue;
      const uint64_t bytes = base_.budgets[*largest].budget_bytes;
      return note(fmt::format("{} more accelerator{} of {}", count, count == 1 ? "" : "s", format_bytes(bytes)),
                  count * bytes, "");
    }
  }

  void without_pins() {
    if (r_.pins.empty()) return;
    Setting s = base_;
    s.rules.pins.clear();
    if (fits(s)) note("modules free to go elsewhere", 0, "without --pin");
  }

  // Naming one accelerator leaves the others out, so all are named.
  std::string caps_with(const std::vector<size_t>& raised, uint64_t bytes) const {
    std::vector<std::string> parts;
    const auto& devices = base_.machine->devices;
    for (size_t d = 0; d < devices.size(); ++d) {
      const machine::DeviceBudget& b = base_.budgets[d];
      if (std::find(raised.begin(), raised.end(), d) != raised.end())
        parts.push_back(fmt::format("{}={}", b.map_name, bytes));
      else if (devices[d].is_accelerator() ? devices[raised.front()].is_accelerator() && !b.left_out : b.capped)
        parts.push_back(fmt::format("{}={}", b.map_name, b.budget_bytes));
    }
    return join(parts, ",");
  }

  const PlanRequest& r_;
  Fits fits_;
  bool pinned_down_;
  Setting base_;
  uint64_t base_bytes_ = 0;
  mutable int64_t effort_ = 0;  // of all probes so far
  std::map<size_t, std::optional<uint64_t>> missing_;
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
  if (hints.size() < kEnough)
    hints.push_back(
        fmt::format("No {}change that was tried mends it by itself: try several at once, or a smaller model.",
                    hints.empty() ? "" : "other "));
  return hints;
}

class Refusal {
 public:
  Refusal(const PlanRequest& request, const Rules& rules, const CostModel& model, const BestResult& search)
      : r_(request), rules_(rules), m_(model), search_(search), remedies_(request, rules) {}

  Error make() {
    if (r_.explain == Explain::kNothing) return {ErrorCode::kDoesNotFit, "no placement fits"};
    Shortage s = search_.proof == Proof::kUnit     ? of_unit()
                 : search_.proof == Proof::kVolume ? of_volume()
                                                   : of_search();
    s.proof = search_.proof;
    const bool mended = r_.explain == Explain::kRemedies;
    const std::vector<Remedy> remedies = mended ? remedies_.find() : std::vector<Remedy>{};
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
    Error e(ErrorCode::kDoesNotFit, text(s, missing), mended ? hints_of(remedies) : std::vector<std::string>{});
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
        if (s.device.empty())
          return fmt::format("{} has no place: no device may hold or compute it ({} needed)", quoted(s.module),
                             format_bytes(s.needed));
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
      if (!is_choice(d) || !is_choice_of(u, d) || (device.kind == machine::DeviceKind::kDisk && !table)) continue;
      int64_t needed = m_.unit_weights(u, d);
      if (!table) {
        const CostModel::Unit& c = m_.unit(u);
        needed += c.kv + c.workspace + (c.kv_source >= 0 ? m_.unit(c.kv_source).kv : 0);
      } else if (m_.gatherer(d) == d) {
        needed += m_.table(u - m_.unit_count()).workspace;
      }
      int at = d;
      if (const int g = table ? m_.gatherer(d) : d; g >= 0 && g != d) {  // its rows are gathered by another device
        at = g;
        needed = m_.table(u - m_.unit_count()).workspace;
      }
      const int64_t budget = m_.device(at).budget;
      if (needed - budget >= least) continue;
      least = needed - budget;
      s.device = name(at);
      s.needed = static_cast<uint64_t>(needed);
      s.available = static_cast<uint64_t>(budget);
    }
    if (s.device.empty()) s.needed = unit(u).stored_bytes + unit(u).kv_bytes + unit(u).workspace_bytes;
    return s;
  }

  // Whether a unit or table may be kept or computed on a device: a pin leaves it one.
  bool is_choice_of(int u, int d) const {
    if (u >= m_.unit_count()) {
      const auto& choices = m_.table_choices(u - m_.unit_count());
      return std::find(choices.begin(), choices.end(), static_cast<int16_t>(d)) != choices.end();
    }
    const auto& choices = m_.choices(u);
    return std::any_of(choices.begin(), choices.end(),
                       [&](const Choice& c) { return c.place.memory == d || c.place.compute == d; });
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
  Shortage of_search() {
    Shortage s;
    s.module = largest();
    uint64_t least = UINT64_MAX;
    for (int d = 0; d < m_.device_count(); ++d) {
      if (!is_choice(d) || m_.device(d).kind == machine::DeviceKind::kDisk) continue;
      const auto more = remedies_.missing_on(static_cast<size_t>(d), least);
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
  Remedies remedies_;
};

}  // namespace

std::vector<Remedy> find_remedies(const PlanRequest& request, const Rules& rules) {
  return Remedies(request, rules).find();
}

Error refusal(const PlanRequest& request, const Rules& rules, const CostModel& model, const BestResult& search) {
  return Refusal(request, rules, model, search).make();
}

Error with_remedies(const PlanRequest& request, const Rules& rules, std::span<const Assignment> assignments, Error e) {
  // What keeps the map comes after what replaces it.
  std::vector<Remedy> remedies;
  const CostModel model = CostModel::make(*request.assign.units, *request.assign.machine, request.assign.budgets,
                                          request.assign.shape, rules);
  if (finds_placement(model, kTryEffort, kTryNodes))
    remedies.push_back({"another placement of the same model", 0, "--device-map best"});
  const Fits map_fits = [&](const Setting& s) -> Probe {
    AssignRequest r = request.assign;
    r.units = s.units;
    r.shape = s.shape;
    r.budgets = s.budgets;
    return {s.units->units.size() == assignments.size() && assign(r, assignments).has_value(), 0};
  };
  for (Remedy& r : Remedies(request, rules, map_fits, true).find()) {
    r.change += ", under this map";
    remedies.push_back(std::move(r));
  }
  if (remedies.size() < kEnough)
    for (Remedy& r : find_remedies(request, rules)) {
      r.change += ", placed anew";
      if (!r.option.empty()) r.option += " --device-map best";
      remedies.push_back(std::move(r));
    }
  put_remedies(remedies, e);
  e.hints = hints_of(remedies);
  return e;
}

void put_remedies(const std::vector<Remedy>& remedies, Error& e) {
  const auto document = JsonDocument::parse(e.details_json.empty() ? "{}" : e.details_json);
  JsonWriter details;
  details.begin_object();
  if (document)
    for (const auto& [key, value] : document->root().members())
      if (key != "remedies") details.key(key).raw(value.text());
  write_remedies(details, remedies);
  details.end_object();
  e.details_json = details.take();
}

}  // namespace berth::plan
