// arch/families/gemma3n.cc — Gemma 3n, text: altup (several residual streams), laurel, per-layer embeddings, activation
// sparsity, keys and values shared by the last layers. Norms are stored as they are.
#include <array>
#include <cmath>

#include "berth/arch/decoder_parts.h"
#include "berth/arch/families/gemma_shared.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

// The x below which a share p of a normal distribution lies: Acklam's rational approximation, then one Halley step.
double inverse_normal_cdf(double p) {
  constexpr std::array a{-3.969683028665376e+01, 2.209460984245205e+02,  -2.759285104469687e+02,
                         1.383577518672690e+02,  -3.066479806614716e+01, 2.506628277459239e+00};
  constexpr std::array b{-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01,
                         -1.328068155288572e+01};
  constexpr std::array c{-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00,
                         -2.549732539343734e+00, 4.374664141464968e+00,  2.938163982698783e+00};
  constexpr std::array e{7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  const auto tail = [&](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((e[0] * q + e[1]) * q + e[2]) * q + e[3]) * q + 1);
  };
  double x = 0;
  if (p < 0.02425) {
    x = tail(std::sqrt(-2 * std::log(p)));
  } else if (p > 1 - 0.02425) {
    x = -tail(std::sqrt(-2 * std::log(1 - p)));
  } else {
    const double q = p - 0.5, r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  for (int step = 0; step < 2; ++step) {
    const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
    const double u = error * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
    x -= u / (1 + x * u / 2);
  }
  return x;
}

void read_widths(ConfigReader& config, Decoder& d) {
  if (!config.view().find("intermediate_size").is_array()) return;
  const std::vector<int64_t> widths = config.integers("intermediate_size", kWidthRange);
  if (widths.size() != d.spec.layers.size()) {
    config.fail("intermediate_size", "one number, or one per layer");
    return;
  }
  for (size_t i = 0; i < widths.size(); ++i) d.spec.layers[i].mlp.intermediate = static_cast<int32_t>(widths[i]);
}

void read_sparsity(ConfigReader& config, Decoder& d) {
  const size_t layers = d.spec.layers.size();
  std::vector<double> shares(layers, 0);
  if (!config.has("activation_sparsity_pattern")) {
    for (size_t i = 0; i < 10 && layers > 10; ++i) shares[i] = 0.95;
  } else if (config.view().find("activation_sparsity_pattern").is_array()) {
    shares = config.numbers("activation_sparsity_pattern", {0, 0.9999, false});
  } else {
    shares.assign(layers, config.number("activation_sparsity_pattern", 0, {0, 0.9999, false}));
  }
  if (shares.size() != layers) {
    config.fail("activation_sparsity_pattern", "one share per layer");
    return;
  }
  for (size_t i = 0; i < layers; ++i)
    if (shares[i] > 0) d.spec.layers[i].mlp.sparsity_icdf = inverse_normal_cdf(shares[i]);
}

// What every file of this model has, whatever it says.
void set_layers(Decoder& d, double eps, const std::vector<AttentionKind>& kinds, bool bias) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    LayerSpec& layer = d.spec.layers[i];
    AttentionSpec& a = layer.attention;
    a.qkv_bias = a.output_bias = bias;
    a.scale = 1;
    a.rope = kinds[i] == AttentionKind::kSliding ? 1 : 0;
    a.qk_norm = QkNorm::kPerHead;
    a.q_norm = a.k_norm = a.v_norm = rms_norm(eps);
    a.v_norm.has_weight = false;
    layer.attention_out_norm = layer.mlp_out_norm = rms_norm(eps);
    layer.per_layer_embedding = true;
  }
}

void read_gemma3n(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 262400,
                              .hidden = 2048,
                              .intermediate = 16384,
                              .layers = 35,
                              .heads = 8,
                              .kv_heads = 2,
                              .head_dim = 256,
                              .max_position = 32768,
                              .tied = true,
                              .activation = "gelu_pytorch_tanh"};
  TextKeys keys;
  keys.activation = "hidden_activation";
  const TextConfig text = read_decoder(config, d, defaults, keys);
  d.spec.embedding_scale = std::sqrt(static_cast<double>(text.hidden));
  d.spec.final_softcap = config.is_null("final_logit_softcapping") ? 0 : config.number("final_logit_softcapping", 30);
  const auto kinds = read_layer_kinds(
      config, text.layers, [](int64_t i) { return (i + 1) % 5 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; });
  set_windows(d.spec, kinds, read_window(config, 512));
  const bool bias = config.boolean("attention_bias", false);
  set_layers(d, text.eps, kinds, bias);
  read_kv_sharing(config, d, kinds, 15);
  read_widths(config, d);
  read_sparsity(config, d);
  read_per_layer_embedding(config, d, text.eps, 262144);
  d.spec.altup.inputs = static_cast<int32_t>(config.integer("altup_num_inputs", 4, {1, 64}));
  d.spec.altup.active = static_cast<int32_t>(config.integer("altup_active_idx", 0, {0, d.spec.altup.inputs - 1}));
  d.spec.altup.correct_scale = config.boolean("altup_correct_scale", true);
  d.spec.altup.laurel_rank = static_cast<int32_t>(config.integer("laurel_rank", 64, kWidthRange));
  d.spec.ropes = {
      read_rope(config, {.theta = 1e6, .per_layer_type = true}, text.head_dim, text.max_position, "full_attention"),
      read_rope(config, {.theta = 1e4, .per_layer_type = true}, text.head_dim, text.max_position, "sliding_attention")};
  d.rope_names = {"full_attention", "sliding_attention"};
}

constexpr std::string_view kNorm = "Gemma3nRMSNorm";

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const AttentionSpec& a = layer.attention;
  const auto scope = b.open("self_attn", "Gemma3nTextAttention");
  const Dim head{a.head_dim, std::string(d.keys.head_dim)};
  b.linear("q_proj", query_dim(d, a), d.hidden(), a.qkv_bias, Role::kQ, Role::kQBias);
  b.norm("q_norm", kNorm, head, a.q_norm, Role::kQNorm, Role::kQNormBias);
  if (a.kv_source_layer < 0) {
    b.linear("k_proj", key_dim(d, a), d.hidden(), a.qkv_bias, Role::kK, Role::kKBias);
    b.linear("v_proj", value_dim(d, a), d.hidden(), a.qkv_bias, Role::kV, Role::kVBias);
    b.norm("k_norm", kNorm, head, a.k_norm, Role::kKNorm, Role::kKNormBias);
    b.leaf("v_norm", kNorm);
  }
  b.linear("o_proj", d.hidden(), query_dim(d, a), a.output_bias, Role::kO, Role::kOBias);
}

void altup(Builder& b, const Decoder& d, const NormSpec& norm) {
  const int64_t inputs = d.spec.altup.inputs;
  const Dim a{inputs, "altup_num_inputs"}, squared{inputs * inputs, "altup_num_inputs ^ 2"};
  const auto scope = b.open("altup", "Gemma3nTextAltUp");
  b.vector("correct_output_scale", d.hidden(), Role::kAltUpCorrectScale);
  b.buffer("router_input_scale", {}, StoredAs::kModelDtype, false);
  b.linear("correction_coefs", a, a, Role::kAltUpCorrectCoefs);
  b.linear("prediction_coefs", squared, a, Role::kAltUpPredictCoefs);
  b.linear("modality_router", a, d.hidden(), Role::kAltUpRouter);
  b.norm("router_norm", kNorm, d.hidden(), norm, Role::kAltUpRouterNorm, Role::kAltUpRouterNorm);
}

void layer_end(Builder& b, const Decoder& d, const LayerSpec& layer) {
  b.leaf("act_fn", activation_class(d.activation));
  altup(b, d, layer.input_norm);
  {
    const auto laurel = b.open("laurel", "Gemma3nTextLaurelBlock");
    const Dim rank{d.spec.altup.laurel_rank, "laurel_rank"};
    b.linear("linear_left", rank, d.hidden(), Role::kLaurelLeft);
    b.linear("linear_right", d.hidden(), rank, Role::kLaurelRight);
    b.norm("post_laurel_norm", kNorm, d.hidden(), layer.input_norm, Role::kLaurelNorm, Role::kLaurelNorm);
  }
  layer_per_layer_embedding(b, d, kNorm);
}

void stream_projections(Builder& b, const Decoder& d, std::string_view name, Role role) {
  const auto list = b.open(name, "ModuleList");
  for (int32_t i = 0; i + 1 < d.spec.altup.inputs; ++i) {
    b.layer(i);
    b.linear(std::to_string(i), d.hidden(), d.hidden(), role);
  }
  b.layer(-1);
}

void build_gemma3n(const Decoder& d, Builder& b) {
  DecoderParts parts{.prefix = "Gemma3nText",
                     .norm_class = std::string(kNorm),
                     .rotary_class = "Gemma3nRotaryEmbedding",
                     .embedding_class = "Gemma3nTextScaledWordEmbedding"};
  parts.attention = attention;
  parts.layer_end = layer_end;
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"Gemma3nTextDecoderLayer"};
  {
    const auto model = b.open("model", "Gemma3nTextModel");
    b.buffer("per_layer_projection_scale", {}, StoredAs::kModelDtype, false);
    b.buffer("per_layer_input_scale", {}, StoredAs::kModelDtype, false);
    text_model(b, d, parts);
    per_layer_embedding_tables(b, d, parts.embedding_class, kNorm);
    stream_projections(b, d, "altup_projections", Role::kAltUpProjection);
    stream_projections(b, d, "altup_unembed_projections", Role::kAltUpUnembedProjection);
  }
  head(b, d, "lm_head", "model.embed_tokens.weight");
}

// GGUF: sparsity is stored as the cutoff in standard deviations, altup's matrices lie stacked.
void read_gguf_gemma3n(GgufReader& gguf, Decoder& d) {
  const TextConfig text = read_gguf_decoder(gguf, d, "gelu_pytorch_tanh", 1e6);
  const size_t layers = d.spec.layers.size();
  d.spec.embedding_scale = std::sqrt(static_cast<double>(text.hidden));
  d.spec.final_softcap = gguf.number("final_logit_softcapping", 30, {0, 1e9, false});
  const auto kinds = set_gguf_windows(
      gguf, d.spec, [](int64_t i) { return (i + 1) % 5 == 0 ? AttentionKind::kFull : AttentionKind::kSliding; }, 512);
  set_layers(d, text.eps, kinds, false);
  const auto most = static_cast<int64_t>(layers) - 1;
  const int64_t shared = gguf.integer("attention.shared_kv_layers", std::min<int64_t>(15, most), {0, most});
  if (!share_kv(d.spec, kinds, shared))
    gguf.fail_key("attention.shared_kv_layers", "a number that leaves a layer of every kind with keys of its own");
  const auto widths = gguf.per_layer("feed_forward_length", layers, kWidthRange);
  const auto cutoffs = gguf.numbers_per_layer("activation_sparsity_scale", layers, {.infinite_too = true});
  for (size_t i = 0; i < layers; ++i) {
    if (i < widths.size()) d.spec.layers[i].mlp.intermediate = static_cast<int32_t>(widths[i]);
    // Layers without sparsity have a share of 0, whose cutoff is minus infinity.
    if (i < cutoffs.size() && std::isfinite(cutoffs[i])) d.spec.layers[i].mlp.sparsity_icdf = cutoffs[i];
  }
  const auto table = gguf.tensor_shape("per_layer_token_embd.weight");
  set_per_layer_embedding(d.spec, gguf.integer("embedding_length_per_layer_input", std::nullopt, kWidthRange),
                          table && !table->empty() ? table->front() : text.vocab, text.eps);
  AltUpSpec& altup = d.spec.altup;
  altup.inputs = static_cast<int32_t>(gguf.integer("altup.num_inputs", 4, {2, 64}));
  altup.active = static_cast<int32_t>(gguf.integer("altup.active_idx", 0, {0, altup.inputs - 1}));
  const auto laurel = gguf.tensor_shape("blk.0.laurel_l.weight");
  altup.laurel_rank = static_cast<int32_t>(laurel && !laurel->empty() ? laurel->front() : 64);
  d.spec.ropes.push_back(plain_rope(text.head_dim, gguf.number("rope.freq_base_swa", 1e4), text.max_position));
  d.rope_names = {"full_attention", "sliding_attention"};
}

constexpr std::array<std::string_view, 1> kClass{"Gemma3nForCausalLM"}, kGguf{"gemma3n"};
constexpr std::array<Family, 1> kFamilies{
    {{"gemma3n_text", "", kClass, read_gemma3n, build_gemma3n, kGguf, read_gguf_gemma3n}}};

}  // namespace

std::span<const Family> gemma3n_families() { return kFamilies; }

}  // namespace berth::arch
