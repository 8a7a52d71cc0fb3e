// tests/models/bit_matrix_test.cc — promise P4: one hash per model and mode, whatever the placement, threads, chunk,
// instruction set or batch neighbours. Emulated devices use other instruction sets than the cpu, so the matrix does not
// pass by construction; the last test shows that it can fail.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "berth/base/hash.h"
#include "berth/base/strings.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

std::vector<Placement> placements() {
  // Slow to fast, repeated: device k gets another instruction set than device k + 1 where this machine has more than
  // one.
  const std::vector<Isa> isas = available_isas();
  const auto isa = [&](size_t k) { return isas[k % isas.size()]; };
  const auto add = [](std::vector<Placement>& out, std::string name, std::vector<Isa> emulated, Isa cpu,
                      auto device_of) {
    Placement p;
    p.name = std::move(name);
    p.emulated = std::move(emulated);
    p.cpu_isa = cpu;
    p.device_of = device_of;
    out.push_back(std::move(p));
  };
  std::vector<Placement> out;
  for (const Isa i : isas) {
    Placement p = all_on_cpu(i);
    p.name = "cpu:" + std::string(isa_name(i));
    out.push_back(p);
  }
  add(out, "emu:0", {isa(0)}, isa(1), [](const sizing::Unit&, size_t, size_t) { return std::string("0"); });
  add(out, "emu:0+1", {isa(1), isa(2)}, isa(0),
      [](const sizing::Unit&, size_t index, size_t count) { return std::string(index * 2 < count ? "0" : "1"); });
  add(out, "alternating", {isa(2), isa(0)}, isa(1),
      [](const sizing::Unit& u, size_t, size_t) { return std::string(u.layer < 0 || u.layer % 2 == 0 ? "0" : "1"); });
  add(out, "attention/mlp apart", {isa(0), isa(2)}, isa(1), [](const sizing::Unit& u, size_t, size_t) {
    return std::string(u.kind == sizing::UnitKind::kAttention ? "0" : "1");
  });
  add(out, "embedding on cpu", {isa(2)}, isa(0), [](const sizing::Unit& u, size_t, size_t) {
    return std::string(u.kind == sizing::UnitKind::kTable || u.kind == sizing::UnitKind::kHead ? "cpu" : "0");
  });
  add(out, "experts and tables on cpu", {isa(1)}, isa(2), [](const sizing::Unit& u, size_t, size_t) {
    return std::string(u.kind == sizing::UnitKind::kTable || u.kind == sizing::UnitKind::kExpertBank ? "cpu" : "0");
  });
  // Stored on the cpu, brought to where it computes: everything to one device; every other unit to two; for a prompt
  // only, what computes on the cpu otherwise.
  const auto on_cpu = [](const sizing::Unit&, size_t, size_t) { return std::string("cpu"); };
  add(out, "all streamed", {isa(2)}, isa(0), on_cpu);
  out.back().computed_on = [](const sizing::Unit&, size_t, size_t) { return std::string("0"); };
  add(out, "partly streamed", {isa(0), isa(1)}, isa(2), [](const sizing::Unit& u, size_t index, size_t) {
    return std::string(u.kind == sizing::UnitKind::kExpertBank || index % 2 == 0 ? "cpu" : "0");
  });
  out.back().computed_on = [](const sizing::Unit&, size_t index, size_t) {
    return std::string(index % 2 == 1 ? "0" : "1");
  };
  add(out, "streamed for prompts", {isa(1)}, isa(0), [](const sizing::Unit& u, size_t index, size_t) {
    return std::string(u.kind == sizing::UnitKind::kAttention && index % 4 == 0 ? "0" : "cpu");
  });
  out.back().stream_prefill = true;
  // On the disk: computed on the cpu, on an accelerator, some of each with what is stored elsewhere, tables too.
  const auto on_disk = [](const sizing::Unit&, size_t, size_t) { return std::string("disk"); };
  add(out, "all on the disk", {}, isa(1), on_disk);
  out.back().computed_on = on_cpu;
  add(out, "disk to accelerator", {isa(0)}, isa(2), on_disk);
  out.back().computed_on = [](const sizing::Unit&, size_t, size_t) { return std::string("0"); };
  add(out, "partly on the disk", {isa(2)}, isa(1), [](const sizing::Unit& u, size_t index, size_t) {
    if (u.kind == sizing::UnitKind::kExpertBank) return std::string("disk");
    return std::string(index % 4 == 0 ? "0" : index % 4 == 1 ? "cpu" : "disk");
  });
  out.back().computed_on = [](const sizing::Unit&, size_t index, size_t) {
    return std::string(index % 2 == 0 ? "0" : "cpu");
  };
  return out;
}

struct Matrix {
  std::string folder;
  std::optional<quant::StoredFormat> quantize_to;
};

// Every row of `prompt` and of a few following tokens, hashed. `batched`: sequence 1 of two, whose neighbour has
// another text and length.
Result<std::string> logits_hash(model::Model& model, const std::vector<int32_t>& prompt, bool batched) {
  Hasher128 hash;
  const auto add = [&](size_t, int64_t, std::span<const float> row) {
    hash.add(row.data(), row.size_bytes());
    return Status();
  };
  const auto ignore = [](size_t, int64_t, std::span<const float>) { return Status(); };
  const int32_t own = batched ? 1 : 0;
  model.kv().set_length(0, 0);
  if (batched) {
    model.kv().set_length(1, 0);
    std::vector<int32_t> other(prompt.rbegin(), prompt.rend());
    other.resize(prompt.size() - 3);
    TRY_STATUS(model.prefill(0, other, model::LogitRows::kNone, ignore));
  }
  TRY_STATUS(model.prefill(own, prompt, model::LogitRows::kAll, add));
  for (int32_t step = 0; step < 4; ++step) {
    const int32_t token = prompt[static_cast<size_t>(step) * 3 + 1], neighbour = prompt[static_cast<size_t>(step)];
    std::vector<model::BatchItem> items;
    if (batched)
      items.push_back({.sequence = 0, .tokens = std::span(&neighbour, 1), .logits = model::LogitRows::kNone});
    items.push_back(
        {.sequence = own, .tokens = std::span(&token, 1), .prompt_length = static_cast<int64_t>(prompt.size())});
    TRY_STATUS(model.forward(items, add));
  }
  return hash.hex();
}

// From tests/data/model_hashes.txt; "" where it has no such row.
std::string pinned_hash(const Matrix& m, kernel::Numerics numerics) {
  auto text = read_file(BERTH_SOURCE_DIR "/tests/data/model_hashes.txt");
  if (!text) return "";
  const std::string to = m.quantize_to ? std::string(quant::codec_name(m.quantize_to->codec)) : "-";
  const std::string key = m.folder + " " + to + (numerics == kernel::Numerics::kExact ? " exact " : " int8 ");
  const size_t at = text->find("\n" + key);
  return at == std::string::npos ? "" : text->substr(at + 1 + key.size(), 32);
}

// Whether the fast mode computes anything of this model differently: its matrices are quantized.
bool has_int8_formats(const PlacedModel& placed) {
  return std::any_of(placed.storage.begin(), placed.storage.end(),
                     [](const sizing::TensorStorage& s) { return quant::codec_info(s.layout.format.codec).int8_mode; });
}

class BitMatrix : public ::testing::TestWithParam<Matrix> {};

TEST_P(BitMatrix, GivesOneHashForEveryPlacement) {
  const std::string path = shared_path(GetParam().folder);
  BERTH_NEEDS(path);
  const TemporaryFolder offload;  // written by the first placement that needs it, used by the others
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 43; ++i) prompt.push_back(5 + i * 17 % 89);
  for (const auto numerics : {kernel::Numerics::kExact, kernel::Numerics::kInt8}) {
    std::string first, first_name;
    int combinations = 0;
    for (const Placement& placement : placements()) {
      for (const int threads : {1, 2, 3}) {
        for (const int64_t chunk : {1, 7, 128}) {
          if (threads == 3 && chunk != 7) continue;
          // What moves weights does not depend on threads: fewer of those.
          if (placement.moves_weights() && (threads == 3 || (threads == 1) != (chunk == 7))) continue;
          RunOptions options;
          options.threads = threads;
          options.numerics = numerics;
          options.quantize_to = GetParam().quantize_to;
          options.offload_folder = offload.path();
          options.shape = {
              .ctx_size = 64, .batch = 2, .prefill_chunk = chunk, .logit_rows = 3, .kv_dtype = DType::kBF16};
          auto placed = place_model(path, placement, options);
          ASSERT_TRUE(placed) << placement.name << ": " << placed.error().message;
          if (numerics == kernel::Numerics::kInt8 && !has_int8_formats(**placed)) return;
          for (const bool batched : {false, true}) {
            auto hash = logits_hash(*(*placed)->model, prompt, batched);
            ASSERT_TRUE(hash) << hash.error().message;
            const std::string name = placement.name + ", " + std::to_string(threads) + " threads, chunk " +
                                     std::to_string(chunk) + (batched ? ", in a batch" : ", alone");
            if (first.empty()) first = *hash, first_name = name;
            EXPECT_EQ(*hash, first) << name << " against " << first_name;
            ++combinations;
          }
        }
      }
    }
    EXPECT_EQ(first, pinned_hash(GetParam(), numerics)) << "tests/data/model_hashes.txt";
    std::printf(
        "[ matrix   ] %-46s %-5s %s over %d combinations\n",
        (GetParam().folder + (GetParam().quantize_to ? " -> " + quant::format_text(*GetParam().quantize_to) : ""))
            .c_str(),
        numerics == kernel::Numerics::kExact ? "exact" : "int8", first.c_str(), combinations);
  }
}

std::vector<Matrix> matrices() {
  std::vector<Matrix> out;
  // Covered by another folder: the file is laid out otherwise, or one more of the same kind.
  const std::set<std::string> same = {"llama_bare_file", "llama_sharded", "llama_tied", "phi3_longrope_long",
                                      "qwen3_fp8"};
  for (const std::string& name : golden_models())
    if (!same.contains(name)) out.push_back({"golden/models/" + name, std::nullopt});
  out.push_back({"golden/models/llama_bf16", quant::StoredFormat{quant::Codec::kNF4, 64, false}});
  out.push_back({"golden/models/qwen3", quant::StoredFormat{quant::Codec::kNF4, 64, true}});
  out.push_back({"golden/models/mistral", quant::StoredFormat{quant::Codec::kFP4, 64, false}});
  out.push_back({"golden/models/gemma2", quant::StoredFormat{quant::Codec::kInt8Row, 0, false}});
  out.push_back({"golden/real_models/stories260k/checkpoint", std::nullopt});
  out.push_back({"golden/real_models/stories260k/stories260K-q8_0.gguf", std::nullopt});
  return out;
}

// How large the matrix is: rows of model (with storage format) and mode, each one hash.
TEST(BitMatrixCounts, AreOnTheFiguresPage) {
  auto text = read_file(BERTH_SOURCE_DIR "/tests/data/model_hashes.txt");
  ASSERT_TRUE(text) << text.error().message;
  size_t rows = 0;
  for (const std::string& line : split(*text, '\n')) rows += !line.empty() && line.front() != '#' ? 1 : 0;
  expect_on_figures_page("matrix", fmt::format("| models and formats | {} | rows (model, mode), one hash each | {} |",
                                               matrices().size(), rows));
}

INSTANTIATE_TEST_SUITE_P(All, BitMatrix, ::testing::ValuesIn(matrices()), [](const auto& i) {
  std::string n = i.param.folder.substr(i.param.folder.rfind('/') + 1) +
                  (i.param.quantize_to ? "_" + std::string(quant::codec_name(i.param.quantize_to->codec)) : "");
  for (char& c : n)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return n;
});

// What must change the hash does: another KV dtype, another mode (on formats to which it applies), other weights.
TEST(BitMatrixCanFail, OtherArithmeticGivesAnotherHash) {
  const std::string path = shared_path("golden/models/llama_bf16");
  BERTH_NEEDS(path);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 43; ++i) prompt.push_back(5 + i * 17 % 89);
  const auto hash_of = [&](DType kv, kernel::Numerics numerics, int32_t blocksize) {
    RunOptions options;
    options.numerics = numerics;
    options.quantize_to = quant::StoredFormat{quant::Codec::kNF4, blocksize, false};
    options.shape = {.ctx_size = 64, .batch = 2, .prefill_chunk = 16, .logit_rows = 3, .kv_dtype = kv};
    auto placed = place_model(path, all_on_cpu(), options);
    EXPECT_TRUE(placed);
    return *logits_hash(*(*placed)->model, prompt, false);
  };
  const std::string reference = hash_of(DType::kBF16, kernel::Numerics::kExact, 64);
  EXPECT_EQ(hash_of(DType::kBF16, kernel::Numerics::kExact, 64), reference);
  EXPECT_NE(hash_of(DType::kF32, kernel::Numerics::kExact, 64), reference);
  EXPECT_NE(hash_of(DType::kBF16, kernel::Numerics::kInt8, 64), reference);
  EXPECT_NE(hash_of(DType::kBF16, kernel::Numerics::kExact, 128), reference);
}

}  // namespace
}  // namespace berth::testing
