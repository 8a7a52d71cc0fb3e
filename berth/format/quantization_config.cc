// format/quantization_config.cc — see quantization_config.h.
#include "berth/format/quantization_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "berth/base/strings.h"

namespace berth::format {
namespace {

struct MethodName {
  std::string_view name;
  QuantMethod method;
};
// The first name of a method is its own; others are spellings seen in files.
constexpr MethodName kMethods[] = {
    {"bitsandbytes", QuantMethod::kBitsAndBytes},
    {"bitsandbytes_4bit", QuantMethod::kBitsAndBytes},
    {"bitsandbytes_8bit", QuantMethod::kBitsAndBytes},
    {"gptq", QuantMethod::kGptq},
    {"awq", QuantMethod::kAwq},
    {"fp8", QuantMethod::kFp8},
    {"fbgemm_fp8", QuantMethod::kFbgemmFp8},
    {"mxfp4", QuantMethod::kMxfp4},
    {"compressed-tensors", QuantMethod::kCompressedTensors},
    {"sparseml", QuantMethod::kCompressedTensors},
    {"modelopt", QuantMethod::kModelopt},
    {"modelopt_fp4", QuantMethod::kModelopt},
    {"nvfp4", QuantMethod::kModelopt},
    {"torchao", QuantMethod::kTorchao},
    {"hqq", QuantMethod::kHqq},
    {"quanto", QuantMethod::kQuanto},
    {"eetq", QuantMethod::kEetq},
    {"aqlm", QuantMethod::kAqlm},
    {"vptq", QuantMethod::kVptq},
    {"spqr", QuantMethod::kSpqr},
    {"higgs", QuantMethod::kHiggs},
    {"quark", QuantMethod::kQuark},
    {"bitnet", QuantMethod::kBitnet},
    {"auto-round", QuantMethod::kAutoRound},
    {"intel/auto-round", QuantMethod::kAutoRound},
    {"fp_quant", QuantMethod::kFpQuant},
    {"fpquant", QuantMethod::kFpQuant},
    {"sinq", QuantMethod::kSinq},
    {"metal", QuantMethod::kMetal},
};

constexpr std::array<std::string_view, 15> kBitsAndBytesKeys = {"quant_method",
                                                                "load_in_4bit",
                                                                "load_in_8bit",
                                                                "_load_in_4bit",
                                                                "_load_in_8bit",
                                                                "llm_int8_threshold",
                                                                "llm_int8_skip_modules",
                                                                "llm_int8_enable_fp32_cpu_offload",
                                                                "llm_int8_has_fp16_weight",
                                                                "bnb_4bit_compute_dtype",
                                                                "bnb_4bit_quant_type",
                                                                "bnb_4bit_use_double_quant",
                                                                "bnb_4bit_quant_storage",
                                                                "modules_to_not_convert",
                                                                "version"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return out;
}

QuantMethod method_of(std::string_view name) {
  const std::string low = lower(name);
  for (const MethodName& m : kMethods)
    if (m.name == low) return m.method;
  return QuantMethod::kUnknown;
}

Result<DType> dtype_key(const ConfigView& view, const char* key, DType otherwise) {
  TRY(const auto name, view.find_string(key));
  if (!name) return otherwise;
  const auto dtype = dtype_from_name(*name);
  if (!dtype) return view.wrong(key, "a torch dtype such as \"bfloat16\"");
  return *dtype;
}

Status read_bitsandbytes(const ConfigView& q, QuantizationConfig& out) {
  BitsAndBytesConfig& b = out.bitsandbytes;
  TRY(b.load_in_4bit, q.bool_or("load_in_4bit", out.method_name == "bitsandbytes_4bit"));
  TRY(b.load_in_8bit, q.bool_or("load_in_8bit", out.method_name == "bitsandbytes_8bit"));
  if (b.load_in_4bit && b.load_in_8bit)
    return q.broken(fmt::format("{} and {} are both true; one of them was expected",
                                quoted(q.full_name("load_in_4bit")), quoted(q.full_name("load_in_8bit"))));
  TRY(b.llm_int8_threshold, q.double_or("llm_int8_threshold", 6.0));
  TRY(auto skip, q.find_strings("llm_int8_skip_modules"));
  b.has_skip_modules = skip.has_value();
  if (skip) out.skip_modules = b.llm_int8_skip_modules = std::move(*skip);
  TRY(b.llm_int8_enable_fp32_cpu_offload, q.bool_or("llm_int8_enable_fp32_cpu_offload", false));
  TRY(b.llm_int8_has_fp16_weight, q.bool_or("llm_int8_has_fp16_weight", false));
  TRY(b.bnb_4bit_compute_dtype, dtype_key(q, "bnb_4bit_compute_dtype", DType::kF32));
  TRY(b.bnb_4bit_quant_type, q.string_or("bnb_4bit_quant_type", "fp4"));
  if (b.bnb_4bit_quant_type != "fp4" && b.bnb_4bit_quant_type != "nf4")
    return q.wrong("bnb_4bit_quant_type", "\"fp4\" or \"nf4\"");
  TRY(b.bnb_4bit_use_double_quant, q.bool_or("bnb_4bit_use_double_quant", false));
  TRY(b.bnb_4bit_quant_storage, dtype_key(q, "bnb_4bit_quant_storage", DType::kU8));
  switch (b.bnb_4bit_quant_storage) {
    case DType::kU8:
    case DType::kI8:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      break;
    default:
      return q.wrong("bnb_4bit_quant_storage", "uint8, int8, float16, bfloat16, float32 or float64");
  }
  out.bits = b.load_in_4bit ? 4 : b.load_in_8bit ? 8 : std::optional<int64_t>();
  for (JsonView::Cursor c(q.json()); c.next();)
    if (std::find(kBitsAndBytesKeys.begin(), kBitsAndBytesKeys.end(), c.key()) == kBitsAndBytesKeys.end())
      out.notes.push_back(
          fmt::format("{}: key {} is not known and was ignored", quoted(q.file(), 400), quoted(q.full_name(c.key()))));
  return {};
}

// Sizes follow from these, nothing is decoded by them: a group that is no object says nothing.
Status read_compressed_tensors(const ConfigView& q, QuantizationConfig& out) {
  TRY(const std::string status, q.string_or("quantization_status", ""));
  out.compressed = status == "compressed";
  out.quantizes_cache = q.find("kv_cache_scheme").is_object();
  TRY(const auto groups, q.find_object("config_groups"));
  if (!groups) return {};
  for (JsonView::Cursor c(groups->json()); c.next();) {
    TRY(const auto group, groups->find_object(c.key()));
    if (!group) continue;
    CompressedGroup g;
    TRY(auto targets, group->find_strings("targets"));
    if (targets) g.targets = *std::move(targets);
    TRY(g.format, group->string_or("format", out.format));
    const auto activations = [&](const char* key) -> std::optional<bool> {  // whether static
      const JsonView v = group->find(key);
      if (!v.is_object()) return std::nullopt;
      const JsonView dynamic = v["dynamic"];
      return !dynamic.as_bool().value_or(dynamic.as_string().has_value());
    };
    const auto inputs = activations("input_activations");
    g.quantizes_inputs = inputs.has_value();
    g.static_inputs = inputs.value_or(false);
    g.quantizes_outputs = activations("output_activations").has_value();
    TRY(const auto weights, group->find_object("weights"));
    if (weights) {
      TRY(g.bits, weights->int_or("num_bits", 8, {1, 32}));
      TRY(const std::string type, weights->string_or("type", "int"));
      g.is_float = type == "float";
      TRY(g.symmetric, weights->bool_or("symmetric", true));
      const auto group_size = weights->find("group_size").as_int64();
      g.group_size = group_size.value_or(0);
      TRY(g.strategy, weights->string_or("strategy", g.group_size > 0     ? "group"
                                                     : g.group_size == -1 ? "channel"
                                                                          : "tensor"));
      if (weights->find("block_structure").is_array()) {
        TRY(auto block, weights->find_ints("block_structure", kCount));
        g.block = *std::move(block);
      }
    }
    out.groups.push_back(std::move(g));
  }
  return {};
}

// "modules_in_block_to_quantize": a list of lists of names, or a list of names.
void read_inside_blocks(JsonView list, QuantizationConfig& out) {
  for (JsonView::Cursor c(list); c.next();) {
    if (const auto name = c.value().as_string()) out.inside_blocks.emplace_back(*name);
    if (c.value().is_array()) read_inside_blocks(c.value(), out);
  }
}

// What other methods state, where they state it; each key is read leniently since nothing is decoded by it here.
Status read_others(const ConfigView& q, QuantizationConfig& out) {
  const auto number = [&](std::initializer_list<std::string_view> names) -> std::optional<int64_t> {
    return q.find(names).as_int64();
  };
  out.bits = number({"bits", "w_bit", "nbits", "weight_bits"});
  out.group_size = number({"group_size", "q_group_size"});
  if (const JsonView block = q.find("weight_block_size"); block.valid()) {
    TRY(auto sizes, q.find_ints("weight_block_size", kCount));
    if (sizes->size() != 2) return q.wrong("weight_block_size", "two block extents");
    out.block_size = std::move(*sizes);
  }
  if (const auto text = q.find({"format", "quant_algo", "fmt", "version", "checkpoint_format"}).as_string())
    out.format = *text;
  for (const char* key : {"modules_to_not_convert", "ignore", "exclude_modules"}) {
    if (!q.find(key).is_array()) continue;
    TRY(auto names, q.find_strings(key));
    out.skip_modules = std::move(*names);
    break;
  }
  if (out.method == QuantMethod::kGptq) {
    if (q.find("modules_in_block_to_quantize").is_array())
      read_inside_blocks(q.find("modules_in_block_to_quantize"), out);
    TRY(out.block_name, q.string_or("block_name_to_quantize", ""));
  }
  if (out.method == QuantMethod::kCompressedTensors) TRY_STATUS(read_compressed_tensors(q, out));
  return {};
}

Result<std::optional<QuantizationConfig>> read_object(const ConfigView& q) {
  QuantizationConfig out;
  TRY(out.method_name, q.string_or("quant_method", ""));
  if (out.method_name.empty()) {
    // Files from before the key existed.
    TRY(const bool four, q.bool_or("load_in_4bit", false));
    TRY(const bool eight, q.bool_or("load_in_8bit", false));
    if (four || eight)
      out.method_name = "bitsandbytes";
    else if (q.has({"quant_algo", "config_groups"}))
      out.method_name = q.has("quant_algo") ? "modelopt" : "compressed-tensors";
    else if (q.json().size() == 0)
      return std::optional<QuantizationConfig>();
  }
  out.method = method_of(out.method_name);
  if (out.method == QuantMethod::kBitsAndBytes)
    TRY_STATUS(read_bitsandbytes(q, out));
  else
    TRY_STATUS(read_others(q, out));
  return std::optional(std::move(out));
}

}  // namespace

std::string_view quant_method_name(QuantMethod method) {
  for (const MethodName& m : kMethods)
    if (m.method == method) return m.name;
  return "unknown";
}

Result<std::optional<QuantizationConfig>> read_quantization_config(const ConfigView& root, const ConfigView& text) {
  for (const ConfigView* view : {&root, &text}) {
    TRY(const auto object, view->find_object({"quantization_config", "compression_config"}));
    if (object) return read_object(*object);
  }
  return std::optional<QuantizationConfig>();
}

Result<std::optional<QuantizationConfig>> parse_hf_quant_config(std::string_view json, std::string file_name) {
  auto document = JsonDocument::parse(json, {.max_bytes = 16u << 20});
  if (!document) return document.error().with_context("reading " + quoted(file_name, 400));
  const ConfigView root(document->root(), std::move(file_name), "");
  if (!root.json().is_object()) return root.broken("a JSON object was expected");
  TRY(const auto producer, root.find_object("producer"));
  TRY(const auto object, root.find_object("quantization"));
  if (!object) return std::optional<QuantizationConfig>();
  QuantizationConfig out;
  out.method_name = "modelopt";
  if (producer) {
    TRY(out.method_name, producer->string_or("name", "modelopt"));
  }
  out.method = method_of(out.method_name);
  TRY_STATUS(read_others(*object, out));
  return std::optional(std::move(out));
}

}  // namespace berth::format
