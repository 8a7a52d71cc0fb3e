// tests/models/e4b_test.cc — Gemma 4 E4B in 4 bit (docs/e4b.md): what the plan of the published listing promises at
// full size, and a small model of its kind that keeps those promises when it runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "berth/base/file.h"
#include "berth/engine/generation.h"
#include "berth/engine/skipped_parts.h"
#include "berth/engine/synth.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

using engine::Options;

constexpr const char* kTable = "model.language_model.embed_tokens_per_layer";
constexpr uint64_t kTableBytes = uint64_t{262144} * 42 * 256 * 2;
constexpr const char* kTableOnCpu = R"({"": 0, "model.language_model.embed_tokens_per_layer": "cpu"})";

class TempFolder {
 public:
  TempFolder() : path_(::testing::TempDir() + "berth-e4b-" + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A card of so many bytes beside 32 GiB of host memory, whatever this machine has.
Options in_4bit(const TempFolder& folder, uint64_t card, int64_t ctx) {
  const std::string machine = folder.at(std::to_string(card) + ".json");
  EXPECT_TRUE(write_file_atomically(
      machine,
      R"({"devices": [{"id": "emu:0", "kind": "emulated", "memory_bytes": )" + std::to_string(card) +
          R"(, "read_bytes_per_s": 9e11, "flops_per_s": 6e13, "link_bytes_per_s": 2.5e10, "link_latency_s": 1e-5},
                      {"id": "cpu", "kind": "cpu", "memory_bytes": 34359738368, "read_bytes_per_s": 4e10,
                       "flops_per_s": 5e11}]})"));
  Options o;
  o.load_in_4bit = true;
  o.machine = machine;
  o.ctx_size = ctx;
  o.threads = 2;
  return o;
}

plan::DeviceUse use_of(const engine::OpenedModel& opened, const Options& options, const char* device = "0") {
  const auto planned = engine::plan_model(opened, options);
  EXPECT_TRUE(planned) << planned.error().message;
  if (!planned || planned->plan.device(device) == nullptr) return {};
  return *planned->plan.device(device);
}

std::string device_of(const engine::OpenedModel& opened, const Options& options, std::string_view unit) {
  const auto planned = engine::plan_model(opened, options);
  if (planned)
    for (const plan::PlacedUnit& u : planned->plan.units)
      if (u.path == unit) return u.device;
  return planned ? "no such unit" : planned.error().message;
}

TEST(GemmaE4b, ThePublishedListingIsPlannedAsItsReportsWished) {
  const std::string config = shared_path("checkpoints/gemma-4-E4B-it/config.json");
  BERTH_NEEDS(config);
  const TempFolder folder;
  const Options host = in_4bit(folder, 16'000'000'000, 8704);
  const auto opened = engine::open_model(config, host, Log{});
  ASSERT_TRUE(opened) << opened.error().message;
  // The table goes to the host by itself.
  EXPECT_EQ(device_of(*opened, host, kTable), "cpu");
  const plan::DeviceUse card = use_of(*opened, host);
  EXPECT_LE(card.weights_bytes, 3'700'000'000u);
  EXPECT_LE(card.used(), 4'200'000'000u);  // the peak of a prompt of 8500 tokens
  Options all = host;
  all.device_map = "0";
  const plan::DeviceUse with_table = use_of(*opened, all);
  const uint64_t table = use_of(*opened, host, "cpu").weights_bytes;
  EXPECT_GE(table, kTableBytes);
  EXPECT_LE(table, kTableBytes + 64);
  EXPECT_EQ(with_table.weights_bytes, card.weights_bytes + table);
  // The towers as Transformers holds them: its 4 bit replaces their Linears too.
  uint64_t towers = 0, built = 0;
  for (const engine::SkippedPart& part : engine::skipped_parts(*opened)) {
    towers += part.transformers_bytes;
    built += part.built_bytes;
    std::printf("[ e4b      ] %-22s %11llu parameters, %11llu bytes in bf16, %11llu in Transformers\n",
                part.path.c_str(), static_cast<unsigned long long>(part.parameters),
                static_cast<unsigned long long>(part.built_bytes),
                static_cast<unsigned long long>(part.transformers_bytes));
  }
  EXPECT_EQ(built, 956'176'768u);
  EXPECT_LT(towers, built / 2);
  EXPECT_LE(card.weights_bytes + towers, 4'480'000'000u);
  EXPECT_LE(with_table.weights_bytes + towers, 10'110'000'000u);
  std::printf("[ e4b      ] resident: text %llu, with towers %llu, with the table on the card %llu\n",
              static_cast<unsigned long long>(card.weights_bytes),
              static_cast<unsigned long long>(card.weights_bytes + towers),
              static_cast<unsigned long long>(with_table.weights_bytes + towers));

  // Exactly as much as predicted is enough; one byte less is not, and says so.
  Options exact = in_4bit(folder, card.used(), 8704);
  exact.device_map = kTableOnCpu;
  EXPECT_EQ(use_of(*opened, exact).used(), card.used());
  Options less = in_4bit(folder, card.used() - 1, 8704);
  less.device_map = kTableOnCpu;
  const auto refused = engine::plan_model(*opened, less);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(refused.error().message.find("1 bytes are missing"), std::string::npos) << refused.error().message;

  // 32,000 tokens on 6 GB.
  const Options longer = in_4bit(folder, 6'000'000'000, 32000);
  EXPECT_EQ(device_of(*opened, longer, kTable), "cpu");
  EXPECT_LE(use_of(*opened, longer).used(), 6'000'000'000u);
  EXPECT_EQ(use_of(*opened, longer).weights_bytes, card.weights_bytes);
}

// E4B's kind of layers, with a table of 16.8 MB and all else much smaller.
constexpr const char* kSmall =
    R"({"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "bfloat16",
  "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 64, "global_head_dim": 128, "vocab_size": 4096, "vocab_size_per_layer_input": 16384,
  "hidden_size_per_layer_input": 64, "num_kv_shared_layers": 3, "use_double_wide_mlp": true, "sliding_window": 64,
  "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention",
                  "sliding_attention", "sliding_attention", "full_attention"],
  "final_logit_softcapping": 30.0, "max_position_embeddings": 4096})";

struct Ran {
  std::string logits_hash;
  std::vector<engine::MemoryRow> memory;
  std::vector<plan::DeviceUse> predicted;
};

Result<Ran> run(const std::string& model, const std::string& tokens, const Options& options) {
  TRY(auto opened, engine::open_model(model, options, Log{}));
  TRY(auto planned, engine::plan_model(opened, options));
  Ran out;
  out.predicted = planned.plan.devices;
  TRY(auto running, engine::load_model(opened, std::move(planned), options, Log{}));
  TRY(auto generator, engine::Generator::create(*running));
  engine::GenerationOptions generation;
  generation.prompt_tokens = tokens;
  generation.max_new_tokens = 3;
  generation.ignore_eos = true;
  TRY(const auto result, generator->answer(generation));
  out.logits_hash = result.logits_hash;
  out.memory = running->memory();
  return out;
}

TEST(GemmaE4b, ASmallOneKeepsThePlanWithItsTableOnTheHost) {
  const TempFolder folder;
  ASSERT_TRUE(write_file_atomically(folder.at("config.json"), kSmall));
  std::string ids = "[1";
  for (int i = 1; i < 600; ++i) ids += ", " + std::to_string(i * 7919 % 4096);
  ASSERT_TRUE(write_file_atomically(folder.at("tokens.json"), ids + "]"));
  Options make;
  make.load_in_4bit = true;
  const auto made = engine::synthesize(folder.at("config.json"), folder.at("model"), make, {}, Log{});
  ASSERT_TRUE(made) << made.error().message;

  constexpr uint64_t kSmallTable = uint64_t{16384} * 8 * 64 * 2;
  const auto options = [](const std::string& card, int64_t chunk) {
    Options o;
    o.emulate = "1x" + card;
    o.ctx_size = 640;
    o.prefill_chunk = chunk;
    o.threads = 2;
    return o;
  };
  for (const char* numerics : {"exact", "int8"}) {
    // Twelve MiB do not hold the table: it goes to the host, and the card never saw it.
    Options few = options("12MiB", 64);
    few.numerics = numerics;
    const auto first = run(folder.at("model"), folder.at("tokens.json"), few);
    ASSERT_TRUE(first) << first.error().message;
    ASSERT_EQ(first->memory.size(), 2u);
    const engine::MemoryRow& card = first->memory[0];
    const engine::MemoryRow& host = first->memory[1];
    EXPECT_EQ(card.device, "0");
    EXPECT_EQ(card.peak.measured, card.peak.predicted);
    EXPECT_LT(card.peak.measured, kSmallTable);
    EXPECT_EQ(host.weights.measured, kSmallTable + 64);  // with the packed form's tail

    // A card of that size exactly; all in one place; other chunks: the same bits.
    Options exact = options(std::to_string(card.peak.predicted), 64);
    exact.numerics = numerics;
    exact.device_map = R"({"": 0, "model.embed_tokens_per_layer": "cpu"})";
    const auto tight = run(folder.at("model"), folder.at("tokens.json"), exact);
    ASSERT_TRUE(tight) << tight.error().message;
    EXPECT_EQ(tight->memory[0].peak.measured, card.peak.measured);
    EXPECT_EQ(tight->logits_hash, first->logits_hash);
    Options one_less = exact;
    one_less.emulate = "1x" + std::to_string(card.peak.predicted - 1);
    const auto refused = run(folder.at("model"), folder.at("tokens.json"), one_less);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
    for (const int64_t chunk : {1, 100, 640}) {
      Options wide = options("1GiB", chunk);
      wide.numerics = numerics;
      wide.device_map = chunk == 100 ? "cpu" : "0";
      const auto other = run(folder.at("model"), folder.at("tokens.json"), wide);
      ASSERT_TRUE(other) << other.error().message;
      EXPECT_EQ(other->logits_hash, first->logits_hash) << chunk;
    }

    // The config alone gives the same numbers.
    few.load_in_4bit = true;
    const auto listed = engine::open_model(folder.at("config.json"), few, Log{});
    ASSERT_TRUE(listed) << listed.error().message;
    const auto planned = engine::plan_model(*listed, few);
    ASSERT_TRUE(planned) << planned.error().message;
    ASSERT_EQ(planned->plan.devices.size(), first->predicted.size());
    for (size_t d = 0; d < first->predicted.size(); ++d) {
      EXPECT_EQ(planned->plan.devices[d].weights_bytes, first->predicted[d].weights_bytes);
      EXPECT_EQ(planned->plan.devices[d].kv_bytes, first->predicted[d].kv_bytes);
      EXPECT_EQ(planned->plan.devices[d].workspace_bytes, first->predicted[d].workspace_bytes);
    }
  }
}

}  // namespace
}  // namespace berth::testing
