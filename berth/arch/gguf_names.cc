// arch/gguf_names.cc — see gguf_names.h.
#include "berth/arch/gguf_names.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "berth/arch/sources.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

using format::Checkpoint;
using format::TensorEntry;

struct GgufName {
  Role role;
  std::string_view name;  // below "blk.N." for tensors of a layer
};
constexpr std::array kNames{
    GgufName{Role::kEmbedding, "token_embd.weight"},
    GgufName{Role::kPositionEmbedding, "position_embd.weight"},
    GgufName{Role::kEmbeddingNorm, "token_embd_norm.weight"},
    GgufName{Role::kEmbeddingNormBias, "token_embd_norm.bias"},
    GgufName{Role::kPerLayerEmbedding, "per_layer_token_embd.weight"},
    GgufName{Role::kPerLayerModelProjection, "per_layer_model_proj.weight"},
    GgufName{Role::kPerLayerProjectionNorm, "per_layer_proj_norm.weight"},
    GgufName{Role::kFinalNorm, "output_norm.weight"},
    GgufName{Role::kFinalNormBias, "output_norm.bias"},
    GgufName{Role::kHead, "output.weight"},
    GgufName{Role::kHeadBias, "output.bias"},
    GgufName{Role::kInputNorm, "attn_norm.weight"},
    GgufName{Role::kInputNormBias, "attn_norm.bias"},
    GgufName{Role::kAttentionOutNorm, "post_attention_norm.weight"},
    GgufName{Role::kMlpNorm, "ffn_norm.weight"},
    GgufName{Role::kMlpNormBias, "ffn_norm.bias"},
    GgufName{Role::kMlpOutNorm, "post_ffw_norm.weight"},
    GgufName{Role::kQ, "attn_q.weight"},
    GgufName{Role::kQBias, "attn_q.bias"},
    GgufName{Role::kK, "attn_k.weight"},
    GgufName{Role::kKBias, "attn_k.bias"},
    GgufName{Role::kV, "attn_v.weight"},
    GgufName{Role::kVBias, "attn_v.bias"},
    GgufName{Role::kO, "attn_output.weight"},
    GgufName{Role::kOBias, "attn_output.bias"},
    GgufName{Role::kQkv, "attn_qkv.weight"},
    GgufName{Role::kQkvBias, "attn_qkv.bias"},
    GgufName{Role::kQNorm, "attn_q_norm.weight"},
    GgufName{Role::kKNorm, "attn_k_norm.weight"},
    GgufName{Role::kSinks, "attn_sinks.weight"},
    GgufName{Role::kQDown, "attn_q_a.weight"},
    GgufName{Role::kQDownNorm, "attn_q_a_norm.weight"},
    GgufName{Role::kQUp, "attn_q_b.weight"},
    GgufName{Role::kKvDown, "attn_kv_a_mqa.weight"},
    GgufName{Role::kKvDownNorm, "attn_kv_a_norm.weight"},
    GgufName{Role::kKvUp, "attn_kv_b.weight"},
    GgufName{Role::kGate, "ffn_gate.weight"},
    GgufName{Role::kGateBias, "ffn_gate.bias"},
    GgufName{Role::kUp, "ffn_up.weight"},
    GgufName{Role::kUpBias, "ffn_up.bias"},
    GgufName{Role::kGateUp, "ffn_up.weight"},
    GgufName{Role::kDown, "ffn_down.weight"},
    GgufName{Role::kDownBias, "ffn_down.bias"},
    GgufName{Role::kRouter, "ffn_gate_inp.weight"},
    GgufName{Role::kRouterBias, "ffn_gate_inp.bias"},
    GgufName{Role::kRouterScale, "ffn_gate_inp.scale"},
    GgufName{Role::kRouterExpertScale, "ffn_down_exps.scale"},
    GgufName{Role::kSelectionBias, "exp_probs_b.bias"},
    GgufName{Role::kExpertsDown, "ffn_down_exps.weight"},
    GgufName{Role::kExpertsDownBias, "ffn_down_exps.bias"},
    GgufName{Role::kSharedGate, "ffn_gate_shexp.weight"},
    GgufName{Role::kSharedUp, "ffn_up_shexp.weight"},
    GgufName{Role::kSharedDown, "ffn_down_shexp.weight"},
    GgufName{Role::kSharedRouter, "ffn_gate_inp_shexp.weight"},
    GgufName{Role::kMoeDenseOutNorm, "post_ffw_norm_1.weight"},
    GgufName{Role::kMoeInputNorm, "pre_ffw_norm_2.weight"},
    GgufName{Role::kMoeOutNorm, "post_ffw_norm_2.weight"},
    GgufName{Role::kLayerScalar, "layer_output_scale.weight"},
    GgufName{Role::kPleGate, "inp_gate.weight"},
    GgufName{Role::kPleProjection, "proj.weight"},
    GgufName{Role::kPleNorm, "post_norm.weight"},
    GgufName{Role::kAltUpCorrectScale, "altup_correct_scale.weight"},
    GgufName{Role::kAltUpCorrectCoefs, "altup_correct_coef.weight"},
    GgufName{Role::kAltUpPredictCoefs, "altup_predict_coef.weight"},
    GgufName{Role::kAltUpRouter, "altup_router.weight"},
    GgufName{Role::kAltUpRouterNorm, "altup_router_norm.weight"},
    GgufName{Role::kLaurelLeft, "laurel_l.weight"},
    GgufName{Role::kLaurelRight, "laurel_r.weight"},
    GgufName{Role::kLaurelNorm, "laurel_post_norm.weight"},
};
// What one architecture calls otherwise.
constexpr std::array kGptOssNames{GgufName{Role::kMlpNorm, "post_attention_norm.weight"}};
constexpr std::array kTwoNormFalconNames{
    GgufName{Role::kInputNorm, "attn_norm_2.weight"}, GgufName{Role::kInputNormBias, "attn_norm_2.bias"},
    GgufName{Role::kMlpNorm, "attn_norm.weight"}, GgufName{Role::kMlpNormBias, "attn_norm.bias"}};

std::span<const GgufName> own_names(std::string_view architecture, const ModelSpec& spec) {
  if (architecture == "gpt-oss") return kGptOssNames;
  const bool two_norms = spec.layers.front().parallel && spec.layers.front().mlp_norm.present();
  if (architecture == "falcon" && two_norms) return kTwoNormFalconNames;
  return {};
}

// Architectures whose converter interleaves the two halves of every head of Q and K.
bool permutes_heads(std::string_view architecture) {
  return architecture == "llama" || architecture == "granite" || architecture == "smollm3";
}

// Row j of a head's first half lies at 2j, of its second half at 2j + 1.
std::vector<Segment> unpermuted(int64_t heads, int64_t head_dim) {
  std::vector<Segment> segments;
  segments.reserve(static_cast<size_t>(2 * heads));
  for (int64_t h = 0; h < heads; ++h)
    for (const int64_t half : {0, 1}) segments.push_back({0, h * head_dim + half, head_dim / 2, 2});
  return segments;
}

// Gate rows (or biases) of an expert, then its up rows, from two stacked tensors.
std::vector<Segment> gate_then_up(int64_t experts, int64_t inner) {
  std::vector<Segment> segments;
  segments.reserve(static_cast<size_t>(2 * experts));
  for (int64_t e = 0; e < experts; ++e)
    for (const int32_t part : {0, 1}) segments.push_back({part, e * inner, inner, 1});
  return segments;
}

class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec)
      : checkpoint_(checkpoint),
        d_(decoder),
        builder_(builder),
        spec_(spec),
        own_names_(own_names(checkpoint.gguf()->architecture(), decoder.spec)),
        permuted_(permutes_heads(checkpoint.gguf()->architecture())) {}

  Status resolve() {
    for (WantedTensor& w : builder_.wanted()) TRY_STATUS(add(w));
    for (const TensorSpec& t : spec_.tensors)
      if (t.role == Role::kEmbedding) spec_.vocab_rows = t.rows;
    return {};
  }

 private:
  Status add(WantedTensor& w) {
    TensorSpec tensor = w.spec;
    tensor.recipe.add_one = false;  // the converter has added it
    if (w.spec.role == Role::kHead && spec_.tied_head) {
      tensor.rows = spec_.tensors.front().rows;
      tensor.tied_to = Role::kEmbedding;
      spec_.tensors.push_back(std::move(tensor));
      return {};
    }
    if (w.spec.role == Role::kExpertsGateUp || w.spec.role == Role::kExpertsGateUpBias) return add_gate_up(w, tensor);
    if (w.spec.role == Role::kAltUpProjection) return add_slice(w, tensor, "altup_proj.weight");
    if (w.spec.role == Role::kAltUpUnembedProjection) return add_slice(w, tensor, "altup_unembd_proj.weight");
    const auto name = name_of(w.spec.role, w.spec.layer);
    if (!name)
      return Error(ErrorCode::kUnsupported,
                   fmt::format("no GGUF name is known for {} of {}", quoted(w.spec.name), d_.architecture));
    if (w.spec.role == Role::kKvUp && checkpoint_.find(*name) == nullptr) return add_split_kv_up(w, tensor);
    if (w.spec.role == Role::kEmbedding || w.spec.role == Role::kHead) accept_padding(w, tensor, *name);
    // Older converters drop the axis of one row.
    const TensorEntry* entry = checkpoint_.find(*name);
    const bool one_row = w.spec.rows == 1 && entry != nullptr && entry->shape.size() == 1;
    const bool vector = w.spec.kind == TensorKind::kVector && w.rows.value == 1;
    const bool bank = w.spec.kind == TensorKind::kBank;
    const Shape flat{w.spec.rows, tensor.cols};
    const Shape stacked{w.spec.experts, w.spec.rows, w.spec.cols};
    TRY_STATUS(add_source(w, tensor, *name,
                          vector || one_row ? Shape{w.spec.cols}
                          : bank            ? stacked
                                            : Shape{tensor.rows, tensor.cols}));
    if (permuted_) unpermute(tensor);
    spec_.tensors.push_back(std::move(tensor));
    return {};
  }

  std::optional<std::string> name_of(Role role, int32_t layer) const {
    for (const std::span<const GgufName> names : {own_names_, std::span<const GgufName>(kNames)})
      for (const GgufName& n : names)
        if (n.role == role) return layer < 0 ? std::string(n.name) : fmt::format("blk.{}.{}", layer, n.name);
    return std::nullopt;
  }

  // Gate and up of a bank, or their biases: apart (an expert's gate, then its up) or in one tensor already.
  Status add_gate_up(const WantedTensor& w, TensorSpec& tensor) {
    const bool bias = w.spec.role == Role::kExpertsGateUpBias;
    const int64_t experts = bias ? w.spec.rows : w.spec.experts;
    const int64_t inner = (bias ? w.spec.cols : w.spec.rows) / 2;
    const std::string_view kind = bias ? "bias" : "weight";
    const std::string whole = fmt::format("blk.{}.ffn_gate_up_exps.{}", w.spec.layer, kind);
    if (checkpoint_.find(whole) != nullptr) {
      TRY_STATUS(
          add_source(w, tensor, whole, bias ? Shape{experts, 2 * inner} : Shape{experts, 2 * inner, w.spec.cols}));
    } else {
      for (const std::string_view part : {"gate", "up"})
        TRY_STATUS(add_source(w, tensor, fmt::format("blk.{}.ffn_{}_exps.{}", w.spec.layer, part, kind),
                              bias ? Shape{experts, inner} : Shape{experts, inner, w.spec.cols}));
      tensor.recipe.segments = gate_then_up(experts, inner);
      if (bias)  // elements are picked
        for (Source& source : tensor.recipe.sources) source.rows = experts * inner, source.cols = 1;
    }
    spec_.tensors.push_back(std::move(tensor));
    return {};
  }

  // One matrix of several that lie stacked in one tensor; TensorSpec::layer is its number.
  Status add_slice(const WantedTensor& w, TensorSpec& tensor, const std::string& name) {
    const int64_t count = d_.spec.altup.inputs - 1;
    TRY_STATUS(add_source(w, tensor, name, {count, w.spec.rows, w.spec.cols}));
    Source& source = tensor.recipe.sources.back();
    source.slice = w.spec.layer;
    source.rows = w.spec.rows;
    spec_.tensors.push_back(std::move(tensor));
    return {};
  }

  // DeepSeek's newer files: keys [heads, latent, nope] and values [heads, v, latent] apart, the keys transposed.
  Status add_split_kv_up(const WantedTensor& w, TensorSpec& tensor) {
    const AttentionSpec& a = d_.layer(w.spec.layer).attention;
    const std::string keys = fmt::format("blk.{}.attn_k_b.weight", w.spec.layer);
    const std::string values = fmt::format("blk.{}.attn_v_b.weight", w.spec.layer);
    for (int64_t head = 0; head < a.heads; ++head) {
      TRY_STATUS(add_source(w, tensor, keys, {a.heads, a.kv_lora_rank, a.nope_head_dim}));
      Source& k = tensor.recipe.sources.back();
      if (is_block_type(k.dtype))
        return Error(ErrorCode::kUnsupported,
                     fmt::format("tensor {} holds keys transposed, in {} blocks that lie along the wrong axis",
                                 quoted(keys), dtype_name(k.dtype)),
                     {"Files with attn_kv_b.weight, or with attn_k_b.weight in a floating type, run."});
      k.slice = head;
      k.transposed = true;
      k.rows = a.nope_head_dim;
      k.cols = a.kv_lora_rank;
      TRY_STATUS(add_source(w, tensor, values, {a.heads, a.v_head_dim, a.kv_lora_rank}));
      Source& v = tensor.recipe.sources.back();
      v.slice = head;
      v.rows = a.v_head_dim;
    }
    spec_.tensors.push_back(std::move(tensor));
    return {};
  }

  void accept_padding(const WantedTensor& w, TensorSpec& tensor, const std::string& name) const {
    const TensorEntry* entry = checkpoint_.find(name);
    if (entry == nullptr || entry->shape.size() != 2) return;
    if (entry->shape[0] > w.spec.rows && entry->shape[0] <= kVocabRange.max) tensor.rows = entry->shape[0];
  }

  void unpermute(TensorSpec& tensor) const {
    const bool q = tensor.role == Role::kQ || tensor.role == Role::kQBias;
    const bool k = tensor.role == Role::kK || tensor.role == Role::kKBias;
    if (!q && !k) return;
    const AttentionSpec& a = d_.layer(tensor.layer).attention;
    tensor.recipe.segments = unpermuted(q ? a.heads : a.kv_heads, a.head_dim);
    if (tensor.kind == TensorKind::kVector) std::swap(tensor.recipe.sources[0].rows, tensor.recipe.sources[0].cols);
  }

  Status add_source(const WantedTensor& w, TensorSpec& tensor, const std::string& name, const Shape& shape) {
    const TensorEntry* entry = checkpoint_.find(name);
    if (entry == nullptr) return missing_tensor(w, name, d_, d_.keys.layers);
    if (entry->shape != shape)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} has shape {}, expected {}: {}", quoted(name),
                                                        shape_text(entry->shape), shape_text(shape), extents_text(w)));
    if (!is_float(entry->dtype) && !is_block_type(entry->dtype))
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} is {}, expected a floating type or a block format",
                                                        quoted(name), dtype_name(entry->dtype)));
    Source source;
    source.name = name;
    source.dtype = entry->dtype;
    source.cols = shape.back();
    source.rows = shape.size() == 1 ? 1 : shape[shape.size() - 2] * (shape.size() == 3 ? shape[0] : 1);
    tensor.recipe.sources.push_back(std::move(source));
    return {};
  }

  const Checkpoint& checkpoint_;
  const Decoder& d_;
  Builder& builder_;
  ModelSpec& spec_;
  const std::span<const GgufName> own_names_;
  const bool permuted_;
};

}  // namespace

Status resolve_gguf(const Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec) {
  return Resolver(checkpoint, decoder, builder, spec).resolve();
}

}  // namespace berth::arch
