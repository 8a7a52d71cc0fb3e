// kernel/cpu/linear_avx512.cc — the AVX-512 loops as one table.
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx512(const WeightView& w);
RowsFn rows_exact_avx512(const WeightView& w);
GemmFn gemm_int8_avx512(quant::Codec codec);
GemmFn gemm_exact_avx512(quant::Codec codec);

namespace {
RowsFn rows(const WeightView& w, bool int8) { return int8 ? rows_int8_avx512(w) : rows_exact_avx512(w); }
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx512(codec) : gemm_exact_avx512(codec); }
// By InputLayout, then kGemmFromFourBits: from here on the time per input is below that of the rows loop. Measured with
// linear_bench at K = 4096 on Zen 5 and on an Intel server core, where decoding anew for every input costs more.
constexpr int64_t kGemmFromAmd[7] = {16, 14, 10, 14, 14, 10, 16};
constexpr int64_t kGemmFromIntel[7] = {16, 9, 7, 5, 5, 4, 16};
const int64_t* gemm_from() { return __builtin_cpu_is("intel") ? kGemmFromIntel : kGemmFromAmd; }
}  // namespace

const LinearKernels kLinearAvx512{16, prepare_tile_avx512, rows, gemm, gemm_from, kInt8Panels};

}  // namespace berth::kernel::cpu
