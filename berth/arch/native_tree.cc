// arch/native_tree.cc — see native_tree.h.
#include "berth/arch/native_tree.h"

#include <functional>
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

}  // namespace

Result<ModuleTree> native_tree(ModuleTree tree, const QuantizationConfig& q) {
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
    default:
      return Error(ErrorCode::kUnsupported,
                   "the tree of a checkpoint quantized by " + quoted(q.method_name) + " is not known");
  }
}

}  // namespace berth::arch
