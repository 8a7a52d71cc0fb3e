// tests/models/tiers_test.cc — weights away from where they compute: what one decode step moves is what was predicted,
// and what goes wrong with files on the disk is an error that says so and leaves nothing corrupt behind.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "berth/load/weight_stream.h"
#include "berth/plan/traffic.h"
#include "berth/quant/row_slice.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

namespace fs = std::filesystem;
using sizing::Unit;
using sizing::UnitKind;

std::string on_cpu(const Unit&, size_t, size_t) { return "cpu"; }
std::string on_disk(const Unit&, size_t, size_t) { return "disk"; }
std::string on_0(const Unit&, size_t, size_t) { return "0"; }

Placement placed_as(std::string name, size_t accelerators, Placement::DeviceOf device_of,
                    Placement::DeviceOf computed_on = {}) {
  Placement p;
  p.name = std::move(name);
  p.emulated.assign(accelerators, best_isa());
  p.device_of = std::move(device_of);
  p.computed_on = std::move(computed_on);
  return p;
}

std::vector<Placement> access_modes() {
  std::vector<Placement> out;
  out.push_back(placed_as("computed where stored", 2,
                          [](const Unit&, size_t i, size_t n) { return std::string(2 * i < n ? "0" : "1"); }));
  out.push_back(placed_as("tables gathered from the cpu", 1, [](const Unit& u, size_t, size_t) {
    return std::string(u.kind == UnitKind::kTable ? "cpu" : "0");
  }));
  out.push_back(placed_as("experts computed on the cpu", 1, [](const Unit& u, size_t, size_t) {
    return std::string(u.kind == UnitKind::kExpertBank ? "cpu" : "0");
  }));
  out.push_back(placed_as("all streamed from the cpu", 1, on_cpu, on_0));
  out.push_back(placed_as(
      "every other unit streamed", 2,
      [](const Unit&, size_t i, size_t) { return std::string(i % 2 == 0 ? "cpu" : "0"); },
      [](const Unit&, size_t i, size_t) { return std::string(i % 2 == 0 ? "1" : "0"); }));
  out.push_back(placed_as("all read from the disk", 0, on_disk));
  out.push_back(placed_as("disk to accelerator", 1, on_disk, on_0));
  out.push_back(placed_as("experts and tables on the disk", 1, [](const Unit& u, size_t, size_t) {
    return std::string(u.kind == UnitKind::kExpertBank || u.kind == UnitKind::kTable ? "disk" : "0");
  }));
  return out;
}

RunOptions run_options() {
  RunOptions options;
  options.threads = 2;
  options.shape = {.ctx_size = 64, .batch = 1, .prefill_chunk = 16, .logit_rows = 1, .kv_dtype = DType::kBF16};
  return options;
}

const std::vector<int32_t> kPrompt{5, 22, 39, 56, 73, 90, 11, 28, 45};

const auto ignore = [](size_t, int64_t, std::span<const float>) { return Status(); };

Status decode(model::Model& model, std::vector<float>* logits = nullptr) {
  const int32_t token = 17;
  const model::BatchItem item{.sequence = 0, .tokens = std::span(&token, 1)};
  return model.forward(std::span(&item, 1), [&](size_t, int64_t, std::span<const float> row) {
    if (logits != nullptr) logits->assign(row.begin(), row.end());
    return Status();
  });
}

class MovedBytes : public ::testing::TestWithParam<const char*> {};

TEST_P(MovedBytes, OfOneDecodeStepAreThePredictedOnes) {
  const std::string path = shared_path(std::string("golden/models/") + GetParam());
  BERTH_NEEDS(path);
  const TemporaryFolder offload;
  for (const Placement& placement : access_modes()) {
    RunOptions options = run_options();
    options.offload_folder = offload.path();
    auto placed = place_model(path, placement, options);
    ASSERT_TRUE(placed) << placement.name << ": " << placed.error().message;
    PlacedModel& m = **placed;
    ASSERT_TRUE(m.model->prefill(0, kPrompt, model::LogitRows::kLast, ignore));
    m.devices.reset_traffic();
    ASSERT_TRUE(decode(*m.model));  // knows the order of use from the prompt: nothing is brought in vain
    std::vector<plan::WayTraffic> counted;
    for (const device::LinkTraffic& t : m.devices.traffic())
      if (t.from != t.to) counted.push_back({t.from, t.to, std::string(device::cargo_name(t.cargo)), t.bytes});
    const auto order = [](const plan::WayTraffic& a, const plan::WayTraffic& b) {
      return std::tie(a.from, a.to, a.cargo) < std::tie(b.from, b.to, b.cargo);
    };
    std::sort(counted.begin(), counted.end(), order);
    const auto predicted = plan::decode_traffic(m.description.spec, m.storage, m.units, m.plan);
    const auto text = [](const std::vector<plan::WayTraffic>& ways) {
      std::string out;
      for (const auto& w : ways) out += w.from + ">" + w.to + " " + w.cargo + " " + std::to_string(w.bytes) + "  ";
      return out;
    };
    EXPECT_EQ(text(counted), text(predicted)) << placement.name;
    std::string cells;
    for (const auto& w : counted)
      cells += (cells.empty() ? "" : "; ") + w.from + " > " + w.to + " " + w.cargo + " " + std::to_string(w.bytes);
    expect_on_figures_page("moved", "| " + std::string(GetParam()) + " | " + placement.name + " | " +
                                        (cells.empty() ? "nothing" : cells) + " |");
  }
}

TEST_P(MovedBytes, NeedTheMemoryThatWasPredicted) {
  const std::string path = shared_path(std::string("golden/models/") + GetParam());
  BERTH_NEEDS(path);
  const TemporaryFolder offload;
  std::vector<Placement> placements = access_modes();
  placements.push_back(placements[2]);
  placements.back().name = "experts streamed for prompts";
  placements.back().stream_prefill = true;
  for (Placement& placement : placements) {
    RunOptions options = run_options();
    options.offload_folder = offload.path();
    auto placed = place_model(path, placement, options);
    ASSERT_TRUE(placed) << placement.name << ": " << placed.error().message;
    PlacedModel& m = **placed;
    ASSERT_TRUE(m.model->prefill(0, kPrompt, model::LogitRows::kLast, ignore));
    ASSERT_TRUE(decode(*m.model));
    for (const auto& d : m.devices.devices()) {
      const plan::DeviceUse* use = m.plan.device(d->map_name());
      ASSERT_NE(use, nullptr) << d->map_name();
      const device::ArenaUsage usage = d->arena().usage();
      const std::string where = placement.name + " on " + d->map_name();
      EXPECT_EQ(usage[device::Tag::kWeights].peak_bytes, use->weights_bytes) << where;
      EXPECT_EQ(usage[device::Tag::kKv].peak_bytes, use->kv_bytes) << where;
      EXPECT_EQ(usage[device::Tag::kWorkspace].peak_bytes, use->workspace_bytes) << where;
      EXPECT_EQ(usage[device::Tag::kStaging].peak_bytes, use->staging_bytes) << where;
      const uint64_t sum = use->weights_bytes + use->kv_bytes + use->workspace_bytes + use->staging_bytes;
      EXPECT_EQ(usage.total.peak_bytes, sum) << where;
      if (d->kind() == machine::DeviceKind::kEmulated) placement.emulated_bytes.push_back(sum);
    }
    if (const plan::DeviceUse* disk = m.plan.device("disk")) {
      EXPECT_EQ(m.weights.offloaded_bytes(), disk->weights_bytes) << placement.name;
    }
    EXPECT_TRUE(place_model(path, placement, options)) << placement.name << ": exactly as much memory as predicted";
    // What a prompt alone would need goes only where it fits; everything else is refused on a byte less.
    if (placement.stream_prefill) continue;
    for (size_t d = 0; d < placement.emulated_bytes.size(); ++d) {
      Placement less = placement;
      --less.emulated_bytes[d];
      auto refused = place_model(path, less, options);
      ASSERT_FALSE(refused) << placement.name << ": one byte less on device " << d;
      EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit) << refused.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MovedBytes,
                         ::testing::Values("llama", "qwen3_moe", "gpt_oss", "gpt_oss_mxfp4", "deepseek_v3",
                                           "gemma4_e2b", "gemma3n_text", "gpt2", "qwen3_next"),
                         [](const auto& i) { return std::string(i.param); });

// The stream alone, used in ways that no forward pass does: another order every time, pieces not asked for, passes
// abandoned. What it gives is always what is stored.
TEST(WeightStreams, GiveWhatIsStoredInAnyOrderOfUse) {
  for (const char* name : {"llama", "qwen3_moe", "gpt_oss_mxfp4"}) {
    const std::string path = shared_path(std::string("golden/models/") + name);
    BERTH_NEEDS(path);
    auto placed = place_model(path, placed_as("cpu", 1, on_cpu), run_options());
    ASSERT_TRUE(placed) << placed.error().message;
    PlacedModel& m = **placed;
    load::StreamParts parts;
    parts.weights = &m.weights;
    parts.devices = &m.devices;
    parts.tensor_count = m.description.spec.tensors.size();
    uint64_t staging = 0;
    std::vector<load::StreamStage> stages;
    const auto is = [&](int32_t t, arch::TensorKind kind) {
      return m.description.spec.tensors[static_cast<size_t>(t)].kind == kind;
    };
    for (int32_t u = 0; u < m.units.chain_size; ++u) {
      const sizing::Unit& unit = m.units.units[static_cast<size_t>(u)];
      staging = std::max(staging, 2 * unit.grain_bytes);
      load::StreamStage stage{.unit = u, .on = m.devices.find("0"), .opens = true, .closes = true};
      stage.routed = unit.kind == UnitKind::kExpertBank;
      for (const int32_t t : unit.tensors)
        if (is(t, arch::TensorKind::kVector)) stage.vectors.push_back(t);
      stages.push_back(std::move(stage));
    }
    parts.modes = {stages, {stages.rbegin(), stages.rend()}};
    parts.pools = {{m.devices.find("0"), staging}};
    auto stream = load::WeightStream::create(std::move(parts));
    ASSERT_TRUE(stream) << stream.error().message;
    uint64_t seed = 1;
    const auto random = [&](uint64_t below) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      return (seed >> 33) % below;
    };
    int pieces = 0;
    for (int pass = 0; pass < 120; ++pass) {
      const size_t mode = random(2), count = 1 + random(stages.size());
      const bool same_order = pass % 3 != 0;
      (*stream)->start(mode, count);
      for (size_t i = 0; i < count; ++i) {
        const load::StreamStage& stage = mode == 0 ? stages[i] : stages[stages.size() - 1 - i];
        (*stream)->begin(i);
        for (const int32_t t : stage.vectors) {
          const quant::PackedMatrix& held = m.weights.tensor(t).matrix;
          ASSERT_EQ(std::memcmp((*stream)->vector(t), held.planes[0], quant::plane_bytes(quant::layout_of(held))), 0);
        }
        std::vector<load::StreamPiece> use;
        for (const int32_t t : m.units.units[static_cast<size_t>(stage.unit)].tensors) {
          const arch::TensorSpec& spec = m.description.spec.tensors[static_cast<size_t>(t)];
          if (spec.kind == arch::TensorKind::kVector) continue;
          if (spec.kind != arch::TensorKind::kBank) use.push_back({t, 0, m.weights.tensor(t).matrix.rows});
          for (int32_t e = 0; spec.kind == arch::TensorKind::kBank && e < spec.experts; ++e)
            if (random(2) == 0) use.push_back({t, e * spec.rows, spec.rows});
        }
        if (stage.routed) (*stream)->route(use);
        if (!same_order)
          for (size_t k = use.size(); k > 1; --k) std::swap(use[k - 1], use[random(k)]);
        if (random(4) == 0 && !use.empty()) use.resize(use.size() - 1);
        for (const load::StreamPiece& piece : use) {
          const load::StagedMatrix staged = (*stream)->acquire(piece);
          const quant::PackedMatrix& held = m.weights.tensor(piece.tensor).matrix;
          std::vector<float> want(static_cast<size_t>(held.cols)), got(want.size());
          for (int64_t r = piece.row_begin; r < piece.row_begin + piece.row_count; r += 1 + piece.row_count / 5) {
            quant::decode_row(held, r, want.data());
            quant::decode_row(*staged.matrix, r - staged.row_begin, got.data());
            ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << name << " pass " << pass;
          }
          ++pieces;
        }
        if (random(40) == 0) break;  // abandoned
        (*stream)->end(i);
        ASSERT_TRUE((*stream)->status());
      }
    }
    EXPECT_GT(pieces, 500);
  }
}

// Pieces are asked for one by one in the very first pass alone; the first pass of another mode knows them from there.
TEST(WeightStreams, AreAheadFromTheSecondPassOnInWhateverMode) {
  const std::string path = shared_path("golden/models/llama");
  BERTH_NEEDS(path);
  auto placed = place_model(path, placed_as("cpu", 1, on_cpu), run_options());
  ASSERT_TRUE(placed) << placed.error().message;
  PlacedModel& m = **placed;
  load::StreamParts parts;
  parts.weights = &m.weights;
  parts.devices = &m.devices;
  parts.tensor_count = m.description.spec.tensors.size();
  uint64_t staging = 0;
  std::vector<load::StreamStage> stages;
  for (int32_t u = 0; u < m.units.chain_size; ++u) {
    staging = std::max(staging, 2 * m.units.units[static_cast<size_t>(u)].grain_bytes);
    stages.push_back({.unit = u, .on = m.devices.find("0"), .opens = true, .closes = true});
  }
  parts.modes = {stages, stages};
  parts.pools = {{m.devices.find("0"), staging}};
  auto made = load::WeightStream::create(std::move(parts));
  ASSERT_TRUE(made) << made.error().message;
  load::WeightStream& stream = **made;
  const auto pass = [&](size_t mode, bool backwards) {
    const int64_t before = stream.unexpected();
    stream.start(mode, stages.size());
    for (size_t i = 0; i < stages.size(); ++i) {
      stream.begin(i);
      std::vector<int32_t> tensors = m.units.units[static_cast<size_t>(stages[i].unit)].tensors;
      if (backwards) std::reverse(tensors.begin(), tensors.end());
      for (const int32_t t : tensors)
        if (m.description.spec.tensors[static_cast<size_t>(t)].kind != arch::TensorKind::kVector)
          stream.acquire({t, 0, m.weights.tensor(t).matrix.rows});
      stream.end(i);
    }
    EXPECT_TRUE(stream.status());
    return stream.unexpected() - before;
  };
  EXPECT_GT(pass(0, false), 0);
  EXPECT_EQ(pass(1, false), 0);  // the first one of its mode
  EXPECT_EQ(pass(0, false), 0);
  EXPECT_GT(pass(1, true), 0);  // another order: served all the same, and learned
  EXPECT_EQ(pass(1, true), 0);
  EXPECT_EQ(pass(0, false), 0);
}

// A copy of a checkpoint, to be spoiled.
class SpoiledFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string source = shared_path("golden/models/llama_bf16");
    BERTH_NEEDS(source);
    fs::copy(source, checkpoint_.path() + "/model", fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(path()))
      if (entry.path().extension() == ".safetensors") weights_ = entry.path().string();
    ASSERT_FALSE(weights_.empty());
    auto whole = place_model(path(), all_on_cpu(), options(false));
    ASSERT_TRUE(whole) << whole.error().message;
    expected_ = logits(**whole);
    auto nf4 = place_model(path(), all_on_cpu(), options(true));
    ASSERT_TRUE(nf4) << nf4.error().message;
    expected_nf4_ = logits(**nf4);
  }

  std::string path() const { return checkpoint_.path() + "/model"; }
  RunOptions options(bool nf4) const {
    RunOptions o = run_options();
    if (nf4) o.quantize_to = quant::StoredFormat{quant::Codec::kNF4, 64, false};
    o.offload_folder = offload_.path();
    return o;
  }
  static std::vector<float> logits(PlacedModel& m) {
    m.model->kv().set_length(0, 0);
    auto all = all_logits(*m.model, kPrompt);
    EXPECT_TRUE(all) << all.error().message;
    return all ? *all : std::vector<float>();
  }
  void touch_with(const std::string& file, uint64_t at, char byte) const {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(byte);
  }
  static void expect_error(const Status& status, ErrorCode code, std::string_view words) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  }

  TemporaryFolder checkpoint_, offload_;
  std::string weights_;
  std::vector<float> expected_, expected_nf4_;
};

TEST_F(SpoiledFiles, ACheckpointThatIsCutWhileItRunsIsAnErrorThatNamesTensorAndFile) {
  for (const bool to_accelerator : {false, true}) {
    auto placed = place_model(
        path(), placed_as("disk", 1, on_disk, to_accelerator ? Placement::DeviceOf(on_0) : nullptr), options(false));
    ASSERT_TRUE(placed) << placed.error().message;
    EXPECT_EQ(logits(**placed), expected_);
    const fs::path kept = weights_ + ".kept";
    fs::copy_file(weights_, kept, fs::copy_options::overwrite_existing);
    fs::resize_file(weights_, fs::file_size(weights_) / 2);
    bool called = false;
    (*placed)->model->kv().set_length(0, 0);
    const Status status =
        (*placed)->model->prefill(0, kPrompt, model::LogitRows::kAll, [&](size_t, int64_t, std::span<const float>) {
          called = true;
          return Status();
        });
    expect_error(status, ErrorCode::kIo, weights_.substr(weights_.rfind('/') + 1));
    EXPECT_NE(status.error().message.find("reading tensor"), std::string::npos) << status.error().message;
    EXPECT_FALSE(called) << "no logits of weights that were not there";
    EXPECT_EQ((*placed)->model->kv().length(0), 0);
    fs::rename(kept, weights_);
  }
}

TEST_F(SpoiledFiles, ACheckpointThatIsWrittenToWhileItRunsIsAnError) {
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(false));
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_TRUE((*placed)->model->prefill(0, kPrompt, model::LogitRows::kLast, ignore));
  touch_with(weights_, fs::file_size(weights_) - 1, 1);
  fs::last_write_time(weights_, fs::last_write_time(weights_) + std::chrono::seconds(2));
  expect_error(decode(*(*placed)->model), ErrorCode::kIo, "written to since it was opened");
}

TEST_F(SpoiledFiles, ACheckpointWhoseNameVanishesKeepsRunning) {
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(false));
  ASSERT_TRUE(placed) << placed.error().message;
  fs::remove(weights_);
  EXPECT_EQ(logits(**placed), expected_) << "the file is held open; its bytes are those that were checked";
  auto again = place_model(path(), all_on_cpu(), options(false));
  ASSERT_FALSE(again);
}

TEST_F(SpoiledFiles, ACheckpointThatIsReplacedBeforeItIsLoadedIsAnError) {
  for (const std::string how : {"cut", "written", "replaced"}) {
    RunOptions o = options(false);
    const fs::path kept = weights_ + ".kept";
    fs::copy_file(weights_, kept, fs::copy_options::overwrite_existing);
    bool spoiled = false;
    o.log.on_progress = [&](std::string_view, uint64_t, uint64_t) {  // after the first tensor
      if (spoiled) return true;
      spoiled = true;
      if (how == "cut") fs::resize_file(weights_, fs::file_size(weights_) - 8);
      if (how == "written") fs::last_write_time(weights_, fs::last_write_time(weights_) + std::chrono::seconds(2));
      if (how == "replaced") fs::rename(kept, weights_);
      return true;
    };
    auto placed = place_model(path(), placed_as("disk", 0, on_disk), o);
    ASSERT_FALSE(placed) << how;
    EXPECT_EQ(placed.error().code, ErrorCode::kIo) << placed.error().message;
    if (fs::exists(kept)) fs::rename(kept, weights_);
  }
}

TEST_F(SpoiledFiles, QuantizedWeightsGoToTheOffloadFolderOnceAndAreUsedAgain) {
  for (int run = 0; run < 2; ++run) {
    auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(true));
    ASSERT_TRUE(placed) << placed.error().message;
    EXPECT_EQ(logits(**placed), expected_nf4_);
    EXPECT_EQ((*placed)->weights.offloaded_bytes(), (*placed)->plan.device("disk")->weights_bytes);
    static std::vector<fs::file_time_type> times;
    std::vector<fs::file_time_type> now;
    for (const std::string& f : offload_.files()) now.push_back(fs::last_write_time(f));
    ASSERT_FALSE(now.empty());
    if (run == 1) EXPECT_EQ(now, times) << "written again";
    times = now;
  }
}

TEST_F(SpoiledFiles, OffloadedWeightsThatWereSpoiledAreMadeAnew) {
  ASSERT_TRUE(place_model(path(), placed_as("disk", 0, on_disk), options(true)));
  const std::string file = offload_.files().front();
  const auto size = fs::file_size(file);
  for (const std::string how : {"cut", "header", "content", "gone", "longer"}) {
    if (how == "cut") fs::resize_file(file, size / 2);
    if (how == "longer") fs::resize_file(file, size + 1);
    if (how == "header") touch_with(file, 20, 'x');
    if (how == "content") touch_with(file, 4096 + 5, 'x');
    if (how == "gone") fs::remove(file);
    std::vector<std::string> warnings;
    RunOptions o = options(true);
    o.log.sink = [&](LogLevel level, const std::string& m) {
      if (level == LogLevel::kWarning) warnings.push_back(m);
    };
    auto placed = place_model(path(), placed_as("disk", 0, on_disk), o);
    ASSERT_TRUE(placed) << how << ": " << placed.error().message;
    EXPECT_EQ(logits(**placed), expected_nf4_) << how;
    EXPECT_EQ(warnings.size(), how == "gone" ? 0u : 1u) << how;
    EXPECT_EQ(fs::file_size(file), size) << how;
  }
  // Spoiled while it runs.
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(true));
  ASSERT_TRUE(placed);
  for (const std::string& f : offload_.files()) fs::resize_file(f, 4096);
  expect_error((*placed)->model->prefill(0, kPrompt, model::LogitRows::kLast, ignore), ErrorCode::kIo,
               "the file ends after");
}

TEST_F(SpoiledFiles, OffloadedWeightsOfAnotherCheckpointAreNotUsed) {
  ASSERT_TRUE(place_model(path(), placed_as("disk", 0, on_disk), options(true)));
  const size_t before = offload_.files().size();
  // Other values in the same shapes: nothing of the first run fits.
  touch_with(weights_, fs::file_size(weights_) - 2, 0);
  touch_with(weights_, fs::file_size(weights_) - 1, 0x3c);
  fs::last_write_time(weights_, fs::last_write_time(weights_) + std::chrono::seconds(2));
  auto whole = place_model(path(), all_on_cpu(), options(true));
  ASSERT_TRUE(whole) << whole.error().message;
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(true));
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(logits(**placed), logits(**whole));
  EXPECT_EQ(offload_.files().size(), 2 * before);
}

TEST_F(SpoiledFiles, WithoutAnOffloadFolderWhatNeedsOneIsRefused) {
  RunOptions o = options(true);
  o.offload_folder = "";
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), o);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kInvalidArgument);
  ASSERT_FALSE(placed.error().hints.empty());
  EXPECT_NE(placed.error().hints[0].find("--offload-folder"), std::string::npos);
  o.offload_folder = weights_;  // a file
  placed = place_model(path(), placed_as("disk", 0, on_disk), o);
  ASSERT_FALSE(placed);
  o = options(false);
  o.offload_folder = "";
  EXPECT_TRUE(place_model(path(), placed_as("disk", 0, on_disk), o)) << "what stays in the checkpoint needs none";
}

TEST_F(SpoiledFiles, AFullDiskLeavesNothingBehind) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 4096 + 64;  // no image fits: the system refuses as it does on a full disk
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), options(true));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kIo) << placed.error().message;
  EXPECT_NE(placed.error().message.find("offload folder"), std::string::npos) << placed.error().message;
  EXPECT_TRUE(offload_.files().empty()) << offload_.files().front();
  auto again = place_model(path(), placed_as("disk", 0, on_disk), options(true));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(logits(**again), expected_nf4_);
}

TEST_F(SpoiledFiles, AnInterruptedLoadLeavesWholeFilesOnly) {
  RunOptions o = options(true);
  int tensors = 0;
  o.log.on_progress = [&](std::string_view, uint64_t, uint64_t) { return ++tensors < 6; };
  auto placed = place_model(path(), placed_as("disk", 0, on_disk), o);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, ErrorCode::kCancelled);
  for (const std::string& f : offload_.files()) EXPECT_EQ(f.find(".tmp-"), std::string::npos) << f;
  // What a killed process left is removed, a living one's is not.
  const std::string folder =
      offload_.files().empty() ? offload_.path() : fs::path(offload_.files().front()).parent_path().string();
  const std::string dead = folder + "/x.weights.tmp-2147480000",
                    living = folder + "/y.weights.tmp-" + std::to_string(::getppid());
  std::ofstream(dead) << "half";
  std::ofstream(living) << "half";
  auto again = place_model(path(), placed_as("disk", 0, on_disk), options(true));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(logits(**again), expected_nf4_);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living));
}

}  // namespace
}  // namespace berth::testing
