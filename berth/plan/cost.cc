// plan/cost.cc — see cost.h.
#include "berth/plan/cost.h"

#include <algorithm>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/plan/wide.h"

namespace berth::plan {
namespace {

constexpr int64_t kDiskPage = 4096;  // what one row read from the disk costs beyond its own bytes

}  // namespace

int64_t CostModel::ps(uint64_t amount, int64_t rate) const {
  using Wide = Uint128;
  const Wide divisor = static_cast<Wide>(std::max<int64_t>(rate, 1));
  const Wide time = (static_cast<Wide>(amount) * 1'000'000'000'000u + divisor - 1) / divisor;
  return time > static_cast<Wide>(most_ps_) ? most_ps_ : static_cast<int64_t>(time);
}

CostModel CostModel::make(const sizing::UnitTable& units, const machine::Machine& machine,
                          std::span<const machine::DeviceBudget> budgets, const sizing::RunShape& shape,
                          const Rules& rules) {
  CHECK(budgets.size() == machine.devices.size());
  CHECK(units.chain_size >= 0 && static_cast<size_t>(units.chain_size) <= units.units.size());
  CostModel m;
  // Each unit adds at most four terms (step, move, gather or host way, KV rows), each at most most_ps_ and the ways
  // two.
  m.most_ps_ = (int64_t{1} << 58) / static_cast<int64_t>(units.units.size() + 2);
  // No sum of bytes overflows; budgets stay below the clamp, so that what was clamped fits nowhere.
  const int64_t most_bytes = (int64_t{1} << 60) / static_cast<int64_t>(units.units.size() + 2);
  const auto clamped = [most_bytes](uint64_t bytes) {
    return static_cast<int64_t>(std::min<uint64_t>(bytes, static_cast<uint64_t>(most_bytes)));
  };
  for (size_t d = 0; d < machine.devices.size(); ++d) {
    const machine::DeviceSpec& spec = machine.devices[d];
    Device device;
    device.kind = spec.kind;
    device.accelerator = spec.is_accelerator();
    device.usable = !budgets[d].left_out && budgets[d].budget_bytes > 0;
    device.budget = device.usable ? std::min(clamped(budgets[d].usable_bytes()), most_bytes - 1) : 0;
    device.read = std::max<int64_t>(spec.read_bytes_per_s, 1);
    device.flops = std::max<int64_t>(spec.flops_per_s, 1);
    device.link = device.accelerator ? std::max<int64_t>(spec.link_bytes_per_s, 1) : 0;
    device.latency_ps = device.accelerator ? std::clamp<int64_t>(spec.link_latency_ps, 0, m.most_ps_) : 0;
    if (device.usable && spec.kind == machine::DeviceKind::kCpu) m.cpu_ = static_cast<int>(d);
    if (device.usable && spec.kind == machine::DeviceKind::kDisk) m.disk_ = static_cast<int>(d);
    m.devices_.push_back(device);
  }
  m.direct_.resize(machine.devices.size() * machine.devices.size());
  for (size_t a = 0; a < machine.devices.size(); ++a)
    for (size_t b = 0; b < machine.devices.size(); ++b)
      if (const machine::LinkSpec* link = machine.link(a, b); a != b && link != nullptr)
        m.direct_[a * machine.devices.size() + b] = {link->bytes_per_s,
                                                     std::clamp<int64_t>(link->latency_ps, 0, m.most_ps_)};
  const auto chain = static_cast<size_t>(units.chain_size);
  for (size_t u = 0; u < units.units.size(); ++u) {
    const sizing::Unit& from = units.units[u];
    for (const Device& d : m.devices_)
      m.weights_.push_back(clamped(d.kind == machine::DeviceKind::kDisk   ? from.disk_bytes
                                   : d.kind == machine::DeviceKind::kCuda ? from.stored_bytes_512
                                                                          : from.stored_bytes));
    if (u < chain) {
      Unit unit;
      unit.touched = clamped(from.touched_bytes);
      unit.kv = clamped(from.kv_bytes);
      unit.kv_new_rows = clamped(from.kv_new_bytes);
      unit.flops = clamped(from.flops);
      unit.input = clamped(from.input_bytes);
      unit.workspace = clamped(from.workspace_bytes);
      unit.grain = clamped(from.grain_bytes);
      if (from.kv_source >= 0 && from.kv_source < static_cast<int32_t>(u)) unit.kv_source = from.kv_source;
      m.units_.push_back(unit);
    } else {
      Table table;
      table.rows_bytes = clamped(from.touched_bytes);
      table.row_count = std::max<int64_t>(shape.batch, 1);
      table.workspace = clamped(from.workspace_bytes);
      table.consumer = std::clamp<int32_t>(from.consumer, 0, std::max<int32_t>(units.chain_size - 1, 0));
      table.stored_with = from.stored_with < units.chain_size ? from.stored_with : -1;
      m.tables_.push_back(table);
    }
  }
  m.logits_bytes_ = clamped(units.logits_bytes);
  m.add_choices(rules);
  m.add_table_rule(rules);
  return m;
}

bool CostModel::has_accelerator() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const Device& d) { return d.usable && d.accelerator; });
}

void CostModel::add_choices(const Rules& rules) {
  const bool accelerators = has_accelerator();
  const bool stream = rules.stream && rules.target != Target::kLlamaCpp && cpu_.has_value();
  const bool transformers = rules.target == Target::kTransformers && accelerators;
  whole_table_travels_ = transformers;
  const auto pin = [&](size_t u) -> std::optional<int> {
    if (u >= rules.pins.size() || !rules.pins[u]) return std::nullopt;
    return static_cast<int>(*rules.pins[u]);
  };
  choices_.resize(units_.size());
  for (int i = 0; i < unit_count(); ++i) {
    const auto pinned = pin(static_cast<size_t>(i));
    const auto may_store = [&](int m) {
      if (pinned) return *pinned == m;
      return rules.offload || !accelerators || device(m).accelerator;
    };
    for (int c = 0; c < device_count(); ++c) {
      const Device& d = device(c);
      if (!d.usable || d.kind == machine::DeviceKind::kDisk) continue;
      const Unit& unit = units_[static_cast<size_t>(i)];
      if (rules.kv_on_accelerators && accelerators && !pinned && !d.accelerator && (unit.kv > 0 || unit.kv_source >= 0))
        continue;
      const auto add = [&](int memory) {
        Choice choice;
        choice.place = {static_cast<int16_t>(c), static_cast<int16_t>(memory)};
        choice.access = access(choice.place);
        choice.step_ps = step_ps(i, choice.place);
        choices_[static_cast<size_t>(i)].push_back(choice);
      };
      // Transformers computes what left the cards on a card again (unless there are none).
      if (may_store(c) && (d.accelerator || !transformers)) add(c);
      if (!stream) continue;
      if (!d.accelerator && transformers) continue;
      if (d.accelerator && may_store(*cpu_)) add(*cpu_);
      if (disk_ && may_store(*disk_)) add(*disk_);
    }
  }
  table_choices_.resize(tables_.size());
  for (int j = 0; j < table_count(); ++j) {
    if (table(j).stored_with >= 0) continue;
    const auto pinned = pin(static_cast<size_t>(unit_count() + j));
    for (int d = 0; d < device_count(); ++d) {
      const Device& device_d = device(d);
      if (!device_d.usable || (pinned && *pinned != d)) continue;
      if (!pinned && !rules.offload && accelerators && !device_d.accelerator) continue;
      if (!pinned && device_d.kind == machine::DeviceKind::kDisk && !stream) continue;
      // llama.cpp always keeps its token embeddings in host memory.
      if (!pinned && rules.target == Target::kLlamaCpp && cpu_ && d != *cpu_) continue;
      table_choices_[static_cast<size_t>(j)].push_back(static_cast<int16_t>(d));
    }
  }
}

void CostModel::add_table_rule(const Rules& rules) {
  prefers_cpu_.assign(tables_.size(), false);
  if (rules.tables != TablePlacement::kAuto || whole_table_travels_ || !cpu_ || !has_accelerator()) return;
  int64_t fastest = 0;
  for (const Device& d : devices_)
    if (d.usable && d.accelerator) fastest = std::max(fastest, d.read);
  int64_t all = 0;
  for (const Unit& u : units_) all += ps(static_cast<uint64_t>(u.touched) + static_cast<uint64_t>(u.kv), fastest);
  for (int j = 0; j < table_count(); ++j) {
    const auto& open = table_choices_[static_cast<size_t>(j)];
    if (std::find(open.begin(), open.end(), static_cast<int16_t>(*cpu_)) == open.end()) continue;
    int64_t slowest = 0;
    for (int d = 0; d < device_count(); ++d)
      if (device(d).usable && device(d).accelerator) slowest = std::max(slowest, gather_ps(j, *cpu_, d));
    prefers_cpu_[static_cast<size_t>(j)] = slowest <= all / 100;
  }
}

int64_t CostModel::step_ps(int i, Place place) const {
  const Unit& u = unit(i);
  const Device& c = device(place.compute);
  const int64_t computing = std::max(ps(static_cast<uint64_t>(u.touched) + static_cast<uint64_t>(u.kv), c.read),
                                     ps(static_cast<uint64_t>(u.flops), c.flops));
  if (place.compute == place.memory) return computing;
  const Device& m = device(place.memory);
  int64_t rate = c.accelerator ? c.link : m.read;
  if (m.kind == machine::DeviceKind::kDisk) rate = c.accelerator ? std::min(c.link, m.read) : m.read;
  return computing + ps(static_cast<uint64_t>(u.touched), rate);
}

int64_t CostModel::way_ps(int from, int to, int64_t bytes) const {
  if (from == to) return 0;
  const Link& direct = direct_[static_cast<size_t>(from * device_count() + to)];
  if (direct.rate > 0) return direct.latency_ps + ps(static_cast<uint64_t>(bytes), direct.rate);
  int64_t time = 0;
  for (const int end : {from, to})
    if (device(end).accelerator) time += device(end).latency_ps + ps(static_cast<uint64_t>(bytes), device(end).link);
  return time;
}

int64_t CostModel::host_way_ps(int d, int64_t bytes) const {
  const Device& end = device(d);
  if (!end.accelerator) return 0;
  if (cpu_) return way_ps(*cpu_, d, bytes);
  return end.latency_ps + ps(static_cast<uint64_t>(bytes), end.link);
}

int64_t CostModel::gather_ps(int j, int memory, int consumer_on) const {
  if (memory == consumer_on) return 0;
  const Table& t = table(j);
  const bool on_disk = device(memory).kind == machine::DeviceKind::kDisk;
  if (whole_table_travels_ && !device(memory).accelerator && device(consumer_on).accelerator) {
    const int64_t rate = on_disk ? std::min(device(memory).read, device(consumer_on).link) : device(consumer_on).link;
    return ps(static_cast<uint64_t>(table_weights(j, consumer_on)), rate);
  }
  if (on_disk)
    return ps(static_cast<uint64_t>(t.rows_bytes) + static_cast<uint64_t>(t.row_count * kDiskPage),
              device(memory).read) +
           host_way_ps(consumer_on, t.rows_bytes);
  return way_ps(memory, consumer_on, t.rows_bytes);
}

int CostModel::gatherer(int memory) const {
  if (device(memory).kind != machine::DeviceKind::kDisk) return memory;
  return cpu_.value_or(-1);
}

int CostModel::table_memory(int j, const Placement& placement) const {
  const int32_t holder = table(j).stored_with;
  return holder >= 0 ? placement.units[static_cast<size_t>(holder)].memory : placement.tables[static_cast<size_t>(j)];
}

Cost CostModel::cost(const Placement& p) const {
  CHECK(p.units.size() == units_.size() && p.tables.size() == tables_.size());
  Cost cost;
  std::vector<std::pair<int, int>> copied;  // source, device
  const auto on_accelerator = [&](int d, int64_t bytes) {
    if (device(d).accelerator) cost.accelerator_bytes += bytes;
  };
  for (int i = 0; i < unit_count(); ++i) {
    const Place place = p.units[static_cast<size_t>(i)];
    cost.time_ps += step_ps(i, place);
    on_accelerator(place.memory, unit_weights(i, place.memory));
    on_accelerator(place.compute, unit(i).kv);
    if (i == 0) {
      cost.time_ps += host_way_ps(place.compute, unit(0).input);
    } else if (const int before = p.units[static_cast<size_t>(i - 1)].compute; before != place.compute) {
      cost.time_ps += way_ps(before, place.compute, unit(i).input);
      ++cost.moves;
    }
    if (i + 1 == unit_count()) cost.time_ps += host_way_ps(place.compute, logits_bytes_);
    const int source = unit(i).kv_source;
    if (source < 0) continue;
    const int source_on = p.units[static_cast<size_t>(source)].compute;
    const std::pair<int, int> copy{source, place.compute};
    if (source_on == place.compute || std::find(copied.begin(), copied.end(), copy) != copied.end()) continue;
    copied.push_back(copy);
    cost.time_ps += way_ps(source_on, place.compute, unit(source).kv_new_rows);
    on_accelerator(place.compute, unit(source).kv);
  }
  for (int j = 0; j < table_count(); ++j) {
    const int memory = table_memory(j, p);
    if (table(j).stored_with < 0) on_accelerator(memory, table_weights(j, memory));
    if (unit_count() > 0) cost.time_ps += gather_ps(j, memory, p.units[static_cast<size_t>(table(j).consumer)].compute);
  }
  return cost;
}

std::vector<DeviceLoad> CostModel::loads(const Placement& p) const {
  CHECK(p.units.size() == units_.size() && p.tables.size() == tables_.size());
  std::vector<DeviceLoad> loads(devices_.size());
  const auto at = [&](int d) -> DeviceLoad& { return loads[static_cast<size_t>(d)]; };
  std::vector<std::pair<int, int>> copied;
  for (int i = 0; i < unit_count(); ++i) {
    const Unit& u = unit(i);
    const Place place = p.units[static_cast<size_t>(i)];
    at(place.memory).weights += unit_weights(i, place.memory);
    DeviceLoad& computing = at(place.compute);
    computing.kv += u.kv;
    computing.workspace = std::max(computing.workspace, u.workspace);
    if (place.memory != place.compute) {
      computing.staging = std::max(computing.staging, 2 * u.grain);
      // The disk is read into host memory first.
      if (device(place.memory).kind == machine::DeviceKind::kDisk && device(place.compute).accelerator && cpu_)
        at(*cpu_).staging = std::max(at(*cpu_).staging, 2 * u.grain);
    }
    if (u.kv_source < 0) continue;
    const std::pair<int, int> copy{u.kv_source, place.compute};
    if (p.units[static_cast<size_t>(u.kv_source)].compute == place.compute) continue;
    if (std::find(copied.begin(), copied.end(), copy) != copied.end()) continue;
    copied.push_back(copy);
    computing.kv += unit(u.kv_source).kv;
  }
  for (int j = 0; j < table_count(); ++j) {
    const int memory = table_memory(j, p);
    if (table(j).stored_with < 0) at(memory).weights += table_weights(j, memory);
    if (const int g = gatherer(memory); g >= 0) at(g).workspace = std::max(at(g).workspace, table(j).workspace);
  }
  return loads;
}

bool CostModel::fits(const Placement& placement) const {
  const std::vector<DeviceLoad> all = loads(placement);
  for (int d = 0; d < device_count(); ++d)
    if (all[static_cast<size_t>(d)].total() > device(d).budget) return false;
  return true;
}

}  // namespace berth::plan
