// arch/native_tree_test.cc — the trees of packed checkpoints: compressed-tensors against what the library itself
// builds, awq against the tensors of published files, gptq by its formula.
#include "berth/arch/native_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/hf_config.h"
#include "berth/tensor/dtype.h"

namespace berth::arch {
namespace {

Result<ModuleTree> packed_tree(std::string_view config_json) {
  TRY(const auto config, format::HfConfig::parse(config_json, "config.json"));
  TRY(ModuleTree plain, module_tree(config, {.dtype = DType::kBF16, .has_dtype = true}));
  if (!config.quantization()) return Error(ErrorCode::kInvalidArgument, "no quantization_config");
  return native_tree(std::move(plain), *config.quantization());
}

using Tensors = std::multiset<std::string>;  // "parameter weight_scale bf16 [256,5]"

std::string tensor_text(std::string_view kind, std::string_view name, DType dtype, const Shape& shape) {
  std::string out = std::string(kind) + " " + std::string(name) + " " + std::string(dtype_name(dtype)) + " [";
  for (size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return out + "]";
}

std::map<std::string, Tensors> tensors_of(const ModuleTree& tree) {
  std::map<std::string, Tensors> out;
  for_each_module(tree, [&](const std::string& path, const Module& m) {
    for (const Parameter& p : m.parameters) out[path].insert(tensor_text("parameter", p.name, p.dtype, p.shape));
    for (const Buffer& b : m.buffers) out[path].insert(tensor_text("buffer", b.name, b.dtype, b.shape));
  });
  return out;
}

TEST(PackedTrees, OfCompressedTensorsAreTheLibrarys) {
  const auto text = read_file(std::string(BERTH_SOURCE_DIR) + "/tests/data/packed_trees.jsonl", size_t{16} << 20);
  ASSERT_TRUE(text) << text.error().message;
  int equal = 0, total = 0;
  for (const std::string& line : split(*text, '\n')) {
    if (line.empty()) continue;
    const auto golden = JsonDocument::parse(line);
    ASSERT_TRUE(golden) << golden.error().message;
    SCOPED_TRACE(std::string(*golden->root()["name"].as_string()));
    std::map<std::string, Tensors> expected;
    for (const auto& [path, module] : golden->root()["modules"].members())
      for (const char* kind : {"parameters", "buffers"})
        for (const JsonView t : module[kind].elements()) {
          const auto cells = t.elements();
          ASSERT_EQ(cells.size(), 3u);
          Shape shape;
          for (const JsonView n : cells[1].elements()) shape.push_back(*n.as_int64());
          const auto dtype = dtype_from_name(*cells[2].as_string());
          ASSERT_TRUE(dtype.has_value()) << *cells[2].as_string();
          const std::string_view one = std::string_view(kind).substr(0, std::string_view(kind).size() - 1);
          expected[std::string(path)].insert(tensor_text(one, *cells[0].as_string(), *dtype, shape));
        }
    const auto tree = packed_tree(golden->root()["config"].text());
    ASSERT_TRUE(tree) << tree.error().message;
    const auto found = tensors_of(*tree);
    EXPECT_EQ(found, expected);
    ++total;
    equal += found == expected;
  }
  std::printf("trees of compressed-tensors checkpoints: %d of %d equal\n", equal, total);
  EXPECT_EQ(total, 13);
}

TEST(PackedTrees, OfAwqHoldTheTensorsOfThePublishedFiles) {
  for (const char* model : {"Llama-2-7B-AWQ", "Qwen3-32B-AWQ"}) {
    SCOPED_TRACE(model);
    const std::string folder = shared_folder() + "/checkpoints/" + model;
    BERTH_NEED_SHARED(folder);
    const auto config = read_file(folder + "/config.json", 1 << 20);
    const auto listing = read_file(folder + "/tensors.tsv", size_t{64} << 20);
    ASSERT_TRUE(config && listing);
    std::set<std::string> expected, found;
    for (const std::string& row : split(*listing, '\n')) {
      const std::vector<std::string> cells = split(row, '\t');
      if (cells.size() < 3 || cells[0] == "name" || cells[0].ends_with("inv_freq")) continue;
      const bool packed =
          cells[0].ends_with(".qweight") || cells[0].ends_with(".qzeros") || cells[0].ends_with(".scales");
      if (packed)
        expected.insert(cells[0] + (cells[1] == "I32" ? " i32 " : " f16 ") + cells[2]);  // one file has BF16 scales
    }
    const auto tree = packed_tree(*config);
    ASSERT_TRUE(tree) << tree.error().message;
    for_each_module(*tree, [&](const std::string& path, const Module& m) {
      if (m.class_name == "Linear") EXPECT_EQ(path, "lm_head");
      if (m.class_name != "AwqQuantLinear") return;
      for (const Buffer& b : m.buffers) {
        const std::string text = tensor_text("", b.name, b.dtype, b.shape);  // " scales f16 [..]"
        found.insert(path + "." + text.substr(1));
      }
    });
    EXPECT_EQ(found, expected);
    EXPECT_GT(found.size(), 600u);
  }
}

TEST(PackedTrees, OfGptqFollowItsFormula) {
  const auto tree = packed_tree(R"({"model_type": "qwen2", "hidden_size": 256, "intermediate_size": 552,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "dtype": "bfloat16",
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": false,
      "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}})");
  ASSERT_TRUE(tree) << tree.error().message;
  auto found = tensors_of(*tree);
  EXPECT_EQ(found["model.layers.1.mlp.down_proj"], (Tensors{"buffer qweight i32 [69,256]", "buffer qzeros i32 [5,32]",
                                                            "buffer scales f16 [5,256]", "buffer g_idx i32 [552]"}));
  EXPECT_EQ(found["model.layers.0.self_attn.q_proj"],
            (Tensors{"buffer qweight i32 [32,256]", "buffer qzeros i32 [2,32]", "buffer scales f16 [2,256]",
                     "buffer g_idx i32 [256]", "buffer bias f16 [256]"}));
  EXPECT_EQ(found["model.layers.0.self_attn.k_proj"],
            (Tensors{"parameter weight bf16 [128,256]", "parameter bias bf16 [128]"}));
  EXPECT_EQ(found["lm_head"], Tensors{"parameter weight bf16 [1000,256]"});
}

// What is not followed is said, not guessed.
TEST(PackedTrees, OfOtherKindsAreNotKnown) {
  const std::string llama =
      R"({"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
    "num_attention_heads": 4, "vocab_size": 100, "quantization_config": )";
  const std::string weights =
      R"("config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}})";
  for (
      const std::string& q :
      {std::string(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})"),
       std::string(R"({"quant_method": "gptq", "bits": 5})"), std::string(R"({"quant_method": "hqq", "nbits": 4})"),
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "frozen", )" +
           weights + "}",
       R"({"quant_method": "compressed-tensors", "format": "marlin-24", "quantization_status": "compressed", )" +
           weights + "}",
       R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "kv_cache_scheme": {"num_bits": 8}, )" +
           weights + "}"}) {
    const auto tree = packed_tree(llama + q + "}");
    ASSERT_FALSE(tree) << q;
    EXPECT_EQ(tree.error().code, ErrorCode::kUnsupported) << q;
  }
  const auto pattern = packed_tree(
      llama + R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
    "config_groups": {"g": {"targets": ["re:("], "weights": {"num_bits": 4}}}}})");
  ASSERT_FALSE(pattern);
  EXPECT_EQ(pattern.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace berth::arch
