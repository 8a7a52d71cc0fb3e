// Where a library's map puts modules on the cpu or the disk although the accelerators hold the model: Berth finds a
// place for each, over all goldens (published maps, random trees, defects).
//
// That a map on accelerators alone exists is shown here by packing (largest module first, into the fullest or the
// emptiest device), which knows nothing of Berth's search; where packing finds none and Berth refuses, the refusal has
// to be a proof. Weights alone count, by the bytes of their tensors as stored: what a library's map is about.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "berth/arch/golden_tree.h"
#include "berth/arch/quantize_rules.h"
#include "berth/arch/tree_json.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/plan/strategies/compat_memory.h"
#include "berth/plan/strategy.h"
#include "berth/sizing/tree_bytes.h"
#include "berth/sizing/tree_units.h"

namespace berth::plan {
namespace {

const std::string kFolder = "/golden/device_maps/";

struct Counts {
  int cases = 0;       // with a map and an accelerator to fill
  int spilled = 0;     // that map has cpu or disk entries
  int packed = 0;      // of those: packing fills accelerators alone
  int found = 0;       // of those: Berth does
  int only_found = 0;  // Berth finds one that packing did not
  int refused = 0;     // Berth refuses, with a proof
  int undecided = 0;   // Berth refuses without one
};

// One accelerator's room, or nothing for the cpu, the disk and what is excluded.
std::vector<uint64_t> accelerators(JsonView max_memory) {
  std::vector<std::pair<int64_t, uint64_t>> sorted;
  for (const auto& [key, value] : max_memory.members()) {
    const DeviceName device = DeviceName::from_key(key);
    if (!device.is_accelerator() || device == DeviceName::mps()) continue;
    const auto text = value.as_string();
    uint64_t bytes = 0;
    if (text) {
      const auto n = compat::parse_memory_text(*text);
      if (!compat::raised(n)) bytes = std::get<compat::Number>(n).as_bytes();
    } else {
      bytes = static_cast<uint64_t>(std::max(0.0, value.as_double().value_or(0)));
    }
    if (bytes > 0) sorted.emplace_back(std::stoll(device.text()), bytes);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<uint64_t> out;
  for (const auto& [number, bytes] : sorted) out.push_back(bytes);
  return out;
}

bool leaves_accelerators(JsonView map) {
  for (const auto& [key, device] : map.members())
    if (device.as_string() == "cpu" || device.as_string() == "disk") return true;
  return false;
}

// Whether packing finds a place: every device keeps `reserve` for what runs there.
bool packs(const sizing::UnitTable& units, std::vector<uint64_t> free, bool fullest_first) {
  uint64_t reserve = 0;
  std::vector<uint64_t> sizes;
  for (const sizing::Unit& u : units.units) {
    reserve = std::max(reserve, u.workspace_bytes);
    sizes.push_back(u.stored_bytes + u.kv_bytes);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  for (uint64_t& f : free) f -= std::min(f, reserve);
  for (const uint64_t size : sizes) {
    std::optional<size_t> best;
    for (size_t d = 0; d < free.size(); ++d)
      if (free[d] >= size && (!best || (fullest_first ? free[d] < free[*best] : free[d] > free[*best]))) best = d;
    if (!best) return false;
    free[*best] -= size;
  }
  return true;
}

struct Outcome {
  bool packs = false, planned = false, proven = false;
};

Outcome outcome_of(const sizing::UnitTable& units, const sizing::RunShape& shape, const std::vector<uint64_t>& budgets,
                   const std::string& name) {
  machine::Machine machine;
  for (const uint64_t bytes : budgets)
    machine.devices.push_back(machine::emulated_device(machine.devices.size(), bytes));
  machine::Margin none;
  none.bytes = 0;
  const auto limits = machine::device_budgets(machine, {}, none);
  EXPECT_TRUE(limits) << limits.error().message;
  PlanRequest request;
  request.assign = {&units, &machine, limits->devices, shape, ""};
  request.offload = request.stream = false;
  request.explain = Explain::kNothing;
  Outcome out;
  out.packs = packs(units, budgets, true) || packs(units, budgets, false);
  const auto plan = make_plan(request);
  out.planned = plan.has_value();
  if (plan) {
    for (const DeviceUse& d : plan->devices) EXPECT_LE(d.used(), d.budget_bytes) << name;
    return out;
  }
  EXPECT_EQ(plan.error().code, ErrorCode::kDoesNotFit) << name << ": " << plan.error().message;
  EXPECT_FALSE(out.packs) << name << ": packing finds a place, and Berth says: " << plan.error().message;
  out.proven = plan.error().details_json.find("none_found") == std::string::npos;
  if (!out.proven) std::printf("undecided: %s\n", name.c_str());
  return out;
}

void count(const Outcome& o, Counts& counts) {
  ++counts.spilled;
  counts.packed += o.packs;
  counts.found += o.packs && o.planned;
  counts.only_found += o.planned && !o.packs;
  counts.refused += !o.planned && o.proven;
  counts.undecided += !o.planned && !o.proven;
}

void print(const char* what, const Counts& c) {
  std::printf(
      "[ counts   ] %s: %d of %d maps leave accelerators that are there; on %d of these packing shows a map on "
      "accelerators alone, Berth finds %d of %d, and %d more; %d refused with a proof, %d undecided\n",
      what, c.spilled, c.cases, c.packed, c.found, c.packed, c.only_found, c.refused, c.undecided);
}

sizing::UnitTable weights_of(const arch::ModuleTree& tree, const sizing::RunShape& shape) {
  sizing::UnitTable units = sizing::make_tree_units(tree, sizing::TreeBytes(tree), shape);
  for (sizing::Unit& u : units.units) {
    u.stored_bytes = u.stored_bytes_512 = u.disk_bytes;  // not rounded up to Berth's alignment
    u.workspace_bytes = 0;
  }
  return units;
}

sizing::RunShape one_token() {
  sizing::RunShape shape;
  shape.ctx_size = shape.batch = shape.prefill_chunk = 1;
  shape.logit_rows = shape.wanted_rows = 1;
  return shape;
}

void as_f32(arch::Module& m) {
  for (arch::Parameter& p : m.parameters) p.dtype = p.dtype_f32;
  for (arch::Buffer& b : m.buffers) b.dtype = b.dtype_f32;
  for (arch::Module& c : m.children) as_f32(c);
}

std::optional<arch::ModuleTree> variant(const std::string& model, const std::string& name) {
  auto golden = arch::read_golden_tree_named(name == "native" ? model + ".native" : model);
  if (!golden) return std::nullopt;
  arch::ModuleTree tree = std::move(golden->tree);
  if (name == "fp32") as_f32(tree.root);
  if (name != "nf4" && name != "int8") return tree;
  const auto rules = arch::quantize_rules(tree);
  if (!rules) return std::nullopt;
  return arch::with_quantized_linears(
      tree, *rules, name == "nf4" ? arch::QuantizedLinear::kLinear4bit : arch::QuantizedLinear::kLinear8bit);
}

TEST(Spills, OfPublishedMapsHaveAPlaceWhereThereIsOne) {
  const std::string folder = arch::shared_folder() + kFolder + "maps";
  BERTH_NEED_SHARED(folder);
  const auto files = list_folder(folder);
  ASSERT_TRUE(files);
  const sizing::RunShape shape = one_token();
  Counts counts;
  for (const std::string& file : *files) {
    if (!file.ends_with(".json")) continue;
    const auto document = JsonDocument::parse_file(folder + "/" + file);
    ASSERT_TRUE(document) << document.error().message;
    const std::string model(*document->root()["model"].as_string());
    std::map<std::string, sizing::UnitTable> tables;
    std::map<std::pair<std::string, std::vector<uint64_t>>, Outcome> known;  // libraries and modes share budgets
    for (const JsonView c : document->root()["cases"].elements()) {
      const std::vector<uint64_t> budgets = accelerators(c["max_memory"]);
      if (!c.contains("map") || budgets.empty()) continue;
      ++counts.cases;
      if (!leaves_accelerators(c["map"])) continue;
      const std::string quant(c["quant"].as_string().value_or("none"));
      const std::string kind = quant == "none" ? std::string(*c["dtype"].as_string()) : quant;
      if (!tables.contains(kind)) {
        const auto tree = variant(model, kind);
        ASSERT_TRUE(tree.has_value()) << model << " " << kind;
        tables[kind] = weights_of(*tree, shape);
      }
      const auto [at, added] = known.try_emplace({kind, budgets});
      if (added)
        at->second =
            outcome_of(tables[kind], shape, budgets, model + " " + kind + " " + std::string(c["max_memory"].text()));
      count(at->second, counts);
    }
  }
  print("published maps", counts);
  EXPECT_GE(counts.spilled, 998);
  EXPECT_GT(counts.packed, 100);
  EXPECT_EQ(counts.found, counts.packed);
}

void try_lines(const char* file, Counts& counts) {
  const std::string path = arch::shared_folder() + kFolder + file;
  BERTH_NEED_SHARED(path);
  const auto text = arch::read_maybe_gzipped(path);
  ASSERT_TRUE(text) << text.error().message;
  const sizing::RunShape shape = one_token();
  for (const std::string& line : split(*text, '\n')) {
    if (line.empty()) continue;
    const auto golden = JsonDocument::parse(line);
    ASSERT_TRUE(golden) << golden.error().message;
    const JsonView c = golden->root();
    const std::vector<uint64_t> budgets = accelerators(c["max_memory"]);
    if (!c.contains("map") || budgets.empty()) continue;
    ++counts.cases;
    if (!leaves_accelerators(c["map"])) continue;
    const auto tree = arch::read_tree_json(c, {.require_format = false});
    ASSERT_TRUE(tree) << tree.error().message;
    const sizing::UnitTable units = weights_of(*tree, shape);
    if (units.chain_size < 1) continue;
    count(outcome_of(units, shape, budgets, std::string(file) + " " + std::string(c["id"].text())), counts);
  }
  print(file, counts);
  EXPECT_EQ(counts.found, counts.packed);
  EXPECT_GT(counts.packed, 0);
}

TEST(Spills, OfRandomTreesHaveAPlaceWhereThereIsOne) {
  Counts counts;
  try_lines("fuzz.jsonl.gz", counts);
}

TEST(Spills, OfTheKnownDefectsHaveAPlaceWhereThereIsOne) {
  Counts counts;
  try_lines("defects.jsonl", counts);
}

}  // namespace
}  // namespace berth::plan
