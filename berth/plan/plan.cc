// plan/plan.cc — look-ups of plan.h.
#include "berth/plan/plan.h"

namespace berth::plan {

const DeviceUse* Plan::device(const std::string& id) const {
  for (const DeviceUse& d : devices)
    if (d.id == id) return &d;
  return nullptr;
}

}  // namespace berth::plan
