// tests/models/gguf_models_test.cc — golden models as GGUF files: written here the way llama.cpp's converter writes
// them (its names, permutations, stacked experts, added ones), they give the logits of the originals.
//
// With BERTH_GGUF_FOLDER the files NAME.gguf of that folder are run instead, against golden/models/NAME: what the
// converter itself made (tests/libraries/gguf_converter.py).
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "berth/format/test_files.h"
#include "berth/load/row_reader.h"
#include "golden_logits.h"

namespace berth::testing {
namespace {

using arch::AttentionSpec;
using arch::ModelSpec;
using arch::Role;
using arch::TensorSpec;
using format::GgufType;

using Floats = std::vector<float>;

// A GGUF file of fp32 tensors.
class GgufFile {
 public:
  explicit GgufFile(std::string architecture) : arch_(std::move(architecture)) {
    header_.string("general.architecture", arch_);
  }
  void u32(const std::string& key, int64_t v) { header_.u32(arch_ + "." + key, static_cast<uint32_t>(v)); }
  void f32(const std::string& key, double v) { header_.raw_pair(arch_ + "." + key, GgufType::kF32, bytes_of({v})); }
  void boolean(const std::string& key, bool v) {
    header_.raw_pair(arch_ + "." + key, GgufType::kBool, std::string(1, v ? '\1' : '\0'));
  }
  void text(const std::string& key, const std::string& v) { header_.string(arch_ + "." + key, v); }
  void booleans(const std::string& key, const std::vector<bool>& values) {
    std::string bytes;
    for (const bool v : values) bytes += v ? '\1' : '\0';
    header_.array(arch_ + "." + key, GgufType::kBool, values.size(), bytes);
  }
  void u32s(const std::string& key, const std::vector<int64_t>& values) {
    std::string bytes;
    for (const int64_t v : values) bytes += format::le32(static_cast<uint32_t>(v));
    header_.array(arch_ + "." + key, GgufType::kU32, values.size(), bytes);
  }
  void f32s(const std::string& key, const std::vector<double>& values) {
    header_.array(arch_ + "." + key, GgufType::kF32, values.size(), bytes_of(values));
  }
  // `shape` slowest axis first, as safetensors has it.
  void tensor(const std::string& name, const Shape& shape, const Floats& values) {
    header_.tensor(name, {shape.rbegin(), shape.rend()}, 0, data_.size());
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    data_.resize((data_.size() + 31) / 32 * 32);
  }
  void write(const std::string& path) const {
    std::string bytes = header_.header();
    bytes.resize((bytes.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << bytes << data_;
  }

 private:
  static std::string bytes_of(const std::vector<double>& values) {
    std::string out;
    for (const double v : values) {
      const auto f = static_cast<float>(v);
      out.append(reinterpret_cast<const char*>(&f), sizeof f);
    }
    return out;
  }
  std::string arch_, data_;
  format::GgufBytes header_;
};

// The converter's names, spelt out a second time on purpose.
std::string converter_name(const std::string& architecture, const ModelSpec& spec, Role role, const std::string& kind) {
  const bool two_norms = architecture == "falcon" && spec.layers[0].mlp_norm.present();
  const std::map<Role, std::string> names{
      {Role::kEmbedding, "token_embd"},
      {Role::kPositionEmbedding, "position_embd"},
      {Role::kEmbeddingNorm, "token_embd_norm"},
      {Role::kEmbeddingNormBias, "token_embd_norm"},
      {Role::kFinalNorm, "output_norm"},
      {Role::kFinalNormBias, "output_norm"},
      {Role::kHead, "output"},
      {Role::kHeadBias, "output"},
      {Role::kInputNorm, two_norms ? "attn_norm_2" : "attn_norm"},
      {Role::kInputNormBias, two_norms ? "attn_norm_2" : "attn_norm"},
      {Role::kMlpNorm, two_norms                   ? "attn_norm"
                       : architecture == "gpt-oss" ? "post_attention_norm"
                                                   : "ffn_norm"},
      {Role::kMlpNormBias, two_norms ? "attn_norm" : "ffn_norm"},
      {Role::kAttentionOutNorm, "post_attention_norm"},
      {Role::kMlpOutNorm, "post_ffw_norm"},
      {Role::kQ, "attn_q"},
      {Role::kQBias, "attn_q"},
      {Role::kK, "attn_k"},
      {Role::kKBias, "attn_k"},
      {Role::kV, "attn_v"},
      {Role::kVBias, "attn_v"},
      {Role::kO, "attn_output"},
      {Role::kOBias, "attn_output"},
      {Role::kQkv, "attn_qkv"},
      {Role::kQkvBias, "attn_qkv"},
      {Role::kQNorm, "attn_q_norm"},
      {Role::kKNorm, "attn_k_norm"},
      {Role::kSinks, "attn_sinks"},
      {Role::kQDown, "attn_q_a"},
      {Role::kQDownNorm, "attn_q_a_norm"},
      {Role::kQUp, "attn_q_b"},
      {Role::kKvDown, "attn_kv_a_mqa"},
      {Role::kKvDownNorm, "attn_kv_a_norm"},
      {Role::kKvUp, "attn_kv_b"},
      {Role::kGate, "ffn_gate"},
      {Role::kGateBias, "ffn_gate"},
      {Role::kUp, "ffn_up"},
      {Role::kUpBias, "ffn_up"},
      {Role::kGateUp, "ffn_up"},
      {Role::kDown, "ffn_down"},
      {Role::kDownBias, "ffn_down"},
      {Role::kRouter, "ffn_gate_inp"},
      {Role::kRouterBias, "ffn_gate_inp"},
      {Role::kRouterScale, "ffn_gate_inp"},
      {Role::kRouterExpertScale, "ffn_down_exps"},
      {Role::kSelectionBias, "exp_probs_b"},
      {Role::kExpertsDown, "ffn_down_exps"},
      {Role::kExpertsDownBias, "ffn_down_exps"},
      {Role::kSharedGate, "ffn_gate_shexp"},
      {Role::kSharedUp, "ffn_up_shexp"},
      {Role::kSharedDown, "ffn_down_shexp"},
      {Role::kSharedRouter, "ffn_gate_inp_shexp"},
      {Role::kMoeDenseOutNorm, "post_ffw_norm_1"},
      {Role::kMoeInputNorm, "pre_ffw_norm_2"},
      {Role::kMoeOutNorm, "post_ffw_norm_2"},
      {Role::kLayerScalar, "layer_output_scale"},
      {Role::kPerLayerEmbedding, "per_layer_token_embd"},
      {Role::kPerLayerModelProjection, "per_layer_model_proj"},
      {Role::kPerLayerProjectionNorm, "per_layer_proj_norm"},
      {Role::kPleGate, "inp_gate"},
      {Role::kPleProjection, "proj"},
      {Role::kPleNorm, "post_norm"},
      {Role::kAltUpCorrectScale, "altup_correct_scale"},
      {Role::kAltUpCorrectCoefs, "altup_correct_coef"},
      {Role::kAltUpPredictCoefs, "altup_predict_coef"},
      {Role::kAltUpRouter, "altup_router"},
      {Role::kAltUpRouterNorm, "altup_router_norm"},
      {Role::kLaurelLeft, "laurel_l"},
      {Role::kLaurelRight, "laurel_r"},
      {Role::kLaurelNorm, "laurel_post_norm"},
  };
  const auto it = names.find(role);
  if (it == names.end()) ADD_FAILURE() << "no name for " << arch::role_name(role);
  return it == names.end() ? "?" : it->second + "." + kind;
}

std::string kind_of(Role role) {
  if (role == Role::kRouterScale || role == Role::kRouterExpertScale) return "scale";
  const std::string_view name = arch::role_name(role);
  return name.ends_with("bias") || name.ends_with("Bias") ? "bias" : "weight";
}

// Rows of `width` numbers, some of them, in another order.
Floats picked(const Floats& rows, int64_t width, const std::vector<int64_t>& order) {
  Floats out;
  for (const int64_t r : order) out.insert(out.end(), rows.begin() + r * width, rows.begin() + (r + 1) * width);
  return out;
}

// Of each head's rows [half 0 | half 1]: one of each in turn.
std::vector<int64_t> permuted_heads(int64_t heads, int64_t head_dim) {
  std::vector<int64_t> order;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t j = 0; j < head_dim / 2; ++j)
      for (const int64_t half : {0, 1}) order.push_back(h * head_dim + half * (head_dim / 2) + j);
  return order;
}

// All queries, all keys, all values, out of a fused projection.
std::vector<int64_t> split_fused(const AttentionSpec& a) {
  using Fused = AttentionSpec::Fused;
  if (a.fused != Fused::kQkvByHead && a.fused != Fused::kQkvByKvHead) return {};
  const int64_t groups = a.kv_heads, queries = a.heads / a.kv_heads, d = a.head_dim;
  std::vector<int64_t> order;
  const auto take = [&](int64_t first, int64_t count) {
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t r = 0; r < count; ++r) order.push_back(g * (queries + 2) * d + first + r);
  };
  take(0, queries * d);
  take(queries * d, d);
  take((queries + 1) * d, d);
  return order;
}

class Converter {
 public:
  Converter(const format::Checkpoint& checkpoint, const ModelSpec& spec, std::string architecture, GgufFile& file)
      : checkpoint_(checkpoint), spec_(spec), arch_(std::move(architecture)), file_(file) {}

  void add_tensors(bool split_kv_up) {
    for (const TensorSpec& t : spec_.tensors) {
      if (t.tied_to) continue;
      const Floats values = read(t);
      if (t.role == Role::kAltUpProjection || t.role == Role::kAltUpUnembedProjection) {
        Floats& all = stacked_[t.role];
        all.insert(all.end(), values.begin(), values.end());
      } else if (t.role == Role::kExpertsGateUp || t.role == Role::kExpertsGateUpBias) {
        add_gate_up(t, values);
      } else if (t.role == Role::kKvUp && split_kv_up) {
        add_split_kv_up(t, values);
      } else {
        add_plain(t, values);
      }
    }
    for (const auto& [role, values] : stacked_)
      file_.tensor(role == Role::kAltUpProjection ? "altup_proj.weight" : "altup_unembd_proj.weight",
                   {spec_.altup.inputs - 1, spec_.hidden, spec_.hidden}, values);
  }

 private:
  // As the forward pass has it.
  Floats read(const TensorSpec& t) const {
    auto reader = load::RowReader::create(checkpoint_, t);
    EXPECT_TRUE(reader) << reader.error().message;
    const uint64_t bytes = static_cast<uint64_t>(reader->rows()) * reader->row_bytes();
    std::vector<std::byte> raw(bytes), scratch;
    EXPECT_TRUE(reader->read(0, reader->rows(), raw, scratch));
    Floats out(static_cast<size_t>(t.rows * t.cols * t.experts));
    EXPECT_TRUE(load::decode_rows(reader->dtype(), raw, out));
    if (t.recipe.add_one)
      for (float& v : out) v += 1;
    return out;
  }

  std::string prefixed(const TensorSpec& t, const std::string& name) const {
    return t.layer < 0 ? name : "blk." + std::to_string(t.layer) + "." + name;
  }

  void add_plain(const TensorSpec& t, Floats values) {
    const bool vector = t.kind == arch::TensorKind::kVector;
    const bool q = t.role == Role::kQ || t.role == Role::kQBias, k = t.role == Role::kK || t.role == Role::kKBias;
    const int64_t width = vector ? 1 : t.cols;
    if ((q || k) && (arch_ == "llama" || arch_ == "granite" || arch_ == "smollm3")) {
      const AttentionSpec& a = spec_.layers[static_cast<size_t>(t.layer)].attention;
      values = picked(values, width, permuted_heads(q ? a.heads : a.kv_heads, a.head_dim));
    }
    if (t.role == Role::kQkv || t.role == Role::kQkvBias) {
      const auto order = split_fused(spec_.layers[static_cast<size_t>(t.layer)].attention);
      if (!order.empty()) values = picked(values, width, order);
    }
    Shape shape{t.rows, t.cols};
    if (vector && t.rows == 1) shape = {t.cols};
    if (t.kind == arch::TensorKind::kBank) shape = {t.experts, t.rows, t.cols};
    file_.tensor(prefixed(t, converter_name(arch_, spec_, t.role, kind_of(t.role))), shape, values);
  }

  void add_gate_up(const TensorSpec& t, const Floats& values) {
    const bool bias = t.role == Role::kExpertsGateUpBias;
    const std::string kind = bias ? ".bias" : ".weight";
    const int64_t experts = bias ? t.rows : t.experts, inner = (bias ? t.cols : t.rows) / 2, cols = bias ? 1 : t.cols;
    if (arch_ == "gemma4")
      return file_.tensor(prefixed(t, "ffn_gate_up_exps" + kind), {experts, 2 * inner, cols}, values);
    for (const int64_t part : {0, 1}) {
      std::vector<int64_t> order;
      for (int64_t e = 0; e < experts; ++e)
        for (int64_t r = 0; r < inner; ++r) order.push_back((2 * e + part) * inner + r);
      file_.tensor(prefixed(t, (part == 0 ? "ffn_gate_exps" : "ffn_up_exps") + kind),
                   bias ? Shape{experts, inner} : Shape{experts, inner, cols}, picked(values, cols, order));
    }
  }

  void add_split_kv_up(const TensorSpec& t, const Floats& values) {
    const AttentionSpec& a = spec_.layers[static_cast<size_t>(t.layer)].attention;
    const int64_t nope = a.nope_head_dim, v = a.v_head_dim, rank = t.cols;
    Floats keys, v_rows;
    for (int64_t h = 0; h < a.heads; ++h) {
      const float* head = values.data() + h * (nope + v) * rank;
      for (int64_t c = 0; c < rank; ++c)
        for (int64_t r = 0; r < nope; ++r) keys.push_back(head[r * rank + c]);
      v_rows.insert(v_rows.end(), head + nope * rank, head + (nope + v) * rank);
    }
    file_.tensor(prefixed(t, "attn_k_b.weight"), {a.heads, rank, nope}, keys);
    file_.tensor(prefixed(t, "attn_v_b.weight"), {a.heads, v, rank}, v_rows);
  }

  const format::Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const std::string arch_;
  GgufFile& file_;
  std::map<Role, Floats> stacked_;
};

// --- metadata

void common_keys(GgufFile& f, const ModelSpec& s) {
  const AttentionSpec& a = s.layers[0].attention;
  f.u32("block_count", static_cast<int64_t>(s.layers.size()));
  f.u32("context_length", s.position_rows > 0 ? s.position_rows : s.max_position);
  f.u32("embedding_length", s.hidden);
  f.u32("attention.head_count", a.heads);
  f.f32(
      s.final_norm.kind == arch::NormKind::kLayer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      s.final_norm.eps);
  if (!s.ropes.empty()) f.f32("rope.freq_base", s.ropes[0].theta);
}
void plain_keys(GgufFile& f, const ModelSpec& s) {
  common_keys(f, s);
  const AttentionSpec& a = s.layers[0].attention;
  // The dense layers' width, where there are any.
  const auto dense = std::find_if(s.layers.begin(), s.layers.end(), [](const auto& l) { return !l.mlp.moe; });
  f.u32("feed_forward_length", (dense == s.layers.end() ? s.layers.front() : *dense).mlp.intermediate);
  f.u32("attention.head_count_kv", a.kv_heads);
  if (a.heads * a.head_dim != s.hidden)
    f.u32("attention.key_length", a.head_dim), f.u32("attention.value_length", a.v_head_dim);
  if (!s.ropes.empty()) f.u32("rope.dimension_count", s.ropes[0].rotary_dim);
}
void expert_keys(GgufFile& f, const ModelSpec& s) {
  const arch::MoeSpec& moe = *s.layers.back().mlp.moe;
  f.u32("expert_count", moe.experts), f.u32("expert_used_count", moe.experts_per_token);
  f.u32("expert_feed_forward_length", moe.intermediate);
}
void window_keys(GgufFile& f, const ModelSpec& s) {
  int64_t window = 0;
  std::vector<bool> slides;
  for (const arch::LayerSpec& l : s.layers) {
    window = std::max<int64_t>(window, l.attention.window);
    slides.push_back(l.attention.kind == arch::AttentionKind::kSliding);
  }
  f.u32("attention.sliding_window", window);
  f.booleans("attention.sliding_window_pattern", slides);
}
void yarn_keys(GgufFile& f, const ModelSpec& s) {
  const arch::RopeSpec& r = s.ropes[0];
  f.text("rope.scaling.type", "yarn"), f.f32("rope.scaling.factor", r.factor);
  f.u32("rope.scaling.original_context_length", r.original_max_position);
  f.f32("rope.scaling.yarn_beta_fast", r.beta_fast), f.f32("rope.scaling.yarn_beta_slow", r.beta_slow);
}
std::vector<int64_t> by_layer(const ModelSpec& s, const std::function<int64_t(const arch::LayerSpec&)>& number) {
  std::vector<int64_t> out;
  for (const arch::LayerSpec& l : s.layers) out.push_back(number(l));
  return out;
}

void phi3_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s);
  const arch::RopeSpec& r = s.ropes[0];
  f.u32("attention.sliding_window", s.layers[0].attention.window);
  if (r.scaling != arch::RopeScaling::kLongRope) return;
  f.u32("rope.scaling.original_context_length", r.original_max_position);
  f.f32("rope.scaling.attn_factor", r.attention_scaling);
  const auto numbers = [](const std::vector<double>& list) { return Floats(list.begin(), list.end()); };
  f.tensor("rope_factors_long.weight", {r.rotary_dim / 2}, numbers(r.long_factor));
  f.tensor("rope_factors_short.weight", {r.rotary_dim / 2}, numbers(r.short_factor));
}
void cohere2_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s);
  f.f32("logit_scale", s.logits_multiplier), f.text("rope.scaling.type", "none");
  f.u32("attention.sliding_window", s.layers[0].attention.window);  // no pattern: it is the runtime's
}
void qwen2_moe_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s), expert_keys(f, s);
  f.u32("expert_shared_feed_forward_length", s.layers[0].mlp.moe->shared_intermediate);
}
void minimax_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s), expert_keys(f, s), f.u32("expert_gating_func", 2);
}
void gpt_oss_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s), expert_keys(f, s), yarn_keys(f, s);
  f.u32("attention.sliding_window", s.layers[0].attention.window);
  f.f32s("swiglu_clamp_exp", std::vector<double>(s.layers.size(), s.layers[0].mlp.swiglu_limit));
}
void deepseek_keys(GgufFile& f, const ModelSpec& s, bool split) {
  common_keys(f, s), expert_keys(f, s);
  const AttentionSpec& a = s.layers[0].attention;
  const arch::MoeSpec& moe = *s.layers.back().mlp.moe;
  const int64_t dense = std::count_if(s.layers.begin(), s.layers.end(), [](const auto& l) { return !l.mlp.moe; });
  f.u32("feed_forward_length", s.layers[0].mlp.intermediate), f.u32("leading_dense_block_count", dense);
  f.u32("attention.head_count_kv", split ? 1 : a.heads);
  f.u32("attention.key_length", split ? a.kv_lora_rank + a.rope_head_dim : a.head_dim);
  f.u32("attention.value_length", split ? a.kv_lora_rank : a.v_head_dim);
  if (split) f.u32("attention.key_length_mla", a.head_dim), f.u32("attention.value_length_mla", a.v_head_dim);
  if (a.q_lora_rank > 0) f.u32("attention.q_lora_rank", a.q_lora_rank);
  f.u32("attention.kv_lora_rank", a.kv_lora_rank), f.u32("rope.dimension_count", a.rope_head_dim);
  f.u32("expert_gating_func", 2), f.boolean("expert_weights_norm", moe.renormalize);
  f.f32("expert_weights_scale", moe.routed_scale);
  f.u32("expert_group_count", moe.groups), f.u32("expert_group_used_count", moe.groups_per_token);
  f.u32("expert_shared_count", moe.shared_intermediate / moe.intermediate);
  if (s.ropes[0].scaling != arch::RopeScaling::kYarn) return;
  yarn_keys(f, s);
  // mscale is 1.0 and mscale_all_dim 0.8 here; a file has no room for the first where they differ.
  f.f32("rope.scaling.yarn_log_multiplier", 0.08), f.f32("rope.scaling.attn_factor", s.ropes[0].attention_scaling);
}
void gemma_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s);
  const bool wide = s.layers[0].attention.heads * s.layers[0].attention.head_dim != s.hidden;
  if (!wide) f.u32("attention.key_length", s.layers[0].attention.head_dim);
}
void gemma2_keys(GgufFile& f, const ModelSpec& s) {
  gemma_keys(f, s), f.u32("attention.sliding_window", s.layers[0].attention.window);
  f.f32("attn_logit_softcapping", s.layers[0].attention.softcap), f.f32("final_logit_softcapping", s.final_softcap);
  f.f32("attention.scale", s.layers[0].attention.scale);
}
void gemma3_keys(GgufFile& f, const ModelSpec& s) {
  gemma_keys(f, s), window_keys(f, s), f.f32("rope.freq_base_swa", s.ropes[1].theta);
  f.f32("attention.scale", s.layers[0].attention.scale);
}
int64_t shared_layers(const ModelSpec& s) {
  return std::count_if(s.layers.begin(), s.layers.end(),
                       [](const auto& l) { return l.attention.kv_source_layer >= 0; });
}
void gemma3n_keys(GgufFile& f, const ModelSpec& s) {
  gemma_keys(f, s), window_keys(f, s), f.f32("rope.freq_base_swa", s.ropes[1].theta);
  f.f32("final_logit_softcapping", s.final_softcap);
  f.u32("altup.active_idx", s.altup.active), f.u32("altup.num_inputs", s.altup.inputs);
  f.u32("embedding_length_per_layer_input", s.per_layer_embedding.dim);
  f.u32("attention.shared_kv_layers", shared_layers(s));
  std::vector<double> cutoffs;
  for (const auto& l : s.layers) cutoffs.push_back(l.mlp.sparsity_icdf.value_or(-HUGE_VAL));
  f.f32s("activation_sparsity_scale", cutoffs);
}
void gemma4_keys(GgufFile& f, const ModelSpec& s) {
  common_keys(f, s), window_keys(f, s), f.f32("rope.freq_base_swa", s.ropes[1].theta);
  f.u32s("feed_forward_length", by_layer(s, [](const auto& l) { return l.mlp.intermediate; }));
  f.u32s("attention.head_count_kv", by_layer(s, [](const auto& l) { return l.attention.kv_heads; }));
  for (const auto& l : {s.ropes[0].head_dim}) f.u32("attention.key_length", l), f.u32("attention.value_length", l);
  f.u32("attention.key_length_swa", s.ropes[1].head_dim), f.u32("attention.value_length_swa", s.ropes[1].head_dim);
  f.u32("rope.dimension_count", s.ropes[0].head_dim), f.u32("rope.dimension_count_swa", s.ropes[1].head_dim);
  f.f32("final_logit_softcapping", s.final_softcap), f.u32("attention.shared_kv_layers", shared_layers(s));
  f.u32("embedding_length_per_layer_input", s.per_layer_embedding.dim);
  if (s.layers[0].mlp.moe) expert_keys(f, s);
  // Pairs that do not turn: their frequencies are divided by 10^30.
  const auto pairs = static_cast<size_t>(s.ropes[0].head_dim / 2);
  Floats divisors(pairs, 1e30f);
  std::fill_n(divisors.begin(), static_cast<size_t>(s.ropes[0].partial_rotary_factor * static_cast<double>(pairs)),
              1.0f);
  f.tensor("rope_freqs.weight", {static_cast<int64_t>(pairs)}, divisors);
}
void granite_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s), f.f32("embedding_scale", s.embedding_scale), f.f32("logit_scale", s.logits_divisor);
  f.f32("attention.scale", s.layers[0].attention.scale), f.f32("residual_scale", s.layers[0].residual_multiplier);
}
void linear_keys(GgufFile& f, const ModelSpec& s) {
  plain_keys(f, s), f.text("rope.scaling.type", "linear"), f.f32("rope.scaling.factor", s.ropes[0].factor);
}

struct Case {
  const char* model;
  const char* architecture;
  std::function<void(GgufFile&, const ModelSpec&)> keys = plain_keys;
  bool split_kv_up = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"llama", "llama"},
      {"llama_tied", "llama"},
      {"llama_bias", "llama", linear_keys},
      {"qwen2", "qwen2"},
      {"qwen3", "qwen3"},
      {"granite", "granite", granite_keys},
      {"mixtral", "llama", [](GgufFile& f, const ModelSpec& s) { plain_keys(f, s), expert_keys(f, s); }},
      {"qwen3_moe_raw", "qwen3moe",
       [](GgufFile& f, const ModelSpec& s) {
         plain_keys(f, s), expert_keys(f, s), f.boolean("expert_weights_norm", false);
       }},
      {"qwen3_moe", "qwen3moe", [](GgufFile& f, const ModelSpec& s) { plain_keys(f, s), expert_keys(f, s); }},
      {"qwen2_moe", "qwen2moe", qwen2_moe_keys},
      {"minimax_m2", "minimax-m2", minimax_keys},
      {"gpt_oss", "gpt-oss", gpt_oss_keys},
      {"deepseek_v3", "deepseek2", [](GgufFile& f, const ModelSpec& s) { deepseek_keys(f, s, true); }, true},
      {"deepseek_v3_plain_q", "deepseek2", [](GgufFile& f, const ModelSpec& s) { deepseek_keys(f, s, false); }},
      {"phi", "phi2"},
      {"phi3", "phi3", phi3_keys},
      {"phi3_longrope", "phi3", phi3_keys},
      {"phi3_longrope_long", "phi3", phi3_keys},
      {"falcon_40b", "falcon"},
      {"falcon_7b", "falcon"},
      {"gptj", "gptj"},
      {"gpt_neox", "gptneox",
       [](GgufFile& f, const ModelSpec& s) {
         plain_keys(f, s), f.boolean("use_parallel_residual", s.layers[0].parallel);
       }},
      {"gpt2", "gpt2"},
      {"bloom", "bloom"},
      {"stablelm", "stablelm"},
      {"olmo2", "olmo2"},
      {"cohere2", "cohere2", cohere2_keys},
      {"gemma", "gemma", gemma_keys},
      {"gemma2", "gemma2", gemma2_keys},
      {"gemma3_text", "gemma3", gemma3_keys},
      {"gemma3n_text", "gemma3n", gemma3n_keys},
      {"gemma4_e2b", "gemma4", gemma4_keys},
      {"gemma4_text_e4b", "gemma4", gemma4_keys},
      {"gemma4_31b", "gemma4", gemma4_keys},
      {"gemma4_26b_a4b", "gemma4", gemma4_keys},
  };
  return all;
}

void expect_golden(const std::string& file, const std::string& model) {
  RunOptions options;
  options.shape = golden_shape();
  auto placed = place_model(file, all_on_cpu(), options);
  ASSERT_TRUE(placed) << placed.error().message;
  for (const std::string& note : (*placed)->description.spec.notes)
    std::printf("[ note     ] %s: %s\n", model.c_str(), note.c_str());
  const GoldenDifference d = expect_golden_logits(*(*placed)->model, shared_path("golden/models/" + model));
  std::printf("[ gguf     ] %-18s %-10s difference as share of the largest logit %.1e\n", model.c_str(),
              std::string((*placed)->checkpoint->gguf()->architecture()).c_str(), d.share());
}

class GgufModel : public ::testing::TestWithParam<Case> {};

TEST_P(GgufModel, GivesTheLogitsOfTheOriginal) {
  const Case& c = GetParam();
  const std::string folder = shared_path(std::string("golden/models/") + c.model);
  BERTH_NEEDS(folder);
  auto checkpoint = format::Checkpoint::open(folder, Log{});
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto described = arch::describe_model(*checkpoint, {});
  ASSERT_TRUE(described) << described.error().message;
  GgufFile file(c.architecture);
  c.keys(file, described->spec);
  Converter(*checkpoint, described->spec, c.architecture, file).add_tensors(c.split_kv_up);
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/model.gguf";
  file.write(path);
  expect_golden(path, c.model);
}
INSTANTIATE_TEST_SUITE_P(Runs, GgufModel, ::testing::ValuesIn(cases()),
                         [](const auto& i) { return std::string(i.param.model); });

TEST(GgufModels, OfTheConverterItself) {
  const char* folder = std::getenv("BERTH_GGUF_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "BERTH_GGUF_FOLDER names no folder of converted golden models";
  auto names = list_folder(folder);
  ASSERT_TRUE(names) << names.error().message;
  for (const std::string& name : *names) {
    if (!name.ends_with(".gguf")) continue;
    SCOPED_TRACE(name);
    expect_golden(path_join(folder, name), name.substr(0, name.size() - 5));
  }
}

// SmolLM3's files do not list the layers without rope: every fourth is. The golden's are others, so the original is one
// whose config says what the file cannot.
TEST(GgufModels, SmolLm3LeavesEveryFourthLayerWithoutRope) {
  const std::string folder = shared_path("golden/models/smollm3");
  BERTH_NEEDS(folder);
  const TemporaryFolder temporary;
  for (const char* name : {"/config.json", "/model.safetensors"}) {
    auto bytes = read_file(folder + name, size_t{64} << 20);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const std::string key = "\"no_rope_layers\": [";
    const size_t at = bytes->find(key);
    if (at != std::string::npos) bytes->replace(at, bytes->find(']', at) + 1 - at, key + "1, 1, 1, 0]");
    std::ofstream(temporary.path() + name, std::ios::binary) << *bytes;
  }
  RunOptions options;
  options.shape = golden_shape();
  auto original = place_model(temporary.path(), all_on_cpu(), options);
  ASSERT_TRUE(original) << original.error().message;
  const ModelSpec& spec = (*original)->description.spec;
  ASSERT_EQ(spec.layers[1].attention.rope, 0);
  GgufFile file("smollm3");
  plain_keys(file, spec);
  Converter(*(*original)->checkpoint, spec, "smollm3", file).add_tensors(false);
  file.write(temporary.path() + "/model.gguf");
  auto converted = place_model(temporary.path() + "/model.gguf", all_on_cpu(), options);
  ASSERT_TRUE(converted) << converted.error().message;
  const std::vector<int32_t> tokens{7, 19, 80, 33, 150, 4, 91, 12, 66, 101};
  const auto a = all_logits(*(*original)->model, tokens), b = all_logits(*(*converted)->model, tokens);
  ASSERT_TRUE(a && b);
  ASSERT_EQ(a->size(), b->size());
  for (size_t i = 0; i < a->size(); ++i) ASSERT_NEAR((*a)[i], (*b)[i], 1e-4) << i;  // bf16 there, fp32 here
}

// Every architecture of the list is run above.
TEST(GgufModels, CoverEveryKnownArchitecture) {
  std::vector<std::string> run{"smollm3"};
  for (const Case& c : cases()) run.push_back(c.architecture);
  for (const std::string& known : arch::known_gguf_architectures()) {
    const std::string name = known.substr(0, known.find('+'));
    EXPECT_NE(std::find(run.begin(), run.end(), name), run.end()) << known;
  }
}

}  // namespace
}  // namespace berth::testing
