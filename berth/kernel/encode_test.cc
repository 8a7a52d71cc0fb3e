// Every instruction set's encoders against quant's scalar ones: codes and scales equal, cut anywhere.
#include "berth/kernel/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
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

float widened(DType dtype, uint16_t bits) { return dtype == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits); }

// 4-bit codes of blocks of 64 on every instruction set against the scalar ones, of weights `x` stored as `dtype`.
void expect_scalar_codes(quant::Codec codec, DType dtype, const void* data, const std::vector<float>& x) {
  std::vector<uint8_t> room(x.size() / 2 + 64), expected(x.size() / 2);
  std::vector<float> absmax(x.size() / 64), expected_absmax(x.size() / 64);
  quant::encode_bnb_4bit(codec, 64, quant::kBnbCpuRules, x, expected.data(), expected_absmax.data());
  uint8_t* const aligned = room.data() + (32 - reinterpret_cast<uintptr_t>(room.data()) % 32);
  for (const Isa isa : available_isas()) {
    if (isa == Isa::kRef) continue;
    // Codes that are aligned may be stored in another way.
    std::span<uint8_t> codes(aligned + 1, expected.size());
    ASSERT_EQ(
        encode_4bit(isa, codec, 64, {dtype, data, static_cast<int64_t>(x.size()), dtype}, codes.data(), absmax.data()),
        kAllFinite);
    ASSERT_TRUE(std::ranges::equal(codes, expected)) << isa_name(isa);
    codes = {aligned, expected.size()};
    ASSERT_EQ(
        encode_4bit(isa, codec, 64, {dtype, data, static_cast<int64_t>(x.size()), dtype}, codes.data(), absmax.data()),
        kAllFinite);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15, expected[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15)
          << isa_name(isa) << " " << quant::codec_name(codec) << " " << dtype_name(dtype) << ": " << x[i]
          << " of absmax " << expected_absmax[i / 64];
    ASSERT_EQ(absmax, expected_absmax) << isa_name(isa);
  }
}

void expect_scalar_codes(quant::Codec codec, DType dtype, const std::vector<uint16_t>& data) {
  std::vector<float> x;
  for (const uint16_t bits : data) x.push_back(widened(dtype, bits));
  expect_scalar_codes(codec, dtype, data.data(), x);
}

// Every weight that a block can have whose absmax is `absmax`.
std::vector<uint16_t> every_weight_below(uint32_t absmax) {
  std::vector<uint16_t> x;
  for (uint32_t h = 0; h < 65536; ++h) {
    if ((h & 0x7fff) > absmax) continue;
    if (x.size() % 64 == 0) x.push_back(static_cast<uint16_t>(absmax | (x.size() % 128 == 0 ? 0 : 0x8000)));
    x.push_back(static_cast<uint16_t>(h));
  }
  x.resize((x.size() + 63) / 64 * 64);
  for (size_t block = x.size() - 64; block < x.size(); ++block)
    x[block] = block % 64 ? x[block] : static_cast<uint16_t>(absmax);
  return x;
}

// Codes may be stored by whole lines: those at its edges, and where a block in between is done by the scalar encoder.
TEST(Encode, CodesLieAnywhereAndTouchNothingElse) {
  constexpr uint8_t kGap = 0xA7;
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4}) {
    for (const int32_t blocksize : {64, 128, 256}) {
      for (const int64_t blocks : {1, 2, 3, 4, 7}) {
        for (int64_t zero = -1; zero < blocks; ++zero) {
          const int64_t n = blocks * blocksize;
          std::vector<float> x(static_cast<size_t>(n));  // each type has them as they are
          for (int64_t i = 0; i < n; ++i)
            x[static_cast<size_t>(i)] =
                i / blocksize == zero ? 0.0f
                                      : bf16_to_f32(static_cast<uint16_t>(0x3c00 + i * 7919 % 0x300 + i % 2 * 0x8000));
          const size_t bytes = x.size() / 2;
          std::vector<uint8_t> expected(bytes);
          std::vector<float> absmax(static_cast<size_t>(blocks)), expected_absmax(absmax.size());
          quant::encode_bnb_4bit(codec, blocksize, quant::kBnbCpuRules, x, expected.data(), expected_absmax.data());
          for (const Isa isa : available_isas()) {
            for (const size_t offset : {0, 1, 16, 32, 33}) {
              for (const DType dtype : kTypes) {
                const std::vector<std::byte> data = stored(dtype, x);
                const bool more_follow = offset % 2 == static_cast<size_t>(blocks) % 2;
                std::vector<uint8_t> room(bytes + 256, kGap);
                const size_t before = 64 - reinterpret_cast<uintptr_t>(room.data()) % 64 + offset;
                ASSERT_EQ(encode_4bit(isa, codec, blocksize, {dtype, data.data(), n, dtype}, room.data() + before,
                                      absmax.data(), more_follow),
                          kAllFinite);
                if (more_follow) order_encoded();
                for (size_t i = 0; i < room.size(); ++i)
                  ASSERT_EQ(room[i], i < before || i >= before + bytes ? kGap : expected[i - before])
                      << isa_name(isa) << " " << dtype_name(dtype) << " offset " << offset << " byte " << i
                      << " blocks " << blocks << " of " << blocksize << " zero " << zero;
                ASSERT_EQ(absmax, expected_absmax);
              }
            }
          }
        }
      }
    }
  }
}

TEST(Encode, EveryBf16ValueHasTheScalarCodeForEveryMantissaOfTheAbsmax) {
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4})
    for (uint32_t mantissa = 0; mantissa < 128; ++mantissa)
      ASSERT_NO_FATAL_FAILURE(
          expect_scalar_codes(codec, DType::kBF16, every_weight_below(0x3c00 + (mantissa % 8 << 7) + mantissa)));
}

TEST(Encode, EveryFp16ValueHasTheScalarCodeForManyAbsmax) {
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4})
    for (uint32_t absmax = 1; absmax < 0x7c00; absmax += absmax < 64 ? 1 : 509)
      ASSERT_NO_FATAL_FAILURE(expect_scalar_codes(codec, DType::kF16, every_weight_below(absmax)));
}

// In ascending order.
std::vector<float> midpoints(quant::Codec codec) {
  const float* const codes = codec == quant::Codec::kNF4 ? quant::kNF4Book : quant::kFP4Book;
  std::vector<float> book(codes, codes + 16), between;
  std::sort(book.begin(), book.end());
  for (size_t i = 0; i < 15; ++i) between.push_back((book[i] + book[i + 1]) / 2);
  return between;
}

TEST(Encode, EveryBf16AndFp16AbsmaxHasTheScalarThresholds) {
  // Blocks of every positive finite absmax, with the four values around each threshold times absmax, and zeros.
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<uint16_t> x;
      for (uint32_t absmax = 1, end = dtype == DType::kBF16 ? 0x7f80 : 0x7c00; absmax < end; ++absmax) {
        const auto sign = static_cast<uint16_t>(absmax % 2 << 15);
        x.push_back(static_cast<uint16_t>(absmax | sign));
        for (const float midpoint : midpoints(codec)) {
          const float at = midpoint * widened(dtype, static_cast<uint16_t>(absmax));
          const uint32_t magnitude =
              dtype == DType::kBF16 ? (std::bit_cast<uint32_t>(at) >> 16) & 0x7fff : f32_to_f16(std::fabs(at));
          for (uint32_t m = magnitude > 0 ? magnitude - 1 : 0, last = m + 4; m < last; ++m)
            x.push_back(static_cast<uint16_t>(std::min(m, absmax) | (at < 0 ? 0x8000 : 0)));
        }
        for (const uint16_t tiny : {uint16_t{0}, uint16_t{0x8000}, static_cast<uint16_t>(sign | 1)}) x.push_back(tiny);
      }
      ASSERT_NO_FATAL_FAILURE(expect_scalar_codes(codec, dtype, x));
    }
  }
}

TEST(Encode, Fp32ValuesBesideThresholdsAndBinsHaveTheScalarCodes) {
  // Blocks of absmax of all sizes, with the values around each threshold and around each 1/15.2 of it, in turn.
  parity::Random random(5);
  for (const quant::Codec codec : {quant::Codec::kNF4, quant::Codec::kFP4}) {
    std::vector<float> edges = midpoints(codec);
    for (int bin = -15; bin <= 15; ++bin) edges.push_back(static_cast<float>(bin) / 15.2f);
    std::vector<float> x;
    size_t edge = 0;
    for (int block = 0; block < 6000; ++block) {
      const float absmax = block < 20 ? 1e-38f * (1 + static_cast<float>(block - 10) * 1e-3f)
                                      : std::bit_cast<float>(static_cast<uint32_t>(1 + random.below(0x7f7fffff)));
      x.push_back(random.bits() % 2 ? absmax : -absmax);
      for (int i = 0; i < 9; ++i, ++edge) {
        float v = edges[edge % edges.size()] * absmax;
        for (int step = 0; step < 3; ++step) v = std::nextafter(v, -INFINITY);
        for (int step = 0; step < 7; ++step) {
          x.push_back(std::clamp(v, -absmax, absmax));
          v = std::nextafter(v, INFINITY);
        }
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_scalar_codes(codec, DType::kF32, x.data(), x));
  }
}

TEST(Encode, Int8RowsEqualTheScalarEncoderOnEveryInstructionSet) {
  for (const int64_t n : {1, 7, 31, 63, 64, 65, 96, 1000, 9000, 40001}) {
    for (const float size : {1.0f, 1.0f / 64, 1e-2f, 1e-3f, 1e-7f, 0.0f, 6e4f}) {
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

TEST(Encode, EveryBf16AndFp16ValueHasTheScalarInt8Code) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const float most : {1e-3f, 1.0f / 65, 1.0f / 64, 0.0157f, 0.3f, 1.0f, 100.0f, 65000.0f}) {
      std::vector<uint16_t> row;
      std::vector<float> x;
      for (uint32_t h = 0; h < 65536; ++h) {
        const auto half = static_cast<uint16_t>(h);
        const float v = dtype == DType::kBF16 ? bf16_to_f32(half) : f16_to_f32(half);
        if (!(std::fabs(v) <= most)) continue;
        row.push_back(half);
        x.push_back(v);
      }
      quant::round_through(DType::kF16, std::span<float>(x));
      std::vector<int8_t> codes(x.size()), expected(x.size());
      const float expected_scb = quant::encode_int8_row(x, quant::Int8Scale::kCpu, expected.data());
      for (const Isa isa : available_isas()) {
        float scb = -1;
        ASSERT_EQ(
            encode_int8_row(isa, {dtype, row.data(), static_cast<int64_t>(row.size()), dtype}, codes.data(), &scb),
            kAllFinite);
        EXPECT_EQ(scb, expected_scb) << isa_name(isa) << " " << dtype_name(dtype) << " " << most;
        EXPECT_EQ(codes, expected) << isa_name(isa) << " " << dtype_name(dtype) << " " << most;
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
    // In a later piece of what is rounded first, of every type through every other.
    std::vector<float> longer(70000, 0.5f);
    longer[50000] = std::numeric_limits<float>::quiet_NaN();
    longer[60000] = std::numeric_limits<float>::infinity();
    std::vector<uint8_t> longer_codes(longer.size());
    std::vector<float> longer_absmax(longer.size() / 64 + 1);
    for (const DType dtype : kTypes) {
      const std::vector<std::byte> data = stored(dtype, longer);
      for (const DType load_dtype : kTypes) {
        const Weights weights{dtype, data.data(), 70000, load_dtype};
        EXPECT_EQ(encode_4bit(isa, quant::Codec::kNF4, 64, weights, longer_codes.data(), longer_absmax.data()), 50000);
        EXPECT_EQ(encode_int8_row(isa, weights, reinterpret_cast<int8_t*>(longer_codes.data()), longer_absmax.data()),
                  50000);
      }
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
