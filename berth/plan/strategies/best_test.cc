// plan/strategies/best_test.cc — the search against brute force on small cases, and its properties on larger ones.
//
// BERTH_BRUTE_FORCE_CASES sets how many seeded cases are tried (the slow test of this name: 10,000).
#include "berth/plan/strategies/best.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "berth/base/json.h"
#include "berth/plan/strategies/brute_force.h"
#include "berth/plan/strategies/random_case.h"

namespace berth::plan {
namespace {

constexpr int64_t kEffort = 1'000'000;

void expect_equal_to_brute_force(uint64_t seed) {
  const Case c = random_case(seed);
  const CostModel model = c.model();
  const BruteForceResult truth = brute_force(model);
  const BestResult found = find_best(model, kEffort);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + c.describe());
  ASSERT_EQ(found.placement.has_value(), truth.any.has_value()) << "proof " << proof_name(found.proof);
  if (!found.placement) {
    EXPECT_TRUE(found.proof == Proof::kUnit || found.proof == Proof::kVolume || found.proof == Proof::kRuns);
    return;
  }
  EXPECT_TRUE(model.fits(*found.placement));
  EXPECT_EQ(model.cost(*found.placement), found.cost);
  EXPECT_LE(found.bound_any_ps, truth.any->time_ps);
  if (!truth.runs) {
    EXPECT_EQ(found.family, "scatter");
    return;
  }
  EXPECT_TRUE(one_run_per_accelerator(model, *found.placement));
  EXPECT_EQ(found.cost.time_ps, truth.runs->time_ps);
  EXPECT_EQ(found.cost.moves, truth.runs->moves);
  EXPECT_EQ(found.cost.accelerator_bytes, truth.runs->accelerator_bytes);
  EXPECT_TRUE(found.optimal);
  EXPECT_EQ(found.bound_ps, found.cost.time_ps);
  EXPECT_LE(found.root_bound_ps, truth.runs->time_ps);
}

TEST(Best, EqualsBruteForceOnSeededSmallCases) {
  const char* given = std::getenv("BERTH_BRUTE_FORCE_CASES");
  const uint64_t cases = given == nullptr ? 3000 : std::strtoull(given, nullptr, 10);
  int feasible = 0, scattered = 0;
  for (uint64_t seed = 0; seed < cases; ++seed) {
    expect_equal_to_brute_force(seed);
    if (testing::Test::HasFailure()) return;
    const BruteForceResult truth = brute_force(random_case(seed).model());
    feasible += truth.any ? 1 : 0;
    scattered += truth.any && !truth.runs ? 1 : 0;
  }
  RecordProperty("feasible", feasible);
  RecordProperty("scattered", scattered);
  std::printf("%d cases, %d feasible, %d only outside one run per accelerator\n", static_cast<int>(cases), feasible,
              scattered);
}

// --- properties ---

std::optional<int64_t> best_time(const Case& c) {
  const BestResult r = find_best(c.model(), kEffort);
  if (!r.placement) return std::nullopt;
  return r.family == "scatter" ? std::nullopt : std::optional(r.cost.time_ps);
}

// The table rule trades time for room on purpose, so it is off where times are compared.
Case without_rule(uint64_t seed) {
  Case c = random_case(seed);
  c.rules.tables = TablePlacement::kAccelerator;
  c.rules.offload = true;  // else a pin to the cpu, or a machine left without accelerators, opens choices
  c.rules.target = Target::kBerth;
  return c;
}

TEST(Best, MoreMemoryNeverTakesLonger) {
  for (uint64_t seed = 20000; seed < 20300; ++seed) {
    const Case c = without_rule(seed);
    const auto before = best_time(c);
    for (size_t d = 0; before && d < c.budgets.size(); ++d) {
      if (c.budgets[d].left_out) continue;
      Case more = c;
      more.budgets[d].budget_bytes += 3;
      const auto after = best_time(more);
      ASSERT_TRUE(after.has_value()) << c.describe();
      EXPECT_LE(*after, *before) << "seed " << seed << " device " << d << "\n" << c.describe();
    }
  }
}

TEST(Best, AFasterLinkNeverTakesLonger) {
  for (uint64_t seed = 21000; seed < 21300; ++seed) {
    const Case c = without_rule(seed);
    const auto before = best_time(c);
    for (size_t d = 0; before && d < c.budgets.size(); ++d) {
      Case faster = c;
      if (!faster.machine.devices[d].is_accelerator()) continue;
      faster.machine.devices[d].link_bytes_per_s *= 2;
      faster.machine.devices[d].link_latency_ps /= 2;
      const auto after = best_time(faster);
      ASSERT_TRUE(after.has_value());
      EXPECT_LE(*after, *before) << "seed " << seed << "\n" << c.describe();
    }
  }
}

TEST(Best, ARemovedPinNeverTakesLonger) {
  int removed = 0;
  for (uint64_t seed = 22000; seed < 22600; ++seed) {
    const Case c = without_rule(seed);
    const auto before = best_time(c);
    for (size_t u = 0; before && u < c.rules.pins.size(); ++u) {
      if (!c.rules.pins[u]) continue;
      Case freed = c;
      freed.rules.pins[u] = std::nullopt;
      const auto after = best_time(freed);
      ASSERT_TRUE(after.has_value());
      EXPECT_LE(*after, *before) << "seed " << seed << "\n" << c.describe();
      ++removed;
    }
  }
  EXPECT_GT(removed, 50);
}

TEST(Best, ABindingBudgetLessOneByteChangesThePlanOrRefuses) {
  int tried = 0;
  for (uint64_t seed = 23000; seed < 23300; ++seed) {
    const Case c = without_rule(seed);
    const CostModel model = c.model();
    const BestResult r = find_best(model, kEffort);
    if (!r.placement) continue;
    const auto loads = model.loads(*r.placement);
    for (int d = 0; d < model.device_count(); ++d) {
      if (loads[static_cast<size_t>(d)].total() == 0) continue;
      Case tighter = c;
      tighter.budgets[static_cast<size_t>(d)].budget_bytes =
          static_cast<uint64_t>(loads[static_cast<size_t>(d)].total()) - 1;
      const CostModel tight = tighter.model();
      const BestResult other = find_best(tight, kEffort);
      ++tried;
      if (!other.placement) continue;
      EXPECT_TRUE(tight.fits(*other.placement));
      EXPECT_FALSE(*other.placement == *r.placement);
      if (r.family != "scatter" && other.family != "scatter") EXPECT_LE(r.cost, other.cost);
    }
  }
  EXPECT_GT(tried, 100);
}

// Swaps two devices everywhere.
Case swapped(const Case& c, size_t a, size_t b) {
  Case out = c;
  std::swap(out.machine.devices[a], out.machine.devices[b]);
  std::swap(out.budgets[a], out.budgets[b]);
  for (auto& pin : out.rules.pins)
    if (pin) pin = *pin == a ? b : *pin == b ? a : *pin;
  return out;
}

TEST(Best, ReorderingDevicesChangesNothingButNames) {
  for (uint64_t seed = 24000; seed < 24300; ++seed) {
    const Case c = random_case(seed);
    const auto accelerators = c.machine.accelerators();
    if (accelerators.size() < 2) continue;
    const size_t a = accelerators.front(), b = accelerators.back();
    const BestResult one = find_best(c.model(), kEffort), two = find_best(swapped(c, a, b).model(), kEffort);
    ASSERT_EQ(one.placement.has_value(), two.placement.has_value()) << c.describe();
    if (!one.placement || one.family == "scatter") continue;
    EXPECT_EQ(one.cost, two.cost) << "seed " << seed << "\n" << c.describe();
    const machine::DeviceSpec &x = c.machine.devices[a], &y = c.machine.devices[b];
    machine::DeviceSpec renamed = y;
    renamed.id = x.id;
    // Equal devices: the very same plan.
    if (x == renamed && c.machine.links.empty() && c.rules.pins.empty()) EXPECT_EQ(*one.placement, *two.placement);
  }
}

TEST(Best, IsTheSameTwice) {
  for (uint64_t seed = 25000; seed < 25100; ++seed) {
    const Case c = random_case(seed);
    const BestResult one = find_best(c.model(), kEffort), two = find_best(c.model(), kEffort);
    EXPECT_EQ(one.placement, two.placement);
    EXPECT_EQ(one.labels, two.labels);
  }
}

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(Best, ExpertsLeaveFirst) {
  ModelShape shape;
  shape.experts = true;
  shape.layers = 24;
  shape.layer_bytes = kGiB;
  const Case c = model_case(shape, {16 * kGiB}, 64 * kGiB, 0);
  const CostModel model = c.model();
  const BestResult r = find_best(model, kEffort);
  ASSERT_TRUE(r.placement.has_value());
  EXPECT_TRUE(r.optimal);
  int banks_away = 0;
  for (int i = 0; i < model.unit_count(); ++i) {
    const bool away = !model.device(r.placement->units[static_cast<size_t>(i)].compute).accelerator;
    const bool bank = c.units.units[static_cast<size_t>(i)].kind == sizing::UnitKind::kExpertBank;
    EXPECT_TRUE(bank || !away) << c.units.units[static_cast<size_t>(i)].path;
    banks_away += away ? 1 : 0;
  }
  EXPECT_GT(banks_away, 5);
}

TEST(Best, SmallTablesOfLargeRoomGoToTheCpuByThemselves) {
  ModelShape shape;
  const Case c = model_case(shape, {24 * kGiB}, 64 * kGiB, 0);
  const CostModel model = c.model();
  ASSERT_TRUE(model.prefers_cpu(0));
  const BestResult r = find_best(model, kEffort);
  ASSERT_TRUE(r.placement.has_value());
  EXPECT_EQ(r.placement->tables[0], *model.cpu());
  Case kept = c;
  kept.rules.tables = TablePlacement::kAccelerator;
  const BestResult on_card = find_best(kept.model(), kEffort);
  EXPECT_EQ(on_card.placement->tables[0], 0);
}

TEST(Best, AllOnAcceleratorsIsProvenWithFewLabels) {
  ModelShape shape;
  shape.layers = 80;
  shape.layer_bytes = 1700'000'000;
  const Case c = model_case(shape, std::vector<int64_t>(8, 24 * kGiB), 256 * kGiB, 0);
  const BestResult r = find_best(c.model(), kEffort);
  ASSERT_TRUE(r.placement.has_value());
  EXPECT_TRUE(r.optimal);
  EXPECT_EQ(r.bound_ps, r.cost.time_ps);
  EXPECT_LT(r.labels, 100000);
}

TEST(Best, TheEffortLimitLeavesAPlanAndAGap) {
  ModelShape shape;
  const Case c = model_case(shape, {6 * kGiB, 4 * kGiB}, 3 * kGiB, 1000 * kGiB);
  const CostModel model = c.model();
  const BestResult r = find_best(model, 3000);
  ASSERT_TRUE(r.placement.has_value());
  EXPECT_TRUE(model.fits(*r.placement));
  EXPECT_FALSE(r.optimal);
  EXPECT_LT(r.bound_ps, r.cost.time_ps);
}

// tests/plan/milp_check.py solves the same cases as mixed integer programs: BERTH_MILP_CASES=FILE writes them with the
// planner's answers, one JSON object a line.
TEST(Best, IsProvenOnMediumCases) {
  const char* path = std::getenv("BERTH_MILP_CASES");
  std::string lines;
  int proven = 0;
  constexpr int kCases = 24;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    const Case c = milp_case(seed);
    const CostModel model = c.model();
    const BestResult r = find_best(model, kEffort);
    proven += r.optimal ? 1 : 0;
    if (r.placement) EXPECT_TRUE(model.fits(*r.placement) && model.cost(*r.placement) == r.cost);
    if (path == nullptr) continue;
    JsonWriter out;
    out.begin_object().member("seed", seed).key("machine");
    machine::write_machine(c.machine, out);
    out.key("budgets").begin_array();
    for (const machine::DeviceBudget& b : c.budgets) out.value(b.usable_bytes());
    out.end_array().member("logits_bytes", c.units.logits_bytes).key("units").begin_array();
    for (const sizing::Unit& u : c.units.units)
      out.begin_object()
          .member("w", u.stored_bytes)
          .member("t", u.touched_bytes)
          .member("v", u.kv_bytes)
          .member("f", u.flops)
          .member("a", u.input_bytes)
          .member("s", u.workspace_bytes)
          .member("g", u.grain_bytes)
          .end_object();
    out.end_array()
        .member("fits", r.placement.has_value())
        .member("time_ps", r.cost.time_ps)
        .member("bound_ps", r.bound_ps)
        .member("optimal", r.optimal)
        .end_object();
    lines += out.take() + "\n";
  }
  if (path != nullptr) {
    std::ofstream file(path);
    file << lines;
    ASSERT_TRUE(file.good());
  }
  EXPECT_GE(proven, kCases - 4);
}

}  // namespace
}  // namespace berth::plan
