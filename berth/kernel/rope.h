// kernel/rope.h — rotary embedding: inverse frequencies, cos/sin rows for given positions, and the rotation.
//
// Rows are made on the host for the positions of a chunk (double sin/cos of fp32(position * inv_freq), rounded once;
// numerics.md 3) and copied to the devices that rotate; there is no table as long as the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "berth/kernel/context.h"

namespace berth::kernel {

enum class RopeScaling { kDefault, kLinear, kProportional, kLlama3, kYarn, kDynamic, kLongRope };
enum class RopeLayout { kHalves, kPairs, kPairsToHalves };

// Values of arch::RopeSpec that the tables need (same names, same meaning).
struct RopeParameters {
  RopeScaling scaling = RopeScaling::kDefault;
  int32_t rotary_dim = 0, head_dim = 0;
  double theta = 10000, factor = 1, low_freq_factor = 1, high_freq_factor = 4, beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double partial_rotary_factor = 1;
  int64_t original_max_position = 0, max_position = 0;
  std::vector<double> short_factor, long_factor;
  std::vector<float> frequency_divisors;
};

// fp32 inverse frequencies, rotary_dim/2 of them. `length` matters for dynamic and longrope only: the length a position
// counts with, max(prompt, p + 1).
std::vector<float> inverse_frequencies(const RopeParameters& parameters, int64_t length);
// Whether inverse_frequencies() depends on length.
bool depends_on_length(RopeScaling scaling);

// cos and sin of one position: n = inv_freq.size() values each, times attention_scaling, rounded once.
void rope_row(std::span<const float> inv_freq, int64_t position, double attention_scaling, float* cos, float* sin);

inline constexpr int32_t kMaxRotaryDim = 1024;  // models with more cannot run (arch/capability.h)

// Rotates x in place: [rows, heads, head_dim], row stride given; row r uses cos/sin + r * rotary_dim/2.
void rope(const Context& context, float* x, int64_t x_stride, int64_t rows, int32_t heads, int32_t head_dim,
          int32_t rotary_dim, RopeLayout layout, const float* cos, const float* sin);

}  // namespace berth::kernel
