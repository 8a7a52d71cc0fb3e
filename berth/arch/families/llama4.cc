// arch/families/llama4.cc — Llama 4: chunked attention, one layer in four without rope, experts fused and transposed on
// disk and in memory ([experts, in, out], gate half first), sigmoid weights on the experts' input. Its published
// wrapper carries a vision model.
#include <algorithm>
#include <array>

#include "berth/arch/families/moe.h"
#include "berth/arch/families/tower_config.h"
#include "berth/arch/rope.h"

namespace berth::arch {
namespace {

std::vector<int64_t> read_rope_layers(ConfigReader& config, int64_t layers) {
  std::vector<int64_t> with_rope = config.integers("no_rope_layers", {0, 1});
  const int64_t interval = config.integer("no_rope_layer_interval", 4, {1, INT32_MAX});
  if (with_rope.empty())
    for (int64_t i = 0; i < layers; ++i) with_rope.push_back((i + 1) % interval != 0);
  if (with_rope.size() != static_cast<size_t>(layers)) {
    config.fail("no_rope_layers", "one entry per layer");
    with_rope.assign(static_cast<size_t>(layers), 1);
  }
  return with_rope;
}

void read_attention(ConfigReader& config, Decoder& d, const TextConfig& text) {
  const std::vector<int64_t> with_rope = read_rope_layers(config, text.layers);
  const int64_t chunk =
      config.is_null("attention_chunk_size") ? 0 : config.integer("attention_chunk_size", 8192, {0, INT32_MAX});
  const auto kinds = read_layer_kinds(config, text.layers, [&](int64_t i) {
    return with_rope[static_cast<size_t>(i)] != 0 && chunk > 0 ? AttentionKind::kChunked : AttentionKind::kFull;
  });
  const bool norms = config.boolean("use_qk_norm", true), tuned = config.boolean("attn_temperature_tuning", true);
  const double floor_scale = config.number("floor_scale", 8192), attn_scale = config.number("attn_scale", 0.1);
  const bool bias = config.boolean("attention_bias", false);
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    AttentionSpec& a = d.spec.layers[i].attention;
    a.qkv_bias = a.output_bias = bias;
    if (kinds[i] == AttentionKind::kChunked && chunk > 0) {
      a.kind = AttentionKind::kChunked;
      a.window = static_cast<int32_t>(chunk);
    }
    if (with_rope[i] == 0) {
      a.rope = -1;
      if (tuned) {
        a.query_temperature_floor = floor_scale;
        a.query_temperature_scale = attn_scale;
      }
    } else if (norms) {
      a.qk_norm = QkNorm::kPerHead;
      a.qk_norm_after_rope = true;
      a.q_norm = a.k_norm = rms_norm(text.eps);
      a.q_norm.has_weight = a.k_norm.has_weight = false;
    }
  }
}

void read_llama4(ConfigReader& config, Decoder& d) {
  const TextDefaults defaults{.vocab = 202048,
                              .hidden = 5120,
                              .intermediate = 8192,
                              .layers = 48,
                              .heads = 40,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .max_position = 131072,
                              .eps = 1e-5};
  const TextConfig text = read_decoder(config, d, defaults);
  d.spec.ropes = {read_rope(config, {.theta = 5e5, .layout = RopeLayout::kPairs}, text.head_dim, text.max_position)};
  read_attention(config, d, text);
  MoeSpec moe;
  moe.experts = static_cast<int32_t>(config.integer({"num_local_experts", "num_experts"}, 16, kExpertRange));
  moe.experts_per_token = static_cast<int32_t>(config.integer("num_experts_per_tok", 1, {1, moe.experts}));
  moe.intermediate = moe.shared_intermediate = static_cast<int32_t>(text.intermediate);
  moe.router = RouterKind::kSigmoid;
  moe.weight_on_input = true;
  const int64_t step = config.integer("interleave_moe_layer_step", 1, {1, INT32_MAX});
  std::vector<int64_t> sparse = config.integers("moe_layers", {0, INT32_MAX});
  if (!config.has("moe_layers"))
    for (int64_t i = step - 1; i < text.layers; i += step) sparse.push_back(i);
  const int64_t dense = config.integer("intermediate_size_mlp", 16384, kWidthRange);
  for (size_t i = 0; i < d.spec.layers.size(); ++i) {
    d.spec.layers[i].mlp.intermediate = static_cast<int32_t>(dense);
    if (std::find(sparse.begin(), sparse.end(), static_cast<int64_t>(i)) != sparse.end())
      make_sparse(d.spec.layers[i], moe);
  }
}

void attention(Builder& b, const Decoder& d, const LayerSpec& layer) {
  const auto scope = b.open("self_attn", "Llama4TextAttention");
  attention_projections(b, d, layer.attention);
  if (layer.attention.qk_norm != QkNorm::kNone) b.leaf("qk_norm", "Llama4TextL2Norm");
}

void experts(Builder& b, const Decoder& d, const MoeSpec& moe) {
  const auto scope = b.open("experts", "Llama4TextExperts");
  const auto bank = [&](Role role, std::string_view name, const Dim& rows, const Dim& cols) {
    const Shape stored{moe.experts, cols.value, rows.value};
    b.parameter(name, stored);
    WantedTensor* w = b.want(role, TensorKind::kBank, name, rows, cols, moe.experts);
    if (w == nullptr) return;
    WantedForm form;
    for (int64_t e = 0; e < moe.experts; ++e) form.sources.push_back({w->spec.name, stored, true, e});
    w->forms = {std::move(form)};
  };
  const Dim inner{moe.intermediate, std::string(d.keys.intermediate)};
  bank(Role::kExpertsGateUp, "gate_up_proj", {2 * inner.value, "2 x " + inner.keys}, d.hidden());
  bank(Role::kExpertsDown, "down_proj", d.hidden(), inner);
  b.leaf("act_fn", activation_class(d.activation));
}

void mlp(Builder& b, const Decoder& d, const LayerSpec& layer) {
  if (!layer.mlp.moe) {
    gated_mlp(b, d, "feed_forward", "Llama4TextMLP", {layer.mlp.intermediate, "intermediate_size_mlp"}, false, {},
              "activation_fn");
    return;
  }
  const MoeSpec& moe = *layer.mlp.moe;
  const auto block = b.open("feed_forward", "Llama4TextMoe");
  experts(b, d, moe);
  router_module(b, d, moe, "router", "Llama4Router");
  gated_mlp(b, d, "shared_expert", "Llama4TextMLP", {moe.shared_intermediate, std::string(d.keys.intermediate)}, false,
            {Role::kSharedGate, Role::kSharedUp, Role::kSharedDown}, "activation_fn");
}

DecoderParts llama4_parts() {
  DecoderParts parts{.prefix = "Llama4Text", .model_class = "Llama4TextModel"};
  parts.attention = attention;
  parts.mlp = mlp;
  return parts;
}

void build_llama4_text(const Decoder& d, Builder& b) { causal_lm(b, d, llama4_parts()); }

void vision_layer(Builder& b, int64_t index, int64_t hidden, int64_t inner) {
  const auto layer = b.open(std::to_string(index), "Llama4VisionEncoderLayer");
  {
    const auto self = b.open("self_attn", "Llama4VisionAttention");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) b.linear(name, hidden, hidden, true);
  }
  {
    const auto feed = b.open("mlp", "Llama4VisionMLP");
    b.leaf("activation_fn", "GELU");
    b.linear("fc1", inner, hidden, true);
    b.linear("fc2", hidden, inner, true);
  }
  b.layer_norm("input_layernorm", hidden);
  b.layer_norm("post_attention_layernorm", hidden);
}

void vision_model(const TowerConfig& config, Builder& b) {
  const int64_t hidden = config.integer("hidden_size", 768), inner = config.integer("intermediate_size", 5632);
  const int64_t heads = std::max<int64_t>(1, config.integer("num_attention_heads", 16));
  const int64_t patch = std::max<int64_t>(1, config.integer("patch_size", 14));
  const int64_t side = config.integer("image_size", 448) / patch, places = side * side + 1;
  const auto tower = b.open("vision_model", "Llama4VisionModel");
  b.parameter("class_embedding", {hidden});
  b.parameter("positional_embedding_vlm", {places, hidden});
  {
    const auto patches = b.open("patch_embedding", "Llama4UnfoldConvolution");
    b.leaf("unfold", "Unfold");
    b.linear("linear", hidden, config.integer("num_channels", 3) * patch * patch, false);
  }
  {
    const auto rotary = b.open("rotary_embedding", "Llama4VisionRotaryEmbedding");
    b.buffer("freqs_ci", {places, 1, hidden / heads / 2}, StoredAs::kC64, false);
  }
  b.layer_norm("layernorm_pre", hidden);
  b.layer_norm("layernorm_post", hidden);
  {
    const auto encoder = b.open("model", "Llama4VisionEncoder");
    const auto layers = b.open("layers", "ModuleList");
    for (int64_t i = 0; i < config.layers("num_hidden_layers", 34); ++i) vision_layer(b, i, hidden, inner);
  }
  const auto adapter = b.open("vision_adapter", "Llama4VisionPixelShuffleMLP");
  const auto feed = b.open("mlp", "Llama4VisionMLP2");
  const int64_t projected = config.integer("projector_input_dim", 4096);
  b.linear("fc1", projected, inner, false);
  b.linear("fc2", config.integer("projector_output_dim", 4096), projected, false);
  b.leaf("activation_fn", "GELU");
}

void build_llama4(const Decoder& d, Builder& b) {
  const TowerConfig vision(d.config, "vision_config");
  const auto root = b.open("", d.architecture);
  b.tree().no_split_classes = {"Llama4TextDecoderLayer", "Llama4VisionEncoderLayer"};
  vision_model(vision, b);
  {
    const auto projector = b.open("multi_modal_projector", "Llama4MultiModalProjector");
    b.linear("linear_1", d.spec.hidden, vision.integer("vision_output_dim", 7680), false);
  }
  const auto language = b.open("language_model", "Llama4ForCausalLM");
  {
    const auto model = b.open("model", "Llama4TextModel");
    text_model(b, d, llama4_parts());
  }
  head(b, d, "lm_head", "language_model.model.embed_tokens.weight");
}

constexpr std::array<std::string_view, 1> kTextClass{"Llama4ForCausalLM"}, kClass{"Llama4ForConditionalGeneration"};
constexpr std::array<Family, 2> kFamilies{{
    {"llama4_text", "", kTextClass, read_llama4, build_llama4_text},
    {"llama4", "text_config", kClass, read_llama4, build_llama4},
}};

}  // namespace

std::span<const Family> llama4_families() { return kFamilies; }

}  // namespace berth::arch
