// arch/families/moe.h — sparse MLP blocks that several families share.
#pragma once

#include <string>
#include <string_view>

#include "berth/arch/decoder_parts.h"

namespace berth::arch {

// `layer` is sparse: its dense MLP is replaced by `moe`.
void make_sparse(LayerSpec& layer, const MoeSpec& moe);

// The experts' module: `name`{gate_up_proj, down_proj, act_fn}. `activation` empty: without act_fn.
void experts_module(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view name,
                    std::string_view class_name, const ExpertNames& names, std::string_view activation);

// A router's module: `name`{weight}.
void router_module(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view name, std::string_view class_name,
                   std::string_view disk = "");

// Qwen's block: gate, experts, and where the spec has one, shared_expert with its sigmoid gate.
void qwen_moe_block(Builder& b, const Decoder& d, const MoeSpec& moe, const std::string& prefix,
                    const ExpertNames& names);

}  // namespace berth::arch
