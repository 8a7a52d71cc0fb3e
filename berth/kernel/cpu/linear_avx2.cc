// kernel/cpu/linear_avx2.cc — the AVX2 loops as one table.
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx2(const WeightView& w);
RowsFn rows_exact_avx2(const WeightView& w);
GemmFn gemm_int8_avx2(quant::Codec codec);
GemmFn gemm_exact_avx2(quant::Codec codec);

namespace {
RowsFn rows(const WeightView& w, bool int8) { return int8 ? rows_int8_avx2(w) : rows_exact_avx2(w); }
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx2(codec) : gemm_exact_avx2(codec); }
// By InputLayout, then kGemmFromFourBits; measured with linear_bench at K = 4096: from here on the time per input is
// below that of the rows loop.
constexpr int64_t kGemmFrom[7] = {8, 10, 10, 6, 12, 10, 6};
const int64_t* gemm_from() { return kGemmFrom; }
}  // namespace

const LinearKernels kLinearAvx2{8, prepare_tile_avx2, rows, gemm, gemm_from};

}  // namespace berth::kernel::cpu
