// arch/native_tree.cc — see native_tree.h.
#include "berth/arch/native_tree.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/arch/quantize_rules.h"
#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

using format::QuantizationConfig;
using format::QuantMethod;

// Calls change(module, parent) for every module whose path no key skips, children first.
Status change_modules(Module& module, const std::string& path, Module* parent, const std::vector<std::string>& skip,
                      const std::function<void(Module&, Module*)>& change) {
  for (Module& child : module.children)
    TRY_STATUS(change_modules(child, join_path(path, child.name), &module, skip, change));
  for (const std::string& key : skip) {
    TRY(const bool skipped, skip_key_matches(key, path));
    if (skipped) return {};
  }
  change(module, parent);
  return {};
}

std::vector<std::string> skip_list(const ModuleTree& tree, const QuantizationConfig& q) {
  if (!q.skip_modules.empty()) return q.skip_modules;
  return automatic_skip_list(tree, find_output_embedding(tree));
}

Parameter typed(Parameter p, DType dtype) {
  p.dtype = p.dtype_f32 = dtype;
  return p;
}

// --- fp8

struct BlockSize {
  int64_t rows = 128, cols = 128;
};

// The parameter in e4m3 and its grid of scales.
void push_fp8(std::vector<Parameter>& out, const Parameter& p, const BlockSize& block) {
  Shape scales = p.shape;
  scales[scales.size() - 2] = ceil_div(scales[scales.size() - 2], block.rows);
  scales.back() = ceil_div(scales.back(), block.cols);
  out.push_back(typed(p, DType::kF8E4M3));
  out.push_back({p.name + "_scale_inv", std::move(scales), DType::kF32, DType::kF32});
}

bool holds_experts(const Module& m) {
  for (const Parameter& p : m.parameters)
    if (p.shape.size() == 3) return true;
  return false;
}

void to_fp8(Module& m, const BlockSize& block) {
  const bool experts = m.name == "experts" && holds_experts(m);
  if (m.class_name != "Linear" && !experts) return;
  std::vector<Parameter> parameters;
  for (const Parameter& p : m.parameters) {
    if (p.shape.size() >= 2) {
      push_fp8(parameters, p, block);
    } else {
      parameters.push_back(p);
    }
  }
  m.parameters = std::move(parameters);
  m.class_name = experts ? "FP8Experts" : "FP8Linear";
}

// --- mxfp4

// [experts, in, out] becomes [experts, out, in / 2] bytes.
void to_mxfp4(Module& m, Module* parent) {
  if (m.class_name != "GptOssExperts") return;
  for (Parameter& p : m.parameters) {
    if (p.shape.size() == 3) {
      p.shape = {p.shape[0], p.shape[2], p.shape[1] / 2};
      p = typed(std::move(p), DType::kU8);
    } else {
      p = typed(std::move(p), DType::kF32);
    }
  }
  m.class_name = "Mxfp4GptOssExperts";
  if (parent != nullptr && parent->class_name == "GptOssMLP") parent->class_name = "Mxfp4GptOssMLP";
}

// --- awq, gptq: a Linear's tensors become buffers of a packed one

Error not_followed(std::string what) {
  return Error(ErrorCode::kUnsupported, "the tree of a checkpoint quantized by " + std::move(what) + " is not known");
}

const Parameter* find_weight(const Module& m) {
  for (const Parameter& p : m.parameters)
    if (p.name == "weight" && p.shape.size() == 2) return &p;
  return nullptr;
}

// nn.Linear and, for those who ask isinstance(), what derives from it.
bool is_linear(const Module& m, bool derived) {
  return (m.class_name == "Linear" || (derived && m.class_name.ends_with("Linear"))) && find_weight(m) != nullptr;
}

struct PackedLinear {
  int64_t bits = 4, group_size = 128;
  bool rows_are_packed = false;  // gptq packs along the inputs and keeps an index of groups; awq along the outputs
};

Buffer buffer(std::string name, Shape shape, DType dtype) {
  return {std::move(name), std::move(shape), dtype, dtype, true};
}

void to_packed(Module& m, const PackedLinear& q) {
  const Parameter* weight = find_weight(m);
  const int64_t outputs = weight->shape[0], inputs = weight->shape[1];
  const int64_t groups = q.group_size > 0 ? ceil_div(inputs, q.group_size) : 1;
  const auto words = [&](int64_t values) { return ceil_div<int64_t>(values * q.bits, 32); };
  const bool bias =
      std::any_of(m.parameters.begin(), m.parameters.end(), [](const Parameter& p) { return p.name == "bias"; });
  m.parameters.clear();
  m.buffers.push_back(buffer(
      "qweight", q.rows_are_packed ? Shape{words(inputs), outputs} : Shape{inputs, words(outputs)}, DType::kI32));
  m.buffers.push_back(buffer("qzeros", {groups, words(outputs)}, DType::kI32));
  m.buffers.push_back(buffer("scales", {groups, outputs}, DType::kF16));
  if (q.rows_are_packed) m.buffers.push_back(buffer("g_idx", {inputs}, DType::kI32));
  if (bias) m.buffers.push_back(buffer("bias", {outputs}, DType::kF16));
  m.class_name = q.rows_are_packed ? "GptqQuantLinear" : "AwqQuantLinear";  // gptqmodel's own name differs by kernel
}

Result<ModuleTree> awq_tree(ModuleTree tree, const QuantizationConfig& q) {
  const bool gemm = q.format.empty() || q.format == "gemm" || q.format == "GEMM";
  if (q.bits.value_or(4) != 4 || !gemm)
    return not_followed("awq in " + std::to_string(q.bits.value_or(4)) + " bits, version " + quoted(q.format));
  std::vector<std::string> skip = automatic_skip_list(tree, find_output_embedding(tree));  // beside the config's own
  skip.insert(skip.end(), q.skip_modules.begin(), q.skip_modules.end());
  skip.insert(skip.end(), tree.keep_in_fp32.begin(), tree.keep_in_fp32.end());
  const PackedLinear packed{4, q.group_size.value_or(128), false};
  TRY_STATUS(change_modules(tree.root, "", nullptr, skip, [&](Module& m, Module*) {
    if (is_linear(m, true)) to_packed(m, packed);
  }));
  return tree;
}

// The list of blocks that optimum picks: the first of these names that starts some module's path.
std::string gptq_blocks(const ModuleTree& tree) {
  for (const char* name : {"transformer.h", "model.decoder.layers", "gpt_neox.layers", "model.layers",
                           "model.language_model.layers", "h", "decoder.layers", "layers"}) {
    bool found = false;
    for_each_module(tree, [&](const std::string& path, const Module&) { found = found || path.starts_with(name); });
    if (found) return name;
  }
  return "";
}

Result<ModuleTree> gptq_tree(ModuleTree tree, const QuantizationConfig& q) {
  const int64_t bits = q.bits.value_or(4);
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return not_followed("gptq in " + std::to_string(bits) + " bits");
  const std::string blocks = q.block_name.empty() ? gptq_blocks(tree) : q.block_name;
  if (blocks.empty()) return not_followed("gptq, without a list of blocks optimum would find,");
  const PackedLinear packed{bits, q.group_size.value_or(128), true};
  const std::function<void(Module&, const std::string&)> change = [&](Module& m, const std::string& path) {
    for (Module& child : m.children) change(child, join_path(path, child.name));
    const bool listed =
        q.inside_blocks.empty() || std::any_of(q.inside_blocks.begin(), q.inside_blocks.end(),
                                               [&](const std::string& name) { return path.ends_with(name); });
    if (listed && path.starts_with(blocks) && is_linear(m, false)) to_packed(m, packed);
  };
  change(tree.root, "");
  return tree;
}

// --- compressed-tensors: the class stays, its tensors change

Result<bool> is_target(const std::string& target, const std::string& path, const Module& m) {
  if (target.starts_with("re:")) return pattern_matches_start(std::string_view(target).substr(3), path);
  return target == path || target == m.class_name || (target == "Linear" && is_linear(m, true));
}

Result<bool> is_any_target(const std::vector<std::string>& targets, const std::string& path, const Module& m) {
  for (const std::string& target : targets) {
    TRY(const bool is, is_target(target, path, m));
    if (is) return true;
  }
  return false;
}

std::optional<Shape> scale_shape(const format::CompressedGroup& g, int64_t rows, int64_t cols) {
  if (g.strategy == "tensor") return Shape{1};
  if (g.strategy == "channel") return Shape{rows, 1};
  if ((g.strategy == "group" || g.strategy == "tensor_group") && g.group_size > 0)
    return Shape{rows, ceil_div(cols, g.group_size)};
  if (g.strategy == "block" && g.block.size() == 2 && g.block[0] > 0 && g.block[1] > 0)
    return Shape{ceil_div(rows, g.block[0]), ceil_div(cols, g.block[1])};
  return std::nullopt;
}

Status to_compressed(Module& m, const format::CompressedGroup& g) {
  const Parameter weight = *find_weight(m);
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const auto scales = scale_shape(g, rows, cols);
  if (!scales) return not_followed("compressed-tensors with scales by " + quoted(g.strategy));
  std::vector<Parameter> out;
  for (const Parameter& p : m.parameters)
    if (p.name != "weight") out.push_back(p);
  const auto add = [&](std::string name, Shape shape, DType dtype) {
    out.push_back({std::move(name), std::move(shape), dtype, dtype});
  };
  const auto add_scale = [&](std::string name, Shape shape) {
    out.push_back({std::move(name), std::move(shape), weight.dtype, weight.dtype_f32});
  };
  if (g.format == "nvfp4-pack-quantized" && g.bits == 4 && g.is_float && g.strategy == "tensor_group") {
    if (g.quantizes_inputs) add("input_global_scale", {1}, DType::kF32);
    add("weight_global_scale", {1}, DType::kF32);
    add("weight_packed", {rows, ceil_div<int64_t>(cols, 2)}, DType::kU8);
    add("weight_scale", *scales, DType::kF8E4M3);
  } else {
    const bool packed = g.format == "pack-quantized" && !g.is_float && g.bits <= 8;
    const bool bytes = (g.format == "int-quantized" && !g.is_float && g.bits == 8) ||
                       (g.format == "float-quantized" && g.is_float && g.bits == 8) ||
                       (g.format == "naive-quantized" && g.bits == 8);
    if (!packed && !bytes)
      return not_followed("compressed-tensors in format " + quoted(g.format) + " with " + std::to_string(g.bits) +
                          " bits");
    if (g.static_inputs) add_scale("input_scale", {1});
    add_scale("weight_scale", *scales);
    if (!g.symmetric) add("weight_zero_point", *scales, DType::kI8);
    if (packed) {
      add("weight_packed", {rows, ceil_div(cols, 32 / g.bits)}, DType::kI32);
      add("weight_shape", {2}, DType::kI64);
    } else {
      add("weight", weight.shape, g.is_float ? DType::kF8E4M3 : DType::kI8);
    }
  }
  m.parameters = std::move(out);
  return {};
}

Result<ModuleTree> compressed_tree(ModuleTree tree, const QuantizationConfig& q) {
  if (!q.compressed) return not_followed("compressed-tensors whose quantization_status is not \"compressed\"");
  if (q.quantizes_cache) return not_followed("compressed-tensors with a kv_cache_scheme");
  for (const format::CompressedGroup& g : q.groups)
    if (g.quantizes_outputs) return not_followed("compressed-tensors with output_activations");
  const std::function<Status(Module&, const std::string&)> change = [&](Module& m, const std::string& path) -> Status {
    for (Module& child : m.children) TRY_STATUS(change(child, join_path(path, child.name)));
    if (!is_linear(m, true)) return {};
    TRY(const bool ignored, is_any_target(q.skip_modules, path, m));
    if (ignored) return {};
    for (const format::CompressedGroup& g : q.groups) {
      TRY(const bool is, is_any_target(g.targets, path, m));
      if (!is) continue;
      if (g.bits > 0) TRY_STATUS(to_compressed(m, g));
      return {};
    }
    return {};
  };
  TRY_STATUS(change(tree.root, ""));
  return tree;
}

}  // namespace

Result<ModuleTree> native_tree(ModuleTree tree, const QuantizationConfig& q,
                               std::vector<std::string> kept_off_accelerators) {
  switch (q.method) {
    case QuantMethod::kFp8: {
      BlockSize block;
      if (q.block_size.size() == 2 && q.block_size[0] > 0 && q.block_size[1] > 0)
        block = {q.block_size[0], q.block_size[1]};
      const std::vector<std::string> skip = skip_list(tree, q);
      TRY_STATUS(change_modules(tree.root, "", nullptr, skip, [&](Module& m, Module*) { to_fp8(m, block); }));
      return tree;
    }
    case QuantMethod::kMxfp4:
      TRY_STATUS(change_modules(tree.root, "", nullptr, q.skip_modules, to_mxfp4));
      return tree;
    case QuantMethod::kBitsAndBytes: {
      QuantizeOptions options;
      options.kept_off_accelerators = std::move(kept_off_accelerators);
      if (q.bitsandbytes.has_skip_modules) options.skip_modules = q.bitsandbytes.llm_int8_skip_modules;
      TRY(const QuantizeRules rules, quantize_rules(tree, options));
      const bool int8 = q.bitsandbytes.load_in_8bit;
      ModuleTree out =
          with_quantized_linears(tree, rules, int8 ? QuantizedLinear::kLinear8bit : QuantizedLinear::kLinear4bit);
      if (!int8) return out;
      TRY_STATUS(change_modules(out.root, "", nullptr, {}, [](Module& m, Module*) {
        if (m.class_name != "Linear8bitLt") return;
        for (Parameter& p : m.parameters)
          if (p.name == "weight") p = typed(std::move(p), DType::kI8);
      }));
      return out;
    }
    case QuantMethod::kAwq:
      return awq_tree(std::move(tree), q);
    case QuantMethod::kGptq:
      return gptq_tree(std::move(tree), q);
    case QuantMethod::kCompressedTensors:
      return compressed_tree(std::move(tree), q);
    default:
      return not_followed(quoted(q.method_name));
  }
}

}  // namespace berth::arch
