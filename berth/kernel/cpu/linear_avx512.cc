// kernel/cpu/linear_avx512.cc — the AVX-512 loops as one table.
#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {

RowsFn rows_int8_avx512(quant::Codec codec);
RowsFn rows_exact_avx512(quant::Codec codec);
GemmFn gemm_int8_avx512(quant::Codec codec);
GemmFn gemm_exact_avx512(quant::Codec codec);

namespace {
RowsFn rows(quant::Codec codec, bool int8) { return int8 ? rows_int8_avx512(codec) : rows_exact_avx512(codec); }
GemmFn gemm(quant::Codec codec, bool int8) { return int8 ? gemm_int8_avx512(codec) : gemm_exact_avx512(codec); }
// By InputLayout; measured with linear_bench at K = 4096: from here on the time per input is below that of the rows
// loop.
constexpr int64_t kGemmFrom[6] = {16, 14, 10, 14, 14, 10};
}  // namespace

const LinearKernels kLinearAvx512{16, rows, gemm, kGemmFrom};

}  // namespace berth::kernel::cpu
