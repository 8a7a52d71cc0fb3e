// arch/tensor_recipe.h — which tensors the engine holds, and how each is made from the checkpoint's tensors.
//
// A recipe is data, carried out by `load`: the rows of a matrix are a list of segments of source rows, so slicing fused
// projections, stacking experts, concatenating gate and up, un-permuting GGUF's Q and K and de-interleaving are all the
// same thing. Values change in three ways only: a transposed source, `round_to` and `add_one`.
//
// The rows picked, one after the other, are the tensor's elements in order: their product with `cols` of the sources is
// experts * rows * cols. Vectors are usually one source of one row; where elements are picked (the un-permuted bias of
// a GGUF Q), the source is a column: rows = elements, cols = 1.
//
// Start reading at: TensorSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/quant/codec.h"
#include "berth/tensor/shape.h"

namespace berth::arch {

// What a tensor is to the forward pass. With the layer index it is a key.
enum class Role : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kEmbeddingNorm,
  kEmbeddingNormBias,
  kProjectIn,
  kProjectOut,
  kPerLayerEmbedding,
  kPerLayerModelProjection,
  kPerLayerProjectionNorm,
  kFinalNorm,
  kFinalNormBias,
  kHead,
  kHeadBias,
  kAltUpProjection,
  kAltUpUnembedProjection,  // several: TensorSpec::layer is 0 .. inputs-2
  // per layer
  kInputNorm,
  kInputNormBias,
  kAttentionOutNorm,
  kAttentionOutNormBias,
  kMlpNorm,
  kMlpNormBias,
  kMlpOutNorm,
  kMlpOutNormBias,
  kQ,
  kQBias,
  kK,
  kKBias,
  kV,
  kVBias,
  kO,
  kOBias,
  kQkv,
  kQkvBias,
  kQNorm,
  kQNormBias,
  kKNorm,
  kKNormBias,
  kSinks,
  kQDown,
  kQDownNorm,
  kQUp,
  kKvDown,
  kKvDownNorm,
  kKvUp,  // latent attention
  kDeltaQkvz,
  kDeltaBa,
  kDeltaConv,
  kDeltaALog,
  kDeltaDtBias,
  kDeltaNorm,
  kDeltaQkv,
  kDeltaZ,
  kDeltaB,
  kDeltaA,
  kIndexQ,
  kIndexK,
  kIndexQNorm,
  kIndexKNorm,
  kGate,
  kGateBias,
  kUp,
  kUpBias,
  kGateUp,
  kGateUpBias,
  kDown,
  kDownBias,
  kRouter,
  kRouterBias,
  kRouterScale,
  kRouterExpertScale,
  kSelectionBias,
  kExpertsGateUp,
  kExpertsGateUpBias,
  kExpertsDown,
  kExpertsDownBias,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedGateUp,
  kSharedRouter,
  kMoeDenseOutNorm,
  kMoeInputNorm,
  kMoeOutNorm,
  kLayerScalar,
  kPleGate,
  kPleProjection,
  kPleNorm,
  kAltUpCorrectScale,
  kAltUpCorrectCoefs,
  kAltUpPredictCoefs,
  kAltUpRouter,
  kAltUpRouterNorm,
  kLaurelLeft,
  kLaurelRight,
  kLaurelNorm,
};
std::string_view role_name(Role role);

// Rows [begin, begin + stride*(count-1)] of one source become the next `count` rows of the tensor.
struct Segment {
  int32_t source = 0;  // index into TensorRecipe::sources
  int64_t begin = 0, count = 0, stride = 1;
  bool operator==(const Segment&) const = default;
};

// How the bytes of one source are stored, beyond its dtype.
enum class SourceStorage : uint8_t {
  kPlain,     // fp32/bf16/fp16/f64, or a GGUF block type
  kFp8Block,  // e4m3 with companion "…_scale_inv" (fp32, one per 128x128 block)
  kMxfp4,     // companion "…_scales"; the source is "…_blocks", rows are the file's output rows
  kBnb4,      // bitsandbytes packed; companions absmax (+ nested_absmax, nested_quant_map)
  kBnbInt8,   // bitsandbytes int8; companion SCB
  kOther,  // AWQ, GPTQ, NVFP4, fp8 per tensor or row...: sized from its tensors (`name` and all companions), never run
};

struct Source {
  std::string name;  // in the checkpoint
  SourceStorage storage = SourceStorage::kPlain;
  DType dtype = DType::kBF16;  // of the tensor called `name` in the file (a bare config: as it would be published)
  std::optional<quant::StoredFormat>
      prequantized;            // set for storages that run, but kPlain: the codec, block size, nesting
  bool transposed = false;     // file holds [cols, rows] (GPT-2 Conv1D, gpt-oss and Llama 4 experts)
  int64_t slice = -1;          // >= 0: matrix number `slice` along the first axis of a 3-D tensor; -1: all of
                               // it, the matrices of a 3-D tensor one below the other
  int64_t rows = 0, cols = 0;  // of the (sliced, un-transposed) matrix
  // Further tensors the storage needs, in the order its reader wants: fp8 [scale_inv], mxfp4 [scales], int8 [SCB],
  // bnb4 [absmax] or [absmax, nested_absmax, nested_quant_map], other: all the rest.
  std::vector<std::string> companions;
  bool widens_scales = false;  // bnb4, int8: scales that the file has in another float type become fp32
  uint64_t other_bytes = 0;    // storage kOther: bytes of all its tensors in the file
  float nested_offset = 0;     // bnb4 with nested scales: from its quant_state
  bool operator==(const Source&) const = default;
};

struct TensorRecipe {
  std::vector<Source> sources;
  std::vector<Segment> segments;  // empty: sources one after the other, whole
  bool add_one = false;           // fp32(1 + w): norms stored as offset from one
  // Vectors only: --dtype's rounding (bf16, f16), which Transformers gives every parameter; fp32: as the file has them.
  DType round_to = DType::kF32;
  bool operator==(const TensorRecipe&) const = default;
};

enum class TensorKind : uint8_t {
  kMatrix,  // read by a Linear: [rows, cols], any storage format
  kTable,   // rows are gathered (embeddings); may also be a head's matrix (ties)
  kVector,  // norms, biases, scalars, convolution filters: fp32 in memory, whatever the file says
  kBank,    // [experts*rows, cols]: expert e owns rows e*rows .. ; only chosen experts are read
};

struct TensorSpec {
  Role role = Role::kEmbedding;
  int32_t layer = -1;  // -1: the model itself
  TensorKind kind = TensorKind::kMatrix;
  std::string module;          // module path in the tree: "model.layers.0.self_attn.q_proj"
  std::string name;            // parameter path: "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0, cols = 0;  // vectors: rows = 1 (but [channels, kernel] filters and [experts, n] biases)
  int32_t experts = 1;         // banks: matrices stacked
  TensorRecipe recipe;
  std::optional<Role> tied_to;  // an alias of the model-level tensor with this role; recipe is then empty
  bool operator==(const TensorSpec&) const = default;
};

}  // namespace berth::arch
