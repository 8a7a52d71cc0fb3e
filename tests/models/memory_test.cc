// tests/models/memory_test.cc — promise P3: what was predicted is what is allocated, to the byte, and a device one byte smaller
// than the prediction is refused before a weight is read.
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "berth/engine/running.h"
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
  p.device_of = [](const sizing::Unit&, size_t index, size_t count) { return std::string(index * 3 < count ? "0" : "1"); };
  return p;
}

RunOptions run_options(const Case& c) {
  RunOptions options;
  options.numerics = c.numerics;
  options.quantize_to = c.quantize_to;
  options.threads = 2;
  options.shape = {.ctx_size = 96, .batch = 2, .prefill_chunk = 32, .logit_rows = 2, .kv_dtype = DType::kF16};
  return options;
}

class PredictedMemory : public ::testing::TestWithParam<Case> {};

TEST_P(PredictedMemory, IsAllocatedToTheByteAndNeverExceeded) {
  const char* models = std::getenv("BERTH_MODELS");
  const bool shared = GetParam().path.starts_with("golden/");
  const std::string path = shared ? shared_path(GetParam().path) : std::string(models == nullptr ? "" : models) + "/" + GetParam().path;
  BERTH_NEEDS(path);
  Placement placement = two_devices();
  auto placed = place_model(path, placement, run_options(GetParam()));
  ASSERT_TRUE(placed) << placed.error().message;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 60; ++i) prompt.push_back(4 + i % 70);
  ASSERT_TRUE((*placed)->model->prefill(0, prompt, model::LogitRows::kLast, [](size_t, int64_t, std::span<const float>) { return Status(); }));
  for (const char* id : {"0", "1"}) {
    const plan::DeviceUse* use = (*placed)->plan.device(id);
    ASSERT_NE(use, nullptr);
    const device::ArenaUsage usage = (*placed)->devices.find(id)->arena().usage();
    EXPECT_EQ(usage[device::Tag::kWeights].used_bytes, use->weights_bytes);
    EXPECT_EQ(usage[device::Tag::kKv].used_bytes, use->kv_bytes);
    EXPECT_EQ(usage[device::Tag::kWorkspace].used_bytes, use->workspace_bytes);
    EXPECT_EQ(usage.total.peak_bytes, use->used());
    std::printf("[ memory   ] %-26s device %s  weights %10llu  KV %8llu  workspace %9llu  peak %10llu = predicted %10llu\n",
                GetParam().name.c_str(), id, static_cast<unsigned long long>(usage[device::Tag::kWeights].used_bytes),
                static_cast<unsigned long long>(usage[device::Tag::kKv].used_bytes),
                static_cast<unsigned long long>(usage[device::Tag::kWorkspace].used_bytes),
                static_cast<unsigned long long>(usage.total.peak_bytes), static_cast<unsigned long long>(use->used()));
    placement.emulated_bytes.push_back(use->used());
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

INSTANTIATE_TEST_SUITE_P(
    All, PredictedMemory,
    ::testing::Values(Case{"llama", "golden/models/llama", std::nullopt},
                      Case{"phi", "golden/models/phi", std::nullopt},
                      Case{"opt_350m", "golden/models/opt_350m", std::nullopt},
                      Case{"gpt_oss", "golden/models/gpt_oss", std::nullopt},
                      Case{"deepseek_v3", "golden/models/deepseek_v3", std::nullopt},
                      Case{"minimax_m3", "golden/models/minimax_m3", std::nullopt},
                      Case{"qwen3_next", "golden/models/qwen3_next", std::nullopt},
                      Case{"gemma4_e2b", "golden/models/gemma4_e2b", std::nullopt},
                      Case{"gemma4_26b_a4b", "golden/models/gemma4_26b_a4b", std::nullopt},
                      Case{"gemma3n_text", "golden/models/gemma3n_text", std::nullopt},
                      Case{"gemma3_text", "golden/models/gemma3_text", std::nullopt},
                      Case{"qwen3 nf4 nested", "golden/models/qwen3", quant::StoredFormat{quant::Codec::kNF4, 64, true}},
                      Case{"mistral int8", "golden/models/mistral", quant::StoredFormat{quant::Codec::kInt8Row, 0, false}, kernel::Numerics::kInt8},
                      Case{"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", std::nullopt, kernel::Numerics::kInt8},
                      Case{"smollm2 nf4", "SmolLM2-135M-Instruct.Q4_1.gguf", quant::StoredFormat{quant::Codec::kNF4, 64, false}},
                      Case{"gemma3-270m", "gemma-3-270m-q4_k_m.gguf", std::nullopt}),
    [](const auto& i) {
      std::string n = i.param.name;
      for (char& c : n)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      return n;
    });

}  // namespace
}  // namespace berth::testing
