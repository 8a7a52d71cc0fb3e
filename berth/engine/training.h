// engine/training.h — `--for training`: what a map made for inference does not hold for, and a plan that does.
//
// Beside its weights a parameter that is trained needs its gradient and the two moments of AdamW, each in its own type:
// four times the bytes. Backward passes need what forward passes made: with gradient checkpointing (assumed here) the
// input of every layer, for every position of the batch, and one layer's workspace; the head's logits are those of all
// positions. There is no KV cache. Nothing may be off the accelerators: what accelerate offloads is not there between
// calls. Quantized weights are not trained, only adapters beside them.
//
// Data-parallel training runs one process per accelerator, each with the whole model: that is the plan wherever one
// accelerator holds it. Otherwise whole layers are spread over the accelerators of one process, and the plan says so.
//
// Start reading at: plan_for_training.
#pragma once

#include <string>
#include <vector>

#include "berth/engine/planning.h"

namespace berth::engine {

// Errors: kDoesNotFit with what training needs; kInvalidArgument for a map of the user's that uses cpu or disk.
Result<PlannedModel> plan_for_training(const OpenedModel& model, const Options& options);

// What a map made for inference does not hold for, a sentence each: memory on each device of the map, offloading,
// several devices, 4 and 8 bit.
std::vector<std::string> training_faults(const OpenedModel& model, const PlanInputs& inputs,
                                         const plan::DeviceMap& map);

}  // namespace berth::engine
