// arch/families/moe.cc — see moe.h.
#include "berth/arch/families/moe.h"

namespace berth::arch {

void make_sparse(LayerSpec& layer, const MoeSpec& moe) {
  layer.mlp.moe = moe;
  layer.mlp.intermediate = moe.intermediate;
}

void experts_module(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view name,
                    std::string_view class_name, const ExpertNames& names, std::string_view activation) {
  const auto scope = b.open(name, class_name);
  fused_experts(b, d, moe, names);
  if (!activation.empty()) b.leaf("act_fn", activation_class(activation));
}

void router_module(Builder& b, const Decoder& d, const MoeSpec& moe, std::string_view name, std::string_view class_name,
                   std::string_view disk) {
  const auto scope = b.open(name, class_name);
  router_weight(b, d, moe, disk);
}

void qwen_moe_block(Builder& b, const Decoder& d, const MoeSpec& moe, const std::string& prefix,
                    const ExpertNames& names) {
  const auto block = b.open("mlp", prefix + "SparseMoeBlock");
  router_module(b, d, moe, "gate", prefix + "TopKRouter");
  experts_module(b, d, moe, "experts", prefix + "Experts", names, d.activation);
  if (moe.shared_intermediate == 0) return;
  gated_mlp(b, d, "shared_expert", prefix + "MLP", {moe.shared_intermediate, "shared_expert_intermediate_size"}, false,
            {Role::kSharedGate, Role::kSharedUp, Role::kSharedDown});
  b.linear("shared_expert_gate", {1, "1"}, d.hidden(), Role::kSharedRouter);
}

}  // namespace berth::arch
