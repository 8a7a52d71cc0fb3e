// arch/registry.cc — see registry.h. The list of family files is written by CMake (family_list.cc).
#include "berth/arch/registry.h"

#include <algorithm>
#include <map>

#include "berth/arch/capability.h"
#include "berth/arch/families/family.h"
#include "berth/arch/family_list.h"
#include "berth/arch/gguf_names.h"
#include "berth/arch/sources.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {
namespace {

const Family* find_family(std::string_view model_type) {
  for (const auto& group : family_groups())
    for (const Family& family : group())
      if (family.model_type == model_type) return &family;
  return nullptr;
}

const Family* find_gguf_family(std::string_view architecture) {
  for (const auto& group : family_groups())
    for (const Family& family : group())
      for (const std::string_view known : family.gguf_architectures)
        if (known == architecture) return &family;
  return nullptr;
}

// Files of architecture "llama" with experts are Mixtral's: "llama+experts" for the lookup.
std::string gguf_kind(const format::GgufMetadata& metadata) {
  const std::string name(metadata.architecture());
  const auto experts = metadata.find_int(metadata.arch_key("expert_count"));
  const bool sparse = experts && *experts && **experts > 0;
  const std::string with_experts = name + "+experts";
  return sparse && find_gguf_family(with_experts) != nullptr ? with_experts : name;
}

Error unknown(std::string_view what, std::string_view name, const std::vector<std::string>& known) {
  return Error(ErrorCode::kUnsupported,
               std::string(what) + " " + quoted(name) + " is unknown" + did_you_mean(name, known),
               {"A model without an architecture here can still be planned from a *.tree.json."});
}

// Every expert gets a name of its own: a config that claims millions of them is not believed.
Status check_experts(const ModelSpec& spec) {
  constexpr int64_t kMostExperts = 200'000;  // the largest published models have about 25,000
  int64_t experts = 0;
  for (const LayerSpec& layer : spec.layers) experts += layer.mlp.moe ? layer.mlp.moe->experts : 0;
  if (experts <= kMostExperts) return {};
  return Error(ErrorCode::kCorruptData, "the config claims " + std::to_string(experts) + " experts in " +
                                            std::to_string(spec.layers.size()) + " layers, more than any model has");
}

// Whether the head is tied where a wrapper's config surrounds the text part's. As in Transformers the model that has
// the head decides: the wrapper, by its own word or its class's default; in Llama 4 the language model inside.
bool wrapper_ties(std::string_view model_type, ConfigReader& root, bool text_says) {
  if (model_type == "llama4") return text_says;
  const bool wrapper_says = root.boolean("tie_word_embeddings", model_type.starts_with("gemma"));
  return model_type == "minimax_m3_vl" ? wrapper_says || text_says : wrapper_says;
}

Result<Decoder> read_config(const format::HfConfig& config, const Family& family) {
  Decoder d;
  d.config = config.root();
  d.architecture = std::string(family.architectures.front());
  for (const std::string& asked : config.architectures())
    if (std::find(family.architectures.begin(), family.architectures.end(), asked) != family.architectures.end()) {
      d.architecture = asked;
      break;
    }
  ConfigReader root(config.root());
  ConfigReader text = family.text_object.empty() ? root : root.nested(family.text_object);
  family.read_config(text, d);
  TRY_STATUS(text.status());
  TRY_STATUS(check_experts(d.spec));
  if (!family.text_object.empty()) {
    d.spec.tied_head = wrapper_ties(family.model_type, root, d.spec.tied_head);
    TRY_STATUS(root.status());
  }
  d.spec.family = std::string(family.model_type);
  d.spec.architecture = d.architecture;
  d.spec.dtype = config.common().dtype.value_or(DType::kBF16);
  return d;
}

Result<const Family*> family_of(const format::HfConfig& config) {
  if (config.model_type().empty())
    return Error(ErrorCode::kCorruptData, config.root().file() + ": key \"model_type\" is missing");
  const Family* family = find_family(config.model_type());
  if (family == nullptr)
    return unknown(config.root().file() + ": model_type", config.model_type(), known_model_types());
  return family;
}

// --dtype casts vectors too, but for those the model keeps wide: the tree knows. Matrices follow their storage format.
void round_vectors(const DescribeOptions& options, ModelDescription& d) {
  if (!options.has_dtype || options.dtype == DType::kF32) return;
  std::map<std::string, DType> dtypes;
  for_each_module(d.tree, [&](const std::string& path, const Module& m) {
    for (const Parameter& p : m.parameters) dtypes.emplace(join_path(path, p.name), p.dtype);
    for (const Buffer& b : m.buffers) dtypes.emplace(join_path(path, b.name), b.dtype);
  });
  for (TensorSpec& t : d.spec.tensors) {
    if (t.kind != TensorKind::kVector) continue;
    auto it = dtypes.find(t.name);
    if (it == dtypes.end()) {  // joined from modules in a list: norms.weight from norms.0.weight, norms.1.weight, ...
      const std::string list = t.name.substr(0, t.name.rfind('.') + 1);
      it = dtypes.lower_bound(list);
      if (it != dtypes.end() && !it->first.starts_with(list)) it = dtypes.end();
    }
    if (it != dtypes.end() && (it->second == DType::kBF16 || it->second == DType::kF16)) t.recipe.round_to = it->second;
  }
}

std::optional<DType> stated_dtype(const format::HfConfig& config) {
  return config.quantization() ? std::nullopt : config.common().dtype;
}

bool made_by_bitsandbytes(const format::HfConfig& config) {
  const auto& q = config.quantization();
  return q && q->method == format::QuantMethod::kBitsAndBytes &&
         (q->bitsandbytes.load_in_4bit || q->bitsandbytes.load_in_8bit);
}

// The checkpoint has a head of its own where the config ties it: in the tree too it is a parameter then.
void untie_head(ModelDescription& d) {
  const auto head = std::ranges::find(d.spec.tensors, Role::kHead, &TensorSpec::role);
  if (head == d.spec.tensors.end()) return;
  auto& ties = d.tree.ties;
  const auto untied =
      std::stable_partition(ties.begin(), ties.end(), [&](const auto& tie) { return tie.first != head->name; });
  d.untied.assign(untied, ties.end());
  ties.erase(untied, ties.end());
}

// What any path ends with.
void finish(ModelSpec& spec) {
  const std::string missing = missing_mechanisms(spec);
  if (!missing.empty()) spec.unsupported = spec.unsupported.empty() ? missing : spec.unsupported + ", " + missing;
}

Result<ModelDescription> describe_hf(const format::Checkpoint& checkpoint, const DescribeOptions& options) {
  const format::HfConfig& config = *checkpoint.config();
  TRY(const Family* family, family_of(config));
  TRY(const Decoder d, read_config(config, *family));
  Builder builder(options.has_dtype ? options.dtype : d.spec.dtype, true);
  family->build(d, builder);
  ModelDescription out;
  out.spec = d.spec;
  out.stated_dtype = stated_dtype(config);
  out.bitsandbytes = made_by_bitsandbytes(config);
  TRY_STATUS(resolve_sources(checkpoint, d, builder, out.spec));
  out.tree = std::move(builder.tree());
  if (d.spec.tied_head && !out.spec.tied_head) untie_head(out);
  const std::string note = unread_note(unread_tensors(checkpoint, out.spec));
  if (!note.empty()) out.spec.notes.push_back(note);
  finish(out.spec);
  return out;
}

GgufTensors gguf_tensors(const format::Checkpoint& checkpoint) {
  GgufTensors t;
  t.shape = [&checkpoint](std::string_view name) -> std::optional<Shape> {
    const format::TensorEntry* entry = checkpoint.find(name);
    if (entry == nullptr) return std::nullopt;
    return entry->shape;
  };
  t.floats = [&checkpoint](std::string_view name) -> Result<std::vector<float>> {
    const format::TensorEntry* entry = checkpoint.find(name);
    if (entry == nullptr || entry->dtype != DType::kF32)
      return Error(ErrorCode::kCorruptData, "tensor " + quoted(name) + " must be F32");
    std::vector<float> values(entry->size_bytes / sizeof(float));
    TRY_STATUS(checkpoint.read(*entry, 0, std::as_writable_bytes(std::span(values))));
    return values;
  };
  return t;
}

Result<ModelDescription> describe_gguf(const format::Checkpoint& checkpoint, const DescribeOptions& options) {
  const format::GgufMetadata& metadata = *checkpoint.gguf();
  const Family* family = find_gguf_family(gguf_kind(metadata));
  if (family == nullptr) return unknown("GGUF architecture", metadata.architecture(), known_gguf_architectures());
  Decoder d;
  d.architecture = std::string(family->architectures.front());
  GgufReader gguf(metadata, gguf_tensors(checkpoint));
  family->read_gguf(gguf, d);
  TRY_STATUS(gguf.status());
  TRY_STATUS(check_experts(d.spec));
  d.spec.family = std::string(family->model_type);
  d.spec.architecture = d.architecture;
  Builder builder(options.has_dtype ? options.dtype : DType::kBF16, true);
  family->build(d, builder);
  ModelDescription out;
  out.spec = d.spec;
  TRY_STATUS(resolve_gguf(checkpoint, d, builder, out.spec));
  out.tree = std::move(builder.tree());
  const std::string note = unread_note(unread_tensors(checkpoint, out.spec));
  if (!note.empty()) out.spec.notes.push_back(note);
  finish(out.spec);
  return out;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

Result<ModelDescription> describe_model(const format::Checkpoint& checkpoint, const DescribeOptions& options) {
  Result<ModelDescription> described = [&]() -> Result<ModelDescription> {
    if (checkpoint.gguf() != nullptr) return describe_gguf(checkpoint, options);
    if (checkpoint.config() == nullptr)
      return Error(ErrorCode::kNotFound, "there is no config.json beside the weights, so the architecture is unknown",
                   {"Put the model's config.json beside them."});
    if (checkpoint.tensors().empty()) return describe_config(*checkpoint.config(), options);
    return describe_hf(checkpoint, options);
  }();
  if (!described) return described.error().with_context("describing " + quoted(checkpoint.display_name()));
  round_vectors(options, *described);
  return described;
}

Result<ModelDescription> describe_config(const format::HfConfig& config, const DescribeOptions& options) {
  TRY(const Family* family, family_of(config));
  TRY(const Decoder d, read_config(config, *family));
  Builder builder(options.has_dtype ? options.dtype : d.spec.dtype, true);
  family->build(d, builder);
  ModelDescription out;
  out.spec = d.spec;
  out.stated_dtype = stated_dtype(config);
  out.bitsandbytes = made_by_bitsandbytes(config);
  presume_sources(config, builder, out.spec);
  out.tree = std::move(builder.tree());
  finish(out.spec);
  return out;
}

Result<ModuleTree> module_tree(const format::HfConfig& config, const DescribeOptions& options) {
  TRY(const Family* family, family_of(config));
  TRY(const Decoder d, read_config(config, *family));
  Builder builder(options.has_dtype ? options.dtype : d.spec.dtype, false);
  family->build(d, builder);
  return std::move(builder.tree());
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const auto& group : family_groups())
    for (const Family& family : group()) names.emplace_back(family.model_type);
  return sorted(std::move(names));
}

std::vector<std::string> known_gguf_architectures() {
  std::vector<std::string> names;
  for (const auto& group : family_groups())
    for (const Family& family : group())
      for (const std::string_view name : family.gguf_architectures) names.emplace_back(name);
  return sorted(std::move(names));
}

}  // namespace berth::arch
