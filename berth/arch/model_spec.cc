// arch/model_spec.cc — look-ups and names of model_spec.h and tensor_recipe.h.
#include "berth/arch/model_spec.h"

#include "berth/base/check.h"

namespace berth::arch {

const TensorSpec* ModelSpec::find(Role role, int32_t layer) const {
  for (const TensorSpec& t : tensors)
    if (t.role == role && t.layer == layer) return &t;
  return nullptr;
}

}  // namespace berth::arch
