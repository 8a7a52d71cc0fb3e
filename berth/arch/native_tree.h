// arch/native_tree.h — the module tree of a checkpoint that is quantized already, after its own quantizer has replaced
// modules: what Transformers plans for fp8, mxfp4 and bitsandbytes checkpoints.
//
//   fp8:   Linear -> FP8Linear{weight e4m3, weight_scale_inv}, experts -> FP8Experts{.., .._scale_inv}
//   mxfp4: GptOssExperts -> Mxfp4GptOssExperts{packed uint8, biases float32}, its parent likewise
//   bitsandbytes: Linear -> Linear8bitLt (int8) or Linear4bit
//
// Which modules follows from the config's skip list or, without one, from the automatic list (quantize_rules.h).
#pragma once

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/format/quantization_config.h"

namespace berth::arch {

// Errors: kUnsupported naming another method; kInvalidArgument naming a skip-list entry that is no pattern.
Result<ModuleTree> native_tree(ModuleTree tree, const format::QuantizationConfig& quantization);

}  // namespace berth::arch
