// model/families/gemma3n.h — Gemma 3n's several residual streams (altup): private to model.
#pragma once

#include "berth/model/forward_state.h"

namespace berth::model {

// The other streams from the first, which is in place: [streams, rows, H].
void split_streams(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout);
// One layer: predict all streams, compute the active one with laurel beside attention, correct all.
Status run_altup_layer(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer);
// The mean of the unembedded streams of some rows in layout.merged; `row_of`: [count] rows of the pass.
void merge_streams(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout,
                   std::span<const int64_t> row_of);

}  // namespace berth::model
