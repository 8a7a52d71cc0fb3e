// engine/running.cc — see running.h.
#include "berth/engine/running.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "berth/base/strings.h"
#include "berth/load/load_weights.h"
#include "berth/plan/traffic.h"

namespace berth::engine {

std::vector<MemoryRow> RunningModel::memory() const {
  std::vector<MemoryRow> rows;
  for (const auto& d : devices.devices()) {
    const plan::DeviceUse* use = planned.plan.device(d->map_name());
    const device::ArenaUsage usage = d->arena().usage();
    if (usage.total.peak_bytes == 0 &&
        (use == nullptr || use->weights_bytes + use->kv_bytes + use->workspace_bytes == 0))
      continue;
    MemoryRow row;
    row.device = d->map_name();
    const plan::DeviceUse none;
    const plan::DeviceUse& p = use == nullptr ? none : *use;
    row.weights = {p.weights_bytes, usage[device::Tag::kWeights].used_bytes};
    row.kv = {p.kv_bytes, usage[device::Tag::kKv].used_bytes};
    row.workspace = {p.workspace_bytes, usage[device::Tag::kWorkspace].used_bytes};
    row.staging = {p.staging_bytes, usage[device::Tag::kStaging].peak_bytes};
    row.peak = {p.weights_bytes + p.kv_bytes + p.workspace_bytes + p.staging_bytes, usage.total.peak_bytes};
    rows.push_back(row);
  }
  // What the offload folder keeps; weights used from their checkpoint cost nothing there.
  if (const plan::DeviceUse* disk = planned.plan.device("disk"); disk != nullptr && disk->weights_bytes > 0) {
    MemoryRow row;
    row.device = "disk";
    row.weights = row.peak = {disk->weights_bytes, weights.offloaded_bytes()};
    rows.push_back(row);
  }
  return rows;
}

std::vector<TrafficRow> RunningModel::traffic() const {
  std::vector<TrafficRow> rows;
  const int64_t steps = model ? model->decode_steps() : 0;
  if (steps == 0) return rows;
  for (const plan::WayTraffic& w :
       plan::decode_traffic(opened->spec(), opened->storage, planned.inputs.units, planned.plan))
    rows.push_back({w.from, w.to, w.cargo, w.bytes, 0});
  for (const device::LinkTraffic& t : devices.traffic()) {
    if (t.decode_bytes == 0 || t.from == t.to) continue;
    const std::string cargo(device::cargo_name(t.cargo));
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const TrafficRow& r) { return r.from == t.from && r.to == t.to && r.cargo == cargo; });
    if (row == rows.end()) row = rows.insert(rows.end(), {t.from, t.to, cargo, 0, 0});
    row->counted = static_cast<double>(t.decode_bytes) / static_cast<double>(steps);
  }
  return rows;
}

Status check_runnable(const OpenedModel& opened, const Options& options) {
  if (opened.checkpoint->tensors().empty())
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} has no weights: it can be planned, not run", quoted(opened.name)),
                 {"Name the folder or the file that holds the weights."});
  if (!opened.spec().unsupported.empty())
    return Error(ErrorCode::kUnsupported,
                 fmt::format("running {} is not supported: {}", opened.spec().architecture, opened.spec().unsupported),
                 {"It can be planned; to run it, use another model or a later version."});
  if (options.purpose == "training")
    return Error(ErrorCode::kInvalidArgument,
                 "--for training is for planning: Berth runs models, it does not train them",
                 {"berth plan MODEL --for training"});
  return {};
}

Result<std::unique_ptr<RunningModel>> load_model(OpenedModel& opened, PlannedModel planned, const Options& options,
                                                 const Log& log, NanLook look) {
  const auto start = std::chrono::steady_clock::now();
  TRY_STATUS(check_runnable(opened, options));
  auto out = std::make_unique<RunningModel>();
  out->opened = &opened;
  out->planned = std::move(planned);
  const PlanInputs& in = out->planned.inputs;
  TRY(const Isa isa, chosen_isa(options));
  TRY(out->devices, device::open_devices(in.machine, in.budgets.devices, {isa}));
  out->pool = std::make_unique<ThreadPool>(in.shape.threads);
  load::LoadRequest request;
  request.checkpoint = opened.checkpoint.get();
  request.spec = &opened.spec();
  request.storage = &opened.storage;
  request.units = &in.units;
  request.plan = &out->planned.plan;
  request.devices = &out->devices;
  request.pool = out->pool.get();
  request.quantize_from = opened.dtype;
  request.offload_folder = options.offload_folder;
  request.map_files = !options.no_mmap;
  request.look_while_used = look == NanLook::kWhileFirstUsed;
  TRY(out->weights, load::load_weights(request, log));
  model::ModelParts parts;
  parts.spec = &opened.spec();
  parts.units = &in.units;
  parts.plan = &out->planned.plan;
  parts.weights = &out->weights;
  parts.devices = &out->devices;
  parts.pool = out->pool.get();
  parts.numerics = in.shape.int8_numerics ? kernel::Numerics::kInt8 : kernel::Numerics::kExact;
  TRY(model::Model model, model::Model::create(parts));
  out->model.emplace(std::move(model));
  out->load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

namespace {

Result<text::Tokenizer> tokenizer_from_gguf(const format::GgufMetadata& gguf) {
  text::GgufTokenizer source;
  TRY(const auto model, gguf.find_string("tokenizer.ggml.model"));
  if (!model)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{} has no tokenizer (no tokenizer.ggml.model)", quoted(gguf.file_name())),
                 {"Use token ids, or a file with a tokenizer."});
  source.model = *model;
  TRY(const auto pre, gguf.find_string("tokenizer.ggml.pre"));
  if (pre) source.pre = *pre;
  const auto strings = [&](std::string_view key, std::vector<std::string_view>& out) -> Status {
    TRY(const auto found, gguf.find_strings(key));
    if (!found) return {};
    out.reserve(found->size());
    for (size_t i = 0; i < found->size(); ++i) out.push_back((*found)[i]);
    return {};
  };
  TRY_STATUS(strings("tokenizer.ggml.tokens", source.tokens));
  TRY_STATUS(strings("tokenizer.ggml.merges", source.merges));
  TRY(const auto types, gguf.find_ints("tokenizer.ggml.token_type"));
  if (types) source.token_types.assign(types->begin(), types->end());
  TRY(const auto scores, gguf.find_doubles("tokenizer.ggml.scores"));
  if (scores)
    for (const double s : *scores) source.scores.push_back(static_cast<float>(s));
  const auto id = [&](std::string_view key, std::optional<int64_t>& out) -> Status {
    TRY(out, gguf.find_int(key));
    return {};
  };
  TRY_STATUS(id("tokenizer.ggml.bos_token_id", source.bos_id));
  TRY_STATUS(id("tokenizer.ggml.eos_token_id", source.eos_id));
  TRY_STATUS(id("tokenizer.ggml.eot_token_id", source.eot_id));
  TRY_STATUS(id("tokenizer.ggml.eom_token_id", source.eom_id));
  TRY_STATUS(id("tokenizer.ggml.unknown_token_id", source.unknown_id));
  TRY_STATUS(id("tokenizer.ggml.padding_token_id", source.padding_id));
  TRY(source.add_bos, gguf.find_bool("tokenizer.ggml.add_bos_token"));
  TRY(source.add_eos, gguf.find_bool("tokenizer.ggml.add_eos_token"));
  TRY(source.add_space_prefix, gguf.find_bool("tokenizer.ggml.add_space_prefix"));
  return text::Tokenizer::create({.name = gguf.file_name(), .gguf = &source});
}

}  // namespace

Result<text::Tokenizer> make_tokenizer(const format::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) return tokenizer_from_gguf(*checkpoint.gguf());
  TRY(const auto json, checkpoint.tokenizer_json());
  if (!json)
    return Error(ErrorCode::kUnsupported, fmt::format("{} has no tokenizer.json", quoted(checkpoint.display_name())),
                 {"Put the model's tokenizer.json beside its weights, or work with token ids (berth eval --tokens)."});
  TRY(const auto config, checkpoint.tokenizer_config_json());
  TRY(const auto special, checkpoint.special_tokens_map_json());
  text::TokenizerSource source;
  source.name = checkpoint.folder() + "/tokenizer.json";
  source.tokenizer_json = *json;
  if (config) source.config_json = *config;
  if (special) source.special_tokens_json = *special;
  return text::Tokenizer::create(source);
}

}  // namespace berth::engine
