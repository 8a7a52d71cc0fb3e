// arch/decoder_parts.h — pieces that most decoders are made of, laid out as the Llama class has them.
//
// A family calls causal_lm() with the names of its classes and, where its attention or MLP differ, functions of its own
// made of the smaller pieces here.
//
// Start reading at: DecoderParts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "berth/arch/families/family.h"

namespace berth::arch {

// How one class differs from Llama. "Llama" as `prefix` names LlamaModel, LlamaDecoderLayer, LlamaRMSNorm...
struct DecoderParts {
  using LayerPart = std::function<void(Builder&, const Decoder&, const LayerSpec&)>;

  std::string prefix;
  std::string model_class, layer_class, attention_class, mlp_class, norm_class, rotary_class;  // empty: from prefix
  std::string embedding_class = "Embedding";  // a class that scales has the buffer embed_scale
  bool add_one = false;                       // norms are stored as offset from one
  LayerPart attention, mlp;                   // empty: split_attention, gated_mlp
  LayerPart layer_end;                        // further children after the norms

  std::string named(const std::string& own, std::string_view suffix) const {
    return own.empty() ? prefix + std::string(suffix) : own;
  }
};

// The whole model: NAMEForCausalLM{model, lm_head}. Fills no_split_classes with the layer class.
void causal_lm(Builder& b, const Decoder& d, const DecoderParts& parts);
// The children of the open text model: embed_tokens, layers, norm, rotary_emb. Marks it as the base.
void text_model(Builder& b, const Decoder& d, const DecoderParts& parts);
// What text_model() is made of.
void embedding(Builder& b, const Decoder& d, std::string_view name, const DecoderParts& parts);
void decoder_layers(Builder& b, const Decoder& d, const DecoderParts& parts);
// The list of layers alone: `fill` lays out the children of each.
void layer_list(Builder& b, const Decoder& d, std::string_view name, std::string_view layer_class,
                const DecoderParts::LayerPart& fill);
// inv_freq and original_inv_freq, one pair for the whole model or one per layer type.
void rotary_embedding(Builder& b, const Decoder& d, std::string_view name, std::string_view class_name);

// lm_head beside the model; shares `table` (a parameter path) where the spec says tied.
void head(Builder& b, const Decoder& d, std::string_view name, std::string_view table);

// --- one layer
Dim query_dim(const Decoder& d, const AttentionSpec& a);
Dim key_dim(const Decoder& d, const AttentionSpec& a);
Dim value_dim(const Decoder& d, const AttentionSpec& a);
Dim inner_dim(const Decoder& d, const MlpSpec& mlp);

// q_proj, k_proj, v_proj, o_proj, then q_norm and k_norm where the spec has them.
void split_attention(Builder& b, const Decoder& d, const LayerSpec& layer, std::string_view class_name,
                     std::string_view norm_class, bool add_one);
// q_proj, k_proj, v_proj, o_proj alone, into the open module.
void attention_projections(Builder& b, const Decoder& d, const AttentionSpec& a);
// The per-head or all-head norms alone.
void query_key_norms(Builder& b, const Decoder& d, const AttentionSpec& a, std::string_view norm_class, bool add_one);

// gate_proj, up_proj, down_proj, act_fn below `name`.
struct MlpRoles {
  Role gate = Role::kGate, up = Role::kUp, down = Role::kDown;
};
void gated_mlp(Builder& b, const Decoder& d, std::string_view name, std::string_view class_name, const Dim& inner,
               bool bias, const MlpRoles& roles = {}, std::string_view act_name = "act_fn");

// up and down only, each with an optional bias: fc1/fc2, c_fc/c_proj...
void plain_mlp(Builder& b, const Decoder& d, const MlpSpec& mlp, std::string_view up, std::string_view down,
               std::string_view linear_class = "Linear", std::string_view between = "",
               std::string_view between_class = "");

// One linear layer under another class name, perhaps stored [in, out].
void other_linear(Builder& b, std::string_view name, std::string_view class_name, const Dim& rows, const Dim& cols,
                  bool bias, Role weight_role, Role bias_role, bool transposed = false);

// How the experts of one layer lie on disk, beside the fused form they have in memory.
struct ExpertNames {
  std::string_view block = "mlp.experts";  // below the layer
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
  bool fused_first = false;  // published files hold the fused form
  std::string_view inner_key = "moe_intermediate_size";
};
// The open module's gate_up_proj [experts, 2 * inner, hidden] and down_proj [experts, hidden, inner].
void fused_experts(Builder& b, const Decoder& d, const MoeSpec& moe, const ExpertNames& names);

// A router's own weight [experts, hidden] of the open module; `disk` is another name below the layer, or "".
void router_weight(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view disk = "",
                   StoredAs as = StoredAs::kModelDtype);

// Gives the last wanted tensor (if any are recorded) a second name on disk, which published files use.
void also_called(Builder& b, std::string name);

}  // namespace berth::arch
