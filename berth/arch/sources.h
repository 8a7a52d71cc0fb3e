// arch/sources.h — from wanted tensors to recipes: where a safetensors checkpoint has each of them, and in what form.
//
// Files call things differently from the model in memory: without the base prefix, with a wrapper's, experts one by one
// or fused. And each tensor may be stored plain, in fp8 blocks, as mxfp4 or by bitsandbytes: that is told from the
// tensors that lie beside it, never from skip lists in the config. Everything is checked here, shapes against the
// config, before a byte is allocated for it.
//
// Start reading at: resolve_sources. GGUF has its own names: gguf_names.h.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "berth/arch/families/family.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {

// Fills spec.tensors (and vocab_rows, tied_head, dtype) from the builder's wanted tensors.
// Errors: kCorruptData naming the tensor, the config keys behind its shape, expected and found; where layers are
// missing or more than the config says.
Status resolve_sources(const format::Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec);

// The same without a checkpoint: names and storage as such a model would be published (planning from a bare config).
void presume_sources(const format::HfConfig& config, Builder& builder, ModelSpec& spec);

// How an error names the extents of a tensor: "rows follow num_attention_heads x head_dim = 512, columns hidden_size =
// 64".
std::string extents_text(const WantedTensor& wanted);

// The error for a tensor that is not there.
Error missing_tensor(const WantedTensor& wanted, std::string_view name, const Decoder& decoder,
                     std::string_view layers_key);

// Names of the checkpoint's tensors that no recipe reads, in file order.
std::vector<std::string> unread_tensors(const format::Checkpoint& checkpoint, const ModelSpec& spec);

// "31 tensors are not read: vision_tower (30), mtp (1)"; empty where all are.
std::string unread_note(const std::vector<std::string>& names);

}  // namespace berth::arch
