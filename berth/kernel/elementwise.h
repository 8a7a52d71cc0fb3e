// kernel/elementwise.h — activations, residuals, softcap, scaling, row lookups, argmax (numerics.md 2 and 3).
//
// Pointers: [rows, n] fp32 with row strides where given; outputs may be an input. No reduction order is involved but
// for softmax (lane sum) and argmax (largest, then lowest index).
#pragma once

#include <cstdint>
#include <span>

#include "berth/kernel/context.h"
#include "berth/quant/packed.h"

namespace berth::kernel {

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu };

// y = act(gate) * up; up null: y = act(gate).
void activate(const Context& context, Activation act, const float* gate, int64_t gate_stride, const float* up,
              int64_t up_stride, int64_t rows, int64_t n, float* y, int64_t y_stride);

// y[i] = f(x[i]), the functions of math.h one by one; y may be x.
enum class Function { kExp, kTanh, kSigmoid, kErf, kLog, kSoftplus, kSilu, kGeluTanh, kGeluErf, kRelu };
void apply(const Context& context, Function f, const float* x, float* y, int64_t n);

// h = h + y, or h = h + multiplier * y where multiplier != 1 (product rounded, then the sum).
void add_residual(const Context& context, float* h, int64_t h_stride, const float* y, int64_t y_stride,
                  float multiplier, int64_t rows, int64_t n);

void scale(const Context& context, float* x, int64_t stride, float factor, int64_t rows, int64_t n);  // x = x * factor
void divide(const Context& context, float* x, int64_t stride, float divisor, int64_t rows,
            int64_t n);  // x = x / divisor
void softcap(const Context& context, float* x, int64_t stride, float cap, int64_t rows,
             int64_t n);  // cap * tanh(x / cap)

// y[i] = row ids[i] of the table, decoded; ids are checked by the caller to be in range. y: [ids, cols].
void gather_rows(const Context& context, const quant::PackedMatrix& table, std::span<const int32_t> ids, float* y,
                 int64_t y_stride);

// In place: m = max; e = exp(v - m); e / lane_sum(e).
void softmax(const Context& context, float* x, int64_t stride, int64_t rows, int64_t n);

// Index of the largest element, the lowest where equal; NaN anywhere: returns -1.
int64_t argmax(const float* x, int64_t n);
// True where every element is finite.
bool all_finite(const float* x, int64_t n);

}  // namespace berth::kernel
