// plan/strategies/random_case.cc — see random_case.h.
#include "berth/plan/strategies/random_case.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth::plan {
namespace {

void fill_budgets(Case& c) {
  for (size_t d = 0; d < c.machine.devices.size(); ++d) {
    machine::DeviceBudget b;
    b.map_name = c.machine.map_name(d);
    b.machine_id = c.machine.devices[d].id;
    b.budget_bytes = c.machine.devices[d].memory_bytes;
    b.left_out = b.budget_bytes == 0;
    c.budgets.push_back(b);
  }
}

machine::DeviceSpec small_device(Random& r, std::string id, machine::DeviceKind kind) {
  machine::DeviceSpec d;
  d.id = std::move(id);
  d.kind = kind;
  d.memory_bytes = static_cast<uint64_t>(r.chance(6) ? 0 : r.in(4, 45));
  d.read_bytes_per_s = int64_t{1000} << r.in(0, 3);
  d.flops_per_s = kind == machine::DeviceKind::kDisk ? 0 : int64_t{1000} << r.in(2, 4);
  if (d.is_accelerator()) {
    d.link_bytes_per_s = int64_t{500} << r.in(0, 2);
    d.link_latency_ps = r.in(0, 2) * 500'000'000;
  }
  return d;
}

}  // namespace

Case random_case(uint64_t seed) {
  Random r(seed);
  Case c;
  const int accelerators = static_cast<int>(r.in(0, 3));
  const bool with_cpu = accelerators == 0 || r.chance(85), with_disk = with_cpu && r.chance(45);
  for (int a = 0; a < accelerators; ++a) {
    machine::DeviceSpec d = small_device(r, fmt::format("emu:{}", a),
                                         r.chance(15) ? machine::DeviceKind::kCuda : machine::DeviceKind::kEmulated);
    if (a > 0 && r.chance(50)) {
      const std::string id = d.id;
      d = c.machine.devices.front();
      d.id = id;
    }
    c.machine.devices.push_back(d);
  }
  if (with_cpu) {
    machine::DeviceSpec cpu = small_device(r, "cpu", machine::DeviceKind::kCpu);
    cpu.read_bytes_per_s = int64_t{250} << r.in(0, 2);
    if (r.chance(30)) cpu.memory_bytes = 1000;
    c.machine.devices.push_back(cpu);
  }
  if (with_disk) {
    machine::DeviceSpec disk = small_device(r, "disk", machine::DeviceKind::kDisk);
    disk.read_bytes_per_s = int64_t{100} << r.in(0, 2);
    if (r.chance(60)) disk.memory_bytes = 1000;
    c.machine.devices.push_back(disk);
  }
  if (accelerators >= 2 && r.chance(25))
    c.machine.links.push_back({"emu:0", fmt::format("emu:{}", r.in(1, accelerators - 1)), int64_t{2000} << r.in(0, 2),
                               r.in(0, 1) * 100'000'000});
  fill_budgets(c);
  // Few enough placements to try them all.
  const int ways = accelerators * (with_disk ? 3 : with_cpu ? 2 : 1) + (with_cpu ? 1 : 0) + (with_disk ? 1 : 0);
  int most = 6;
  for (double all = 1; most > 1; --most) {
    all = 1;
    for (int i = 0; i < most; ++i) all *= ways;
    if (all <= 20000) break;
  }
  const int n = static_cast<int>(r.in(1, most));
  c.shape.batch = r.in(1, 2);
  const bool alike = r.chance(40);  // layers of one size
  const int64_t w = r.in(1, 9), v = r.in(0, 3), s = r.in(0, 3);
  for (int i = 0; i < n; ++i) {
    sizing::Unit u;
    u.path = fmt::format("unit.{}", i);
    u.paths = {u.path};
    u.stored_bytes = static_cast<uint64_t>(alike && r.chance(85) ? w : r.in(0, 9));
    u.stored_bytes_512 = u.stored_bytes + static_cast<uint64_t>(r.in(0, 1));
    u.touched_bytes = static_cast<uint64_t>(r.chance(70) ? static_cast<int64_t>(u.stored_bytes)
                                                         : r.in(0, static_cast<int64_t>(u.stored_bytes)));
    u.kv_bytes = static_cast<uint64_t>(alike ? v : r.in(0, 3));
    u.kv_new_bytes = u.kv_bytes > 0 ? 1 : 0;
    u.flops = static_cast<uint64_t>(r.in(0, 40));
    u.input_bytes = static_cast<uint64_t>(alike ? 1 : r.in(0, 2));
    u.prefill_input_bytes = u.input_bytes * 4;
    u.workspace_bytes = static_cast<uint64_t>(alike ? s : r.in(0, 3));
    u.grain_bytes = static_cast<uint64_t>(r.in(0, static_cast<int64_t>(u.stored_bytes) / 2));
    u.disk_bytes = r.chance(50) ? 0 : u.stored_bytes;
    if (i > 0 && r.chance(15)) {
      u.kv_bytes = u.kv_new_bytes = 0;
      u.kv_source = static_cast<int32_t>(r.in(0, i - 1));
    }
    c.units.units.push_back(std::move(u));
  }
  c.units.chain_size = n;
  c.units.logits_bytes = static_cast<uint64_t>(r.in(0, 3));
  for (int j = static_cast<int>(r.in(0, n <= 4 ? 2 : 1)); j > 0; --j) {
    sizing::Unit t;
    t.kind = sizing::UnitKind::kTable;
    t.path = fmt::format("table.{}", j);
    t.paths = {t.path};
    t.row_bytes = static_cast<uint64_t>(r.in(0, 1));
    t.touched_bytes = t.input_bytes = t.row_bytes * static_cast<uint64_t>(c.shape.batch);
    t.workspace_bytes = static_cast<uint64_t>(r.in(0, 2));
    t.consumer = r.chance(70) ? 0 : static_cast<int32_t>(r.in(0, n - 1));
    if (r.chance(35)) {
      t.stored_with = n - 1;
    } else {
      t.stored_bytes = static_cast<uint64_t>(r.in(0, 14));
      t.stored_bytes_512 = t.stored_bytes + 1;
      t.disk_bytes = t.stored_bytes;
    }
    c.units.units.push_back(std::move(t));
  }
  if (r.chance(25)) {
    c.rules.pins.resize(c.units.units.size());
    for (size_t u = 0; u < c.rules.pins.size(); ++u)
      if (r.chance(25) && c.units.units[u].stored_with < 0)
        c.rules.pins[u] = static_cast<size_t>(r.in(0, static_cast<int64_t>(c.machine.devices.size()) - 1));
  }
  c.rules.offload = !r.chance(10);
  c.rules.stream = !r.chance(20);
  if (r.chance(20)) c.rules.tables = TablePlacement::kAccelerator;
  if (r.chance(8)) c.rules.target = Target::kTransformers;
  if (r.chance(4)) c.rules.target = Target::kLlamaCpp;
  return c;
}

std::string Case::describe() const {
  std::string text;
  for (size_t d = 0; d < machine.devices.size(); ++d) {
    const machine::DeviceSpec& s = machine.devices[d];
    text += fmt::format("device {} budget {} read {} flops {} link {} latency {}\n", s.id, budgets[d].usable_bytes(),
                        s.read_bytes_per_s, s.flops_per_s, s.link_bytes_per_s, s.link_latency_ps);
  }
  for (const machine::LinkSpec& l : machine.links)
    text += fmt::format("link {} {} {} {}\n", l.from, l.to, l.bytes_per_s, l.latency_ps);
  for (size_t u = 0; u < units.units.size(); ++u) {
    const sizing::Unit& x = units.units[u];
    text += fmt::format("{} w {} w512 {} t {} v {} f {} a {} s {} g {} disk {} source {} consumer {} with {} pin {}\n",
                        x.path, x.stored_bytes, x.stored_bytes_512, x.touched_bytes, x.kv_bytes, x.flops, x.input_bytes,
                        x.workspace_bytes, x.grain_bytes, x.disk_bytes, x.kv_source, x.consumer, x.stored_with,
                        u < rules.pins.size() && rules.pins[u] ? static_cast<int>(*rules.pins[u]) : -1);
  }
  return text + fmt::format("logits {} batch {} offload {} stream {} tables {} target {}\n", units.logits_bytes,
                            shape.batch, rules.offload, rules.stream, static_cast<int>(rules.tables),
                            static_cast<int>(rules.target));
}

Case model_case(const ModelShape& shape, const std::vector<int64_t>& accelerators, int64_t cpu, int64_t disk) {
  Case c;
  for (size_t a = 0; a < accelerators.size(); ++a)
    c.machine.devices.push_back(machine::emulated_device(a, static_cast<uint64_t>(accelerators[a])));
  c.machine.devices.push_back(machine::default_cpu(static_cast<uint64_t>(cpu)));
  if (disk > 0) c.machine.devices.push_back(machine::default_disk(static_cast<uint64_t>(disk)));
  fill_budgets(c);
  int32_t layer = -1;
  const auto add = [&](std::string path, sizing::UnitKind kind, int64_t stored, int64_t touched, int64_t kv) {
    sizing::Unit u;
    u.layer = kind == sizing::UnitKind::kHead ? -1 : layer;
    u.kind = kind;
    u.path = std::move(path);
    u.paths = {u.path};
    u.stored_bytes = u.stored_bytes_512 = static_cast<uint64_t>(stored);
    u.touched_bytes = static_cast<uint64_t>(touched);
    u.kv_bytes = static_cast<uint64_t>(kv);
    u.kv_new_bytes = u.kv_bytes / 4096;
    u.flops = u.touched_bytes;
    u.input_bytes = static_cast<uint64_t>(shape.hidden) * 4;
    u.prefill_input_bytes = u.input_bytes * 512;
    u.prefill_flops = u.stored_bytes * 512;
    u.workspace_bytes = static_cast<uint64_t>(shape.hidden) * 4 * 512 * (kind == sizing::UnitKind::kMlp ? 8 : 5);
    u.grain_bytes = u.stored_bytes / (kind == sizing::UnitKind::kExpertBank ? 384 : 3);
    c.units.units.push_back(std::move(u));
  };
  for (int l = 0; l < shape.layers; ++l) {
    const std::string prefix = fmt::format("model.layers.{}.", l);
    layer = l;
    const int64_t b = shape.layer_bytes;
    if (shape.experts) {
      add(prefix + "self_attn", sizing::UnitKind::kAttention, b / 20, b / 20, shape.kv_bytes);
      add(prefix + "mlp.gate", sizing::UnitKind::kMlp, b / 100, b / 100, 0);
      add(prefix + "mlp.experts", sizing::UnitKind::kExpertBank, b - b / 20 - b / 100, b / 20, 0);
    } else {
      add(prefix + "self_attn", sizing::UnitKind::kAttention, b / 4, b / 4, shape.kv_bytes);
      add(prefix + "mlp", sizing::UnitKind::kMlp, b - b / 4, b - b / 4, 0);
    }
  }
  add("lm_head", sizing::UnitKind::kHead, shape.vocab_bytes, shape.vocab_bytes, 0);
  c.units.chain_size = static_cast<int32_t>(c.units.units.size());
  c.units.logits_bytes = static_cast<uint64_t>(shape.vocab_bytes / shape.hidden * 2);
  sizing::Unit table;
  table.kind = sizing::UnitKind::kTable;
  table.path = "model.embed_tokens";
  table.paths = {table.path};
  table.consumer = 0;
  table.row_bytes = static_cast<uint64_t>(shape.hidden) * 2;
  table.touched_bytes = table.input_bytes = table.row_bytes;
  table.workspace_bytes = static_cast<uint64_t>(shape.hidden) * 4 * 512;
  if (shape.tied)
    table.stored_with = c.units.chain_size - 1;
  else
    table.stored_bytes = table.stored_bytes_512 = static_cast<uint64_t>(shape.vocab_bytes);
  c.units.units.push_back(std::move(table));
  for (const sizing::Unit& u : c.units.units) c.units.memory_footprint_bytes += u.stored_bytes;
  return c;
}

Case milp_case(uint64_t seed) {
  Random r(seed);
  constexpr int64_t kMiB = int64_t{1} << 20;
  ModelShape shape;
  shape.experts = r.chance(40);
  shape.layers = shape.experts ? 13 : 20;
  shape.layer_bytes = r.in(100, 900) * 20 * kMiB / 20;
  shape.kv_bytes = r.in(0, 40) * kMiB;
  shape.vocab_bytes = r.in(50, 500) * kMiB;
  const int64_t all = shape.layers * (shape.layer_bytes + shape.kv_bytes) + shape.vocab_bytes;
  const int64_t first = all * r.in(20, 60) / 100 / kMiB * kMiB, second = all * r.in(10, 45) / 100 / kMiB * kMiB;
  Case c = model_case(shape, {first + 100 * kMiB, second + 100 * kMiB},
                      r.chance(50) ? 4 * all : all * r.in(30, 70) / 100 / kMiB * kMiB, 0);
  c.units.units.pop_back();  // no table
  if (r.chance(50)) c.machine.devices[1].read_bytes_per_s = r.in(3, 12) * 100'000'000'000;
  if (r.chance(30)) c.machine.devices[1].link_bytes_per_s = r.in(1, 4) * 4'000'000'000;
  if (r.chance(30)) c.machine.links.push_back({"emu:0", "emu:1", 100'000'000'000, 3'000'000});
  for (size_t u = 0; u < c.units.units.size(); ++u) {
    sizing::Unit& unit = c.units.units[u];
    // Whole MiB, and some layers wider than others.
    if (!shape.experts && r.chance(10)) unit.stored_bytes += static_cast<uint64_t>(r.in(1, 60) * kMiB);
    unit.stored_bytes = (unit.stored_bytes + kMiB - 1) / kMiB * kMiB;
    if (unit.touched_bytes > unit.stored_bytes / 2) unit.touched_bytes = unit.stored_bytes;
    unit.stored_bytes_512 = unit.stored_bytes;
    unit.grain_bytes = (unit.grain_bytes + kMiB - 1) / kMiB * kMiB;
    unit.workspace_bytes = (unit.workspace_bytes + kMiB - 1) / kMiB * kMiB;
  }
  return c;
}

}  // namespace berth::plan
