// engine/opened_model.cc — see opened_model.h.
#include "berth/engine/opened_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "berth/arch/tree_json.h"
#include "berth/base/bytes.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/sizing/tree_units.h"

namespace berth::engine {
Result<std::optional<DType>> requested_dtype(std::string_view option, const std::string& text) {
  if (text.empty() || text == "auto") return std::optional<DType>();
  const auto dtype = dtype_from_name(text);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kF16 && *dtype != DType::kBF16))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--{} must be float32, float16 or bfloat16, not {}", option, quoted(text)));
  return dtype;
}

Result<std::optional<quant::StoredFormat>> requested_format(const Options& o) {
  if (o.load_in_4bit && o.load_in_8bit)
    return Error(ErrorCode::kInvalidArgument, "--load-in-4bit and --load-in-8bit were both given; a model has one of them");
  constexpr std::string_view kComputes[] = {"float32", "float16", "bfloat16", "float64", "float", "half", "double"};
  constexpr std::string_view kStores[] = {"uint8", "int8", "float16", "bfloat16", "float32", "float64"};
  if (std::ranges::find(kComputes, o.bnb_4bit_compute_dtype) == std::end(kComputes))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--bnb-4bit-compute-dtype must be float32, float16, bfloat16 or float64, not {}", quoted(o.bnb_4bit_compute_dtype)));
  if (std::ranges::find(kStores, o.bnb_4bit_quant_storage) == std::end(kStores))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--bnb-4bit-quant-storage must be uint8, int8, float16, bfloat16, float32 or float64, not {}", quoted(o.bnb_4bit_quant_storage)));
  if (!(o.llm_int8_threshold >= 0) || std::isinf(o.llm_int8_threshold))
    return Error(ErrorCode::kInvalidArgument, fmt::format("--llm-int8-threshold must be a number of at least 0, not {}", o.llm_int8_threshold));
  if (o.load_in_8bit && o.llm_int8_has_fp16_weight) return std::optional<quant::StoredFormat>();
  if (o.load_in_8bit) return std::optional(quant::StoredFormat{quant::Codec::kInt8Row, 0, false});
  if (!o.load_in_4bit) return std::optional<quant::StoredFormat>();
  quant::StoredFormat format;
  if (o.bnb_4bit_quant_type == "nf4") format.codec = quant::Codec::kNF4;
  else if (o.bnb_4bit_quant_type == "fp4") format.codec = quant::Codec::kFP4;
  else
    return Error(ErrorCode::kInvalidArgument, fmt::format("--bnb-4bit-quant-type must be nf4 or fp4, not {}", quoted(o.bnb_4bit_quant_type)));
  format.blocksize = static_cast<int32_t>(std::clamp<int64_t>(o.bnb_4bit_blocksize, 0, 1 << 20));
  format.nested = o.bnb_4bit_use_double_quant;
  TRY_STATUS(quant::validate(format));
  return std::optional(format);
}

Result<format::Checkpoint> open_checkpoint(const std::string& model, const Log& log) {
  return format::Checkpoint::open(model, log);
}

Result<std::optional<std::vector<std::string>>> requested_skip_list(const Options& options) {
  const std::string_view text = trimmed(options.llm_int8_skip_modules);
  std::optional<std::vector<std::string>> out;
  if (text.empty()) return out;
  out.emplace();
  const auto document = text.front() == '[' ? JsonDocument::parse(text) : Result<JsonDocument>(Error(ErrorCode::kInvalidArgument, ""));
  if (document && document->root().is_array()) {
    for (const JsonView entry : document->root().elements()) {
      const auto name = entry.as_string();
      if (!name)
        return Error(ErrorCode::kInvalidArgument, fmt::format("--llm-int8-skip-modules: a list of texts was expected, found {} in it", entry.text()));
      out->emplace_back(*name);
    }
    return out;
  }
  for (const std::string& entry : split(text, ','))
    if (const std::string_view name = trimmed(entry); !name.empty()) out->emplace_back(name);
  return out;
}

std::string skip_list_text(const std::vector<std::string>& names) {
  Options plain;
  plain.llm_int8_skip_modules = join(names, ",");
  if (const auto read = requested_skip_list(plain); read && *read == names) return plain.llm_int8_skip_modules;
  JsonWriter w;
  w.begin_array();
  for (const std::string& name : names) w.value(name);
  return w.end_array().take();
}

Status check_skip_list(const arch::ModuleTree& tree, const arch::QuantizeRules& rules) {
  if (rules.unmatched_keys.empty()) return {};
  const std::string& key = rules.unmatched_keys.front();
  std::vector<std::string> names;
  arch::for_each_module(tree, [&](const std::string& path, const arch::Module& module) {
    if (path.empty()) return;
    names.push_back(path);
    const bool number = module.name.find_first_not_of("0123456789") == std::string::npos;
    // Of a list an entry: "experts.0".
    const size_t parent = number ? path.rfind('.', path.size() - module.name.size() - 2) : path.rfind('.');
    names.push_back(parent == std::string::npos ? path : path.substr(parent + 1));
  });
  std::erase(names, key);  // a list's own name matches nothing: its entries do
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--llm-int8-skip-modules: {} matches no module{}", quoted(key), did_you_mean(key, names)),
               {"Module paths are listed by: berth inspect MODEL"});
}

std::optional<DType> stated_load_dtype(const arch::ModelDescription& description) {
  const auto& stated = description.stated_dtype;
  return stated == DType::kF32 || stated == DType::kF16 || stated == DType::kBF16 ? stated : std::nullopt;
}

namespace {

Result<arch::QuantizeRules> rules_for(const arch::ModuleTree& tree, const Options& options) {
  arch::QuantizeOptions rules;
  TRY(rules.skip_modules, requested_skip_list(options));
  return arch::quantize_rules(tree, rules);
}

// A bare tree: floating tensors in the type asked for, Linears packed where 4 or 8 bit was.
Result<ChosenStorage> choose_tree_storage(const arch::ModuleTree& tree, const Options& options) {
  ChosenStorage out;
  TRY(out.quantize_to, requested_format(options));
  sizing::FourBit four_bit;
  four_bit.nested = options.bnb_4bit_use_double_quant;
  if (out.quantize_to && out.quantize_to->codec != quant::Codec::kInt8Row) four_bit.blocksize = out.quantize_to->blocksize;
  if (!out.quantize_to) {
    out.tree_bytes.emplace(tree, four_bit);
    return out;
  }
  TRY(out.rules, rules_for(tree, options));
  const bool eight = out.quantize_to->codec == quant::Codec::kInt8Row;
  out.tree_bytes.emplace(arch::with_quantized_linears(tree, out.rules, eight ? arch::QuantizedLinear::kLinear8bit : arch::QuantizedLinear::kLinear4bit), four_bit);
  return out;
}

bool is_wide_float(DType dtype) { return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16; }

void convert_floats(arch::Module& m, DType to) {
  for (auto& p : m.parameters)
    if (is_wide_float(p.dtype)) p.dtype = p.dtype_f32 = to;
  for (auto& b : m.buffers)
    if (is_wide_float(b.dtype) && b.persistent) b.dtype = b.dtype_f32 = to;
  for (auto& c : m.children) convert_floats(c, to);
}

// What most bytes of a tree's wide floats are.
DType commonest_float(const arch::ModuleTree& tree) {
  std::map<DType, uint64_t> bytes;
  arch::for_each_module(tree, [&](const std::string&, const arch::Module& m) {
    for (const auto& p : m.parameters)
      if (is_wide_float(p.dtype)) bytes[p.dtype] += dtype_bytes(p.dtype, element_count(p.shape).value_or(0)).value_or(0);
  });
  DType most = DType::kBF16;
  uint64_t top = 0;
  for (const auto& [dtype, n] : bytes)
    if (n > top) top = n, most = dtype;
  return most == DType::kF64 ? DType::kF32 : most;
}

// MODEL is a *.tree.json: no architecture, no weights.
Status open_tree(OpenedModel& m, const Options& options) {
  TRY(const auto dtype, requested_dtype("dtype", options.dtype));
  TRY(const auto kv_dtype, requested_dtype("kv-dtype", options.kv_dtype));
  TRY(m.description.tree, arch::read_tree_json_file(m.checkpoint->tree_path()));
  if (dtype) convert_floats(m.description.tree.root, *dtype);
  m.dtype = dtype.value_or(commonest_float(m.description.tree));
  m.kv_dtype = kv_dtype.value_or(m.dtype);
  arch::ModelSpec& spec = m.description.spec;
  spec.family = "tree";
  spec.architecture = m.description.tree.root.class_name;
  spec.dtype = m.dtype;
  spec.unsupported = "a module tree says what there is, not what is computed";
  TRY(ChosenStorage chosen, choose_storage(m.description, options));
  m.quantize_to = chosen.quantize_to;
  m.quantize_rules = std::move(chosen.rules);
  m.tree_bytes = std::move(chosen.tree_bytes);
  TRY_STATUS(check_skip_list(m.description.tree, m.quantize_rules));
  m.notes.push_back("A module tree says nothing of a KV cache or of activations: only weights are counted, and one row in and out");
  return {};
}

}  // namespace

Result<ChosenStorage> choose_storage(const arch::ModelDescription& description, const Options& options) {
  if (description.spec.family == "tree") return choose_tree_storage(description.tree, options);
  ChosenStorage out;
  sizing::StorageRequest request;
  TRY(request.dtype, requested_dtype("dtype", options.dtype));
  TRY(out.quantize_to, requested_format(options));
  if (description.bitsandbytes) out.quantize_to.reset();
  if (out.quantize_to && !request.dtype) request.dtype = stated_load_dtype(description);
  std::set<std::string> wide;  // parameters that Transformers keeps in fp32 when a narrower dtype is asked for
  if (request.dtype && *request.dtype != DType::kF32) {
    arch::for_each_module(description.tree, [&](const std::string& path, const arch::Module& m) {
      for (const arch::Parameter& p : m.parameters)
        if (p.dtype == DType::kF32) wide.insert(arch::join_path(path, p.name));
    });
    request.keeps_f32 = [&wide](const arch::TensorSpec& t) { return wide.contains(t.name); };
  }
  std::set<std::string> replaced;
  if (out.quantize_to) {
    TRY(out.rules, rules_for(description.tree, options));
    for (const arch::QuantizeDecision& d : out.rules.decisions)
      if (d.replaced) replaced.insert(d.path);
    request.quantize_to = out.quantize_to;
    request.quantizes = [&replaced, experts = options.quantize_experts](const arch::TensorSpec& t) {
      if (t.kind == arch::TensorKind::kMatrix) return replaced.contains(t.module);
      return experts && t.kind == arch::TensorKind::kBank;
    };
  }
  TRY(out.storage, sizing::choose_storage(description.spec, request));
  return out;
}

sizing::UnitTable model_units(const OpenedModel& model, const sizing::RunShape& shape, bool whole_layers) {
  if (model.tree_bytes) return sizing::make_tree_units(model.description.tree, *model.tree_bytes, shape);
  return sizing::make_units(model.spec(), model.storage, shape, {whole_layers});
}

sizing::UnitTable model_units(const OpenedModel& model, const ChosenStorage& storage, const sizing::RunShape& shape, bool whole_layers) {
  if (storage.tree_bytes) return sizing::make_tree_units(model.description.tree, *storage.tree_bytes, shape);
  return sizing::make_units(model.spec(), storage.storage, shape, {whole_layers});
}

Result<OpenedModel> open_model(const std::string& model, const Options& options, const Log& log) {
  OpenedModel m;
  TRY(auto checkpoint, format::Checkpoint::open(model, log));
  m.checkpoint = std::make_unique<format::Checkpoint>(std::move(checkpoint));
  m.name = m.checkpoint->display_name();
  if (m.checkpoint->kind() == format::CheckpointKind::kTree) {
    TRY_STATUS(open_tree(m, options));
    return m;
  }
  TRY(const auto asked_dtype, requested_dtype("dtype", options.dtype));
  TRY(const auto kv_dtype, requested_dtype("kv-dtype", options.kv_dtype));
  TRY(const auto asked_format, requested_format(options));
  const auto describe = [&](std::optional<DType> dtype) {
    return arch::describe_model(*m.checkpoint, {.dtype = dtype.value_or(DType::kBF16), .has_dtype = dtype.has_value()});
  };
  TRY(m.description, describe(asked_dtype));
  std::optional<DType> dtype = asked_dtype;
  if (asked_format && !dtype) dtype = stated_load_dtype(m.description);
  if (dtype != asked_dtype) {
    TRY(m.description, describe(dtype));
  }
  m.dtype = dtype.value_or(m.spec().dtype);
  const bool gguf = m.checkpoint->gguf() != nullptr;
  m.kv_dtype = kv_dtype.value_or(gguf ? DType::kF16 : m.dtype);
  for (const std::string& note : m.spec().notes) m.notes.push_back(note);

  if ((options.load_in_4bit || options.load_in_8bit) && m.description.bitsandbytes)
    log.warning("the checkpoint is quantized by bitsandbytes already: what it says counts, as in Transformers, and not --load-in-4bit or --load-in-8bit");
  TRY(ChosenStorage chosen, choose_storage(m.description, options));
  m.quantize_to = chosen.quantize_to;
  m.quantize_rules = std::move(chosen.rules);
  m.storage = std::move(chosen.storage);
  TRY_STATUS(check_skip_list(m.description.tree, m.quantize_rules));
  if (m.quantize_to) {
    size_t made = 0, dequantized = 0, wide_banks = 0;
    for (size_t i = 0; i < m.storage.size(); ++i) {
      made += m.storage[i].quantized_on_load;
      dequantized += m.storage[i].from_block_format;
      wide_banks += m.spec().tensors[i].kind == arch::TensorKind::kBank && !m.storage[i].quantized_on_load;
    }
    m.notes.push_back(fmt::format("{} of {} tensors are made {} on load", made, m.storage.size(), quant::format_text(*m.quantize_to)));
    if (dequantized > 0)
      m.notes.push_back(fmt::format("{} of them are stored in GGUF blocks: they are dequantized first, then quantized again", dequantized));
    const std::string head = arch::find_output_embedding(m.description.tree);
    for (const arch::QuantizeDecision& d : m.quantize_rules.decisions)
      if (d.replaced && d.path == head)
        m.notes.push_back(fmt::format("the head {} is among them: --llm-int8-skip-modules takes the place of the list that protects it", quoted(head)));
    if (wide_banks > 0)
      m.notes.push_back(fmt::format("{} fused expert tensors stay wide, as in Transformers; --quantize-experts shrinks them too", wide_banks));
    if (options.bnb_4bit_compute_dtype != "float32" || options.llm_int8_threshold != 6)
      m.notes.push_back("--bnb-4bit-compute-dtype and --llm-int8-threshold are the library's: Berth computes in fp32 and leaves activations whole");
    if (options.llm_int8_enable_fp32_cpu_offload)
      m.notes.push_back("--llm-int8-enable-fp32-cpu-offload: quantized modules stay quantized on cpu and disk");
  }
  return m;
}

std::string OpenedModel::quantization() const {
  if (quantize_to) return std::string(quant::codec_name(quantize_to->codec));
  if (tree_bytes) return "none";
  for (const sizing::TensorStorage& s : storage)
    if (s.counted_only) return checkpoint->quantization() ? checkpoint->quantization()->method_name : "other";
  std::map<quant::Codec, uint64_t> bytes;
  for (size_t i = 0; i < storage.size(); ++i)
    if (spec().tensors[i].kind == arch::TensorKind::kMatrix || spec().tensors[i].kind == arch::TensorKind::kBank)
      bytes[storage[i].layout.format.codec] += storage[i].bytes;
  quant::Codec most = quant::Codec::kF32;
  uint64_t top = 0;
  for (const auto& [codec, n] : bytes)
    if (n > top) top = n, most = codec;
  if (most == quant::Codec::kF32 || most == quant::Codec::kF16 || most == quant::Codec::kBF16) return "none";
  return std::string(quant::codec_name(most));
}

uint64_t OpenedModel::parameters() const {
  if (tree_bytes) return tree_bytes->parameters();
  uint64_t n = 0;
  for (const arch::TensorSpec& t : spec().tensors)
    if (!t.tied_to) n += static_cast<uint64_t>(t.rows) * static_cast<uint64_t>(t.cols) * static_cast<uint64_t>(t.experts);
  return n;
}

}  // namespace berth::engine
