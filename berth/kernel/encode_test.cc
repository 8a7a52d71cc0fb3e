// Every instruction set's encoders against quant's scalar ones: codes and scales equal, cut anywhere.
#include "berth/kernel/encode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "berth/kernel/parity.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/cast.h"
#include "berth/quant/code_books.h"
#include "berth/quant/int8_row.h"

namespace berth::kernel {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// `values` as a file of `dtype` has them.
std::vector<std::byte> stored(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * (dtype == DType::kF32 ? 4 : 2));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t h = dtype == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &h, 2);
    }
  }
  return bytes;
}

// What the scalar encoder is given: widened, rounded through `load_dtype`.
std::vector<float> cast(DType dtype, DType load_dtype, const std::vector<float>& values) {
  std::vector<float> out;
  for (const float v : values) out.push_back(quant::round_through(load_dtype, quant::round_through(dtype, v)));
  return out;
}

// Weights of many sizes, with blocks of zeros, of denormals, and with values on and beside every threshold.
std::vector<float> weights(int64_t n, uint64_t seed) {
  parity::Random random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) {
    const uint64_t kind = i / 256 % 8;
    x[i] = random.normal() * (kind == 1 ? 1e-3f : kind == 2 ? 1e-41f : kind == 3 ? 1e30f : 1.0f);
    if (kind == 4) x[i] = 0;
    if (kind >= 5) {
      const float* book = kind == 5 ? quant::kNF4Book : quant::kFP4Book;
      const float a = book[random.below(16)], b = book[random.below(16)];
      x[i] = (a + b) / 2;
      for (int64_t step = random.below(5); step > 0; --step)
        x[i] = std::nextafter(x[i], random.bits() % 2 ? 2.0f : -2.0f);
      if (i % 64 == 9) x[i] = 1;
    }
  }
  return x;
}

TEST(Encode, FourBitEqualsTheScalarEncoderOnEveryInstructionSet) {
  const int64_t kCount = 256 * 64 + 100;
  const std::vector<float> all = weights(kCount, 11);
  for (const Isa isa : available_isas()) {
    for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4}) {
      for (const DType dtype : kTypes) {
        for (const DType load_dtype : kTypes) {
          std::vector<float> x = all;
          if (dtype == DType::kF16 || load_dtype == DType::kF16)
            for (float& v : x) v = std::fabs(v) > 6e4f ? 1.0f : v;  // stays finite
          const std::vector<std::byte> data = stored(dtype, x);
          for (const int32_t blocksize : {32, 64, 256, 4096}) {
            const std::vector<float> wanted = cast(dtype, load_dtype, x);
            const auto blocks = static_cast<size_t>((kCount + blocksize - 1) / blocksize);
            std::vector<uint8_t> codes(kCount / 2), expected(kCount / 2);
            std::vector<float> absmax(blocks), expected_absmax(blocks);
            quant::encode_bnb_4bit(codec, blocksize, quant::kBnbCpuRules, wanted, expected.data(),
                                   expected_absmax.data());
            ASSERT_EQ(encode_4bit(isa, codec, blocksize, {dtype, data.data(), kCount, load_dtype}, codes.data(),
                                  absmax.data()),
                      kAllFinite);
            const std::string name = std::string(isa_name(isa)) + " " + std::string(quant::codec_name(codec)) + " " +
                                     std::string(dtype_name(dtype)) + " as " + std::string(dtype_name(load_dtype)) +
                                     ", block " + std::to_string(blocksize);
            for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(codes[i], expected[i]) << name << ", byte " << i;
            for (size_t b = 0; b < blocks; ++b)
              ASSERT_EQ(std::bit_cast<uint32_t>(absmax[b]), std::bit_cast<uint32_t>(expected_absmax[b]))
                  << name << ", block " << b;
          }
        }
      }
    }
  }
}

TEST(Encode, EveryBf16ValueHasTheScalarNf4Code) {
  // 64 values to a block, the first of them its absmax; every finite bf16 of magnitude up to 1.
  std::vector<float> x;
  for (uint32_t h = 0; h < 65536; ++h) {
    const float v = bf16_to_f32(static_cast<uint16_t>(h));
    if (!(std::fabs(v) <= 1.0f)) continue;
    if (x.size() % 64 == 0) x.push_back(x.size() % 128 == 0 ? 1.0f : -0.9375f);
    x.push_back(v);
  }
  x.resize(x.size() / 64 * 64);
  const std::vector<std::byte> data = stored(DType::kBF16, x);
  std::vector<uint8_t> codes(x.size() / 2), expected(x.size() / 2);
  std::vector<float> absmax(x.size() / 64), expected_absmax(x.size() / 64);
  quant::encode_bnb_4bit(quant::Codec::kNF4, 64, quant::kBnbCpuRules, x, expected.data(), expected_absmax.data());
  for (const Isa isa : available_isas()) {
    encode_4bit(isa, quant::Codec::kNF4, 64, {DType::kBF16, data.data(), static_cast<int64_t>(x.size()), DType::kBF16},
                codes.data(), absmax.data());
    EXPECT_EQ(codes, expected) << isa_name(isa);
    EXPECT_EQ(absmax, expected_absmax) << isa_name(isa);
  }
}

TEST(Encode, Int8RowsEqualTheScalarEncoderOnEveryInstructionSet) {
  for (const int64_t n : {1, 7, 64, 1000, 9000}) {
    for (const float size : {1.0f, 1e-3f, 1e-7f, 0.0f, 6e4f}) {
      std::vector<float> x(static_cast<size_t>(n));
      parity::Random random(static_cast<uint64_t>(n));
      for (float& v : x) v = random.signed_unit() * size;
      for (const DType dtype : kTypes) {
        for (const DType load_dtype : kTypes) {
          const std::vector<std::byte> data = stored(dtype, x);
          std::vector<float> wanted = cast(dtype, load_dtype, x);
          quant::round_through(DType::kF16, std::span<float>(wanted));
          std::vector<int8_t> codes(x.size()), expected(x.size());
          const float expected_scb = quant::encode_int8_row(wanted, quant::Int8Scale::kCpu, expected.data());
          for (const Isa isa : available_isas()) {
            float scb = -1;
            ASSERT_EQ(encode_int8_row(isa, {dtype, data.data(), n, load_dtype}, codes.data(), &scb), kAllFinite);
            ASSERT_EQ(codes, expected) << isa_name(isa) << " n " << n << " size " << size;
            ASSERT_EQ(scb, expected_scb) << isa_name(isa);
          }
        }
      }
    }
  }
}

TEST(Encode, NamesTheFirstElementThatIsNotFinite) {
  std::vector<float> x(1000, 0.5f);
  x[333] = std::numeric_limits<float>::quiet_NaN();
  x[700] = std::numeric_limits<float>::infinity();
  std::vector<uint8_t> codes(500);
  std::vector<int8_t> bytes(1000);
  std::vector<float> absmax(20);
  for (const Isa isa : available_isas()) {
    for (const DType dtype : kTypes) {
      const std::vector<std::byte> data = stored(dtype, x);
      EXPECT_EQ(
          encode_4bit(isa, quant::Codec::kNF4, 64, {dtype, data.data(), 1000, dtype}, codes.data(), absmax.data()),
          333);
      EXPECT_EQ(encode_int8_row(isa, {dtype, data.data(), 1000, dtype}, bytes.data(), absmax.data()), 333);
    }
    // 70000 is finite, but not after a cast to fp16.
    std::vector<float> large(64, 1.0f);
    large[5] = 70000.0f;
    EXPECT_EQ(encode_4bit(isa, quant::Codec::kFP4, 64, {DType::kF32, large.data(), 64, DType::kF16}, codes.data(),
                          absmax.data()),
              5);
  }
}

}  // namespace
}  // namespace berth::kernel
