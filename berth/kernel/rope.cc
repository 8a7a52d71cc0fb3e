// kernel/rope.cc — inverse frequencies of every scaling type and the cos/sin rows; the rotation is dispatched.
//
// Formulas: docs/architectures.md, rotary embedding; as Transformers has them, in double, rounded once.
#include "berth/kernel/rope.h"

#include <algorithm>
#include <cmath>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/dispatch.h"
#include "berth/kernel/double_math.h"

namespace berth::kernel {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Slow wavelengths are divided by the factor, fast ones kept, those between blended.
double llama3_frequency(const RopeParameters& p, double f) {
  const double original = static_cast<double>(p.original_max_position);
  const double wavelength = 2 * kPi / f;
  if (wavelength > original / p.low_freq_factor) return f / p.factor;
  if (wavelength < original / p.high_freq_factor || p.high_freq_factor == p.low_freq_factor) return f;
  const double s = (original / wavelength - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - s) * f / p.factor + s * f;
}

// The share of interpolation of pair j, rising from `low` to `high`.
struct YarnRamp {
  double low, high;
  explicit YarnRamp(const RopeParameters& p) {
    const auto dim = static_cast<double>(p.rotary_dim);
    const auto edge = [&](double beta) {
      return dim * log_f64(static_cast<double>(p.original_max_position) / (beta * 2 * kPi)) / (2 * log_f64(p.theta));
    };
    low = edge(p.beta_fast);
    high = edge(p.beta_slow);
    if (p.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;
  }
  double at(int32_t j) const { return std::clamp((j - low) / (high - low), 0.0, 1.0); }
};

double dynamic_theta(const RopeParameters& p, int64_t length) {
  const auto maximum = static_cast<double>(p.max_position);
  const double seq = std::max(static_cast<double>(length), maximum);
  const auto dim = static_cast<double>(p.rotary_dim);
  return p.theta * pow_f64(p.factor * seq / maximum - (p.factor - 1), dim / (dim - 2));
}

}  // namespace

bool depends_on_length(RopeScaling scaling) {
  return scaling == RopeScaling::kDynamic || scaling == RopeScaling::kLongRope;
}

std::vector<float> inverse_frequencies(const RopeParameters& p, int64_t length) {
  const int32_t n = p.rotary_dim / 2;
  std::vector<float> result(static_cast<size_t>(std::max(n, 0)));
  const bool proportional = p.scaling == RopeScaling::kProportional;
  const double dim = proportional ? p.head_dim : p.rotary_dim;
  const double theta = p.scaling == RopeScaling::kDynamic ? dynamic_theta(p, length) : p.theta;
  const auto rotated = static_cast<int32_t>(std::floor(p.partial_rotary_factor * p.head_dim / 2));
  const std::vector<double>& ext = length > p.original_max_position ? p.long_factor : p.short_factor;
  const YarnRamp ramp(p);
  for (int32_t j = 0; j < n; ++j) {
    double f = pow_f64(theta, -2.0 * j / dim);
    switch (p.scaling) {
      case RopeScaling::kDefault:
      case RopeScaling::kDynamic:
        break;
      case RopeScaling::kLinear:
        f = f / p.factor;
        break;
      case RopeScaling::kProportional:
        f = j < rotated ? f / p.factor : 0.0;
        break;
      case RopeScaling::kLlama3:
        f = llama3_frequency(p, f);
        break;
      case RopeScaling::kYarn:
        f = (f / p.factor) * ramp.at(j) + f * (1 - ramp.at(j));
        break;
      case RopeScaling::kLongRope:
        CHECK(static_cast<size_t>(j) < ext.size());
        f = 1.0 / (ext[static_cast<size_t>(j)] * pow_f64(theta, 2.0 * j / dim));
        break;
    }
    if (!p.frequency_divisors.empty()) {
      CHECK(static_cast<size_t>(j) < p.frequency_divisors.size());
      f = f / static_cast<double>(p.frequency_divisors[static_cast<size_t>(j)]);
    }
    result[static_cast<size_t>(j)] = static_cast<float>(f);
  }
  return result;
}

void rope_row(std::span<const float> inv_freq, int64_t position, double attention_scaling, float* cos, float* sin) {
  for (size_t j = 0; j < inv_freq.size(); ++j) {
    const float angle = static_cast<float>(position) * inv_freq[j];
    cos[j] = static_cast<float>(cos_f64(static_cast<double>(angle)) * attention_scaling);
    sin[j] = static_cast<float>(sin_f64(static_cast<double>(angle)) * attention_scaling);
  }
}

void rope(const Context& context, float* x, int64_t x_stride, int64_t rows, int32_t heads, int32_t head_dim,
          int32_t rotary_dim, RopeLayout layout, const float* cos, const float* sin) {
  if (rows == 0 || heads == 0 || rotary_dim == 0) return;
  CHECK(rotary_dim > 0 && rotary_dim <= kMaxRotaryDim && rotary_dim % 2 == 0 && rotary_dim <= head_dim);
  const FloatEnvironmentScope exact_floats;
  const TraceScope scope(context.trace(), {"rope"});
  operations(context.isa).rope(context, x, x_stride, rows, heads, head_dim, rotary_dim, layout, cos, sin);
}

}  // namespace berth::kernel
