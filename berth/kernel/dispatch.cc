// kernel/dispatch.cc — the rows of dispatch.h.
#include "berth/kernel/dispatch.h"

#include "berth/base/check.h"
#include "berth/kernel/cpu/linear_dispatch.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/kernel/ref/ref.h"

namespace berth::kernel {
namespace {

#define BERTH_ROW(NAME, NAMESPACE, LINEAR)                                                                \
  {                                                                                                       \
    .name = NAME, .linear = LINEAR, .rms_norm = NAMESPACE::rms_norm, .layer_norm = NAMESPACE::layer_norm, \
    .rope = NAMESPACE::rope, .kv_write = NAMESPACE::kv_write, .attention = NAMESPACE::attention,          \
    .apply = NAMESPACE::apply, .activate = NAMESPACE::activate, .add_residual = NAMESPACE::add_residual,  \
    .scale = NAMESPACE::scale, .divide = NAMESPACE::divide, .softcap = NAMESPACE::softcap,                \
    .gather_rows = NAMESPACE::gather_rows, .softmax = NAMESPACE::softmax, .argmax = NAMESPACE::argmax,    \
    .all_finite = NAMESPACE::all_finite                                                                   \
  }

constexpr Operations kReference = BERTH_ROW("ref", ref, ref::linear);
constexpr Operations kReferenceFma = BERTH_ROW("ref (fma instruction)", ref_fma, ref_fma::linear);

#if defined(__x86_64__)
#if !defined(BERTH_LINEAR_AVX2)
#define BERTH_LINEAR_AVX2 ref_fma::linear
#endif
#if !defined(BERTH_LINEAR_AVX512)
#define BERTH_LINEAR_AVX512 ref_fma::linear
#endif
constexpr Operations kAvx2 = BERTH_ROW("avx2", avx2, BERTH_LINEAR_AVX2);
constexpr Operations kAvx512 = BERTH_ROW("avx512", avx512, BERTH_LINEAR_AVX512);
#endif

bool cpu_has_fma() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("fma");
  return has;
#else
  return true;
#endif
}

}  // namespace

const Operations& operations(Isa isa) {
  CHECK(isa_available(isa));
  switch (isa) {
    case Isa::kRef:
    case Isa::kNeon:
      break;
    case Isa::kAvx2:
      return kAvx2;
    case Isa::kAvx512:
      return kAvx512;
  }
  return reference_operations(cpu_has_fma());
}

const Operations& reference_operations(bool fma_instruction) {
  return fma_instruction && cpu_has_fma() ? kReferenceFma : kReference;
}

}  // namespace berth::kernel
