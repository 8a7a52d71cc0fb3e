// tests/models/mapped_test.cc — weights used from the mapped checkpoint: the same bits and the same counts as copied
// ones, on every golden checkpoint; and what happens when the file does not stay what it was.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "berth/base/file_mapping.h"
#include "berth/base/read_once.h"
#include "berth/engine/synth.h"
#include "berth/load/read_ahead.h"
#include "berth/load/unseen_weights.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<int32_t> kPrompt{5, 22, 39, 56, 73, 90, 11, 28, 45};

RunOptions run_options(bool map_files, kernel::Numerics numerics = kernel::Numerics::kExact) {
  RunOptions options;
  options.threads = 2;
  options.numerics = numerics;
  options.shape = {.ctx_size = 32, .batch = 1, .prefill_chunk = 5, .logit_rows = 5, .kv_dtype = DType::kF16};
  options.map_files = map_files;
  return options;
}

struct Ran {
  std::vector<float> logits;
  uint64_t weights = 0, mapped = 0, region = 0;
};

Result<Ran> run(const std::string& path, const RunOptions& options) {
  TRY(const auto placed, place_model(path, all_on_cpu(), options));
  Ran out;
  TRY(out.logits, all_logits(*placed->model, kPrompt));
  out.weights = placed->devices.cpu().arena().usage()[device::Tag::kWeights].used_bytes;
  out.mapped = placed->weights.mapped_bytes();
  EXPECT_EQ(placed->weights.unseen(), nullptr) << path;
  EXPECT_EQ(out.weights, placed->plan.device("cpu")->weights_bytes) << path;
  return out;
}

TEST(MappedWeights, GiveTheBitsOfCopiedOnes) {
  BERTH_NEEDS(shared_path("golden/models"));
  std::vector<std::string> paths;
  for (const std::string& name : golden_models()) paths.push_back(shared_path("golden/models/" + name));
  const std::string bnb = shared_path("golden/bitsandbytes/checkpoints");
  if (auto names = list_folder(bnb))
    for (const std::string& name : *names) paths.push_back(bnb + "/" + name);
  for (const char* name : {"f32", "q8_0"})
    paths.push_back(shared_path(std::string("golden/real_models/stories260k/stories260K-") + name + ".gguf"));
  int compared = 0, with_mapped = 0;
  uint64_t mapped = 0, total = 0;
  for (const std::string& path : paths) {
    if (!path_exists(path)) continue;
    for (const kernel::Numerics numerics : {kernel::Numerics::kExact, kernel::Numerics::kInt8}) {
      const auto copied = run(path, run_options(false, numerics));
      if (!copied) continue;  // not a model that runs: other tests say which
      const auto in_place = run(path, run_options(true, numerics));
      ASSERT_TRUE(in_place) << path << ": " << in_place.error().message;
      ASSERT_EQ(copied->logits.size(), in_place->logits.size());
      EXPECT_EQ(std::memcmp(copied->logits.data(), in_place->logits.data(), copied->logits.size() * sizeof(float)), 0)
          << path;
      EXPECT_EQ(copied->mapped, 0u);
      EXPECT_EQ(copied->weights, in_place->weights) << path;
      EXPECT_LE(in_place->mapped, in_place->weights) << path;
      RunOptions later = run_options(true, numerics);
      later.look_while_used = true;
      const auto unseen = run(path, later);
      ASSERT_TRUE(unseen) << path << ": " << unseen.error().message;
      EXPECT_EQ(std::memcmp(copied->logits.data(), unseen->logits.data(), copied->logits.size() * sizeof(float)), 0)
          << path;
      ++compared;
      with_mapped += in_place->mapped > 0;
      mapped += in_place->mapped;
      total += in_place->weights;
    }
  }
  std::printf("[ mapped   ] %d runs compared, %d with mapped weights, %llu of %llu bytes\n", compared, with_mapped,
              static_cast<unsigned long long>(mapped), static_cast<unsigned long long>(total));
  EXPECT_GT(compared, 100);
  EXPECT_GT(with_mapped, compared / 2);
}

// What is quantized on load is read through a mapping as well: rows in one run, interleaved heads, fused tensors.
TEST(MappedWeights, AreQuantizedToTheBitsOfCopiedOnes) {
  BERTH_NEEDS(shared_path("golden/models"));
  std::vector<std::string> paths;
  for (const std::string& name : golden_models()) paths.push_back(shared_path("golden/models/" + name));
  paths.push_back(shared_path("golden/real_models/stories260k/stories260K-f32.gguf"));
  int compared = 0;
  for (const std::string& path : paths) {
    for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kInt8Row}) {
      RunOptions options = run_options(false);
      options.quantize_to = quant::StoredFormat{codec, codec == quant::Codec::kNF4 ? 32 : 0};
      const auto copied = run(path, options);
      if (!copied) continue;  // quantized already, or not a model that runs
      options.map_files = true;
      const auto in_place = run(path, options);
      ASSERT_TRUE(in_place) << path << ": " << in_place.error().message;
      ASSERT_EQ(copied->logits.size(), in_place->logits.size());
      EXPECT_EQ(std::memcmp(copied->logits.data(), in_place->logits.data(), copied->logits.size() * sizeof(float)), 0)
          << path;
      EXPECT_EQ(copied->weights, in_place->weights) << path;
      ++compared;
    }
  }
  std::printf("[ mapped   ] %d quantized\n", compared);
  EXPECT_GT(compared, 20);
}

// A file that is not in the page cache is brought there: the same views, the same codes, the same bits. (Large enough
// that what the kernel reads ahead of the header is little of it.)
TEST(MappedWeights, OfAColdFileTheyAreTheSameBits) {
  const TemporaryFolder folder;
  const std::string config = folder.path() + "/config.json";
  ASSERT_TRUE(write_file_atomically(config, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
      "vocab_size": 512, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "num_hidden_layers": 4})"));
  for (const char* type : {"q8_0", "bf16"}) {
    const std::string path = folder.path() + "/" + type + ".gguf";
    const bool quantize = std::string(type) == "bf16";
    engine::SynthOptions gguf;
    gguf.gguf = type;
    const auto made = engine::synthesize(config, path, {}, gguf, {});
    ASSERT_TRUE(made) << made.error().message;
    const auto file = File::open(path);
    ASSERT_TRUE(file);
    RunOptions options = run_options(true);
    if (quantize) options.quantize_to = quant::StoredFormat{quant::Codec::kNF4, 64};
    const auto warm = run(path, options);
    ASSERT_TRUE(warm) << warm.error().message;
    ::fsync(file->descriptor());  // only then can its pages be dropped
    for (const bool map_files : {true, false}) {
      file->drop_cache(0, 0);
      if (!is_cold(*file)) GTEST_SKIP() << "this file system keeps its pages";
      options.map_files = map_files;
      const auto cold = run(path, options);
      ASSERT_TRUE(cold) << cold.error().message;
      EXPECT_EQ(cold->weights, warm->weights) << type;
      EXPECT_EQ(std::memcmp(cold->logits.data(), warm->logits.data(), warm->logits.size() * sizeof(float)), 0) << type;
      if (!map_files) continue;
      EXPECT_EQ(cold->mapped, warm->mapped) << type;
      EXPECT_FALSE(is_cold(*file)) << type << ": the next start should be a warm one";
    }
    if (!quantize) EXPECT_GT(warm->mapped, warm->weights / 2);
  }
}

// Files are brought in order, no further ahead of use than was said, and a load that ends early ends it too.
TEST(ReadAhead, BringsWhatIsWaitedForAndNotMuchMore) {
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  constexpr size_t kTensors = 16;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/weights";
  std::ofstream(path, std::ios::binary) << 'w';
  fs::resize_file(path, kTensors * kBytes);
  const auto file = File::open(path);
  ASSERT_TRUE(file);
  ::fsync(file->descriptor());
  file->drop_cache(0, 0);
  if (!is_cold(*file)) GTEST_SKIP() << "this file system keeps its pages";
  const auto mapping = FileMapping::create(*file);
  ASSERT_TRUE(mapping);
  std::vector<load::ReadAhead::Range> ranges;
  for (size_t t = 0; t < kTensors; ++t) ranges.push_back({t, mapping->get(), t * kBytes, kBytes});
  load::ReadAhead ahead(ranges, 3, kBytes);
  for (size_t t = 0; t < kTensors / 2; ++t) {
    ahead.wait_for(t);
    EXPECT_EQ(cached_bytes(*file, t * kBytes, kBytes), kBytes) << t;
    EXPECT_EQ(cached_bytes(*file, (kTensors - 2) * kBytes, kBytes), 0u) << t;
  }
}

// What is not a vector stays in a GGUF file of the llama kind: its heads are interleaved and its Q8_0 are blocks.
TEST(MappedWeights, GgufMatricesAreUsedWhereTheyAre) {
  for (const char* name : {"f32", "q8_0"}) {
    const std::string path = shared_path(std::string("golden/real_models/stories260k/stories260K-") + name + ".gguf");
    BERTH_NEEDS(path);
    const auto placed = place_model(path, all_on_cpu(), run_options(true));
    ASSERT_TRUE(placed) << placed.error().message;
    uint64_t matrices = 0, interleaved = 0;
    for (size_t t = 0; t < (*placed)->description.spec.tensors.size(); ++t) {
      const arch::TensorSpec& spec = (*placed)->description.spec.tensors[t];
      if (spec.kind == arch::TensorKind::kVector || spec.tied_to) continue;
      if ((*placed)->storage[t].layout.format.codec == quant::Codec::kF32 && std::string(name) == "q8_0") continue;
      matrices += (*placed)->storage[t].bytes;
      interleaved += (*placed)->weights.tensor(static_cast<int32_t>(t)).matrix.interleaved_rows > 0;
    }
    EXPECT_GE((*placed)->weights.mapped_bytes(), matrices) << name;
    EXPECT_EQ(interleaved, 2 * (*placed)->description.spec.layers.size()) << name;
  }
}

// FP8 codes are used where they are, their scales made beside them.
TEST(MappedWeights, Fp8MatricesAreUsedWhereTheyAre) {
  const std::string path = shared_path("golden/models/qwen3_fp8");
  BERTH_NEEDS(path);
  const auto placed = place_model(path, all_on_cpu(), run_options(true));
  ASSERT_TRUE(placed) << placed.error().message;
  uint64_t matrices = 0;
  for (size_t t = 0; t < (*placed)->description.spec.tensors.size(); ++t)
    if ((*placed)->description.spec.tensors[t].recipe.sources[0].storage == arch::SourceStorage::kFp8Block)
      matrices += (*placed)->storage[t].bytes;
  EXPECT_GT(matrices, 0u);
  EXPECT_GE((*placed)->weights.mapped_bytes(), matrices);
}

// What computes on an accelerator is streamed as planes: such weights are not left in blocks.
TEST(MappedWeights, StreamedWeightsAreTheSameBits) {
  const std::string path = shared_path("golden/real_models/stories260k/stories260K-q8_0.gguf");
  BERTH_NEEDS(path);
  Placement streamed = all_on_cpu();
  streamed.emulated = {best_isa()};
  streamed.computed_on = [](const sizing::Unit&, size_t, size_t) { return std::string("0"); };
  const auto here = run(path, run_options(true));
  ASSERT_TRUE(here);
  auto placed = place_model(path, streamed, run_options(true));
  ASSERT_TRUE(placed) << placed.error().message;
  const auto logits = all_logits(*(*placed)->model, kPrompt);
  ASSERT_TRUE(logits);
  EXPECT_EQ(std::memcmp(logits->data(), here->logits.data(), here->logits.size() * sizeof(float)), 0);
}

// A checkpoint with a NaN put where a test wants it.
class ANanInAFile : public ::testing::Test {
 protected:
  static constexpr const char* kLlama = R"("architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "torch_dtype": "bfloat16", "num_hidden_layers": 3)";

  void make(const std::string& config, const std::string& gguf, const engine::Options& options = {}) {
    std::filesystem::remove_all(path_);
    const std::string source = folder_.path() + "/config.json";
    path_ = folder_.path() + (gguf.empty() ? "/model" : "/model.gguf");
    std::filesystem::remove_all(path_);
    ASSERT_TRUE(write_file_atomically(source, "{" + config + "}"));
    engine::SynthOptions synth;
    synth.gguf = gguf;
    const auto made = engine::synthesize(source, path_, options, synth, {});
    ASSERT_TRUE(made) << made.error().message;
  }

  // Names of the file's tensors that contain `part`.
  std::vector<std::string> names(const std::string& part) const {
    const auto checkpoint = format::Checkpoint::open(path_, Log{});
    std::vector<std::string> out;
    if (!checkpoint) return out;
    for (const format::TensorEntry& entry : checkpoint->tensors())
      if (std::string(entry.name).find(part) != std::string::npos) out.emplace_back(entry.name);
    return out;
  }

  // Puts `bytes` at a byte of a tensor and returns what was there.
  std::string put(const std::string& name, uint64_t at, const std::string& bytes) const {
    const auto checkpoint = format::Checkpoint::open(path_, Log{});
    EXPECT_TRUE(checkpoint);
    const format::TensorEntry* const entry = checkpoint->find(name);
    EXPECT_NE(entry, nullptr) << name;
    std::fstream file(checkpoint->files()[entry->file].path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto offset = static_cast<std::streamoff>(entry->offset + at % (entry->size_bytes - bytes.size() + 1));
    std::string before(bytes.size(), '\0');
    file.seekg(offset).read(before.data(), static_cast<std::streamsize>(before.size()));
    file.seekp(offset).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good());
    return before;
  }

  Result<std::unique_ptr<PlacedModel>> place(RunOptions options) const {
    return place_model(path_, all_on_cpu(), options);
  }
  std::string load_error(const RunOptions& options) const {
    const auto placed = place(options);
    EXPECT_TRUE(placed || placed.error().code == ErrorCode::kCorruptData);
    return placed ? "" : placed.error().message;
  }

  // The same error whenever it is looked for: while loading, copying, or at the first use and each after it, before any
  // logits are given out.
  void expect_found(const std::string& name, kernel::Numerics numerics, const std::string& message) const {
    const std::string mapped = load_error(run_options(true, numerics));
    EXPECT_NE(mapped.find("loading tensor"), std::string::npos) << name << ": " << mapped;
    EXPECT_NE(mapped.find(message), std::string::npos) << name << ": " << mapped;
    EXPECT_EQ(load_error(run_options(false, numerics)), mapped) << name;
    RunOptions options = run_options(true, numerics);
    options.look_while_used = true;
    const auto placed = place(options);
    if (!placed) {  // what is not left to the first use
      EXPECT_EQ(placed.error().message, mapped) << name;
      return;
    }
    int given_out = 0;
    const auto count = [&](size_t, int64_t, std::span<const float>) {
      ++given_out;
      return Status();
    };
    model::Model& model = *(*placed)->model;
    EXPECT_TRUE(model.prefill(0, kPrompt, model::LogitRows::kNone, count)) << name;
    for (int again = 0; again < 2; ++again) {
      const auto status = model.prefill(0, kPrompt, model::LogitRows::kLast, count);
      ASSERT_FALSE(status) << name;
      EXPECT_EQ(status.error().code, ErrorCode::kCorruptData);
      EXPECT_EQ(status.error().message, mapped) << name;
    }
    EXPECT_EQ(given_out, 0) << name;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/none";
};

TEST_F(ANanInAFile, IsFoundWhereverItIsAndWheneverItIsLookedFor) {
  for (const bool tied : {false, true}) {
    make(std::string(kLlama) + R"(, "tie_word_embeddings": )" + (tied ? "true" : "false"), "bf16");
    int found = 0;
    for (const std::string& name : names("weight")) {
      if (name.find("norm") != std::string::npos || (!tied && name == "token_embd.weight")) continue;
      for (const uint64_t element : {0, 128 * 31 + 5, -1}) {
        const std::string before = put(name, 2 * element, "\xC0\x7F");
        expect_found(name, kernel::Numerics::kExact, "expected finite weights, found NaN at row ");
        put(name, 2 * element, before);
        ++found;
      }
    }
    EXPECT_EQ(found, 3 * (3 * 7 + 1));
    // Norms are vectors: copied.
    const std::string before = put("blk.1.attn_norm.weight", 4 * 17, std::string("\0\0\xC0\x7F", 4));
    RunOptions later = run_options(true);
    later.look_while_used = true;
    EXPECT_NE(load_error(later).find("NaN"), std::string::npos);
    put("blk.1.attn_norm.weight", 4 * 17, before);
    EXPECT_EQ(load_error(later), "");
  }
}

TEST_F(ANanInAFile, IsFoundInBlocksAndScales) {
  const std::string config = std::string(kLlama) + R"(, "tie_word_embeddings": false)";
  make(config, "q8_0");
  for (const char* const name : {"blk.0.attn_v.weight", "blk.2.ffn_down.weight", "output.weight"}) {
    const std::string before = put(name, 34 * 70, "\x01\xFE");
    for (const auto numerics : {kernel::Numerics::kExact, kernel::Numerics::kInt8})
      expect_found(name, numerics, "expected finite weights, found NaN at row ");
    put(name, 34 * 70, before);
  }
  for (const bool four : {true, false}) {
    for (const bool nested : {false, true}) {
      engine::Options options;
      options.load_in_4bit = four;
      options.load_in_8bit = !four;
      options.bnb_4bit_use_double_quant = nested;
      if (!four && nested) continue;
      make(config, "", options);
      for (const std::string& part : four ? nested ? std::vector<std::string>{"nested_absmax", "nested_quant_map"}
                                                   : std::vector<std::string>{".absmax"}
                                          : std::vector<std::string>{".SCB"}) {
        const std::vector<std::string> all = names(part);
        EXPECT_EQ(all.size(), 3u * 7) << part;
        for (const std::string& name : {all.front(), all.back()}) {
          const std::string before = put(name, 0, std::string("\0\0\xC0\x7F", 4));
          for (const auto numerics : {kernel::Numerics::kExact, kernel::Numerics::kInt8}) {
            RunOptions later = run_options(true, numerics);
            const std::string mapped = load_error(later);
            EXPECT_NE(mapped.find("expected finite values, found NaN at index 0"), std::string::npos) << mapped;
            later.look_while_used = true;
            const auto placed = place(later);
            const auto logits = placed ? all_logits(*(*placed)->model, kPrompt) : placed.error();
            ASSERT_FALSE(logits) << name;
            EXPECT_EQ(logits.error().message, mapped) << name;
            EXPECT_EQ(logits.error().code, ErrorCode::kCorruptData);
          }
          put(name, 0, before);
        }
      }
    }
  }
}

TEST_F(ANanInAFile, IsFoundInCodesOfFp8) {
  const std::string source = shared_path("golden/models/qwen3_fp8");
  BERTH_NEEDS(source);
  path_ = folder_.path() + "/fp8";
  fs::copy(source, path_);
  int found = 0;
  for (const std::string& name : names("proj.weight")) {
    if (name.ends_with("_inv")) continue;
    const std::string before = put(name, 1234, "\xFF");
    expect_found(name, kernel::Numerics::kExact, "expected finite weights, found NaN at row ");
    put(name, 1234, before);
    ++found;
  }
  EXPECT_GE(found, 7);
}

TEST_F(ANanInAFile, IsFoundWhileQuantizing) {
  make(std::string(kLlama) + R"(, "tie_word_embeddings": false)", "bf16");
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kInt8Row}) {
    RunOptions options = run_options(true);
    options.quantize_to = quant::StoredFormat{codec, codec == quant::Codec::kNF4 ? 64 : 0};
    options.look_while_used = true;
    const std::string before = put("blk.1.ffn_up.weight", 2 * (128 * 7 + 3), "\xC0\x7F");
    EXPECT_NE(load_error(options).find("NaN or an infinity (as stored or after the cast) at row 7, column 3"),
              std::string::npos);
    put("blk.1.ffn_up.weight", 2 * (128 * 7 + 3), before);
    EXPECT_EQ(load_error(options), "");
  }
}

// Experts that no token has chosen yet are a model's all the same.
TEST_F(ANanInAFile, IsFoundInExpertsThatAreNotChosen) {
  make(
      R"("architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "intermediate_size": 96,
      "moe_intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "num_hidden_layers": 2, "num_experts": 16, "num_experts_per_tok": 1,
      "decoder_sparse_step": 1, "norm_topk_prob": true, "mlp_only_layers": [])",
      "");
  const std::vector<std::string> experts = names(".experts.");
  ASSERT_GE(experts.size(), 2u);
  for (size_t i = 0; i < experts.size(); i += 7) {
    const std::string before = put(experts[i], 2 * 65, "\xC0\x7F");
    for (const bool map_files : {true, false}) {
      for (const bool look_while_used : {false, true}) {
        RunOptions options = run_options(map_files);
        options.look_while_used = look_while_used;
        const auto placed = place(options);
        const auto logits = placed ? all_logits(*(*placed)->model, {5}) : placed.error();
        ASSERT_FALSE(logits) << experts[i];
        EXPECT_NE(logits.error().message.find("expected finite weights, found NaN at row "), std::string::npos)
            << logits.error().message;
      }
    }
    put(experts[i], 2 * 65, before);
  }
}

// A table of which rows are gathered is not read to look for one: who gathers it gets an error, who does not, does not.
TEST_F(ANanInAFile, InATableIsAnErrorOfWhoGathersIt) {
  make(std::string(kLlama) + R"(, "tie_word_embeddings": false)", "bf16");
  const std::string before = put("token_embd.weight", 2 * (128 * 22 + 9), "\xC0\x7F");  // row 22: a token of the prompt
  EXPECT_NE(load_error(run_options(false)).find("found NaN at row 22, column 9"), std::string::npos);
  for (const bool look_while_used : {false, true}) {
    RunOptions options = run_options(true);
    options.look_while_used = look_while_used;
    const auto placed = place(options);
    ASSERT_TRUE(placed) << placed.error().message;
    EXPECT_TRUE(all_logits(*(*placed)->model, {5, 39}));
    (*placed)->model->kv().set_length(0, 0);
    const auto logits = all_logits(*(*placed)->model, kPrompt);
    ASSERT_FALSE(logits);
    EXPECT_EQ(logits.error().code, ErrorCode::kCorruptData);
  }
  put("token_embd.weight", 2 * (128 * 22 + 9), before);
}

// Products prove what they use: a pass without logits leaves what it did not need.
TEST_F(ANanInAFile, IsNotLookedForWhereProductsAreFinite) {
  make(std::string(kLlama) + R"(, "tie_word_embeddings": false)", "bf16");
  RunOptions options = run_options(true);
  options.look_while_used = true;
  const auto placed = place(options);
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_NE((*placed)->weights.unseen(), nullptr);
  EXPECT_EQ((*placed)->weights.unseen()->size(), 3u * 7 + 1);
  const auto ignore = [](size_t, int64_t, std::span<const float>) { return Status(); };
  ASSERT_TRUE((*placed)->model->prefill(0, kPrompt, model::LogitRows::kNone, ignore));
  ASSERT_NE((*placed)->weights.unseen(), nullptr);
  EXPECT_LE((*placed)->weights.unseen()->size(), 7u + 1) << "of the last layer, and the head";
  ASSERT_TRUE((*placed)->model->prefill(0, kPrompt, model::LogitRows::kLast, ignore));
  EXPECT_EQ((*placed)->weights.unseen(), nullptr);
}

TEST(UnseenWeights, AreSeenByRows) {
  load::UnseenWeights unseen;
  const quant::StoredFormat format = quant::stored_format(quant::Codec::kBF16);
  const auto layout = quant::packed_layout(format, 100, 32);
  ASSERT_TRUE(layout);
  std::vector<uint16_t> rows(100 * 32, 0x3F80);
  quant::PackedMatrix matrix{format, 100, 32, {}};
  matrix.planes[0] = reinterpret_cast<const std::byte*>(rows.data());
  ThreadPool pool(2);
  unseen.add(4, "four", matrix, *layout);
  unseen.add(2, "two", matrix, *layout);
  unseen.seen(3, 0, 100);
  unseen.seen(4, 90, 10);
  unseen.seen(4, 0, 40);
  unseen.seen(4, 60, 10);
  unseen.seen(4, 41, 49);
  EXPECT_EQ(unseen.size(), 2u);
  unseen.seen(4, 30, 11);
  EXPECT_EQ(unseen.size(), 1u);
  rows[32 * 50 + 3] = 0x7FC0;
  for (int again = 0; again < 2; ++again) {
    const Status status = unseen.look(pool);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, "loading tensor \"two\": expected finite weights, found NaN at row 50, column 3");
  }
  rows[32 * 50 + 3] = 0;
  EXPECT_TRUE(unseen.look(pool));
  EXPECT_TRUE(unseen.empty());
}

class AFileThatChanges : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = shared_path("golden/real_models/stories260k/stories260K-q8_0.gguf");
    BERTH_NEEDS(source);
    path_ = folder_.path() + "/model.gguf";
    fs::copy_file(source, path_);
  }
  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(AFileThatChanges, IsAnErrorBeforeLogitsAreSeen) {
  if (IsSkipped()) return;
  const auto placed = place_model(path_, all_on_cpu(), run_options(true));
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_GT((*placed)->weights.mapped_bytes(), 0u);
  ASSERT_TRUE(all_logits(*(*placed)->model, kPrompt));
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-64, std::ios::end);
    file.put('\x7e');
  }
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::seconds(2));
  (*placed)->model->kv().set_length(0, 0);
  const auto after = all_logits(*(*placed)->model, kPrompt);
  ASSERT_FALSE(after);
  EXPECT_EQ(after.error().code, ErrorCode::kIo);
  EXPECT_NE(after.error().message.find("model.gguf"), std::string::npos) << after.error().message;
}

// Cut between two tensors of a load that quantizes: what is read through a mapping ends the process by the file's name,
// whether the pages come from the page cache or by threads that read ahead; what is read by calls is an error.
class AFileCutWhileItIsQuantized : public ::testing::TestWithParam<bool> {};

TEST_P(AFileCutWhileItIsQuantized, IsToldByName) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const bool cold = GetParam();
  const TemporaryFolder folder;
  const std::string config = folder.path() + "/config.json", path = folder.path() + "/model.gguf";
  ASSERT_TRUE(write_file_atomically(config, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
      "vocab_size": 512, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "hidden_act": "silu",
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "num_hidden_layers": 2})"));
  engine::SynthOptions gguf;
  gguf.gguf = "bf16";
  const auto made = engine::synthesize(config, path, {}, gguf, {});
  ASSERT_TRUE(made) << made.error().message;
  if (cold) {
    const auto file = File::open(path);
    ASSERT_TRUE(file);
    ::fsync(file->descriptor());
    file->drop_cache(0, 0);
    if (!is_cold(*file)) GTEST_SKIP() << "this file system keeps its pages";
  }
  const uint64_t whole = fs::file_size(path);
  int calls = 0;
  RunOptions options = run_options(true);
  options.quantize_to = quant::StoredFormat{quant::Codec::kNF4, 64};
  options.log.on_progress = [&](std::string_view, uint64_t, uint64_t) {
    if (calls++ == 0) fs::resize_file(path, 4096);
    return true;
  };
  EXPECT_EXIT(
      {
        exit_on_mapping_fault();
        (void)place_model(path, all_on_cpu(), options);
        std::_Exit(99);
      },
      ::testing::ExitedWithCode(exit_status(ErrorCode::kIo)), "berth: io: .*model.gguf.*cut short");

  // Each threadsafe death test runs in a process that made its own file; in this one the file is still whole.
  ASSERT_EQ(fs::file_size(path), whole);
  ASSERT_EQ(calls, 0);
  options.map_files = false;
  const auto copied = place_model(path, all_on_cpu(), options);
  EXPECT_GE(calls, 1);
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, ErrorCode::kIo);
  EXPECT_NE(copied.error().message.find("model.gguf"), std::string::npos) << copied.error().message;
}
INSTANTIATE_TEST_SUITE_P(Mapped, AFileCutWhileItIsQuantized, ::testing::Values(false, true),
                         [](const auto& i) { return std::string(i.param ? "Cold" : "Warm"); });

TEST_F(AFileThatChanges, DoesNotMatterOnceCopied) {
  if (IsSkipped()) return;
  const auto placed = place_model(path_, all_on_cpu(), run_options(false));
  ASSERT_TRUE(placed) << placed.error().message;
  fs::resize_file(path_, 4096);
  EXPECT_TRUE(all_logits(*(*placed)->model, kPrompt));
}

TEST_F(AFileThatChanges, EndsTheProcessByNameWhenCut) {
  if (IsSkipped()) return;
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        RunOptions options = run_options(true);
        options.threads = 1;
        const auto placed = place_model(path_, all_on_cpu(), options);
        exit_on_mapping_fault();
        fs::resize_file(path_, 4096);
        if (placed) (void)all_logits(*(*placed)->model, kPrompt);
        std::_Exit(99);
      },
      ::testing::ExitedWithCode(exit_status(ErrorCode::kIo)), "berth: io: .*model.gguf.*cut short");
}

}  // namespace
}  // namespace berth::testing
