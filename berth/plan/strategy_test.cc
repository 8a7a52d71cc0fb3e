// plan/strategy_test.cc — from a request to a Plan: strategies, pins, maps, refusals and their remedies.
#include "berth/plan/strategy.h"

#include <gtest/gtest.h>

#include "berth/base/json.h"
#include "berth/plan/strategies/random_case.h"

namespace berth::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

PlanRequest request_for(const Case& c) {
  PlanRequest r;
  r.assign = {&c.units, &c.machine, c.budgets, c.shape, ""};
  r.stream = false;
  return r;
}

const PlacedUnit& unit(const Plan& p, const std::string& path) {
  for (const PlacedUnit& u : p.units)
    if (u.path == path) return u;
  ADD_FAILURE() << path;
  return p.units.front();
}

TEST(MakePlan, EveryStrategyKeepsEveryBudget) {
  const Case c = model_case(ModelShape{}, {24 * kGiB, 16 * kGiB}, 64 * kGiB, 0);
  for (const std::string_view name : strategy_names()) {
    PlanRequest r = request_for(c);
    r.strategy = std::string(name);
    const auto plan = make_plan(r);
    ASSERT_TRUE(plan.has_value()) << name << ": " << plan.error().message;
    EXPECT_EQ(plan->units.size(), c.units.units.size());
    uint64_t stored = 0;
    for (const DeviceUse& d : plan->devices) {
      EXPECT_LE(d.used(), d.budget_bytes) << name << " " << d.id;
      stored += d.weights_bytes;
    }
    EXPECT_EQ(stored, c.units.memory_footprint_bytes);
    ASSERT_TRUE(plan->certificate.has_value());
    EXPECT_GE(plan->certificate->gap_s, 0);
    EXPECT_LE(plan->certificate->bound_any_s, plan->certificate->value_s);
    EXPECT_GT(plan->estimate.decode_tokens_per_s, 0);
    EXPECT_GT(plan->estimate.prefill_tokens_per_s, plan->estimate.decode_tokens_per_s);
    for (const PlacedUnit& u : plan->units) EXPECT_FALSE(u.reason.empty());
  }
}

TEST(MakePlan, BestIsNeverSlowerThanTheOthers) {
  const Case c = model_case(ModelShape{}, {12 * kGiB, 10 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  const auto best = make_plan(r);
  ASSERT_TRUE(best.has_value());
  for (const std::string_view name : strategy_names()) {
    r.strategy = std::string(name);
    EXPECT_LE(best->certificate->value_s, make_plan(r)->certificate->value_s) << name;
  }
}

TEST(MakePlan, OtherStrategiesBecomeBestWhereAcceleratorsAreTooSmall) {
  const Case c = model_case(ModelShape{}, {6 * kGiB, 4 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.strategy = "balanced";
  const auto plan = make_plan(r);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->strategy, "best");
  ASSERT_EQ(plan->warnings.size(), 1u);
  EXPECT_NE(plan->warnings[0].find("balanced"), std::string::npos);
}

TEST(MakePlan, UnknownStrategyNamesTheNearest) {
  const Case c = model_case(ModelShape{}, {24 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.strategy = "ballanced";
  const auto plan = make_plan(r);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(plan.error().message.find("did you mean \"balanced\""), std::string::npos);
}

TEST(MakePlan, PinsAndGlobsHold) {
  const Case c = model_case(ModelShape{}, {12 * kGiB, 12 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.pins = {{"model.layers.?.mlp", "cpu"}, {"lm_head", "0"}, {"model.layers.31", "1"}};
  const auto plan = make_plan(r);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(unit(*plan, "model.layers.3.mlp").device, "cpu");
  EXPECT_EQ(unit(*plan, "lm_head").device, "0");
  EXPECT_EQ(unit(*plan, "model.layers.31.mlp").device, "1");
  EXPECT_EQ(unit(*plan, "model.layers.31.self_attn").device, "1");
  EXPECT_NE(unit(*plan, "lm_head").reason.find("pinned"), std::string::npos);
  r.pins = {{"model.layer.3", "cpu"}};
  const auto typo = make_plan(r);
  ASSERT_FALSE(typo.has_value());
  EXPECT_EQ(typo.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(typo.error().message.find("did you mean"), std::string::npos);
}

TEST(MakePlan, APathDecidesAgainstAGlobAndTheDeeperOfTwoPaths) {
  const Case c = model_case(ModelShape{}, {24 * kGiB, 24 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.pins = {{"model.layers.3", "cpu"}, {"model.layers", "0"}, {"*.mlp", "1"}, {"lm_head", "1"}, {"model", "0"}};
  const auto plan = make_plan(r);
  ASSERT_TRUE(plan.has_value()) << plan.error().message;
  EXPECT_EQ(unit(*plan, "model.layers.3.mlp").device, "cpu");
  EXPECT_EQ(unit(*plan, "model.layers.4.mlp").device, "0");
  EXPECT_EQ(unit(*plan, "lm_head").device, "1");  // although model.norm goes with it
  r.pins = {{"model.layers.[0-3].*", "cpu"}, {"*.mlp", "1"}};
  const auto torn = make_plan(r);
  ASSERT_FALSE(torn.has_value());
  EXPECT_EQ(torn.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(torn.error().message.find("two pins put"), std::string::npos);
}

// What a device map can say, a pin can: a table on the disk needs no cpu and nobody who computes there.
TEST(MakePlan, ATableMayBePinnedToTheDisk) {
  for (const bool stream : {true, false}) {
    const Case c = model_case(ModelShape{}, {24 * kGiB}, 0, kGiB * 100);
    PlanRequest r = request_for(c);
    r.stream = stream;
    r.pins = {{"model.embed_tokens", "disk"}};
    const auto plan = make_plan(r);
    ASSERT_TRUE(plan.has_value()) << plan.error().message;
    EXPECT_EQ(unit(*plan, "model.embed_tokens").device, "disk");
    const auto map = plan_from_map(r, {{{"", DeviceName::accelerator(0)}, {"model.embed_tokens", DeviceName::disk()}}});
    ASSERT_TRUE(map.has_value()) << map.error().message;
    EXPECT_EQ(unit(*map, "model.embed_tokens").device, "disk");
    r.pins = {{"model.layers.3", "disk"}};
    if (stream) continue;
    const auto layer = make_plan(r);
    ASSERT_FALSE(layer.has_value());
    EXPECT_EQ(layer.error().code, ErrorCode::kUnsupported);
  }
}

TEST(MakePlan, NothingLeavesTheAcceleratorsWithoutOffload) {
  const Case c = model_case(ModelShape{}, {24 * kGiB}, 64 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.offload = false;
  const auto plan = make_plan(r);
  ASSERT_TRUE(plan.has_value());
  for (const PlacedUnit& u : plan->units) EXPECT_EQ(u.device, "0") << u.path;
  const Case small = model_case(ModelShape{}, {6 * kGiB}, 64 * kGiB, 0);
  PlanRequest s = request_for(small);
  s.offload = false;
  EXPECT_FALSE(make_plan(s).has_value());
}

JsonDocument details_of(const Error& e) {
  auto document = JsonDocument::parse(e.details_json);
  EXPECT_TRUE(document.has_value()) << e.details_json;
  return *std::move(document);
}

// The same case with weights in 4 bit, a shorter context and so on.
UnitsUnder changes_of(const Case& c) {
  return [&c](const Change& change) -> std::optional<ChangedUnits> {
    ChangedUnits out{c.units, c.shape};
    for (sizing::Unit& u : out.units.units) {
      if (change.kind == Change::Kind::kLoadIn4Bit) u.stored_bytes /= 4, u.stored_bytes_512 /= 4, u.touched_bytes /= 4;
      if (change.kind == Change::Kind::kLoadIn8Bit) u.stored_bytes /= 2, u.stored_bytes_512 /= 2, u.touched_bytes /= 2;
      if (change.kind == Change::Kind::kCtxSize)
        u.kv_bytes = u.kv_bytes * static_cast<uint64_t>(change.value) / static_cast<uint64_t>(c.shape.ctx_size);
    }
    if (change.kind == Change::Kind::kCtxSize) out.shape.ctx_size = change.value;
    if (change.kind == Change::Kind::kKvDtype || change.kind == Change::Kind::kBatch ||
        change.kind == Change::Kind::kPrefillChunk)
      return std::nullopt;
    return out;
  };
}

TEST(Refusal, NamesProofBytesAndRemediesThatWerePlanned) {
  ModelShape shape;
  shape.kv_bytes = 128 << 20;
  const Case c = model_case(shape, {10 * kGiB}, 4 * kGiB, 0);
  PlanRequest r = request_for(c);
  r.with_change = changes_of(c);
  const auto plan = make_plan(r);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kDoesNotFit);
  const JsonDocument document = details_of(plan.error());
  const JsonView d = document.root();
  EXPECT_EQ(d["proof"].as_string(), "volume");
  EXPECT_EQ(*d["missing_bytes"].as_uint64(), *d["needed_bytes"].as_uint64() - *d["available_bytes"].as_uint64());
  EXPECT_FALSE(d["module"].as_string()->empty());
  ASSERT_GE(d["remedies"].size(), 3u);
  std::string all;
  for (const JsonView remedy : d["remedies"].elements()) {
    all += std::string(*remedy["option"].as_string()) + "\n";
    EXPECT_TRUE(remedy["saves_bytes"].as_uint64().has_value());
  }
  EXPECT_NE(all.find("--load-in-4bit"), std::string::npos) << all;
  EXPECT_NE(all.find("--ctx-size"), std::string::npos) << all;
  EXPECT_FALSE(plan.error().hints.empty());
}

// Where single changes are few, others are found: no change of the model is on offer here.
TEST(Refusal, HasTwoWaysOutOnEveryKindOfMachine) {
  const Case machines[] = {model_case(ModelShape{}, {}, 4 * kGiB, 0), model_case(ModelShape{}, {4 * kGiB}, 4 * kGiB, 0),
                           model_case(ModelShape{}, {2 * kGiB, 3 * kGiB}, 2 * kGiB, 0),
                           model_case(ModelShape{}, {kGiB, kGiB, kGiB, kGiB, kGiB, kGiB, kGiB, kGiB}, kGiB, 0)};
  for (const Case& c : machines) {
    const auto plan = make_plan(request_for(c));
    ASSERT_FALSE(plan.has_value());
    const JsonDocument document = details_of(plan.error());
    EXPECT_GE(document.root()["remedies"].size(), 2u) << plan.error().details_json;
    EXPECT_GE(plan.error().hints.size(), 2u);
    PlanRequest quick = request_for(c);
    quick.explain = Explain::kNothing;
    EXPECT_EQ(make_plan(quick).error().code, ErrorCode::kDoesNotFit);
  }
}

TEST(Refusal, SaysSoWhereNothingThatWasTriedHelps) {
  Case c = model_case(ModelShape{}, {4 * kGiB}, 4 * kGiB, 0);
  c.units.units[0].workspace_bytes = uint64_t{1} << 62;  // more than any size that is tried
  const auto plan = make_plan(request_for(c));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(details_of(plan.error()).root()["remedies"].size(), 0u) << plan.error().details_json;
  ASSERT_EQ(plan.error().hints.size(), 1u);
  EXPECT_NE(plan.error().hints[0].find("No change that was tried"), std::string::npos) << plan.error().hints[0];
}

TEST(Refusal, AUnitLargerThanAnyDeviceIsNamed) {
  ModelShape shape;
  shape.vocab_bytes = 12 * kGiB;
  const Case c = model_case(shape, {8 * kGiB, 8 * kGiB, 8 * kGiB, 8 * kGiB}, 11 * kGiB, 0);
  const auto plan = make_plan(request_for(c));
  ASSERT_FALSE(plan.has_value());
  const JsonDocument document = details_of(plan.error());
  EXPECT_EQ(document.root()["proof"].as_string(), "unit");
  EXPECT_EQ(document.root()["module"].as_string(), "lm_head");
  EXPECT_EQ(document.root()["device"].as_string(), "cpu");
  EXPECT_NE(plan.error().message.find("lm_head"), std::string::npos);
}

TEST(Refusal, PackingThatCannotWorkIsProven) {
  // Three units of 6 in four devices of 5 are "unit"; of 4 in two devices of 7: volume 12 <= 14, but one card holds
  // one.
  Case c = model_case(ModelShape{}, {7, 7}, 0, 0);
  c.budgets[2].left_out = true;
  c.units.units.resize(3);
  c.units.chain_size = 3;
  for (sizing::Unit& u : c.units.units) {
    u.stored_bytes = u.stored_bytes_512 = u.touched_bytes = 4;
    u.kv_bytes = u.workspace_bytes = u.grain_bytes = 0;
  }
  const auto plan = make_plan(request_for(c));
  ASSERT_FALSE(plan.has_value());
  const JsonDocument document = details_of(plan.error());
  EXPECT_EQ(document.root()["proof"].as_string(), "runs");
  EXPECT_GE(*document.root()["missing_bytes"].as_uint64(), 1u);
}

TEST(Refusal, ACapCanRiseAsFarAsTheDevicesMemory) {
  Case c = model_case(ModelShape{}, {24 * kGiB}, 64 * kGiB, 0);
  c.budgets[0].budget_bytes = 8 * kGiB;
  c.budgets[0].capped = true;
  c.budgets[1].left_out = true;
  c.budgets[1].budget_bytes = 0;
  const auto plan = make_plan(request_for(c));
  ASSERT_FALSE(plan.has_value());
  const JsonDocument document = details_of(plan.error());
  std::string all;
  for (const JsonView remedy : document.root()["remedies"].elements())
    all += std::string(*remedy["option"].as_string()) + "\n";
  EXPECT_NE(all.find("--max-memory 0="), std::string::npos) << all;
  EXPECT_NE(all.find("--max-memory cpu="), std::string::npos) << all;
}

TEST(PlanFromMap, OverBudgetProposesAnotherPlacement) {
  const Case c = model_case(ModelShape{}, {8 * kGiB, 8 * kGiB}, 64 * kGiB, 0);
  DeviceMap map;
  map.entries[""] = DeviceName::accelerator(0);
  const auto plan = plan_from_map(request_for(c), map);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kDoesNotFit);
  const JsonDocument document = details_of(plan.error());
  ASSERT_GE(document.root()["remedies"].size(), 2u);  // another placement, or more memory under this one
  EXPECT_EQ(document.root()["remedies"].elements()[1]["change"].as_string()->substr(0, 14), "device 0 with ");
  EXPECT_EQ(document.root()["remedies"].elements()[0]["option"].as_string(), "--device-map best");
  map.entries["lm_head"] = DeviceName::cpu();
  map.entries["model.layers"] = DeviceName::cpu();
  const auto fits = plan_from_map(request_for(c), map);
  ASSERT_TRUE(fits.has_value()) << fits.error().message;
  EXPECT_EQ(fits->strategy, "custom");
  EXPECT_EQ(unit(*fits, "model.layers.7.mlp").computed_on, "cpu");
}

}  // namespace
}  // namespace berth::plan
