// kernel/cpu/attention_kv-inl.h — elements of the KV cache (fp32, fp16 or bf16, kernel/attention.h) as fp32 packs.
#pragma once

#include <cstdint>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

template <DType kType>
constexpr int64_t kElementBytes = kType == DType::kF32 ? 4 : 2;

template <DType kType>
BERTH_MATH F load_kv(const std::byte* plane, int64_t index) {
  if constexpr (kType == DType::kF32) return F::load(reinterpret_cast<const float*>(plane) + index);
  if constexpr (kType == DType::kF16) return F::load_f16(reinterpret_cast<const uint16_t*>(plane) + index);
  if constexpr (kType == DType::kBF16) return F::load_bf16(reinterpret_cast<const uint16_t*>(plane) + index);
}

template <DType kType>
BERTH_MATH float load_kv_one(const std::byte* plane, int64_t index) {
  if constexpr (kType == DType::kF32) return reinterpret_cast<const float*>(plane)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[index];
  return kType == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

}  // namespace
}  // namespace berth::kernel::BERTH_TARGET
