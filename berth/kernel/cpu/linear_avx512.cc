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
}  // namespace

const LinearKernels kLinearAvx512{16, rows, gemm, 8};

}  // namespace berth::kernel::cpu
