// The same model from its config and from GGUF metadata: files made here out of golden models' descriptions, with keys
// and tensor names as the converter writes them, must give the same layers and ropes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/arch/sources.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::arch {
namespace {

using format::GgufBytes;
using format::GgufType;

constexpr uint32_t kF32Type = 0;

std::string f32_bytes(double value) {
  const auto f = static_cast<float>(value);
  std::string out(4, '\0');
  std::memcpy(out.data(), &f, 4);
  return out;
}

// Not inlined: g++ 12's SLP vectorizer drops the rounding of two neighbouring doubles (double -> float -> double).
[[gnu::noinline]] double as_float(double value) { return static_cast<double>(static_cast<float>(value)); }

// Names of the converter, spelt out a second time on purpose.
std::string converter_name(const TensorSpec& t) {
  static const std::map<Role, std::string> kNames{
      {Role::kEmbedding, "token_embd.weight"},
      {Role::kFinalNorm, "output_norm.weight"},
      {Role::kHead, "output.weight"},
      {Role::kInputNorm, "attn_norm.weight"},
      {Role::kMlpNorm, "ffn_norm.weight"},
      {Role::kAttentionOutNorm, "post_attention_norm.weight"},
      {Role::kMlpOutNorm, "post_ffw_norm.weight"},
      {Role::kQ, "attn_q.weight"},
      {Role::kK, "attn_k.weight"},
      {Role::kV, "attn_v.weight"},
      {Role::kO, "attn_output.weight"},
      {Role::kQBias, "attn_q.bias"},
      {Role::kKBias, "attn_k.bias"},
      {Role::kVBias, "attn_v.bias"},
      {Role::kOBias, "attn_output.bias"},
      {Role::kQNorm, "attn_q_norm.weight"},
      {Role::kKNorm, "attn_k_norm.weight"},
      {Role::kGate, "ffn_gate.weight"},
      {Role::kUp, "ffn_up.weight"},
      {Role::kDown, "ffn_down.weight"},
      {Role::kGateBias, "ffn_gate.bias"},
      {Role::kUpBias, "ffn_up.bias"},
      {Role::kDownBias, "ffn_down.bias"},
      {Role::kRouter, "ffn_gate_inp.weight"},
      {Role::kExpertsDown, "ffn_down_exps.weight"},
  };
  const auto it = kNames.find(t.role);
  if (it == kNames.end()) return "?";
  return t.layer < 0 ? it->second : "blk." + std::to_string(t.layer) + "." + it->second;
}

class File {
 public:
  File(std::string architecture, const ModelSpec& spec) : arch_(std::move(architecture)) {
    bytes_.string("general.architecture", arch_);
    const AttentionSpec& a = spec.layers[0].attention;
    const auto number = [&](const char* key, int64_t v) { u32(key, v); };
    number("block_count", static_cast<int64_t>(spec.layers.size()));
    number("embedding_length", spec.hidden);
    number("feed_forward_length", spec.layers[0].mlp.intermediate);
    number("attention.head_count", a.heads);
    number("attention.head_count_kv", a.kv_heads);
    number("attention.key_length", a.head_dim);
    number("attention.value_length", a.v_head_dim);
    number("context_length", spec.max_position);
    f32("attention.layer_norm_rms_epsilon", spec.final_norm.eps);
    f32("rope.freq_base", spec.ropes[0].theta);
    for (const TensorSpec& t : spec.tensors) {
      if (t.tied_to) continue;
      const auto rows = static_cast<uint64_t>(t.rows), cols = static_cast<uint64_t>(t.cols);
      const auto experts = static_cast<uint64_t>(t.experts);
      if (t.role == Role::kExpertsGateUp) {
        for (const char* part : {"gate", "up"})
          tensor("blk." + std::to_string(t.layer) + ".ffn_" + part + "_exps.weight", {cols, rows / 2, experts});
      } else if (t.kind == TensorKind::kBank) {
        tensor(converter_name(t), {cols, rows, experts});
      } else if (t.kind == TensorKind::kVector) {
        tensor(converter_name(t), {cols});
      } else {
        tensor(converter_name(t), {cols, rows});
      }
    }
  }
  File& u32(const std::string& key, int64_t v) {
    bytes_.u32(arch_ + "." + key, static_cast<uint32_t>(v));
    return *this;
  }
  File& f32(const std::string& key, double v) {
    bytes_.raw_pair(arch_ + "." + key, GgufType::kF32, f32_bytes(v));
    return *this;
  }
  File& boolean(const std::string& key, bool v) {
    bytes_.raw_pair(arch_ + "." + key, GgufType::kBool, std::string(1, v ? '\1' : '\0'));
    return *this;
  }
  File& text(const std::string& key, const std::string& v) {
    bytes_.string(arch_ + "." + key, v);
    return *this;
  }
  File& tensor(const std::string& name, const std::vector<uint64_t>& ne) {
    bytes_.tensor(name, ne, kF32Type, size_);
    uint64_t n = 4;
    for (const uint64_t e : ne) n *= e;
    size_ += (n + 31) / 32 * 32;
    return *this;
  }
  std::string bytes() const { return bytes_.bytes(size_); }

 private:
  std::string arch_;
  GgufBytes bytes_;
  uint64_t size_ = 0;
};

Result<ModelDescription> describe(const std::string& path) {
  TRY(const format::Checkpoint checkpoint, format::Checkpoint::open(path));
  TRY(ModelDescription d, describe_model(checkpoint, {}));
  const auto unread = unread_tensors(checkpoint, d.spec);
  if (!unread.empty()) return Error(ErrorCode::kInternal, "unread: " + join(unread, " "));
  return d;
}

// GGUF keeps these as float.
void round_floats(ModelSpec& spec) {
  const auto round = [](double& v) { v = as_float(v); };
  round(spec.final_norm.eps);
  round(spec.embedding_scale);
  round(spec.logits_divisor);
  round(spec.final_softcap);
  for (RopeSpec& r : spec.ropes) round(r.theta);
  for (LayerSpec& l : spec.layers) {
    for (NormSpec* n :
         {&l.input_norm, &l.attention_out_norm, &l.mlp_norm, &l.mlp_out_norm, &l.attention.q_norm, &l.attention.k_norm})
      round(n->eps);
    round(l.attention.scale);
    round(l.attention.softcap);
    round(l.residual_multiplier);
  }
}

struct Case {
  const char* model;
  const char* architecture;
  std::function<void(File&, const ModelSpec&)> more;  // keys beyond the common ones
  bool permuted = false;                              // heads of q and k
};

void same_from_both(const Case& c) {
  SCOPED_TRACE(c.model);
  const std::string folder = shared_folder() + "/golden/models/" + c.model;
  const auto hf = describe(folder);
  ASSERT_TRUE(hf) << hf.error().message;
  File file(c.architecture, hf->spec);
  if (c.more) c.more(file, hf->spec);
  const format::TempFolder temp;
  const auto gguf = describe(temp.write("model.gguf", file.bytes()));
  ASSERT_TRUE(gguf) << gguf.error().message;
  ModelSpec a = hf->spec, b = gguf->spec;
  EXPECT_EQ(a.tensors.size(), b.tensors.size());
  for (const TensorSpec& t : b.tensors) {
    EXPECT_FALSE(t.recipe.add_one) << t.name;
    const bool head = t.role == Role::kQ || t.role == Role::kK;
    if (head) EXPECT_EQ(!t.recipe.segments.empty(), c.permuted) << t.name;
  }
  round_floats(a);
  round_floats(b);
  EXPECT_EQ(a.ropes, b.ropes);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].attention, b.layers[i].attention) << i;
    EXPECT_EQ(a.layers[i].mlp, b.layers[i].mlp) << i;
    EXPECT_EQ(a.layers[i], b.layers[i]) << i;
  }
  a.tensors.clear();
  b.tensors.clear();
  a.dtype = b.dtype;
  a.notes.clear();
  EXPECT_EQ(a, b);
}

TEST(GgufFamilies, GiveTheSpecOfTheirConfigs) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models");
  const auto experts = [](File& f, const ModelSpec& s) {
    const MoeSpec& moe = *s.layers[0].mlp.moe;
    f.u32("expert_count", moe.experts).u32("expert_used_count", moe.experts_per_token);
    f.u32("expert_feed_forward_length", moe.intermediate).boolean("expert_weights_norm", moe.renormalize);
  };
  const auto caps = [](File& f, const ModelSpec& s) {
    f.f32("attn_logit_softcapping", s.layers[0].attention.softcap).f32("final_logit_softcapping", s.final_softcap);
    f.u32("attention.sliding_window", s.layers[0].attention.window).f32("attention.scale", s.layers[0].attention.scale);
  };
  const auto two_ropes = [](File& f, const ModelSpec& s) {
    f.u32("attention.sliding_window", s.layers[0].attention.window).f32("attention.scale", s.layers[0].attention.scale);
    f.f32("rope.freq_base_swa", s.ropes[1].theta);
  };
  const auto multipliers = [](File& f, const ModelSpec& s) {
    f.f32("embedding_scale", s.embedding_scale).f32("logit_scale", s.logits_divisor);
    f.f32("attention.scale", s.layers[0].attention.scale).f32("residual_scale", s.layers[0].residual_multiplier);
  };
  const auto linear = [](File& f, const ModelSpec& s) {
    f.text("rope.scaling.type", "linear").f32("rope.scaling.factor", s.ropes[0].factor);
  };
  const Case cases[] = {
      {"llama", "llama", {}, true},
      {"llama_tied", "llama", {}, true},
      {"llama_bf16", "llama", {}, true},
      {"llama_bias", "llama", linear, true},
      {"qwen2", "qwen2", {}},
      {"qwen3", "qwen3", {}},
      {"gemma", "gemma", {}},
      {"gemma2", "gemma2", caps},
      {"gemma3_text", "gemma3", two_ropes},
      {"granite", "granite", multipliers, true},
      {"mixtral", "llama", experts, true},
      {"qwen3_moe_raw", "qwen3moe", experts},
  };
  for (const Case& c : cases) same_from_both(c);
  std::printf("GGUF and config agree: %zu models\n", std::size(cases));
}

TEST(GgufFamilies, RopeDivisorsAreRead) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/llama");
  const auto hf = describe(shared_folder() + "/golden/models/llama");
  ASSERT_TRUE(hf);
  File file("llama", hf->spec);
  const auto pairs = static_cast<uint64_t>(hf->spec.ropes[0].rotary_dim / 2);
  file.tensor("rope_freqs.weight", {pairs});
  const format::TempFolder temp;
  const auto d = describe(temp.write("model.gguf", file.bytes()));
  ASSERT_TRUE(d) << d.error().message;
  EXPECT_EQ(d->spec.ropes[0].frequency_divisors.size(), pairs);

  File wrong("llama", hf->spec);
  wrong.tensor("rope_freqs.weight", {pairs + 1});
  const auto refused = describe(temp.write("wrong.gguf", wrong.bytes()));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("rope_freqs.weight"), std::string::npos) << refused.error().message;
}

TEST(GgufFamilies, UnknownArchitecturesAreNamed) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/llama");
  const auto hf = describe(shared_folder() + "/golden/models/llama");
  ASSERT_TRUE(hf);
  const format::TempFolder temp;
  const auto d = describe(temp.write("model.gguf", File("lama", hf->spec).bytes()));
  ASSERT_FALSE(d);
  EXPECT_EQ(d.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(d.error().message.find("did you mean \"llama\""), std::string::npos) << d.error().message;
}

TEST(GgufFamilies, AShapeThatContradictsAKeyIsRefused) {
  BERTH_NEED_SHARED(shared_folder() + "/golden/models/qwen2");
  const auto hf = describe(shared_folder() + "/golden/models/qwen2");
  ASSERT_TRUE(hf);
  ModelSpec spec = hf->spec;
  spec.layers[0].mlp.intermediate += 32;
  const format::TempFolder temp;
  const auto d = describe(temp.write("model.gguf", File("qwen2", spec).bytes()));
  ASSERT_FALSE(d);
  for (const char* part : {"blk.0.ffn_gate.weight", "feed_forward_length = 192", "[160, 96]", "[192, 96]"})
    EXPECT_NE(d.error().message.find(part), std::string::npos) << d.error().message;
}

}  // namespace
}  // namespace berth::arch
