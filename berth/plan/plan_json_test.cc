// plan/plan_json_test.cc — PLAN documents go out and come back; damaged ones are refused by the name of the key.
#include "berth/plan/plan_json.h"

#include <gtest/gtest.h>

#include "berth/plan/strategies/random_case.h"
#include "berth/plan/strategy.h"

namespace berth::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

struct Planned {
  Case c;
  PlanRequest request;
  PlanDocument document;
};

Planned planned() {
  Planned p;
  p.c = model_case(ModelShape{}, {6 * kGiB, 4 * kGiB}, 64 * kGiB, 100 * kGiB);
  p.request.assign = {&p.c.units, &p.c.machine, p.c.budgets, p.c.shape, ""};
  auto plan = make_plan(p.request);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  p.document.berth = "0.1.0";
  p.document.options = R"({"load-in-4bit":true})";
  p.document.machine = p.c.machine;
  p.document.checkpoint = "0123456789abcdef0123456789abcdef";
  p.document.model = {"tiny", "LlamaForCausalLM", "bfloat16", "nf4", 12345};
  p.document.plan = *std::move(plan);
  p.document.device_map = device_map_of(p.document.plan, nullptr);
  return p;
}

TEST(PlanJson, ComesBackEqual) {
  const Planned p = planned();
  const std::string text = plan_json(p.document);
  const auto back = parse_plan(text);
  ASSERT_TRUE(back.has_value()) << back.error().message;
  EXPECT_EQ(back->plan, p.document.plan);
  EXPECT_EQ(back->machine, p.document.machine);
  EXPECT_EQ(back->model, p.document.model);
  EXPECT_EQ(back->device_map, p.document.device_map);
  EXPECT_EQ(back->options, p.document.options);
  EXPECT_EQ(plan_json(*back), text);
}

TEST(PlanJson, HasTheContractsKeys) {
  const Planned p = planned();
  const auto document = JsonDocument::parse(plan_json(p.document));
  ASSERT_TRUE(document.has_value());
  const JsonView root = document->root();
  for (const char* key : {"format", "berth", "inputs", "model", "strategy", "compat", "fits", "device_map", "budgets",
                          "devices", "units", "estimate", "certificate", "memory_footprint_bytes", "warnings"})
    EXPECT_TRUE(root.contains(key)) << key;
  EXPECT_TRUE(root["compat"].is_null());
  EXPECT_TRUE(root["budgets"].contains("cpu"));
  bool accelerator = false, cpu = false;
  for (const JsonView unit : root["units"].elements()) {
    accelerator |= unit["device"].is_integer();
    cpu |= unit["device"].as_string() == "cpu";
    for (const char* key : {"path", "paths", "device", "computed_on", "access", "access_prefill", "stored_bytes",
                            "touched_bytes", "kv_bytes", "reason"})
      EXPECT_TRUE(unit.contains(key)) << key;
  }
  EXPECT_TRUE(accelerator && cpu);
  for (const JsonView d : root["devices"].elements()) {
    uint64_t sum = 0;
    for (const char* key : {"weights_bytes", "kv_bytes", "workspace_bytes", "staging_bytes", "overhead_bytes",
                            "margin_bytes", "free_bytes"})
      sum += *d[key].as_uint64();
    EXPECT_EQ(sum, *d["budget_bytes"].as_uint64());
  }
  for (const char* key : {"objective", "value", "bound", "gap", "bound_any", "optimal"})
    EXPECT_TRUE(root["certificate"].contains(key));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(PlanJson, RefusesWhatIsDamagedByTheKeysName) {
  const std::string text = plan_json(planned().document, 0);
  const auto message = [](const std::string& damaged) {
    const auto read = parse_plan(damaged);
    EXPECT_FALSE(read.has_value()) << damaged.substr(0, 200);
    if (read) return std::string();
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    return read.error().message;
  };
  EXPECT_NE(message(replaced(text, "berth-plan-1", "berth-plan-2")).find("berth-plan-2"), std::string::npos);
  EXPECT_NE(message(replaced(text, "\"strategy\"", "\"strategi\"")).find("strategy is missing"), std::string::npos);
  EXPECT_NE(message(replaced(text, "\"access\":\"compute\"", "\"access\":\"guess\"")).find("units[0].access"),
            std::string::npos);
  EXPECT_NE(message(replaced(text, "\"batch\":1", "\"batch\":\"one\"")).find("inputs.batch"), std::string::npos);
  EXPECT_NE(message(replaced(text, "\"batch\":1", "\"batch\":-1")).find("inputs.batch"), std::string::npos);
  EXPECT_NE(message(replaced(text, "\"device\":0", "\"device\":7")).find("device \"7\""), std::string::npos);
  EXPECT_NE(message(replaced(text, "\"device\":0", "\"device\":-1")).find("].device must be"), std::string::npos);
  EXPECT_NE(message("[]").find("object"), std::string::npos);
  EXPECT_NE(message("{").find("reading a plan"), std::string::npos);
  message(text.substr(0, text.size() / 2));
}

TEST(PlanJson, ReadersIgnoreKeysTheyDoNotKnow) {
  const Planned p = planned();
  const auto back = parse_plan(replaced(plan_json(p.document, 0), "\"strategy\":", "\"new\":[1,{}],\"strategy\":"));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->plan, p.document.plan);
}

TEST(PlanJson, APlanIsAdoptedForTheSameModelAndMachineOnly) {
  const Planned p = planned();
  const auto same = adopt_plan(p.document, p.request.assign, p.document.checkpoint);
  ASSERT_TRUE(same.has_value()) << same.error().message;
  EXPECT_EQ(same->devices, p.document.plan.devices);
  EXPECT_EQ(same->units, p.document.plan.units);
  const auto other_checkpoint = adopt_plan(p.document, p.request.assign, "ffff");
  ASSERT_FALSE(other_checkpoint.has_value());
  EXPECT_NE(other_checkpoint.error().message.find("checkpoint"), std::string::npos);
  AssignRequest longer = p.request.assign;
  longer.shape.ctx_size *= 2;
  EXPECT_FALSE(adopt_plan(p.document, longer, p.document.checkpoint).has_value());
  machine::Machine renamed = p.c.machine;
  renamed.devices[0].id = "emu:9";
  AssignRequest elsewhere = p.request.assign;
  elsewhere.machine = &renamed;
  const auto other = adopt_plan(p.document, elsewhere, p.document.checkpoint);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("emu:9"), std::string::npos);
}

TEST(PlanJson, IsTheSameTwice) { EXPECT_EQ(plan_json(planned().document), plan_json(planned().document)); }

}  // namespace
}  // namespace berth::plan
