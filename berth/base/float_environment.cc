// base/float_environment.cc — MXCSR and FPCR.
#include "berth/base/float_environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace berth {

#if defined(__x86_64__)

uint64_t float_control() { return _mm_getcsr(); }
void set_float_control(uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
uint64_t exact_float_control(uint64_t control) {
  constexpr uint64_t kRounding = 3u << 13, kFlushToZero = 1u << 15, kDenormalsAreZero = 1u << 6, kMasks = 0x3fu << 7;
  return (control & ~(kRounding | kFlushToZero | kDenormalsAreZero)) | kMasks;  // a masked exception does not trap
}

#elif defined(__aarch64__)

uint64_t float_control() {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_float_control(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
uint64_t exact_float_control(uint64_t control) {
  constexpr uint64_t kFlushHalf = 1u << 19, kRounding = 3u << 22, kFlush = 1u << 24, kDefaultNan = 1u << 25;
  constexpr uint64_t kTraps = 0x9f00;
  return control & ~(kFlushHalf | kRounding | kFlush | kDefaultNan | kTraps);
}

#else

uint64_t float_control() { return 0; }
void set_float_control(uint64_t) {}
uint64_t exact_float_control(uint64_t control) { return control; }

#endif

void use_exact_floats() { set_float_control(exact_float_control(float_control())); }

FloatEnvironmentScope::FloatEnvironmentScope() : saved_(float_control()), changed_(false) {
  const uint64_t wanted = exact_float_control(saved_);
  changed_ = wanted != saved_;
  if (changed_) set_float_control(wanted);
}

FloatEnvironmentScope::~FloatEnvironmentScope() {
  if (changed_) set_float_control(saved_);
}

}  // namespace berth
