// Module trees of published configs against the library's own (golden/device_maps/trees): paths, order, classes,
// shapes, dtypes, buffers, ties, no-split classes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/native_tree.h"
#include "berth/arch/registry.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/hf_config.h"

namespace berth::arch {
namespace {

// One line per module, parameter and buffer, in definition order.
std::vector<std::string> lines_of(const ModuleTree& tree) {
  std::vector<std::string> lines;
  for_each_module(tree, [&](const std::string& path, const Module& m) {
    lines.push_back("module " + path + " " + m.class_name);
    const auto types = [](DType a, DType b) { return std::string(dtype_name(a)) + "/" + std::string(dtype_name(b)); };
    for (const Parameter& p : m.parameters)
      lines.push_back("param " + join_path(path, p.name) + " " + shape_text(p.shape) + " " +
                      types(p.dtype, p.dtype_f32));
    for (const Buffer& b : m.buffers)
      lines.push_back("buffer " + join_path(path, b.name) + " " + shape_text(b.shape) + " " +
                      types(b.dtype, b.dtype_f32) + (b.persistent ? " persistent" : ""));
  });
  return lines;
}

// The trees of two published Gemma 3 models were made from copies of their configs that spelt out hidden_activation
// "gelu", a converter's invention that the files here no longer have (checkpoints/README.md). The class of the
// activation, which has no tensors, is the only difference.
std::string known_difference(const std::string& model, std::string line) {
  const bool gemma = model == "gemma-3-4b-it" || model == "gemma-3-27b-it";
  constexpr std::string_view kOld = " GELUActivation";
  if (gemma && line.ends_with(kOld) && line.find("language_model.layers") != std::string::npos)
    line.replace(line.size() - kOld.size(), kOld.size(), " GELUTanh");
  return line;
}

std::string config_path(const std::string& model) {
  const std::string folder = shared_folder() + "/checkpoints/" + model;
  const std::string other = folder + "/config.falcon.json";  // falcon-40b's config.json predates its class
  return path_exists(other) ? other : folder + "/config.json";
}

std::string compare(const std::string& model, const std::string& config_file) {
  const auto golden = read_golden_tree_named(model);
  if (!golden) return golden.error().message;
  const auto config = format::HfConfig::open(config_file);
  if (!config) return config.error().message;
  const auto tree = module_tree(*config, {.dtype = DType::kBF16, .has_dtype = true});
  if (!tree) return tree.error().message;
  const std::vector<std::string> expected = lines_of(golden->tree), found = lines_of(*tree);
  for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    const std::string e = i < expected.size() ? known_difference(model, expected[i]) : "(nothing)";
    const std::string f = i < found.size() ? found[i] : "(nothing)";
    if (e != f) return "row " + std::to_string(i) + ": expected " + e + ", found " + f;
  }
  if (tree->ties != golden->tree.ties) return "ties differ";
  const auto words = [](std::vector<std::string> list) { return std::set<std::string>(list.begin(), list.end()); };
  if (words(tree->no_split_classes) != words(golden->tree.no_split_classes)) return "no-split classes differ";
  if (words(tree->no_placement) != words(golden->tree.no_placement)) return "no_placement differs";
  if (words(tree->keep_in_fp32) != words(golden->tree.keep_in_fp32)) return "keep_in_fp32 differs";
  if (words(tree->keep_in_fp32_strict) != words(golden->tree.keep_in_fp32_strict)) return "keep_in_fp32_strict differs";
  return "";
}

// falcon-40b's own config.json, of the time when its code came with it, describes the tree of the class it became.
TEST(PublishedTrees, FalconsFirstConfigGivesTheSameTree) {
  const std::string first = shared_folder() + "/checkpoints/falcon-40b/config.json";
  BERTH_NEED_SHARED(first);
  EXPECT_EQ(compare("falcon-40b", first), "");
}

TEST(PublishedTrees, EqualTheLibrarysForEveryModel) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/device_maps/trees");
  const auto names = golden_tree_names();
  ASSERT_TRUE(names) << names.error().message;
  int equal = 0, total = 0;
  for (const std::string& name : *names) {
    if (name.ends_with(".native")) continue;
    ++total;
    const std::string difference = compare(name, config_path(name));
    equal += difference.empty();
    EXPECT_EQ(difference, "") << name;
  }
  std::printf("trees from config.json: %d of %d equal\n", equal, total);
  EXPECT_EQ(total, 45);
}

// Goldens of quantized trees have one dtype column: the one the tree is built with.
std::string compare_native(const std::string& name) {
  const std::string model = name.substr(0, name.size() - std::string(".native").size());
  const auto golden = read_golden_tree_named(name);
  if (!golden) return golden.error().message;
  const auto config = format::HfConfig::open(config_path(model));
  if (!config) return config.error().message;
  auto plain = module_tree(*config, {.dtype = DType::kBF16, .has_dtype = true});
  if (!plain) return plain.error().message;
  if (!config->quantization()) return "the config has no quantization_config";
  auto tree = native_tree(*std::move(plain), *config->quantization());
  if (!tree) return tree.error().message;
  const auto one_dtype = [](std::vector<std::string> lines) {
    for (std::string& line : lines) {
      const size_t slash = line.rfind('/');
      if (slash == std::string::npos) continue;
      const size_t end = line.find(' ', slash);
      line.erase(slash, end == std::string::npos ? std::string::npos : end - slash);
    }
    return lines;
  };
  const auto expected = one_dtype(lines_of(golden->tree)), found = one_dtype(lines_of(*tree));
  for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    const std::string e = i < expected.size() ? expected[i] : "(nothing)",
                      f = i < found.size() ? found[i] : "(nothing)";
    if (e != f) return "row " + std::to_string(i) + ": expected " + e + ", found " + f;
  }
  return "";
}

TEST(PublishedTrees, EqualTheLibrarysAfterTheirOwnQuantizer) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/device_maps/trees");
  const auto names = golden_tree_names();
  ASSERT_TRUE(names) << names.error().message;
  int equal = 0, total = 0;
  for (const std::string& name : *names) {
    if (!name.ends_with(".native")) continue;
    ++total;
    const std::string difference = compare_native(name);
    equal += difference.empty();
    EXPECT_EQ(difference, "") << name;
  }
  std::printf("trees of quantized checkpoints: %d of %d equal\n", equal, total);
  EXPECT_EQ(total, 10);
}

}  // namespace
}  // namespace berth::arch
