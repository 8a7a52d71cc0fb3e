// device/cpu/peak_avx2.cc — see peak.h. Twelve chains hide the latency of four cycles at two results a cycle; they are
// spelled out because an array of them would live in memory.
#include "berth/device/cpu/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace berth::device {

uint64_t peak_loop_avx2(uint64_t rounds, float* sink) {
#if defined(__x86_64__)
  constexpr uint64_t kChains = 12, kLanes = 8;
  const __m256 scale = _mm256_set1_ps(0.999f);
  const __m256 step = _mm256_set1_ps(0.001f);
  __m256 sum0 = _mm256_set1_ps(0.0f);
  __m256 sum1 = _mm256_set1_ps(1.0f);
  __m256 sum2 = _mm256_set1_ps(2.0f);
  __m256 sum3 = _mm256_set1_ps(3.0f);
  __m256 sum4 = _mm256_set1_ps(4.0f);
  __m256 sum5 = _mm256_set1_ps(5.0f);
  __m256 sum6 = _mm256_set1_ps(6.0f);
  __m256 sum7 = _mm256_set1_ps(7.0f);
  __m256 sum8 = _mm256_set1_ps(8.0f);
  __m256 sum9 = _mm256_set1_ps(9.0f);
  __m256 sum10 = _mm256_set1_ps(10.0f);
  __m256 sum11 = _mm256_set1_ps(11.0f);
  for (uint64_t r = 0; r < rounds; ++r) {
    sum0 = _mm256_fmadd_ps(sum0, scale, step);
    sum1 = _mm256_fmadd_ps(sum1, scale, step);
    sum2 = _mm256_fmadd_ps(sum2, scale, step);
    sum3 = _mm256_fmadd_ps(sum3, scale, step);
    sum4 = _mm256_fmadd_ps(sum4, scale, step);
    sum5 = _mm256_fmadd_ps(sum5, scale, step);
    sum6 = _mm256_fmadd_ps(sum6, scale, step);
    sum7 = _mm256_fmadd_ps(sum7, scale, step);
    sum8 = _mm256_fmadd_ps(sum8, scale, step);
    sum9 = _mm256_fmadd_ps(sum9, scale, step);
    sum10 = _mm256_fmadd_ps(sum10, scale, step);
    sum11 = _mm256_fmadd_ps(sum11, scale, step);
  }
  float lanes[kLanes];
  _mm256_storeu_ps(lanes, _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(sum0, _mm256_add_ps(sum1, sum2)),
                                                      _mm256_add_ps(sum3, _mm256_add_ps(sum4, sum5))),
                                        _mm256_add_ps(_mm256_add_ps(sum6, _mm256_add_ps(sum7, sum8)),
                                                      _mm256_add_ps(sum9, _mm256_add_ps(sum10, sum11)))));
  *sink = lanes[0];
  return rounds * kChains * kLanes * 2;
#else
  return peak_loop_ref(rounds, sink);
#endif
}

}  // namespace berth::device
