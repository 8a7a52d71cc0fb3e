// kernel/cpu/linear_avx512.cc — the AVX-512 loops as one table.

#include <unistd.h>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx512(const WeightView& w);
RowsFn few_int8_avx512(const WeightView& w);
RowsFn rows_exact_avx512(const WeightView& w);
RowsFn few_exact_avx512(const WeightView& w);
RowsFn many_exact_avx512(const WeightView& w);
GemmFn gemm_int8_avx512(quant::Codec codec);
GemmFn gemm_exact_avx512(quant::Codec codec);

// Measured per format at K = 4096 (docs/kernel_figures.md): with one input more, those that pass over decoded weights
// in the first-level cache take no longer.
int64_t few_inputs_avx512(const quant::CodecInfo& info) {
  using quant::Codec;
  switch (info.code_bits) {
    case 4:
      return info.codec == Codec::kQ4_K ? 17 : info.has_min ? 21 : 20;
    case 5:
      return 10;
    case 6:
      return 8;
    case 8:
      return info.codec == Codec::kInt8Row ? 18 : info.codec == Codec::kFP8Block ? 19 : 24;
    default:
      return info.code_bits == 16 ? 19 : 22;
  }
}

// The most inputs whose x is five eighths of the second-level cache: it passes once per eight outputs.
int64_t many_inputs_avx512(int64_t k) {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const int64_t known = sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  constexpr int64_t known = 0;
#endif
  const int64_t x = (known > 0 ? known : int64_t{1} << 20) / 8 * 5, fit = x / prepared_bytes(InputLayout::kWords8, k);
  return fit < 1 ? 1 : fit < kMostInputs ? fit : kMostInputs;
}

namespace {
RowsFn rows(const WeightView& w, bool int8, int64_t m) {
  if (int8) return m == 1 ? rows_int8_avx512(w) : few_int8_avx512(w);
  if (m == 1) return rows_exact_avx512(w);
  const int64_t group = m / groups_of(m, many_inputs_avx512(w.k));
  return group > few_inputs_avx512(quant::codec_info(w.codec)) ? many_exact_avx512(w) : few_exact_avx512(w);
}
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx512(codec) : gemm_exact_avx512(codec); }
// Measured per format at K = 4096 on an Intel server core; int8 on Zen 5 by layout, with loops that decoded anew for
// every input. Now they decode once for several.
int64_t gemm_from(const quant::CodecInfo& info, bool int8) {
  const bool intel = __builtin_cpu_is("intel");
  if (!int8) {
    const bool plain = info.code_bits == 6 || (info.code_bits == 4 && !info.has_min);
    return plain ? 97 : 65;
  }
  if (info.code_bits == 8) return intel ? 8 : 10;
  if (!intel) return 14;
  if (info.code_bits == 5 && info.has_min) return 16;
  return info.code_bits > 4 || info.has_min ? 12 : 10;
}
}  // namespace

const LinearKernels kLinearAvx512{16, prepare_tile_avx512, rows, gemm, gemm_from, kInt8Panels};

}  // namespace berth::kernel::cpu
