// plan/explain/explain_test.cc — pictures, explanations, differences, comparisons and answers about plans.
#include "berth/plan/explain/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "berth/base/strings.h"
#include "berth/plan/explain/compare.h"
#include "berth/plan/explain/diff.h"
#include "berth/plan/explain/solve.h"
#include "berth/plan/explain/svg.h"
#include "berth/plan/plan_json.h"
#include "berth/plan/strategies/random_case.h"
#include "berth/plan/strategy.h"

namespace berth::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

PlanRequest request_for(const Case& c) {
  PlanRequest r;
  r.assign = {&c.units, &c.machine, c.budgets, c.shape, ""};
  r.stream = false;
  return r;
}

Plan plan_of(const Case& c) {
  auto plan = make_plan(request_for(c));
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  return plan ? *plan : Plan{};
}

TEST(PlanPicture, KeepsItsWidthAndHasNoEscapesUnlessAsked) {
  const Plan p = plan_of(model_case(ModelShape{}, {6 * kGiB, 4 * kGiB}, 64 * kGiB, 0));
  for (const int width : {60, 80, 100, 160}) {
    const std::string text = plan_picture(p, {width, false}, "tiny");
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    for (const std::string& line : split(text, '\n')) EXPECT_LE(columns(line), width) << line;
  }
  EXPECT_NE(plan_picture(p, {80, true}).find('\x1b'), std::string::npos);
}

TEST(PlanPicture, ShowsEveryDeviceUsedAndEveryLayer) {
  const Plan p = plan_of(model_case(ModelShape{}, {6 * kGiB, 4 * kGiB}, 64 * kGiB, 0));
  const std::string text = plan_picture(p, {100, false});
  for (const char* part : {"0 emu:0", "1 emu:1", "cpu", "weights", "KV cache", "free", "attention", "MLP", "lm_head",
                           "model.embed_tokens", "tokens/s", "proven best"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with("  MLP"))
      EXPECT_EQ(std::count_if(line.begin() + 14, line.end(), [](char c) { return c == '0' || c == '1' || c == 'c'; }),
                32)
          << line;
}

TEST(PlanDrawing, SixteenDevicesHaveColoursOfTheirOwn) {
  Plan p;
  for (int k = 0; k < 16; ++k) {
    DeviceUse d;
    d.id = std::to_string(k);
    d.machine_id = "emu:" + d.id;
    d.budget_bytes = 100;
    d.weights_bytes = 50;
    p.devices.push_back(d);
  }
  const std::string svg = plan_svg(p, "sixteen", 1000);
  std::set<std::string> colours;
  for (size_t at = svg.find("height=\"10.00\" fill=\""); at != std::string::npos;
       at = svg.find("height=\"10.00\" fill=\"", at + 1))
    colours.insert(svg.substr(at + 21, 7));
  EXPECT_GE(colours.size(), 16u) << svg;
}

TEST(PlanDrawing, NumbersOfManyLayersDoNotOverlapAndNarrowOnesHaveNoBorder) {
  for (const int layers : {5, 60, 61, 126, 400, 2000}) {
    Plan p;
    DeviceUse d;
    d.id = d.machine_id = "0";
    d.budget_bytes = 100;
    d.weights_bytes = 50;
    p.devices.push_back(d);
    for (int l = 0; l < layers; ++l) {
      PlacedUnit u;
      u.layer = l;
      u.path = "layers." + std::to_string(l);
      u.device = u.computed_on = "0";
      p.units.push_back(u);
    }
    const std::string svg = plan_svg(p, "", 1000);
    // <text x="126" y="..." class="s" text-anchor="start">0</text>, all in one row.
    int numbers = 0, before = -1000;
    for (const std::string& line : split(svg, '\n')) {
      const size_t end = line.find("</text>"), begin = line.rfind('>', end == std::string::npos ? 0 : end - 1);
      if (!line.starts_with("<text x=\"") || end == std::string::npos || line.find("class=\"s\"") == std::string::npos)
        continue;
      const std::string content = line.substr(begin + 1, end - begin - 1);
      if (content.find_first_not_of("0123456789") != std::string::npos) continue;
      const int x = std::stoi(line.substr(9));
      EXPECT_GE(x - before, 9 * static_cast<int>(content.size())) << layers << " layers: " << line;
      before = x;
      ++numbers;
    }
    EXPECT_GE(numbers, 1) << layers;
    EXPECT_LE(numbers, 30) << layers;
    EXPECT_EQ(svg.find("class=\"v\"") != std::string::npos, layers >= 400) << layers;
  }
}

TEST(PlanPicture, EveryPartOfABarShows) {
  DeviceUse d;
  d.id = d.machine_id = "cpu";
  d.budget_bytes = 64 * kGiB;
  d.weights_bytes = 1 << 20;
  d.kv_bytes = 1 << 20;
  const std::string bar = device_bar(d, 80, {});
  EXPECT_NE(bar.find("█"), std::string::npos);
  EXPECT_NE(bar.find("▓"), std::string::npos);
}

TEST(ExplainModule, GivesEachOtherDeviceItsBytesAndTime) {
  const Case c = model_case(ModelShape{}, {16 * kGiB, 16 * kGiB}, 64 * kGiB, 0);
  const PlanRequest r = request_for(c);
  const Plan p = plan_of(c);
  const auto e = explain_module(r.assign, p, "model.layers.3.mlp");
  ASSERT_TRUE(e.has_value()) << e.error().message;
  EXPECT_EQ(e->alternatives.size(), 2u);
  for (const Alternative& a : e->alternatives) {
    EXPECT_TRUE(a.fits);
    EXPECT_GE(a.delta_bytes, static_cast<int64_t>(c.units.units[7].stored_bytes));
    EXPECT_GE(a.delta_decode_s, 0) << a.device;
  }
  // Moving it and planning by that map is what the numbers say.
  DeviceMap map = device_map_of(p, nullptr);
  map.entries["model.layers.3.mlp"] = DeviceName::cpu();
  const auto moved = plan_from_map(r, map);
  ASSERT_TRUE(moved.has_value());
  const auto cpu = std::find_if(e->alternatives.begin(), e->alternatives.end(),
                                [](const Alternative& a) { return a.device == "cpu"; });
  EXPECT_NEAR(1 / moved->estimate.decode_tokens_per_s - 1 / p.estimate.decode_tokens_per_s, cpu->delta_decode_s, 1e-9);
  const std::string text = explanation_text(*e, {});
  EXPECT_NE(text.find("model.layers.3.mlp"), std::string::npos);
  EXPECT_NE(text.find("cpu"), std::string::npos);
}

TEST(ExplainModule, FindsUnitsByTheirPartsAndNamesTheNearestOtherwise) {
  const Case c = model_case(ModelShape{}, {16 * kGiB}, 64 * kGiB, 0);
  const PlanRequest r = request_for(c);
  const Plan p = plan_of(c);
  const auto part = explain_module(r.assign, p, "model.layers.3.mlp.down_proj");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->unit.path, "model.layers.3.mlp");
  const auto several = explain_module(r.assign, p, "model.layers.3");
  ASSERT_FALSE(several.has_value());
  EXPECT_NE(several.error().message.find("model.layers.3.self_attn"), std::string::npos);
  const auto typo = explain_module(r.assign, p, "lm_heat");
  ASSERT_FALSE(typo.has_value());
  EXPECT_NE(typo.error().message.find("did you mean \"lm_head\""), std::string::npos);
}

TEST(ExplainModule, ATiedTableIsExplainedByItsHead) {
  ModelShape shape;
  shape.tied = true;
  const Case c = model_case(shape, {24 * kGiB}, 64 * kGiB, 0);
  const auto e = explain_module(request_for(c).assign, plan_of(c), "model.embed_tokens");
  ASSERT_TRUE(e.has_value());
  EXPECT_EQ(e->source, "lm_head");
}

TEST(ExplainModule, NeedsOnlyTheDocument) {
  const Case c = model_case(ModelShape{}, {6 * kGiB, 4 * kGiB}, 64 * kGiB, 100 * kGiB);
  PlanDocument d;
  d.machine = c.machine;
  d.plan = plan_of(c);
  d.sizes = c.units;
  const auto back = parse_plan(plan_json(d));
  ASSERT_TRUE(back.has_value()) << back.error().message;
  const auto recorded = recorded_request(*back);
  ASSERT_TRUE(recorded.has_value());
  const auto here = explain_module(request_for(c).assign, d.plan, "lm_head");
  const auto there = explain_module(recorded->request(), back->plan, "lm_head");
  ASSERT_TRUE(here.has_value() && there.has_value());
  JsonWriter a, b;
  write_explanation(*here, a);
  write_explanation(*there, b);
  EXPECT_EQ(a.str(), b.str());
}

TEST(Diff, NamesWhatMovedAndWhatDevicesGain) {
  const Case wide = model_case(ModelShape{}, {16 * kGiB, 16 * kGiB}, 64 * kGiB, 0);
  const Case tight = model_case(ModelShape{}, {16 * kGiB, 4 * kGiB}, 64 * kGiB, 0);
  const Plan a = plan_of(wide);
  PlanRequest r = request_for(wide);
  r.pins = {{"lm_head", "cpu"}};
  const Plan b = *make_plan(r);
  const PlanDifference d = diff(a, b);
  ASSERT_FALSE(d.moved.empty());
  EXPECT_TRUE(
      std::any_of(d.moved.begin(), d.moved.end(), [](const auto& m) { return m.path == "lm_head" && m.to == "cpu"; }));
  for (const auto& c : d.devices) {
    const DeviceUse *x = a.device(c.id), *y = b.device(c.id);
    EXPECT_EQ(c.weights_bytes, static_cast<int64_t>(y->weights_bytes) - static_cast<int64_t>(x->weights_bytes));
  }
  EXPECT_TRUE(diff(a, a).moved.empty());
  EXPECT_NE(diff_text(d, {}).find("lm_head"), std::string::npos);
  JsonWriter out;
  write_diff(d, out);
  const auto document = JsonDocument::parse(out.str());
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(document->root().size(), d.moved.size() + d.devices.size());
}

TEST(Compare, MarksTheFastestAndKeepsWhatFails) {
  const Case c = model_case(ModelShape{}, {16 * kGiB, 16 * kGiB}, 64 * kGiB, 0);
  const std::vector<std::string> names = {"best", "balanced", "balanced_low_0", "sequential", "nonsense"};
  const auto rows = compare(names, [&](const std::string& strategy) {
    PlanRequest r = request_for(c);
    r.strategy = strategy;
    return make_plan(r);
  });
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(best_row(rows), 0u);
  EXPECT_FALSE(rows[4].plan.has_value());
  const std::string text = compare_text(rows, {});
  EXPECT_NE(text.find("* best"), std::string::npos) << text;
  EXPECT_NE(text.find("nonsense"), std::string::npos);
}

// Whether there is a plan is answered as make_plan does.
template <typename F>
Planner planner_of(F plan) {
  return {[plan](int64_t v) -> Result<bool> { return plan(v).has_value(); },
          [plan](int64_t v, Explain) { return plan(v); }};
}

TEST(Solve, TheAnswerFitsAndOneStepBeyondDoesNot) {
  const auto with_batch = [](int64_t batch) {
    Case c = model_case(ModelShape{}, {16 * kGiB}, 2 * kGiB, 0);
    for (sizing::Unit& u : c.units.units) u.kv_bytes *= static_cast<uint64_t>(batch);
    c.shape.batch = batch;
    return make_plan(request_for(c));
  };
  const auto s = solve(Question::kMaxBatch, 1, 4096, 1, planner_of(with_batch));
  ASSERT_TRUE(s.has_value()) << s.error().message;
  EXPECT_GT(s->answer, 1);
  EXPECT_FALSE(s->at_limit);
  EXPECT_TRUE(with_batch(s->answer).has_value());
  EXPECT_FALSE(with_batch(s->answer + 1).has_value());
  EXPECT_FALSE(s->device.empty());
  EXPECT_FALSE(s->reason.empty());

  const int64_t mib = int64_t{1} << 20;
  const auto with_memory = [](int64_t bytes) {
    const Case c = model_case(ModelShape{}, {bytes, bytes}, 2 * kGiB, 0);
    return make_plan(request_for(c));
  };
  const auto v = solve(Question::kMinVram, mib, 32 * kGiB, mib, planner_of(with_memory));
  ASSERT_TRUE(v.has_value()) << v.error().message;
  EXPECT_TRUE(with_memory(v->answer).has_value());
  EXPECT_FALSE(with_memory(v->answer - mib).has_value());
  EXPECT_EQ(v->answer % mib, 0);

  const auto all = solve(Question::kMaxCtx, 1, 10, 1, planner_of([&](int64_t) { return with_batch(1); }));
  ASSERT_TRUE(all.has_value());
  EXPECT_TRUE(all->at_limit);
  EXPECT_EQ(all->answer, 10);
  EXPECT_FALSE(solve(Question::kMinVram, mib, kGiB, mib, planner_of(with_memory)).has_value());
  EXPECT_FALSE(parse_question("max-context").has_value());
}

TEST(Solve, AsksOftenWhetherAndOnlyAtTheBorderWhy) {
  Case c = model_case(ModelShape{}, {16 * kGiB}, 2 * kGiB, 0);
  const auto plan = [&](int64_t v) -> Result<Plan> {
    if (v > 1000) return Error(ErrorCode::kDoesNotFit, "over a thousand");
    return make_plan(request_for(c));
  };
  int whether = 0, nothing = 0, why = 0, remedies = 0;
  Planner planner{[&](int64_t v) -> Result<bool> { return ++whether, v <= 1000; },
                  [&](int64_t v, Explain explain) {
                    ++(explain == Explain::kNothing ? nothing : explain == Explain::kShortage ? why : remedies);
                    return plan(v);
                  }};
  const auto s = solve(Question::kMaxBatch, 1, 1 << 20, 1, planner);
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->answer, 1000);
  EXPECT_EQ(s->reason, "over a thousand");
  EXPECT_TRUE(s->plan.has_value());
  EXPECT_GT(whether, 10);
  EXPECT_EQ(std::make_tuple(nothing, why, remedies), std::make_tuple(1, 1, 0));

  // What the quick answer says too much, the plans correct.
  planner.exists = [&](int64_t v) -> Result<bool> { return v <= 1300; };
  EXPECT_EQ(solve(Question::kMaxBatch, 1, 1 << 20, 1, planner)->answer, 1000);
  // Nothing fits: the refusal of the easiest value, with remedies.
  EXPECT_EQ(remedies, 0);
  const auto none = solve(Question::kMaxBatch, 1001, 2000, 1, planner);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "over a thousand");
  EXPECT_EQ(remedies, 1);
}

}  // namespace
}  // namespace berth::plan
