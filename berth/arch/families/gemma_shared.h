// arch/families/gemma_shared.h — what Gemma 3n and 4 share: per-layer embeddings, and layers without keys of their own.
#pragma once

#include <string_view>
#include <vector>

#include "berth/arch/decoder_parts.h"

namespace berth::arch {

// num_kv_shared_layers: the last layers read the cache of the last layer before them that has their kind.
// The last `shared` layers read the cache of the last layer of their kind before them; false where there is none.
bool share_kv(ModelSpec& spec, const std::vector<AttentionKind>& kinds, int64_t shared);
void read_kv_sharing(ConfigReader& config, Decoder& d, const std::vector<AttentionKind>& kinds, int64_t default_layers);

// hidden_size_per_layer_input (0: none), vocab_size_per_layer_input.
// dim 0: the model has none.
void set_per_layer_embedding(ModelSpec& spec, int64_t dim, int64_t vocab_rows, double eps);
void read_per_layer_embedding(ConfigReader& config, Decoder& d, double eps, int64_t default_vocab);

// per_layer_input_gate, per_layer_projection, post_per_layer_input_norm of one layer.
void layer_per_layer_embedding(Builder& b, const Decoder& d, std::string_view norm_class);

// embed_tokens_per_layer, per_layer_model_projection, per_layer_projection_norm of the model.
void per_layer_embedding_tables(Builder& b, const Decoder& d, std::string_view embedding_class,
                                std::string_view norm_class);

}  // namespace berth::arch
