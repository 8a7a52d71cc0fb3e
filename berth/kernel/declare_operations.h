// kernel/declare_operations.h — BERTH_DECLARE_OPERATIONS(NAMESPACE): every operation's declaration in a target's
// namespace.
//
// ref/ref.h and cpu/targets.h use it; dispatch.cc puts the functions into rows. Arguments are as in the public headers
// and already checked. (cpu targets have no `linear` of this name: cpu/linear_dispatch.h.)
#pragma once

#include "berth/kernel/attention.h"
#include "berth/kernel/context.h"
#include "berth/kernel/elementwise.h"
#include "berth/kernel/linear.h"
#include "berth/kernel/norm.h"
#include "berth/kernel/rope.h"

#define BERTH_DECLARE_OPERATIONS(NAMESPACE)                                                                            \
  namespace berth::kernel::NAMESPACE {                                                                                 \
  void linear(const Context&, const LinearInput& input, std::span<const LinearJob> jobs, std::span<std::byte>);        \
  void rms_norm(const Context&, const float* x, int64_t x_stride, const float* w, float eps, int64_t rows, int64_t n,  \
                float* y, int64_t y_stride);                                                                           \
  void layer_norm(const Context&, const float* x, int64_t x_stride, const float* w, const float* b, float eps,         \
                  int64_t rows, int64_t n, float* y, int64_t y_stride);                                                \
  void rope(const Context&, float* x, int64_t x_stride, int64_t rows, int32_t heads, int32_t head_dim,                 \
            int32_t rotary_dim, RopeLayout layout, const float* cos, const float* sin);                                \
  void kv_write(const Context&, const KvView& cache, int64_t position, int64_t rows, const float* k, int64_t k_stride, \
                const float* v, int64_t v_stride);                                                                     \
  void attention(const Context&, const AttentionOptions& options, std::span<const AttentionJob> jobs,                  \
                 std::span<std::byte>);                                                                                \
  void apply(const Context&, Function f, const float* x, float* y, int64_t n);                                         \
  void activate(const Context&, Activation act, const float* gate, int64_t gate_stride, const float* up,               \
                int64_t up_stride, int64_t rows, int64_t n, float* y, int64_t y_stride);                               \
  void add_residual(const Context&, float* h, int64_t h_stride, const float* y, int64_t y_stride, float multiplier,    \
                    int64_t rows, int64_t n);                                                                          \
  void scale(const Context&, float* x, int64_t stride, float factor, int64_t rows, int64_t n);                         \
  void divide(const Context&, float* x, int64_t stride, float divisor, int64_t rows, int64_t n);                       \
  void softcap(const Context&, float* x, int64_t stride, float cap, int64_t rows, int64_t n);                          \
  void gather_rows(const Context&, const quant::PackedMatrix& table, std::span<const int32_t> ids, float* y,           \
                   int64_t y_stride);                                                                                  \
  void softmax(const Context&, float* x, int64_t stride, int64_t rows, int64_t n);                                     \
  int64_t argmax(const float* x, int64_t n);                                                                           \
  bool all_finite(const float* x, int64_t n);                                                                          \
  }
