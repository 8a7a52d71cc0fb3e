#include "berth/tensor/dtype.h"

#include <cmath>

#include <gtest/gtest.h>

#include "berth/tensor/float16.h"
#include "berth/tensor/shape.h"

namespace berth {
namespace {

TEST(DTypeTable, EveryRowIsFoundByEachOfItsNames) {
  for (const DTypeInfo& t : all_dtypes()) {
    EXPECT_EQ(&dtype_info(t.dtype), &t);
    EXPECT_EQ(dtype_from_name(t.name), t.dtype) << t.name;
    if (!t.safetensors.empty()) EXPECT_EQ(dtype_from_safetensors(t.safetensors), t.dtype);
    if (t.gguf_id >= 0) EXPECT_EQ(dtype_from_gguf(static_cast<uint32_t>(t.gguf_id)), t.dtype);
  }
  EXPECT_EQ(dtype_from_gguf(4), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(dtype_bytes(DType::kQ4_K, 500), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::kF64, uint64_t{1} << 62), std::nullopt);
}

TEST(Shape, CountsWithoutOverflowInAnyOrder) {
  EXPECT_EQ(element_count({}), 1u);
  EXPECT_EQ(element_count({int64_t{1} << 62, 4, 0}), 0u);
  EXPECT_EQ(element_count({0, int64_t{1} << 62, 4}), 0u);
  EXPECT_EQ(element_count({int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
}

TEST(Float16, RoundTripsEveryPattern) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = f16_to_f32(h);
    if (std::isnan(f)) continue;
    EXPECT_EQ(f32_to_f16(f), h);
    const float b = bf16_to_f32(h);
    if (!std::isnan(b)) EXPECT_EQ(f32_to_bf16(b), h);
  }
}

#ifndef __clang__  // clang 14 has no _Float16 on x86-64
TEST(Float16, RoundsToNearestEvenAsTheCompilerDoes) {
  uint32_t s = 1;
  for (int i = 0; i < 2000000; ++i) {
    s = s * 1664525u + 1013904223u;
    const float f = std::bit_cast<float>(s);
    if (std::isnan(f)) continue;
    const auto h = static_cast<_Float16>(f);
    ASSERT_EQ(f32_to_f16(f), std::bit_cast<uint16_t>(h)) << f;
  }
}
#endif

}  // namespace
}  // namespace berth
