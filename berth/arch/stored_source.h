// arch/stored_source.h — how one tensor of a safetensors file is stored, told from its dtype and from what lies beside
// it.
//
// Start reading at: describe_source.
#pragma once

#include <string>

#include "berth/arch/builder.h"
#include "berth/base/result.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {

// Whether the checkpoint has a tensor of this name, or what quantizers leave in its place (NAME_blocks; MODULE.qweight
// for MODULE.weight).
bool is_stored(const format::Checkpoint& checkpoint, const WantedSource& wanted, const std::string& name);

// The recipe source for the tensor `name` (already as the file calls it). Errors: kCorruptData naming it, where its
// shape or that of a companion is not what `wanted` says; kUnsupported for a bitsandbytes state Berth cannot read.
Result<Source> describe_source(const format::Checkpoint& checkpoint, const WantedSource& wanted,
                               const std::string& name);

}  // namespace berth::arch
