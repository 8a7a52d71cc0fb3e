// The names a file may use for the same model: with and without the base prefix, below a wrapper's, experts one by one
// or fused, one side of a tie missing. Files are golden models' tensors written again under other names.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/arch/sources.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"
#include "berth/format/write_safetensors.h"

namespace berth::arch {
namespace {

using format::Checkpoint;

struct Tensor {
  TensorDesc desc;
  std::vector<std::byte> bytes;
};

// A golden model's tensors, changed by `edit`, described with its own config.
Result<ModelDescription> rewritten(const std::string& model, const std::function<void(std::vector<Tensor>&)>& edit) {
  const std::string folder = shared_folder() + "/golden/models/" + model;
  TRY(const Checkpoint from, Checkpoint::open(folder));
  std::vector<Tensor> tensors;
  for (const format::TensorEntry& t : from.tensors()) {
    Tensor copy{{t.name, t.dtype, t.shape, t.size_bytes}, std::vector<std::byte>(t.size_bytes)};
    TRY_STATUS(from.read(t, 0, copy.bytes));
    tensors.push_back(std::move(copy));
  }
  edit(tensors);
  std::vector<TensorDesc> descs;
  std::vector<std::span<const std::byte>> data;
  for (const Tensor& t : tensors) {
    descs.push_back(t.desc);
    data.emplace_back(t.bytes);
  }
  const format::TempFolder temp;
  TRY_STATUS(format::write_safetensors(temp / "model.safetensors", descs, data));
  TRY(const std::string config, read_file(folder + "/config.json", 1 << 20));
  temp.write("config.json", config);
  TRY(const Checkpoint to, Checkpoint::open(temp / ""));
  TRY(ModelDescription d, describe_model(to, {}));
  return d;
}

void rename_prefix(std::vector<Tensor>& tensors, std::string_view from, std::string_view to) {
  for (Tensor& t : tensors)
    if (t.desc.name.starts_with(from)) t.desc.name = std::string(to) + t.desc.name.substr(from.size());
}
void drop(std::vector<Tensor>& tensors, std::string_view name) {
  std::erase_if(tensors, [&](const Tensor& t) { return t.desc.name == name; });
}
Tensor* find(std::vector<Tensor>& tensors, std::string_view name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.desc.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

struct Rename {
  const char *model, *from, *to;
};

TEST(DiskNames, BasePrefixesMayBeMissingOrAWrappers) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models");
  const Rename renames[] = {
      {"llama", "model.", ""},
      {"llama", "model.", "model.language_model."},
      {"gemma3_text", "model.", "language_model.model."},
      {"gemma3", "language_model.model.", "model.language_model."},
      {"gemma4_text_e4b", "model.", "model.language_model."},
      {"gemma4_31b", "model.language_model.", "language_model.model."},
      {"gemma4_31b", "model.language_model.", "model."},
      {"bloom", "", "transformer."},
      {"gpt2", "", "transformer."},
      {"opt", "model.decoder.", "decoder."},
      {"falcon_7b", "transformer.", ""},
      {"llama4", "language_model.", ""},
      {"qwen3_5_moe", "model.language_model.", "model."},
  };
  for (const Rename& r : renames) {
    SCOPED_TRACE(std::string(r.model) + ": " + r.from + " to " + r.to);
    const auto d = rewritten(r.model, [&](std::vector<Tensor>& t) { rename_prefix(t, r.from, r.to); });
    EXPECT_TRUE(d) << d.error().message;
  }
}

TEST(DiskNames, TheOtherSideOfATieFollows) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models");
  const auto head_only = rewritten(
      "llama_tied", [](std::vector<Tensor>& t) { find(t, "model.embed_tokens.weight")->desc.name = "lm_head.weight"; });
  ASSERT_TRUE(head_only) << head_only.error().message;
  EXPECT_TRUE(head_only->spec.tied_head);
  EXPECT_EQ(head_only->spec.find(Role::kEmbedding, -1)->recipe.sources[0].name, "lm_head.weight");
  EXPECT_EQ(head_only->spec.find(Role::kHead, -1)->tied_to, Role::kEmbedding);

  const auto copy_of_table = [](std::vector<Tensor>& t, bool change) {
    Tensor head = *find(t, "model.embed_tokens.weight");
    head.desc.name = "lm_head.weight";
    if (change) head.bytes.back() ^= std::byte{1};
    t.push_back(std::move(head));
  };
  const auto equal = rewritten("llama_tied", [&](std::vector<Tensor>& t) { copy_of_table(t, false); });
  ASSERT_TRUE(equal) << equal.error().message;
  EXPECT_TRUE(equal->spec.tied_head);
  const auto differs = rewritten("llama_tied", [&](std::vector<Tensor>& t) { copy_of_table(t, true); });
  ASSERT_TRUE(differs) << differs.error().message;
  EXPECT_FALSE(differs->spec.tied_head);
  EXPECT_FALSE(differs->spec.find(Role::kHead, -1)->tied_to);
  EXPECT_EQ(differs->spec.notes.size(), 1u);
}

TEST(DiskNames, AMissingTensorIsNamed) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models");
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight",
                           "model.layers.2.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
    const auto d = rewritten("llama", [&](std::vector<Tensor>& t) { drop(t, name); });
    ASSERT_FALSE(d) << name;
    EXPECT_EQ(d.error().code, ErrorCode::kCorruptData);
    EXPECT_NE(d.error().message.find(quoted(name)), std::string::npos) << d.error().message;
  }
  const auto none = rewritten("llama", [](std::vector<Tensor>& t) { rename_prefix(t, "", "x_"); });
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("0 of 30 tensors are known"), std::string::npos) << none.error().message;
}

// What save_pretrained() writes where the hub has experts one by one, and the other way round.
TEST(DiskNames, ExpertsMayBeFusedOrApart) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models");
  const auto fused = rewritten("qwen3_moe_raw", [](std::vector<Tensor>& tensors) {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string base = "model.layers." + std::to_string(layer) + ".mlp.experts.";
      Tensor both{{base + "gate_up_proj", DType::kBF16, {6, 64, 80}, 0}, {}};
      Tensor down{{base + "down_proj", DType::kBF16, {6, 80, 32}, 0}, {}};
      for (int e = 0; e < 6; ++e) {
        const std::string one = base + std::to_string(e) + ".";
        for (const auto& [part, to] : {std::pair{"gate_proj", &both}, {"up_proj", &both}, {"down_proj", &down}}) {
          const Tensor* t = find(tensors, one + part + ".weight");
          ASSERT_NE(t, nullptr);
          to->bytes.insert(to->bytes.end(), t->bytes.begin(), t->bytes.end());
          drop(tensors, one + part + ".weight");
        }
      }
      tensors.push_back(std::move(both));
      tensors.push_back(std::move(down));
    }
  });
  ASSERT_TRUE(fused) << fused.error().message;
  const TensorSpec* bank = fused->spec.find(Role::kExpertsGateUp, 1);
  ASSERT_EQ(bank->recipe.sources.size(), 1u);
  EXPECT_EQ(bank->recipe.sources[0].rows, 6 * 64);
  EXPECT_EQ(bank->rows, 64);
  EXPECT_EQ(bank->experts, 6);
}

}  // namespace
}  // namespace berth::arch
