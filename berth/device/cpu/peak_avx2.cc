// device/cpu/peak_avx2.cc — see peak.h. Twelve chains hide the latency of four cycles at two results a cycle.
#include "berth/device/cpu/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace berth::device {

uint64_t peak_loop_avx2(uint64_t rounds, float* sink) {
#if defined(__x86_64__)
  constexpr int kChains = 12;
  constexpr uint64_t kLanes = 8;
  __m256 sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 scale = _mm256_set1_ps(0.999f);
  const __m256 step = _mm256_set1_ps(0.001f);
  for (uint64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kChains; ++i) sum[i] = _mm256_fmadd_ps(sum[i], scale, step);
  __m256 total = sum[0];
  for (int i = 1; i < kChains; ++i) total = _mm256_add_ps(total, sum[i]);
  float lanes[kLanes];
  _mm256_storeu_ps(lanes, total);
  *sink = lanes[0];
  return rounds * kChains * kLanes * 2;
#else
  return peak_loop_ref(rounds, sink);
#endif
}

}  // namespace berth::device
