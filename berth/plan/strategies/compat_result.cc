// plan/strategies/compat_result.cc — results as JSON and as sentences.
#include "berth/plan/strategies/compat_result.h"

#include <fmt/format.h>

#include <map>

#include "berth/base/bytes.h"

namespace berth::plan::compat {
namespace {

void write_budgets(const char* key, const std::optional<Budgets>& budgets, JsonWriter& out) {
  if (!budgets) return;
  out.key(key).begin_object();
  for (const auto& [device, bytes] : budgets->entries) out.key(device.text()).raw(bytes.text());
  out.end_object();
}

void write_log(const std::vector<LogFact>& log, JsonWriter& out) {
  if (log.empty()) return;
  out.key("log").begin_array();
  for (const LogFact& f : log) {
    out.begin_object();
    switch (f.kind) {
      case LogFact::Kind::kEmptyDevices:
        out.member("kind", "empty-devices").key("required").begin_object();
        for (const auto& [device, bytes] : f.required) out.key(device.text()).raw(bytes.text());
        out.end_object();
        break;
      case LogFact::Kind::kOffloadedBuffers:
        out.member("kind", "offloaded-buffers").key("bytes").raw(f.bytes.text());
        break;
      case LogFact::Kind::kTiedSplit:
        out.member("kind", "tied-split");
        break;
    }
    out.end_object();
  }
  out.end_array();
}

class UnitLister {
 public:
  UnitLister(const Model& model, const DeviceMap& map) : model_(model), map_(map) {}
  std::vector<CompatUnit> list() {
    walk(0);
    return std::move(out_);
  }

 private:
  void walk(int32_t i) {
    const Item& item = model_.item(i);
    if (item.repeated) return;
    if (!item.is_module()) return tensor(i);
    if (item.is_block || item.modules.empty()) return atom(i);
    for (const int32_t p : item.parameters) walk(p);
    for (const int32_t b : item.buffers) walk(b);
    for (const int32_t m : item.modules) walk(m);
  }
  void tensor(int32_t i) {
    const Item& item = model_.item(i);
    const DeviceName* d = map_.lookup(item.path);
    out_.push_back({item.path, false, d == nullptr ? std::nullopt : std::optional(*d), item.size});
  }
  void atom(int32_t i) {
    std::vector<int32_t> tensors = model_.all_tensors(i, Item::Kind::kParameter);
    for (const int32_t b : model_.all_tensors(i, Item::Kind::kBuffer)) tensors.push_back(b);
    if (tensors.empty()) return;
    const DeviceName* first = map_.lookup(model_.item(tensors[0]).path);
    for (const int32_t t : tensors) {
      const DeviceName* d = map_.lookup(model_.item(t).path);
      if ((d == nullptr) == (first == nullptr) && (d == nullptr || *d == *first)) continue;
      for (const int32_t each : tensors) tensor(each);
      return;
    }
    const Item& item = model_.item(i);
    out_.push_back({item.path, item.is_block, first == nullptr ? std::nullopt : std::optional(*first), item.size});
  }

  const Model& model_;
  const DeviceMap& map_;
  std::vector<CompatUnit> out_;
};

}  // namespace

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kBalance:
      return "balance";
    case Stage::kPlan:
      return "plan";
    case Stage::kValidate:
      return "validate";
  }
  return "";
}

void write_result(const CompatResult& result, JsonWriter& out) {
  write_budgets("balanced", result.balanced, out);
  write_budgets("adjusted", result.adjusted, out);
  if (result.map) out.key("map").raw(device_map_json(*result.map));
  write_log(result.log, out);
  if (!result.error) return;
  out.key("error").begin_object();
  out.member("stage", stage_name(result.error->stage)).member("type", result.error->raised.type);
  out.end_object();
}

std::string log_fact_text(const LogFact& fact, Library library) {
  switch (fact.kind) {
    case LogFact::Kind::kEmptyDevices: {
      std::string s = fmt::format("{} assigns nothing to", library_name(library));
      for (size_t i = 0; i < fact.required.size(); ++i) {
        const auto& [device, bytes] = fact.required[i];
        s += fmt::format("{} {} (the next module would have needed {})", i == 0 ? "" : ",", device.text(),
                         format_bytes(bytes.as_bytes()));
      }
      return s + ".";
    }
    case LogFact::Kind::kOffloadedBuffers:
      return fmt::format(
          "{} of buffers belong to offloaded layers but stay on the main accelerator, and no accelerator has room for "
          "them.",
          format_bytes(fact.bytes.as_bytes()));
    case LogFact::Kind::kTiedSplit:
      return "Tied parameters are on different devices.";
  }
  return "";
}

void run_loop(const Model& model, const InferOptions& options, CompatResult& result) {
  auto inferred = infer_device_map(model, result.filled, options);
  if (raised(inferred)) {
    result.error = CompatError{Stage::kPlan, std::get<Raised>(std::move(inferred))};
    return;
  }
  auto& found = std::get<Inferred>(inferred);
  result.log = std::move(found.log);
  take_map(model, std::move(found.map), result);
}

void take_map(const Model& model, DeviceMap map, CompatResult& result) {
  result.map = std::move(map);
  std::map<DeviceName, Number> sums;
  for (const int32_t i : model.sized_order())
    if (!model.item(i).is_module())
      if (const DeviceName* d = result.map->lookup(model.item(i).path)) sums[*d] += model.item(i).size;
  result.counted.assign(sums.begin(), sums.end());
  result.units = UnitLister(model, *result.map).list();
}

}  // namespace berth::plan::compat
