// tests/models/memory_test.cc — promise P3: what was predicted is what is allocated, to the byte, and a device one byte
// smaller than the prediction is refused before a weight is read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "berth/base/bytes.h"
#include "berth/engine/load_rates.h"
#include "berth/engine/running.h"
#include "berth/engine/synth.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

struct Case {
  std::string name, path;
  std::optional<quant::StoredFormat> quantize_to;
  kernel::Numerics numerics = kernel::Numerics::kExact;
};

Placement two_devices() {
  Placement p;
  p.name = "two devices";
  p.emulated = {best_isa(), best_isa()};
  p.device_of = [](const sizing::Unit&, size_t index, size_t count) {
    return std::string(index * 3 < count ? "0" : "1");
  };
  return p;
}

RunOptions run_options(const Case& c) {
  RunOptions options;
  options.numerics = c.numerics;
  options.quantize_to = c.quantize_to;
  options.threads = 2;
  options.shape = {
      .ctx_size = 96, .batch = 2, .prefill_chunk = 32, .logit_rows = 2, .wanted_rows = 2, .kv_dtype = DType::kF16};
  return options;
}

// How far a run reached into its workspace: where the last byte is that is no longer what the test had put there.
constexpr std::byte kUntouched{0xA5};
uint64_t touched_bytes(std::span<const std::byte> workspace) {
  uint64_t n = workspace.size();
  while (n > 0 && workspace[n - 1] == kUntouched) --n;
  return n;
}

class PredictedMemory : public ::testing::TestWithParam<Case> {};

TEST_P(PredictedMemory, IsAllocatedToTheByteAndNeverExceeded) {
  const char* models = std::getenv("BERTH_MODELS");
  const bool shared = GetParam().path.starts_with("golden/");
  const std::string path =
      shared ? shared_path(GetParam().path) : std::string(models == nullptr ? "" : models) + "/" + GetParam().path;
  BERTH_NEEDS(path);
  Placement placement = two_devices();
  auto placed = place_model(path, placement, run_options(GetParam()));
  ASSERT_TRUE(placed) << placed.error().message;
  for (const char* id : {"0", "1"})
    std::ranges::fill((*placed)->model->workspace(*(*placed)->devices.find(id)), kUntouched);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 60; ++i) prompt.push_back(4 + i % 70);
  ASSERT_TRUE((*placed)->model->prefill(0, prompt, model::LogitRows::kLast,
                                        [](size_t, int64_t, std::span<const float>) { return Status(); }));
  for (const char* id : {"0", "1"}) {
    const plan::DeviceUse* use = (*placed)->plan.device(id);
    ASSERT_NE(use, nullptr);
    const device::ArenaUsage usage = (*placed)->devices.find(id)->arena().usage();
    EXPECT_EQ(usage[device::Tag::kWeights].used_bytes, use->weights_bytes);
    EXPECT_EQ(usage[device::Tag::kKv].used_bytes, use->kv_bytes);
    EXPECT_EQ(usage[device::Tag::kWorkspace].used_bytes, use->workspace_bytes);
    EXPECT_EQ(usage.total.peak_bytes, use->used());
    const uint64_t touched = touched_bytes((*placed)->model->workspace(*(*placed)->devices.find(id)));
    EXPECT_GT(touched, 0u);
    std::printf(
        "[ memory   ] %-20s device %s  weights %10llu  KV %8llu  workspace predicted %9llu measured %9llu touched %9llu"
        "  peak %10llu = predicted %10llu\n",
        GetParam().name.c_str(), id, static_cast<unsigned long long>(usage[device::Tag::kWeights].used_bytes),
        static_cast<unsigned long long>(usage[device::Tag::kKv].used_bytes),
        static_cast<unsigned long long>(use->workspace_bytes),
        static_cast<unsigned long long>(usage[device::Tag::kWorkspace].used_bytes),
        static_cast<unsigned long long>(touched), static_cast<unsigned long long>(usage.total.peak_bytes),
        static_cast<unsigned long long>(use->used()));
    placement.emulated_bytes.push_back(use->used());
    const auto digits = [](uint64_t n) { return group_digits(n); };
    expect_on_figures_page(
        "memory", fmt::format("| {} | {} | {} | {} | {} | {} | {} |", GetParam().name, id,
                              digits(usage[device::Tag::kWeights].used_bytes),
                              digits(usage[device::Tag::kKv].used_bytes), digits(use->workspace_bytes),
                              digits(usage[device::Tag::kWorkspace].used_bytes), digits(usage.total.peak_bytes)));
  }
  EXPECT_TRUE(place_model(path, placement, run_options(GetParam()))) << "exactly as much memory as predicted";
  for (size_t d = 0; d < 2; ++d) {
    Placement less = placement;
    --less.emulated_bytes[d];
    auto refused = place_model(path, less, run_options(GetParam()));
    ASSERT_FALSE(refused) << "one byte less on device " << d;
    EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit) << refused.error().message;
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& name : golden_models()) out.push_back({name, "golden/models/" + name, std::nullopt});
  const quant::StoredFormat nested{quant::Codec::kNF4, 64, true}, nf4{quant::Codec::kNF4, 64, false},
      int8{quant::Codec::kInt8Row, 0, false};
  out.push_back({"qwen3 nf4 nested", "golden/models/qwen3", nested});
  out.push_back({"mistral int8", "golden/models/mistral", int8, kernel::Numerics::kInt8});
  out.push_back({"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", std::nullopt, kernel::Numerics::kInt8});
  out.push_back({"smollm2 nf4", "SmolLM2-135M-Instruct.Q4_1.gguf", nf4});
  out.push_back({"gemma3-270m", "gemma-3-270m-q4_k_m.gguf", std::nullopt});
  return out;
}

// Quantizing on load takes a little memory per thread beside the weights, however large the model is (docs/loading.md).
TEST(LoadingMemory, DoesNotGrowWithTheModel) {
  constexpr uint64_t kBound = uint64_t{32} << 20;
  const TemporaryFolder folder;
  uint64_t sizes[2] = {};
  for (const int layers : {1, 12}) {
    const std::string config = folder.path() + "/config.json", model = folder.path() + "/" + std::to_string(layers);
    ASSERT_TRUE(write_file_atomically(
        config, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
        "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 512,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "num_hidden_layers": )" +
                    std::to_string(layers) + "}"));
    const auto made = engine::synthesize(config, model, {}, {}, {});
    ASSERT_TRUE(made) << made.error().message;
    engine::Options options;
    options.load_in_4bit = options.bnb_4bit_use_double_quant = true;
    options.threads = 2;
    options.ctx_size = 32;
    options.prefill_chunk = 32;
    const auto rows = engine::load_bench(model, options, {.repeats = 1, .cold = false}, {});
    ASSERT_TRUE(rows) << rows.error().message;
    const auto load = std::find_if(rows->begin(), rows->end(), [](const auto& r) { return r.what == "load"; });
    ASSERT_NE(load, rows->end());
    std::printf("[ memory   ] %2d layers: %llu bytes quantized to %llu, %llu beyond them\n", layers,
                static_cast<unsigned long long>(load->quantized_bytes),
                static_cast<unsigned long long>(load->weights_bytes),
                static_cast<unsigned long long>(load->beyond_weights_bytes));
    EXPECT_LT(load->beyond_weights_bytes, kBound);
    EXPECT_GT(load->gb_per_s, 0);
    EXPECT_GT(load->share, 0);
    sizes[layers > 1] = load->quantized_bytes;
  }
  EXPECT_GT(sizes[1], 6 * kBound);  // a copy of the file, or of all weights wide, would be seen
  EXPECT_EQ(sizes[1], 12 * sizes[0]);
}

INSTANTIATE_TEST_SUITE_P(All, PredictedMemory, ::testing::ValuesIn(cases()), [](const auto& i) {
  std::string n = i.param.name;
  for (char& c : n)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return n;
});

}  // namespace
}  // namespace berth::testing
