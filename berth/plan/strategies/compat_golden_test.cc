// Both libraries' planners against what they really planned: published models, random trees, and the known defects.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/quantize_rules.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/plan/strategies/compat_accelerate.h"
#include "berth/plan/strategies/compat_jsonl.h"
#include "berth/plan/strategies/compat_transformers.h"

namespace berth::plan::compat {
namespace {

const std::string kFolder = "/golden/device_maps/";

// Equal as data: numbers by value (1 == 1.0), objects in any order.
bool same_json(JsonView a, JsonView b) {
  if (!a.valid() || !b.valid()) return !a.valid() && !b.valid();
  if (a.is_number() && b.is_number()) {
    if (a.as_int64() && b.as_int64()) return *a.as_int64() == *b.as_int64();
    return *a.as_double() == *b.as_double();
  }
  if (a.is_string() || b.is_string()) return a.as_string() == b.as_string() && a.is_string() == b.is_string();
  if (a.is_array() && b.is_array()) {
    const auto x = a.elements(), y = b.elements();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!same_json(x[i], y[i])) return false;
    return true;
  }
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    std::map<std::string_view, JsonView> right;
    for (const auto& [key, value] : b.members()) right[key] = value;
    for (const auto& [key, value] : a.members())
      if (!right.contains(key) || !same_json(value, right[key])) return false;
    return true;
  }
  return a.type() == b.type();
}

// The first of the goldens' keys in which `got` is not `expected`; "" where all agree.
std::string difference(JsonView expected, JsonView got) {
  for (const char* key : {"balanced", "adjusted", "map", "error", "log"})
    if (!same_json(expected[key], got[key])) return key;
  return "";
}

bool agrees(JsonView golden, const std::string& answer, std::string& where) {
  const auto got = JsonDocument::parse(answer);
  if (!got) {
    where = "answer is no JSON: " + got.error().message;
    return false;
  }
  where = difference(golden, got->root());
  if (where.empty()) return true;
  for (const JsonView other : golden["also"].elements())  // results under other string-hash seeds: as right
    if (difference(other, got->root()).empty()) return true;
  where += ": expected " + golden[where].text().substr(0, 400) + ", got " + got->root()[where].text().substr(0, 400);
  return false;
}

void check_lines(const std::string& file, size_t expected_lines) {
  const std::string path = arch::shared_folder() + kFolder + file;
  BERTH_NEED_SHARED(path);
  const auto text = arch::read_maybe_gzipped(path);
  ASSERT_TRUE(text) << text.error().message;
  size_t lines = 0, right = 0, errors = 0;
  std::map<std::string, std::pair<size_t, size_t>> by_library;
  for (const std::string& line : split(*text, '\n')) {
    if (line.empty()) continue;
    const auto golden = JsonDocument::parse(line);
    ASSERT_TRUE(golden) << golden.error().message;
    const JsonView root = golden->root();
    std::string where;
    const bool ok = agrees(root, plan_compat_line(line), where);
    EXPECT_TRUE(ok) << file << " " << root["id"].text() << " (" << root["library"].text() << "): " << where;
    auto& [n, of] = by_library[std::string(*root["library"].as_string())];
    ++of;
    n += ok;
    ++lines;
    right += ok;
    errors += root.contains("error");
  }
  std::printf("[ counts   ] %s: %zu/%zu (%zu of them refusals)", file.c_str(), right, lines, errors);
  for (const auto& [library, n] : by_library) std::printf(", %s %zu/%zu", library.c_str(), n.first, n.second);
  std::printf("\n");
  EXPECT_GE(lines, expected_lines);
}

TEST(CompatGoldens, RandomTreesArePlannedAsBothLibrariesPlanThem) { check_lines("fuzz.jsonl.gz", 3000); }
TEST(CompatGoldens, DefectsOfBothLibrariesAreReproduced) { check_lines("defects.jsonl", 73); }

// One tree variant of one model.
struct Variant {
  arch::ModuleTree tree;
  std::map<std::string, double> counted;
};

class Maps {
 public:
  // bf16 | fp32 | nf4 | int8 | native
  const Variant* variant(const std::string& model, const std::string& name) {
    auto& slot = variants_[model + " " + name];
    if (slot) return slot.get();
    auto golden = arch::read_golden_tree_named(name == "native" ? model + ".native" : model);
    if (!golden) return nullptr;
    slot = std::make_unique<Variant>();
    slot->counted = golden->counted_per_element;
    slot->tree = std::move(golden->tree);
    if (name == "nf4" || name == "int8") {
      const auto rules = arch::quantize_rules(slot->tree);
      if (!rules) return nullptr;
      slot->tree = arch::with_quantized_linears(
          slot->tree, *rules, name == "nf4" ? arch::QuantizedLinear::kLinear4bit : arch::QuantizedLinear::kLinear8bit);
    }
    return slot.get();
  }
  void clear() { variants_.clear(); }

 private:
  std::map<std::string, std::unique_ptr<Variant>> variants_;
};

std::string plan_case(JsonView c, const std::string& model, Maps& maps) {
  const std::string quant(c["quant"].as_string().value_or("none"));
  const std::string dtype(*c["dtype"].as_string());
  const Variant* v = maps.variant(model, quant == "none" ? dtype : quant);
  if (v == nullptr) return "no tree";
  const auto memory = memory_entries_from_json(c["max_memory"]);
  if (!memory) return memory.error().message;
  const auto mode = mode_from_name(*c["mode"].as_string());
  if (!mode) return "no mode";
  Result<CompatResult> result = Error();
  if (c["library"].as_string() == "transformers") {
    TransformersRequest r;
    r.mode = *mode;
    r.max_memory = *memory;
    r.built_as_f32 = dtype == "fp32";
    const bool bnb = quant == "nf4" || quant == "int8" || (quant == "native" && model.find("bnb") != std::string::npos);
    r.quantizer = bnb ? Quantizer::kBitsandbytes : quant == "native" ? Quantizer::kOther : Quantizer::kNone;
    if (quant == "native" && !bnb)
      r.counted_width = [v](std::string_view path) -> std::optional<Number> {
        const auto it = v->counted.find(std::string(path));
        if (it == v->counted.end()) return std::nullopt;
        return it->second == static_cast<double>(static_cast<int64_t>(it->second))
                   ? Number::whole(static_cast<int64_t>(it->second))
                   : Number::real(it->second);
      };
    result = plan_as_transformers(v->tree, r);
  } else {
    AccelerateRequest r;
    r.mode = *mode;
    r.max_memory = *memory;
    r.built_as_f32 = dtype == "fp32";
    r.no_split.emplace();
    for (const JsonView cls : c["no_split"].elements()) r.no_split->emplace_back(*cls.as_string());
    result = plan_as_accelerate(v->tree, r);
  }
  if (!result) return result.error().message;
  JsonWriter w;
  w.begin_object();
  write_result(*result, w);
  w.end_object();
  return w.take();
}

TEST(CompatGoldens, PublishedModelsArePlannedAsBothLibrariesPlanThem) {
  const std::string folder = arch::shared_folder() + kFolder + "maps";
  BERTH_NEED_SHARED(folder);
  const auto files = list_folder(folder);
  ASSERT_TRUE(files);
  size_t cases = 0, right = 0, models = 0;
  std::map<std::string, std::pair<size_t, size_t>> by_kind;
  for (const std::string& file : *files) {
    if (!file.ends_with(".json")) continue;
    const auto document = JsonDocument::parse_file(folder + "/" + file);
    ASSERT_TRUE(document) << document.error().message;
    const std::string model(*document->root()["model"].as_string());
    ++models;
    Maps maps;
    for (const JsonView c : document->root()["cases"].elements()) {
      std::string where;
      const bool ok = agrees(c, plan_case(c, model, maps), where);
      EXPECT_TRUE(ok) << model << " " << c["library"].text() << " " << c["quant"].text() << " " << c["label"].text()
                      << ": " << where;
      auto& [n, of] =
          by_kind[std::string(*c["library"].as_string()) + " " + std::string(c["quant"].as_string().value_or("none"))];
      n += ok;
      ++of;
      ++cases;
      right += ok;
    }
  }
  std::printf("[ counts   ] maps of %zu models: %zu/%zu", models, right, cases);
  for (const auto& [kind, n] : by_kind) std::printf(", %s %zu/%zu", kind.c_str(), n.first, n.second);
  std::printf("\n");
  EXPECT_GE(cases, 2072u);
}

}  // namespace
}  // namespace berth::plan::compat
