// format/quantization_config.h — how a checkpoint says its weights are quantized: which method, with which numbers.
//
// From config.json's quantization_config (also inside the text part), compression_config, or modelopt's
// hf_quant_config.json. bitsandbytes is read in full (specs/quantization.md 3.3); other methods are recognised by name
// with the numbers that sizes follow from. Which tensors are quantized is never decided from skip lists: a tensor is
// iff its own auxiliary tensors are in the file.
//
// Non-goals: the codecs (quant/). Start reading at: read_quantization_config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/config_view.h"
#include "berth/tensor/dtype.h"

namespace berth::format {

enum class QuantMethod {
  kBitsAndBytes,
  kGptq,
  kAwq,
  kFp8,
  kFbgemmFp8,
  kMxfp4,
  kCompressedTensors,
  kModelopt,
  kTorchao,
  kHqq,
  kQuanto,
  kEetq,
  kAqlm,
  kVptq,
  kSpqr,
  kHiggs,
  kQuark,
  kBitnet,
  kAutoRound,
  kFpQuant,
  kSinq,
  kMetal,
  kUnknown,
};
std::string_view quant_method_name(QuantMethod method);  // as written in configs, "unknown" for kUnknown

// Defaults are those of the library's own config class.
struct BitsAndBytesConfig {
  bool load_in_4bit = false, load_in_8bit = false;
  double llm_int8_threshold = 6.0;
  std::vector<std::string> llm_int8_skip_modules;  // empty where null: see has_skip_modules
  bool has_skip_modules = false;
  bool llm_int8_enable_fp32_cpu_offload = false, llm_int8_has_fp16_weight = false;
  DType bnb_4bit_compute_dtype = DType::kF32;
  std::string bnb_4bit_quant_type = "fp4";  // "fp4" or "nf4"
  bool bnb_4bit_use_double_quant = false;
  DType bnb_4bit_quant_storage = DType::kU8;
};

// One of compressed-tensors' config_groups, as far as sizes follow from it.
struct CompressedGroup {
  std::vector<std::string> targets;  // class names, module paths, or "re:" and a pattern
  std::string format;                // the group's own, else the checkpoint's: "pack-quantized"...
  int64_t bits = 0;                  // of the weights; 0: they are not quantized
  bool is_float = false, symmetric = true;
  std::string strategy;  // "tensor", "channel", "group", "block", "tensor_group"
  int64_t group_size = 0;
  std::vector<int64_t> block;
  bool quantizes_inputs = false, static_inputs = false;
  bool quantizes_outputs = false;
};

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kUnknown;
  std::string method_name;  // as the file has it: "gptq"; for modelopt its algorithm is in `format`
  BitsAndBytesConfig bitsandbytes;
  std::optional<int64_t> bits;            // gptq, awq, hqq, ..
  std::optional<int64_t> group_size;      // -1: one group a row
  std::vector<int64_t> block_size;        // fp8: weight_block_size, [128, 128]
  std::string format;                     // compressed-tensors' format, modelopt's quant_algo, fp8's fmt, awq's version
  std::vector<std::string> skip_modules;  // modules_to_not_convert, ignore, exclude_modules: for reports only
  std::vector<std::string> notes;         // keys that are not known and were ignored
  // compressed-tensors
  std::vector<CompressedGroup> groups;
  bool compressed = false;       // quantization_status: the weights are stored packed
  bool quantizes_cache = false;  // kv_cache_scheme
  // gptq: module names inside a block, where the config restricts them; and the list of blocks, where it names it
  std::vector<std::string> inside_blocks;
  std::string block_name;
};

// Errors: kCorruptData naming file and key (4 and 8 bits both, a quant type other than fp4 and nf4, wrong types). A
// method that is not known is no error here: its name is in method_name.
Result<std::optional<QuantizationConfig>> read_quantization_config(const ConfigView& root, const ConfigView& text);

// modelopt's hf_quant_config.json, for checkpoints whose config.json says nothing.
Result<std::optional<QuantizationConfig>> parse_hf_quant_config(std::string_view json, std::string file_name);

}  // namespace berth::format
