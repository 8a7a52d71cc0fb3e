// kernel/cpu/linear_avx2.cc — the AVX2 loops as one table.

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx2(const WeightView& w);
RowsFn few_int8_avx2(const WeightView& w);
RowsFn rows_exact_avx2(const WeightView& w);
RowsFn few_exact_avx2(const WeightView& w);
GemmFn gemm_int8_avx2(quant::Codec codec);
GemmFn gemm_exact_avx2(quant::Codec codec);

namespace {
RowsFn rows(const WeightView& w, bool int8, int64_t m) {
  if (int8) return m > 1 ? few_int8_avx2(w) : rows_int8_avx2(w);
  return m > 1 ? few_exact_avx2(w) : rows_exact_avx2(w);
}
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx2(codec) : gemm_exact_avx2(codec); }
// Measured per format at K = 4096.
int64_t gemm_from(const quant::CodecInfo& info, bool int8) {
  const int32_t bits = info.code_bits;
  if (!int8) return info.word_elements < 8 ? 65 : info.has_min ? 37 : bits == 4 ? 49 : 45;
  if (info.int8_book != nullptr || bits == 8) return 22;  // a dot needs two signs or a magnitude per input in any case
  return bits == 6 ? 41 : bits == 5 ? 29 : 27;
}
}  // namespace

const LinearKernels kLinearAvx2{8, prepare_tile_avx2, rows, gemm, gemm_from};

}  // namespace berth::kernel::cpu
