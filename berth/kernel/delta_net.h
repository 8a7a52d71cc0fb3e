// kernel/delta_net.h — the gated delta rule and its short convolution, one token after the other (numerics.md 2).
//
// State belongs to a sequence and a layer: the last `taps` raw inputs of the convolution and S, both fp32.
// Start reading at: gated_delta_rule().
#pragma once

#include <cstdint>

#include "berth/kernel/context.h"

namespace berth::kernel {

// Depthwise over time: y[t][c] = chain of fma(w[c][j], x[t - (taps-1) + j][c]), oldest tap first. x: [rows, channels]
// raw inputs; w: [channels, taps]; state: [taps, channels], the inputs before, oldest first, updated. y: like x, not
// aliased.
void short_convolution(const Context& context, const float* x, int64_t rows, int64_t channels, int32_t taps,
                       const float* w, float* state, float* y);

// beta = sigmoid(b); decay = exp(-exp(a_log) * softplus(a + dt_bias)). b, a, beta, decay: [rows, heads].
void delta_gates(const Context& context, const float* b, const float* a, const float* a_log, const float* dt_bias,
                 int64_t rows, int64_t heads, float* beta, float* decay);

struct DeltaShape {
  int32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // value head h reads key head h / (value/key)
};

// For every token and value head, S[k][v]: S = S * decay; u[v] = chain fma(S[k][v], k[k], u); e = (v - u) * beta;
// S = fma(k[k], e[v], S); out[v] = chain fma(S[k][v], q[k], out); ascending k.
// q, k: [rows, key_heads * key_dim], v: [rows, value_heads * value_dim], rows `stride` apart; beta, decay: [rows,
// value_heads]; state: [value_heads][key_dim][value_dim]; out: [rows, value_heads * value_dim].
void gated_delta_rule(const Context& context, const DeltaShape& shape, float* state, const float* q, const float* k,
                      const float* v, int64_t stride, const float* beta, const float* decay, int64_t rows, float* out);

inline constexpr int32_t kMaxDeltaValueDim = 1024;

}  // namespace berth::kernel
