// tests/models/placed_model.cc — see placed_model.h.
#include "placed_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace berth::testing {

const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> names = {"bloom",
                                                 "cohere2",
                                                 "deepseek_v3",
                                                 "deepseek_v3_plain_q",
                                                 "falcon_40b",
                                                 "falcon_7b",
                                                 "falcon_rw_alibi",
                                                 "gemma",
                                                 "gemma2",
                                                 "gemma3",
                                                 "gemma3_text",
                                                 "gemma3n_text",
                                                 "gemma4_26b_a4b",
                                                 "gemma4_31b",
                                                 "gemma4_e2b",
                                                 "gemma4_text_e4b",
                                                 "gpt2",
                                                 "gpt_neox",
                                                 "gpt_oss",
                                                 "gpt_oss_mxfp4",
                                                 "gptj",
                                                 "granite",
                                                 "llama",
                                                 "llama3_rope",
                                                 "llama4",
                                                 "llama4_text",
                                                 "llama_bare_file",
                                                 "llama_bf16",
                                                 "llama_bias",
                                                 "llama_dynamic",
                                                 "llama_fp16",
                                                 "llama_sharded",
                                                 "llama_tied",
                                                 "llama_yarn",
                                                 "minimax_m2",
                                                 "minimax_m3",
                                                 "mistral",
                                                 "mixtral",
                                                 "olmo2",
                                                 "opt",
                                                 "opt_350m",
                                                 "phi",
                                                 "phi3",
                                                 "phi3_longrope",
                                                 "phi3_longrope_long",
                                                 "qwen2",
                                                 "qwen2_moe",
                                                 "qwen2_sliding",
                                                 "qwen3",
                                                 "qwen3_5_moe",
                                                 "qwen3_fp8",
                                                 "qwen3_fp8_edge",
                                                 "qwen3_moe",
                                                 "qwen3_moe_raw",
                                                 "qwen3_next",
                                                 "smollm3",
                                                 "stablelm"};
  return names;
}

std::string shared_path(const std::string& name) {
  const char* shared = std::getenv("BERTH_SHARED");
  return std::string(shared != nullptr && *shared != 0 ? shared : BERTH_SOURCE_DIR "/../shared") + "/" + name;
}

void expect_on_figures_page(const std::string& table, const std::string& row) {
  std::printf("[ page     ] %s: %s\n", table.c_str(), row.c_str());
  const auto page = read_file(BERTH_SOURCE_DIR "/docs/figures.md", size_t{4} << 20);
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_NE(page->find("\n" + row + "\n"), std::string::npos)
      << "docs/figures.md lacks this row (tools/make_figures_page.py makes it anew): " << row;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "berth-test-XXXXXX").string();
  if (::mkdtemp(name.data()) != nullptr) path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::files() const {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
    if (entry.is_regular_file()) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

bool in_ci() {
  const char* value = std::getenv("CI");
  return value != nullptr && std::string(value) == "true";
}

Placement all_on_cpu(Isa isa) {
  Placement p;
  p.name = "cpu";
  p.cpu_isa = isa;
  p.device_of = [](const sizing::Unit&, size_t, size_t) { return std::string("cpu"); };
  return p;
}

Result<std::unique_ptr<PlacedModel>> place_model(const std::string& path, const Placement& placement,
                                                 const RunOptions& options) {
  auto out = std::make_unique<PlacedModel>();
  TRY(auto checkpoint, format::Checkpoint::open(path, Log{}));
  out->checkpoint = std::make_unique<format::Checkpoint>(std::move(checkpoint));
  TRY(out->description, arch::describe_model(*out->checkpoint, {}));
  const arch::ModelSpec& spec = out->description.spec;
  sizing::StorageRequest request;
  if (options.quantize_to) {
    request.quantize_to = options.quantize_to;
    request.quantizes = [](const arch::TensorSpec& t) {
      return t.kind == arch::TensorKind::kMatrix && t.role != arch::Role::kHead;
    };
  }
  TRY(out->storage, sizing::choose_storage(spec, request));
  sizing::RunShape shape = options.shape;
  shape.threads = options.threads;
  shape.int8_numerics = options.numerics == kernel::Numerics::kInt8;
  out->units = sizing::make_units(spec, out->storage, shape);

  for (size_t i = 0; i < placement.emulated.size(); ++i) {
    out->machine.devices.push_back(machine::emulated_device(
        i, i < placement.emulated_bytes.size() ? placement.emulated_bytes[i] : uint64_t{8} << 30));
    out->machine.devices.back().kernels = placement.emulated[i];
  }
  out->machine.devices.push_back(machine::default_cpu(uint64_t{16} << 30));
  out->machine.devices.back().kernels = placement.cpu_isa;
  out->machine.devices.push_back(machine::default_disk(uint64_t{64} << 30));
  TRY(const machine::Budgets budgets, machine::device_budgets(out->machine));
  std::vector<plan::Assignment> assignments;
  for (size_t u = 0; u < out->units.units.size(); ++u) {
    const sizing::Unit& unit = out->units.units[u];
    const sizing::Unit& held = unit.stored_with >= 0 ? out->units.units[static_cast<size_t>(unit.stored_with)] : unit;
    const size_t held_index = unit.stored_with >= 0 ? static_cast<size_t>(unit.stored_with) : u;
    const auto device = out->machine.find(placement.device_of(held, held_index, out->units.units.size()));
    const bool table = static_cast<int32_t>(u) >= out->units.chain_size;
    auto computes = device;
    const bool on_disk = device && out->machine.devices[*device].kind == machine::DeviceKind::kDisk;
    if (on_disk && !table) computes = out->machine.cpu();
    if (placement.computed_on && !table)
      computes = out->machine.find(placement.computed_on(held, held_index, out->units.units.size()));
    if (!device || !computes)
      return Error(ErrorCode::kInvalidArgument, "the placement names a device the machine lacks");
    const auto access = table                ? plan::Access::kGather
                        : device == computes ? plan::Access::kCompute
                                             : plan::Access::kStream;
    assignments.push_back({*device, *computes, access, "by hand"});
  }
  plan::AssignRequest assign{&out->units, &out->machine, budgets.devices, shape, placement.name};
  assign.stream = placement.stream_prefill;
  TRY(out->plan, plan::assign(assign, assignments));
  TRY(out->devices, device::open_devices(out->machine, budgets.devices, {placement.cpu_isa}));
  out->pool = std::make_unique<ThreadPool>(options.threads);
  load::LoadRequest load;
  load.checkpoint = out->checkpoint.get();
  load.spec = &spec;
  load.storage = &out->storage;
  load.units = &out->units;
  load.plan = &out->plan;
  load.devices = &out->devices;
  load.pool = out->pool.get();
  load.quantize_from = spec.dtype;
  load.offload_folder = options.offload_folder;
  load.map_files = options.map_files;
  load.look_while_used = options.look_while_used;
  TRY(out->weights, load::load_weights(load, options.log));
  model::ModelParts parts{&spec,         &out->units,     &out->plan,      &out->weights,
                          &out->devices, out->pool.get(), options.numerics};
  TRY(out->model, model::Model::create(parts));
  return out;
}

Result<std::vector<float>> all_logits(model::Model& model, const std::vector<int32_t>& tokens) {
  std::vector<float> out;
  TRY_STATUS(model.prefill(0, tokens, model::LogitRows::kAll, [&](size_t, int64_t, std::span<const float> row) {
    out.insert(out.end(), row.begin(), row.end());
    return Status();
  }));
  return out;
}

}  // namespace berth::testing
