// describe_model() on the golden models: every tensor is found with the right shape, nothing is left unread but what
// the goldens' README names, and both forms of the config give the same ModelSpec.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/arch/sources.h"
#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {
namespace {

namespace fs = std::filesystem;

std::string models_folder() { return shared_folder() + "/golden/models"; }

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(models_folder()))
    if (fs::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

Result<format::Checkpoint> open_model(const std::string& folder, const std::string& config) {
  return format::Checkpoint::open(folder, {}, {.hub_cache = "", .config_path = config});
}

// "model.layers.3.x" as the goldens' lists write it: "model.layers.N.x".
std::string numbers_as_n(const std::string& path) {
  std::vector<std::string> parts = split(path, '.');
  for (std::string& part : parts)
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "N";
  return join(parts, ".");
}

// Tensors of the files that no forward pass reads, by the words of golden/models/README.md.
bool known_unread(const std::string& model, const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("vision_tower") || has("vision_model") || has("visual.") || has("multi_modal_projector") ||
      has("audio_tower") || has("embed_vision") || has("embed_audio") || has("patch_merge_mlp"))
    return true;
  if (name.starts_with("mtp.")) return true;
  if (model.starts_with("falcon")) return name == "lm_head.weight";  // equal to the embedding, so shared
  if (model == "deepseek_v3") return name.starts_with("model.layers.3.");
  if (model == "gemma4_e2b" || model == "gemma4_text_e4b") return has("k_proj") || has("v_proj") || has("k_norm");
  return false;
}

std::string differing(const ModelSpec& a, const ModelSpec& b) {
  if (a == b) return "";
  if (a.ropes != b.ropes) return "ropes differ";
  if (a.layers.size() != b.layers.size()) return "numbers of layers differ";
  for (size_t i = 0; i < a.layers.size(); ++i) {
    if (a.layers[i].attention != b.layers[i].attention) return "attention of layer " + std::to_string(i) + " differs";
    if (a.layers[i].mlp != b.layers[i].mlp) return "mlp of layer " + std::to_string(i) + " differs";
    if (a.layers[i] != b.layers[i]) return "layer " + std::to_string(i) + " differs";
  }
  if (a.tensors != b.tensors) return "tensors differ";
  if (a.notes != b.notes) return "notes differ: " + join(a.notes, "|") + " and " + join(b.notes, "|");
  if (a.unsupported != b.unsupported) return "unsupported differs";
  if (a.dtype != b.dtype) return "dtype differs";
  return "the model's own numbers differ";
}

// Rows that the recipe delivers, for comparison with the spec.
int64_t elements_of(const TensorRecipe& recipe) {
  int64_t n = 0;
  if (recipe.segments.empty()) {
    for (const Source& s : recipe.sources) n += s.rows * s.cols;
  } else {
    for (const Segment& s : recipe.segments) n += s.count * recipe.sources[static_cast<size_t>(s.source)].cols;
  }
  return n;
}

TEST(GoldenModels, EveryFolderIsDescribedAlikeFromBothConfigs) {
  BERTH_NEED_SHARED(models_folder());
  const std::vector<std::string> names = model_names();
  int described = 0, alike = 0, runnable = 0;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string folder = models_folder() + "/" + name;
    const auto ours = open_model(folder, "");
    const auto published = open_model(folder, folder + "/config.published.json");
    ASSERT_TRUE(ours) << ours.error().message;
    ASSERT_TRUE(published) << published.error().message;
    const auto a = describe_model(*ours, {}), b = describe_model(*published, {});
    EXPECT_TRUE(a) << a.error().message;
    EXPECT_TRUE(b) << b.error().message;
    if (!a || !b) continue;
    ++described;
    const std::string difference = differing(a->spec, b->spec);
    EXPECT_EQ(difference, "");
    alike += difference.empty();
    runnable += a->spec.unsupported.empty();

    for (const TensorSpec& t : a->spec.tensors) {
      if (t.tied_to) continue;
      EXPECT_EQ(elements_of(t.recipe), t.experts * t.rows * t.cols) << t.name;
      for (const Source& s : t.recipe.sources) EXPECT_NE(ours->find(s.name), nullptr) << s.name;
    }
    for (const std::string& unread : unread_tensors(*ours, a->spec)) EXPECT_TRUE(known_unread(name, unread)) << unread;
  }
  std::printf("golden models: %d of %zu described, %d alike from both configs, %d can run\n", described, names.size(),
              alike, runnable);
  EXPECT_EQ(names.size(), 57u);
  EXPECT_EQ(described, 57);
}

// expected.json of the goldens counts the classes of the real module tree.
TEST(GoldenModels, TreesHaveTheLibrarysModules) {
  BERTH_NEED_SHARED(models_folder());
  int equal = 0;
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const std::string folder = models_folder() + "/" + name;
    const auto config = format::HfConfig::open(folder + "/config.json");
    ASSERT_TRUE(config) << config.error().message;
    const auto tree = module_tree(*config, {});
    EXPECT_TRUE(tree) << tree.error().message;
    if (!tree) continue;
    const auto expected = JsonDocument::parse_file(folder + "/expected.json");
    ASSERT_TRUE(expected) << expected.error().message;
    const JsonView modules = expected->root()["modules"];

    std::map<std::string, int64_t> found, wanted;
    std::set<std::string> buffers, wanted_buffers, wanted_no_split;
    uint64_t elements = 0;
    for_each_module(*tree, [&](const std::string& path, const Module& m) {
      ++found[m.class_name];
      for (const Parameter& p : m.parameters) elements += *element_count(p.shape);
      for (const Buffer& b : m.buffers)
        if (!b.persistent) buffers.insert(numbers_as_n(join_path(path, b.name)));
    });
    for (const auto& [key, value] : modules["classes"].members()) wanted[std::string(key)] = *value.as_int64();
    for (const JsonView v : modules["nonpersistent_buffers"].elements()) {
      const JsonView text = v.is_object() ? v["name"] : v;
      wanted_buffers.insert(std::string(text.as_string().value_or("?")));
    }
    for (const JsonView v : modules["no_split"].elements()) wanted_no_split.insert(std::string(*v.as_string()));
    const std::set<std::string> no_split(tree->no_split_classes.begin(), tree->no_split_classes.end());
    EXPECT_EQ(found, wanted);
    EXPECT_EQ(buffers, wanted_buffers);
    EXPECT_EQ(no_split, wanted_no_split);
    EXPECT_EQ(static_cast<int64_t>(elements), *expected->root()["parameters"]["named"].as_int64());
    equal += found == wanted && buffers == wanted_buffers && no_split == wanted_no_split;
  }
  EXPECT_EQ(equal, 57);
  std::printf("golden models' trees: %d with the library's classes, buffers and no-split classes\n", equal);
}

}  // namespace
}  // namespace berth::arch
