// kernel/family_operations.h — the rows of operations that only some families use: like dispatch.h, a table of its own.
//
// Private to the layer. Today the instruction sets share the reference compiled with fma; a row of its own may replace
// any function.
//
// To add one: its header, ref/NAME.cc, a declaration and a field here.
#pragma once

#include "berth/kernel/delta_net.h"
#include "berth/kernel/gated.h"
#include "berth/kernel/mixture.h"
#include "berth/kernel/sparse_attention.h"
#include "berth/kernel/streams.h"

#define BERTH_DECLARE_FAMILY_OPERATIONS(NAMESPACE)                                                                     \
  namespace berth::kernel::NAMESPACE {                                                                                 \
  void clamped_swiglu(const float* gate, int64_t gate_stride, const float* up, int64_t up_stride, float limit,         \
                      float alpha, int64_t rows, int64_t n, float* y, int64_t y_stride);                               \
  void multiply(float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows, int64_t n);                \
  void scale_rows(const float* x, int64_t x_stride, const float* factors, int64_t rows, int64_t n, float* y,           \
                  int64_t y_stride);                                                                                   \
  void sparsify(float* x, int64_t stride, float cutoff, int64_t rows, int64_t n);                                      \
  void store_rows(DType dtype, const float* x, int64_t x_stride, int64_t rows, int64_t n, std::byte* to);              \
  void load_rows(DType dtype, const std::byte* from, int64_t rows, int64_t n, float* y, int64_t y_stride);             \
  void route(const RouterOptions& options, float* logits, int64_t rows, int32_t* ids, float* weights);                 \
  void accumulate_rows(const float* y, int64_t y_stride, const int32_t* row_of, const float* weights, int64_t count,   \
                       int64_t n, float* o, int64_t o_stride);                                                         \
  void short_convolution(const float* x, int64_t rows, int64_t channels, int64_t begin, int64_t end, int32_t taps,     \
                         const float* w, float* state, float* y);                                                      \
  void delta_gates(const float* b, const float* a, const float* a_log, const float* dt_bias, int64_t rows,             \
                   int64_t heads, float* beta, float* decay);                                                          \
  void delta_rule_heads(const DeltaShape& shape, int32_t begin, int32_t end, float* state, const float* q,             \
                        const float* k, const float* v, int64_t stride, const float* beta, const float* decay,         \
                        int64_t rows, float* out);                                                                     \
  void index_write(const IndexView& index, int64_t position, int64_t rows, const float* k, int64_t k_stride);          \
  void select_blocks(const IndexView& index, const BlockChoice& choice, int64_t position, int64_t rows,                \
                     const float* q, int64_t q_stride, float* pooled, int64_t pooled_stride, int32_t* chosen);         \
  void sparse_attention(const AttentionOptions& options, const AttentionJob& job, const BlockChoice& choice,           \
                        const int32_t* chosen, float* scratch);                                                        \
  void predict_streams(float* x, int32_t inputs, int64_t rows, int64_t n, const float* coefs);                         \
  void correct_streams(float* x, int32_t inputs, int32_t active, int64_t rows, int64_t n, const float* f,              \
                       const float* coefs);                                                                            \
  void match_magnitude(float* y, int64_t y_stride, const float* model, int64_t model_stride, int64_t rows, int64_t n); \
  }

BERTH_DECLARE_FAMILY_OPERATIONS(ref)
BERTH_DECLARE_FAMILY_OPERATIONS(ref_fma)

namespace berth::kernel {

struct FamilyOperations {
  decltype(&ref::clamped_swiglu) clamped_swiglu;
  decltype(&ref::multiply) multiply;
  decltype(&ref::scale_rows) scale_rows;
  decltype(&ref::sparsify) sparsify;
  decltype(&ref::store_rows) store_rows;
  decltype(&ref::load_rows) load_rows;
  decltype(&ref::route) route;
  decltype(&ref::accumulate_rows) accumulate_rows;
  decltype(&ref::short_convolution) short_convolution;
  decltype(&ref::delta_gates) delta_gates;
  decltype(&ref::delta_rule_heads) delta_rule_heads;
  decltype(&ref::index_write) index_write;
  decltype(&ref::select_blocks) select_blocks;
  decltype(&ref::sparse_attention) sparse_attention;
  decltype(&ref::predict_streams) predict_streams;
  decltype(&ref::correct_streams) correct_streams;
  decltype(&ref::match_magnitude) match_magnitude;
};

const FamilyOperations& family_operations(Isa isa);
// The reference without and with the fma instruction, for the tests.
const FamilyOperations& reference_family_operations(bool fma_instruction);

}  // namespace berth::kernel
