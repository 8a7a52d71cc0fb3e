// plan/strategies/sequential.cc — fills devices in machine order, each run of units as long as it fits; then the cpu.
//
// Tables go first: to the cpu where there is room (their rows are cheap to gather), else to the first device that takes
// them. Pins are counted before anything else. May refuse although a placement exists ("none found"); never exceeds a
// budget, since every step is checked with device_use().
#include "berth/plan/strategies/sequential.h"

#include <optional>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

namespace berth::plan {
namespace {

class Filler {
 public:
  Filler(const PlanRequest& request, std::vector<std::optional<size_t>> pins)
      : r_(request), table_(*request.assign.units), devices_(request.assign.machine->devices), pins_(std::move(pins)) {}

  Result<Plan> fill() {
    for (size_t d = 0; d < devices_.size(); ++d)
      if (devices_[d].is_accelerator() && !r_.assign.budgets[d].left_out) order_.push_back(d);
    for (size_t d = 0; d < devices_.size(); ++d)
      if (devices_[d].kind == machine::DeviceKind::kCpu && (r_.offload || order_.empty())) order_.push_back(d);
    placed_.assign(table_.units.size(), std::nullopt);
    for (size_t u = 0; u < table_.units.size(); ++u)
      if (pins_[u]) put(u, *pins_[u], "pinned");
    TRY_STATUS(place_tables());
    size_t at = 0;
    for (int32_t u = 0; u < table_.chain_size; ++u) {
      const auto unit = static_cast<size_t>(u);
      if (placed_[unit]) continue;
      while (at < order_.size() && !fits(unit, order_[at])) ++at;
      if (at == order_.size()) return refuse(unit);
      put(unit, order_[at], at == 0 ? "first device with room" : "the devices before are full");
    }
    // Tables stored with a unit follow it.
    for (size_t u = 0; u < table_.units.size(); ++u)
      if (table_.units[u].stored_with >= 0)
        placed_[u] = placed_[static_cast<size_t>(table_.units[u].stored_with)], placed_[u]->access = Access::kGather;
    std::vector<Assignment> out;
    for (const auto& a : placed_) out.push_back(*a);
    return assign(r_.assign, out);
  }

 private:
  void put(size_t unit, size_t device, std::string reason) {
    const bool table = static_cast<int32_t>(unit) >= table_.chain_size;
    placed_[unit] = Assignment{device, device, table ? Access::kGather : Access::kCompute, std::move(reason)};
  }

  // What is placed so far, with `unit` on `device`: within the device's budget?
  bool fits(size_t unit, size_t device) {
    put(unit, device, "");
    const bool ok = used(device) <= r_.assign.budgets[device].budget_bytes && r_.assign.budgets[device].budget_bytes > 0;
    placed_[unit] = std::nullopt;
    return ok;
  }

  uint64_t used(size_t device) const {
    uint64_t weights = 0, kv = 0, workspace = 0;
    for (size_t u = 0; u < placed_.size(); ++u) {
      const sizing::Unit& unit = table_.units[u];
      const bool follows = unit.stored_with >= 0 && placed_[static_cast<size_t>(unit.stored_with)] &&
                           placed_[static_cast<size_t>(unit.stored_with)]->memory == device;
      if (follows) workspace = std::max(workspace, unit.workspace_bytes);
      if (!placed_[u] || placed_[u]->memory != device) continue;
      weights += devices_[device].kind == machine::DeviceKind::kCuda ? unit.stored_bytes_512 : unit.stored_bytes;
      kv += unit.kv_bytes;
      workspace = std::max(workspace, unit.workspace_bytes);
    }
    const machine::DeviceBudget& b = r_.assign.budgets[device];
    return weights + kv + workspace + b.overhead_bytes + b.margin_bytes;
  }

  Status place_tables() {
    std::vector<size_t> by_preference;
    if (r_.tables == TablePlacement::kAuto && r_.offload)
      for (size_t d = 0; d < devices_.size(); ++d)
        if (devices_[d].kind == machine::DeviceKind::kCpu) by_preference.push_back(d);
    by_preference.insert(by_preference.end(), order_.begin(), order_.end());
    for (size_t u = static_cast<size_t>(table_.chain_size); u < table_.units.size(); ++u) {
      if (placed_[u] || table_.units[u].stored_with >= 0) continue;
      for (const size_t d : by_preference) {
        if (!fits(u, d)) continue;
        put(u, d, "a table: only the rows of the current tokens are read");
        break;
      }
      if (!placed_[u]) return refuse(u);
    }
    return {};
  }

  Error refuse(size_t unit) {
    const sizing::Unit& u = table_.units[unit];
    size_t best = order_.empty() ? 0 : order_.front();
    uint64_t least = UINT64_MAX, needed = 0;
    for (const size_t d : order_) {
      put(unit, d, "");
      const uint64_t n = used(d);
      placed_[unit] = std::nullopt;
      const uint64_t over = n > r_.assign.budgets[d].budget_bytes ? n - r_.assign.budgets[d].budget_bytes : 0;
      if (over < least) least = over, best = d, needed = n;
    }
    const machine::DeviceBudget& b = r_.assign.budgets[best];
    JsonWriter details;
    details.begin_object()
        .member("device", b.map_name)
        .member("module", u.path)
        .member("needed_bytes", needed)
        .member("available_bytes", b.budget_bytes)
        .member("missing_bytes", least)
        .member("proof", "none_found")
        .key("remedies")
        .begin_array()
        .end_array()
        .end_object();
    Error e(ErrorCode::kDoesNotFit,
            fmt::format("no placement was found: {} ({} of weights, {} of KV cache, {} of workspace) fits on no device after what "
                        "is placed before it; least is missing on device {}: {} bytes",
                        quoted(u.path), format_bytes(u.stored_bytes), format_bytes(u.kv_bytes), format_bytes(u.workspace_bytes),
                        b.map_name, least),
            {"Give a device more memory (--max-memory), use 4 bit (--load-in-4bit), or a smaller --ctx-size, --prefill-chunk or --batch."});
    e.details_json = details.take();
    return e;
  }

  const PlanRequest& r_;
  const sizing::UnitTable& table_;
  const std::vector<machine::DeviceSpec>& devices_;
  std::vector<std::optional<size_t>> pins_;
  std::vector<size_t> order_;
  std::vector<std::optional<Assignment>> placed_;
};

}  // namespace

Result<Plan> plan_sequential(const PlanRequest& request, const std::vector<std::optional<size_t>>& pins) {
  return Filler(request, pins).fill();
}

}  // namespace berth::plan
