// base/float_environment.h — the floating-point environment that numerics.md asks for: round to nearest even, denormals
// kept (no flush-to-zero, no denormals-are-zero), no traps.
//
// Pool threads have it for life; a caller's thread gets it for the time of a FloatEnvironmentScope and then has its own
// back, whatever a host program (or a library built with -ffast-math) had set.
#pragma once

#include <cstdint>

namespace berth {

// The control register of this thread: MXCSR on x86-64, FPCR on AArch64; 0 where neither exists.
uint64_t float_control();
void set_float_control(uint64_t value);

// `control` with rounding, flushing and trapping set as above and every other bit kept.
uint64_t exact_float_control(uint64_t control);

// This thread, from now on.
void use_exact_floats();

class FloatEnvironmentScope {
 public:
  FloatEnvironmentScope();
  ~FloatEnvironmentScope();
  FloatEnvironmentScope(const FloatEnvironmentScope&) = delete;
  FloatEnvironmentScope& operator=(const FloatEnvironmentScope&) = delete;

 private:
  uint64_t saved_;
  bool changed_;
};

}  // namespace berth
