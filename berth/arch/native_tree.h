// arch/native_tree.h — the module tree of a checkpoint that is quantized already, after its own quantizer has replaced
// modules: what Transformers plans for such checkpoints.
//
//   fp8:   Linear -> FP8Linear{weight e4m3, weight_scale_inv}, experts -> FP8Experts{.., .._scale_inv}
//   mxfp4: GptOssExperts -> Mxfp4GptOssExperts{packed uint8, biases float32}, its parent likewise
//   bitsandbytes: Linear -> Linear8bitLt (int8) or Linear4bit
//   awq, gptq: Linear -> gptqmodel's, with buffers qweight, qzeros, scales (and g_idx) of the shapes on disk
//   compressed-tensors: Linear{weight_packed, weight_scale..}, by its config_groups
//
// Which modules follows from the config's skip list or, without one, from the automatic list (quantize_rules.h); awq
// joins the two, gptq takes the Linear modules of the blocks, compressed-tensors its targets without `ignore`.
#pragma once

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/format/quantization_config.h"

namespace berth::arch {

// `kept_off_accelerators`: bitsandbytes' QuantizeOptions::kept_off_accelerators.
//
// Errors: kUnsupported naming another method; kInvalidArgument naming a skip-list entry that is no pattern.
Result<ModuleTree> native_tree(ModuleTree tree, const format::QuantizationConfig& quantization,
                               std::vector<std::string> kept_off_accelerators = {});

}  // namespace berth::arch
