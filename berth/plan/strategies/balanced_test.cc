// plan/strategies/balanced_test.cc — balanced and balanced_low_0 against all placements on accelerators; sequential.
#include "berth/plan/strategies/balanced.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "berth/plan/strategies/brute_force.h"
#include "berth/plan/strategies/random_case.h"
#include "berth/plan/strategies/sequential.h"

namespace berth::plan {
namespace {

struct Least {
  bool found = false;
  int64_t low = 0;
  double ratio = 0;
};

// The least (bytes on the first accelerator, largest share of the others) over placements in which every unit that may
// compute on an accelerator where it is stored does, with one run per accelerator.
class Enumerator {
 public:
  Enumerator(const CostModel& model, bool low, bool by_rule) : m_(model), low_(low), by_rule_(by_rule) {
    for (int d = model.device_count(); d-- > 0;)
      if (model.device(d).usable && model.device(d).accelerator) first_ = d;
    p_.units.resize(static_cast<size_t>(m_.unit_count()));
    p_.tables.assign(static_cast<size_t>(m_.table_count()), -1);
  }
  Least run() {
    table(0);
    return best_;
  }

 private:
  void table(int j) {
    if (j == m_.table_count()) return unit(0);
    if (m_.table(j).stored_with >= 0) return table(j + 1);
    const auto& open = m_.table_choices(j);
    const bool some = std::any_of(open.begin(), open.end(), [&](int16_t d) { return m_.device(d).accelerator; });
    const bool rule = by_rule_ && m_.prefers_cpu(j);
    for (const int16_t d : open) {
      if (rule ? d != *m_.cpu() : some && !m_.device(d).accelerator) continue;
      p_.tables[static_cast<size_t>(j)] = d;
      table(j + 1);
    }
  }
  void unit(int i) {
    if (i == m_.unit_count()) return leaf();
    const auto own = [&](const Choice& c) {
      return c.place.compute == c.place.memory && m_.device(c.place.compute).accelerator;
    };
    const bool some = std::any_of(m_.choices(i).begin(), m_.choices(i).end(), own);
    for (const Choice& c : m_.choices(i)) {
      if (some ? !own(c) : m_.device(c.place.compute).accelerator || c.place.compute != c.place.memory) continue;
      p_.units[static_cast<size_t>(i)] = c.place;
      unit(i + 1);
    }
  }
  void leaf() {
    if (!m_.fits(p_) || !one_run_per_accelerator(m_, p_)) return;
    const auto loads = m_.loads(p_);
    Least l{true, 0, 0};
    for (int d = 0; d < m_.device_count(); ++d) {
      if (!m_.device(d).accelerator || !m_.device(d).usable) continue;
      const int64_t used = loads[static_cast<size_t>(d)].total();
      if (low_ && d == first_)
        l.low = used;
      else
        l.ratio = std::max(l.ratio,
                           static_cast<double>(used) / static_cast<double>(std::max<int64_t>(m_.device(d).budget, 1)));
    }
    if (!best_.found || l.low < best_.low || (l.low == best_.low && l.ratio < best_.ratio)) best_ = l;
  }
  const CostModel& m_;
  bool low_, by_rule_;
  int first_ = -1;
  Placement p_;
  Least best_;
};

void expect_least(bool low) {
  int found = 0;
  for (uint64_t seed = 30000; seed < 30800; ++seed) {
    const Case c = random_case(seed);
    const CostModel model = c.model();
    if (!model.has_accelerator()) continue;
    Least truth = Enumerator(model, low, true).run();
    if (!truth.found) truth = Enumerator(model, low, false).run();
    const BalancedResult r = place_balanced(model, low);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + c.describe());
    bool pinned_away = false;  // nothing to balance
    for (int i = 0; i < model.unit_count(); ++i)
      pinned_away |= std::none_of(model.choices(i).begin(), model.choices(i).end(), [&](const Choice& x) {
        return x.place.compute == x.place.memory && model.device(x.place.compute).accelerator;
      });
    if (pinned_away) {
      if (r.placement) EXPECT_TRUE(model.fits(*r.placement));
      continue;
    }
    ASSERT_EQ(r.placement.has_value(), truth.found);
    if (!truth.found) continue;
    ++found;
    EXPECT_TRUE(model.fits(*r.placement));
    EXPECT_TRUE(one_run_per_accelerator(model, *r.placement));
    EXPECT_DOUBLE_EQ(static_cast<double>(r.used) / static_cast<double>(r.budget), truth.ratio);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(found, 100);
}

TEST(Balanced, LeastShareOfTheFullestDevice) { expect_least(false); }
TEST(Balanced, LowZeroHasTheLeastOnTheFirstDevice) { expect_least(true); }

TEST(Balanced, EqualCardsGetEqualShares) {
  ModelShape shape;
  const int64_t gib = int64_t{1} << 30;
  const Case c = model_case(shape, {24 * gib, 24 * gib, 24 * gib, 24 * gib}, 64 * gib, 0);
  const CostModel model = c.model();
  const BalancedResult r = place_balanced(model, false);
  ASSERT_TRUE(r.placement.has_value());
  const auto loads = model.loads(*r.placement);
  for (int d = 1; d < 4; ++d)
    EXPECT_LT(std::abs(loads[static_cast<size_t>(d)].total() - loads[0].total()),
              shape.layer_bytes + shape.vocab_bytes);
}

TEST(Sequential, FillsInMachineOrderAndNeverExceedsABudget) {
  int placed = 0;
  for (uint64_t seed = 31000; seed < 31500; ++seed) {
    const Case c = random_case(seed);
    const CostModel model = c.model();
    const auto p = place_sequential(model);
    if (!p) continue;
    ++placed;
    EXPECT_TRUE(model.fits(*p)) << "seed " << seed << "\n" << c.describe();
  }
  EXPECT_GT(placed, 150);
  const int64_t gib = int64_t{1} << 30;
  const Case c = model_case(ModelShape{}, {6 * gib, 4 * gib}, 64 * gib, 0);
  const auto p = place_sequential(c.model());
  ASSERT_TRUE(p.has_value());
  for (size_t i = 1; i < p->units.size(); ++i) EXPECT_GE(p->units[i].compute, p->units[i - 1].compute);
}

}  // namespace
}  // namespace berth::plan
