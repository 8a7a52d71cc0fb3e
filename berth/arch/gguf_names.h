// arch/gguf_names.h — GGUF's names for the tensors of the engine, and how its files differ in value from Hugging
// Face's.
//
// One table from roles to names serves every architecture: "attn_q" is kQ wherever it occurs. Differences: rows of Q
// and K are permuted in files of the llama kind, norms of Gemma already hold the one, experts lie stacked with gate and
// up apart. A few architectures call a norm otherwise.
//
// Start reading at: resolve_gguf.
#pragma once

#include "berth/arch/families/family.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {

// Fills spec.tensors (and vocab_rows) from the builder's wanted tensors. Errors: kCorruptData naming tensor, metadata
// key, expected and found; kUnsupported where a tensor has no GGUF name.
Status resolve_gguf(const format::Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec);

}  // namespace berth::arch
