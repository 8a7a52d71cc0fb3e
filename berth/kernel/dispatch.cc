// kernel/dispatch.cc — the rows of dispatch.h.
#include "berth/kernel/dispatch.h"

#include "berth/base/check.h"
#include "berth/kernel/cpu/linear_dispatch.h"
#include "berth/kernel/ref/ref.h"

namespace berth::kernel {
namespace {

#define BERTH_ROW(NAME, NAMESPACE)                                                                                   \
  {                                                                                                                  \
    .name = NAME, .linear = NAMESPACE::linear, .rms_norm = NAMESPACE::rms_norm, .layer_norm = NAMESPACE::layer_norm, \
    .rope = NAMESPACE::rope, .kv_write = NAMESPACE::kv_write, .attention = NAMESPACE::attention,                     \
    .apply = NAMESPACE::apply, .activate = NAMESPACE::activate, .add_residual = NAMESPACE::add_residual,             \
    .scale = NAMESPACE::scale, .divide = NAMESPACE::divide, .softcap = NAMESPACE::softcap,                           \
    .gather_rows = NAMESPACE::gather_rows, .softmax = NAMESPACE::softmax                                             \
  }

constexpr Operations with_linear(Operations row, std::string_view name, decltype(&kernel::linear) linear) {
  row.name = name;
  row.linear = linear;
  return row;
}

constexpr Operations kReference = BERTH_ROW("ref", ref);
constexpr Operations kReferenceFma = BERTH_ROW("ref (fma instruction)", ref_fma);

#if defined(BERTH_LINEAR_AVX2)
constexpr Operations kAvx2 = with_linear(kReferenceFma, "avx2", cpu::linear_avx2);
#else
constexpr Operations kAvx2 = with_linear(kReferenceFma, "avx2", ref_fma::linear);
#endif
#if defined(BERTH_LINEAR_AVX512)
constexpr Operations kAvx512 = with_linear(kReferenceFma, "avx512", cpu::linear_avx512);
#else
constexpr Operations kAvx512 = with_linear(kReferenceFma, "avx512", ref_fma::linear);
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
