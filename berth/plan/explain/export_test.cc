// plan/explain/export_test.cc — plans for other engines and pictures for browsers.
#include "berth/plan/explain/export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "berth/base/strings.h"
#include "berth/plan/explain/svg.h"
#include "berth/plan/strategies/random_case.h"
#include "berth/plan/strategy.h"

namespace berth::plan {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

PlanDocument document_of(const ModelShape& shape, const std::vector<int64_t>& accelerators) {
  const Case c = model_case(shape, accelerators, 64 * kGiB, 0);
  PlanRequest r;
  r.assign = {&c.units, &c.machine, c.budgets, c.shape, ""};
  r.stream = false;
  auto plan = make_plan(r);
  EXPECT_TRUE(plan.has_value());
  PlanDocument d;
  d.machine = c.machine;
  d.model = {"org/model", "LlamaForCausalLM", "bfloat16", "nf4", 1};
  d.options = R"({"load-in-4bit":true,"bnb-4bit-use-double-quant":true})";
  d.plan = *std::move(plan);
  d.device_map = device_map_of(d.plan, nullptr);
  return d;
}

ModelShape experts() {
  ModelShape shape;
  shape.experts = true;
  shape.layers = 24;
  shape.layer_bytes = kGiB;
  return shape;
}

TEST(Export, TransformersTakesTheMapAndTheQuantization) {
  const PlanDocument d = document_of(ModelShape{}, {12 * kGiB, 12 * kGiB});
  const Exported e = export_plan(d, ExportTarget::kTransformers);
  for (const char* part : {"device_map = {", "\"lm_head\": 1,", "from_pretrained(", "BitsAndBytesConfig(",
                           "load_in_4bit=True", "bnb_4bit_use_double_quant=True", "dtype=torch.bfloat16"})
    EXPECT_NE(e.text.find(part), std::string::npos) << part << "\n" << e.text;
  EXPECT_FALSE(e.notes.empty());
}

// Where llama.cpp would put a tensor: the first rule that matches, else the layer's card.
std::string buffer_of(const std::vector<std::string>& rules, const std::string& tensor, const std::string& otherwise) {
  for (const std::string& rule : rules) {
    const size_t equals = rule.rfind('=');
    if (std::regex_search(tensor, std::regex(rule.substr(0, equals)))) return rule.substr(equals + 1);
  }
  return otherwise;
}

TEST(Export, LlamaCppRulesPutEveryTensorWhereThePlanHasIt) {
  for (const ModelShape& shape : {experts(), ModelShape{}}) {
    const PlanDocument d = document_of(shape, {8 * kGiB, 6 * kGiB});
    std::vector<std::string> notes;
    const auto rules = tensor_overrides(d.plan, notes);
    const LlamaCppSplit split = llama_cpp_split(d.plan);
    ASSERT_EQ(split.devices.size(), 2u);
    for (const PlacedUnit& u : d.plan.units) {
      if (u.layer < 0) continue;
      const std::string name = u.kind == sizing::UnitKind::kAttention    ? "attn_q.weight"
                               : u.kind == sizing::UnitKind::kExpertBank ? "ffn_up_exps.weight"
                               : shape.experts                           ? "ffn_gate_inp.weight"
                                                                         : "ffn_up.weight";
      const std::string card = fmt::format("CUDA{}", split.devices[u.layer < split.layers[0] ? 0 : 1]);
      const std::string want = u.device == "cpu" ? "CPU" : "CUDA" + u.device;
      EXPECT_EQ(buffer_of(rules, fmt::format("blk.{}.{}", u.layer, name), card), want) << u.path << "\n"
                                                                                       << join(rules, "\n");
    }
    const auto head = std::find_if(d.plan.units.begin(), d.plan.units.end(),
                                   [](const PlacedUnit& u) { return u.kind == sizing::UnitKind::kHead; });
    EXPECT_EQ(buffer_of(rules, "output.weight", ""), head->device == "cpu" ? "CPU" : "CUDA" + head->device);
    EXPECT_EQ(buffer_of(rules, "token_embd.weight", ""), "CPU");
    const Exported e = export_plan(d, ExportTarget::kLlamaCpp);
    EXPECT_NE(e.text.find("--fit off"), std::string::npos);
    EXPECT_NE(e.text.find("--override-tensor"), std::string::npos);
  }
}

TEST(Export, VllmGetsStagesAndSaysWhatIsLost) {
  const Exported e = export_plan(document_of(ModelShape{}, {8 * kGiB, 6 * kGiB}), ExportTarget::kVllm);
  EXPECT_NE(e.text.find("VLLM_PP_LAYER_PARTITION="), std::string::npos) << e.text;
  EXPECT_NE(e.text.find("--pipeline-parallel-size 2"), std::string::npos);
  EXPECT_FALSE(e.notes.empty());
}

TEST(Export, AccelerateAndUnknownTargets) {
  const Exported e = export_plan(document_of(ModelShape{}, {24 * kGiB}), ExportTarget::kAccelerate);
  EXPECT_NE(e.text.find("load_checkpoint_and_dispatch"), std::string::npos);
  const auto typo = parse_export_target("transformer");
  ASSERT_FALSE(typo.has_value());
  EXPECT_NE(typo.error().message.find("did you mean \"transformers\""), std::string::npos);
}

// Every element that is opened is closed, in order.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0; (at = xml.find('<', at)) != std::string::npos;) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    const std::string name =
        tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" /", 1) == std::string::npos
                                              ? std::string::npos
                                              : tag.find_first_of(" /", 1) - (tag[0] == '/' ? 1 : 0));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

TEST(Svg, IsWellFormedAndNamesEveryUnit) {
  PlanDocument d = document_of(experts(), {8 * kGiB, 6 * kGiB});
  d.plan.units[0].reason = "<b>&\"'\x01";
  const std::string svg = plan_svg(d.plan, "a <title> & more");
  EXPECT_TRUE(well_formed(svg));
  for (const PlacedUnit& u : d.plan.units)
    if (u.stored_bytes > 0) EXPECT_NE(svg.find(u.path), std::string::npos) << u.path;
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_NE(svg.find("a &lt;title&gt; &amp; more"), std::string::npos);
}

TEST(Html, IsSelfContained) {
  const PlanDocument d = document_of(experts(), {8 * kGiB, 6 * kGiB});
  const std::string html = plan_html(d.plan, "model");
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("<link"), std::string::npos);
  for (const PlacedUnit& u : d.plan.units) EXPECT_NE(html.find(u.path), std::string::npos);
}

}  // namespace
}  // namespace berth::plan
