// arch/families/gemma_shared.cc — see gemma_shared.h.
#include "berth/arch/families/gemma_shared.h"

#include <cmath>

namespace berth::arch {

bool share_kv(ModelSpec& spec, const std::vector<AttentionKind>& kinds, int64_t shared) {
  const size_t first = spec.layers.size() - static_cast<size_t>(shared);
  for (size_t i = first; i < kinds.size(); ++i) {
    int32_t source = -1;
    for (size_t j = 0; j < first; ++j)
      if (kinds[j] == kinds[i]) source = static_cast<int32_t>(j);
    if (source < 0) return false;
    spec.layers[i].attention.kv_source_layer = source;
  }
  return true;
}

void read_kv_sharing(ConfigReader& config, Decoder& d, const std::vector<AttentionKind>& kinds,
                     int64_t default_layers) {
  const auto layers = static_cast<int64_t>(d.spec.layers.size());
  const int64_t shared = config.integer("num_kv_shared_layers", std::min(default_layers, layers - 1), {0, layers - 1});
  if (!share_kv(d.spec, kinds, shared))
    config.fail("num_kv_shared_layers", "a number that leaves a layer of every kind with keys of its own");
}

void set_per_layer_embedding(ModelSpec& spec, int64_t dim, int64_t vocab_rows, double eps) {
  PerLayerEmbeddingSpec& ple = spec.per_layer_embedding;
  ple.dim = static_cast<int32_t>(dim);
  if (dim == 0) return;
  ple.vocab_rows = vocab_rows;
  ple.table_scale = std::sqrt(static_cast<double>(dim));
  ple.projection_scale = 1 / std::sqrt(static_cast<double>(spec.hidden));
  ple.combine_scale = 1 / std::sqrt(2.0);
  ple.norm = rms_norm(eps);
}

void read_per_layer_embedding(ConfigReader& config, Decoder& d, double eps, int64_t default_vocab) {
  const int64_t dim = config.integer("hidden_size_per_layer_input", 256, {0, kWidthRange.max});
  const int64_t rows = dim == 0 ? 0 : config.integer("vocab_size_per_layer_input", default_vocab, kVocabRange);
  set_per_layer_embedding(d.spec, dim, rows, eps);
}

namespace {
Dim per_layer_width(const Decoder& d) { return {d.spec.per_layer_embedding.dim, "hidden_size_per_layer_input"}; }
Dim all_layers_width(const Decoder& d) {
  return {static_cast<int64_t>(d.spec.layers.size()) * d.spec.per_layer_embedding.dim,
          "num_hidden_layers x hidden_size_per_layer_input"};
}
}  // namespace

void layer_per_layer_embedding(Builder& b, const Decoder& d, std::string_view norm_class) {
  b.linear("per_layer_input_gate", per_layer_width(d), d.hidden(), Role::kPleGate);
  b.linear("per_layer_projection", d.hidden(), per_layer_width(d), Role::kPleProjection);
  b.norm("post_per_layer_input_norm", norm_class, d.hidden(), d.spec.per_layer_embedding.norm, Role::kPleNorm,
         Role::kPleNorm);
}

void per_layer_embedding_tables(Builder& b, const Decoder& d, std::string_view embedding_class,
                                std::string_view norm_class) {
  const PerLayerEmbeddingSpec& ple = d.spec.per_layer_embedding;
  const Dim all = all_layers_width(d);
  {
    const auto table = b.open("embed_tokens_per_layer", embedding_class);
    b.parameter("weight", {ple.vocab_rows, all.value});
    b.buffer("embed_scale", {}, StoredAs::kModelDtype, false);
    b.want(Role::kPerLayerEmbedding, TensorKind::kTable, "weight", {ple.vocab_rows, "vocab_size_per_layer_input"}, all);
  }
  b.linear("per_layer_model_projection", all, d.hidden(), Role::kPerLayerModelProjection);
  b.norm("per_layer_projection_norm", norm_class, per_layer_width(d), ple.norm, Role::kPerLayerProjectionNorm,
         Role::kPerLayerProjectionNorm);
}

}  // namespace berth::arch
