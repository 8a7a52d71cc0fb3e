// kernel/cpu/linear_avx512.cc — the AVX-512 loops as one table.

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx512(const WeightView& w);
RowsFn rows_exact_avx512(const WeightView& w);
RowsFn few_exact_avx512(const WeightView& w);
GemmFn gemm_int8_avx512(quant::Codec codec);
GemmFn gemm_exact_avx512(quant::Codec codec);

namespace {
RowsFn rows(const WeightView& w, bool int8, int64_t m) {
  return int8 ? rows_int8_avx512(w) : m > 1 ? few_exact_avx512(w) : rows_exact_avx512(w);
}
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx512(codec) : gemm_exact_avx512(codec); }
// Measured per format at K = 4096 on an Intel server core; on Zen 5, where decoding anew for every input costs less, by
// layout. In exact mode the rows loop decodes once for several inputs.
int64_t gemm_from(const quant::CodecInfo& info, bool int8) {
  const bool intel = __builtin_cpu_is("intel");
  if (!int8) {
    if (info.code_bits == 5) return 36;
    if (info.has_min || info.code_bits == 6) return 41;
    return info.codec == quant::Codec::kFP8Block ? 49 : 65;
  }
  if (info.code_bits == 8) return intel ? 7 : 10;
  if (!intel) return 14;
  return info.code_bits == 5 || info.code_bits == 6 || info.codec == quant::Codec::kQ4_K ? 5 : 8;
}
}  // namespace

const LinearKernels kLinearAvx512{16, prepare_tile_avx512, rows, gemm, gemm_from, kInt8Panels};

}  // namespace berth::kernel::cpu
