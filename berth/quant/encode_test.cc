#include "berth/quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "berth/quant/cast.h"
#include "berth/quant/gguf_blocks.h"

namespace berth::quant {
namespace {

struct Owned {
  PackedLayout layout;
  std::unique_ptr<std::byte, decltype(&std::free)> bytes{nullptr, &std::free};
  MutablePackedMatrix matrix;
  Owned(StoredFormat format, int64_t rows, int64_t cols) : layout(*packed_layout(format, rows, cols)) {
    bytes.reset(static_cast<std::byte*>(std::aligned_alloc(64, layout.total_bytes)));
    std::memset(bytes.get(), 0, layout.total_bytes);
    matrix = bind_planes(layout, bytes.get());
  }
};

std::vector<float> random_values(size_t n) {
  std::vector<float> x(n);
  uint32_t s = 99;
  for (float& v : x) v = (static_cast<float>((s = s * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f) * 0.1f;
  return x;
}

const StoredFormat kTargets[] = {{Codec::kNF4, 64, false},   {Codec::kNF4, 64, true},     {Codec::kFP4, 32, true},
                                 {Codec::kFP4, 4096, false}, {Codec::kInt8Row, 0, false}, {Codec::kBF16, 0, false},
                                 {Codec::kF16, 0, false},    {Codec::kF32, 0, false}};

TEST(MatrixEncoder, AnyChunkingGivesTheSameBytes) {
  int formats = 0;
  for (const StoredFormat& format : kTargets) {
    const int64_t rows = 123, cols = 205;  // odd, blocks straddle rows
    const auto x = random_values(static_cast<size_t>(rows * cols));
    Owned whole(format, rows, cols);
    auto encoder = MatrixEncoder::create(whole.matrix, {.load_dtype = DType::kBF16});
    ASSERT_TRUE(encoder);
    ASSERT_TRUE(encoder->append(x));
    ASSERT_TRUE(encoder->finish());
    for (const size_t chunk : {size_t{1}, size_t{205}, size_t{5000}}) {
      Owned chunked(format, rows, cols);
      auto other = MatrixEncoder::create(chunked.matrix, {.load_dtype = DType::kBF16});
      for (size_t at = 0; at < x.size(); at += chunk) {
        ASSERT_TRUE(
            other->append(DType::kF32, std::as_bytes(std::span(x).subspan(at, std::min(chunk, x.size() - at)))));
      }
      ASSERT_TRUE(other->finish());
      EXPECT_EQ(std::memcmp(whole.bytes.get(), chunked.bytes.get(), whole.layout.total_bytes), 0)
          << format_text(format) << " in chunks of " << chunk;
    }
    ++formats;
  }
  EXPECT_EQ(formats, 8);
}

TEST(MatrixEncoder, LoadDtypeMattersAndInt8GoesThroughFp16) {
  const auto x = random_values(64 * 64);
  const auto bytes_with = [&](StoredFormat format, DType load) {
    Owned m(format, 64, 64);
    auto encoder = MatrixEncoder::create(m.matrix, {.load_dtype = load});
    EXPECT_TRUE(encoder->append(x));
    EXPECT_TRUE(encoder->finish());
    return std::string(reinterpret_cast<const char*>(m.bytes.get()), m.layout.total_bytes);
  };
  const StoredFormat nf4{Codec::kNF4, 64, false}, int8{Codec::kInt8Row, 0, false};
  EXPECT_NE(bytes_with(nf4, DType::kF32), bytes_with(nf4, DType::kBF16));
  EXPECT_NE(bytes_with(nf4, DType::kF16), bytes_with(nf4, DType::kBF16));
  EXPECT_EQ(bytes_with(int8, DType::kF32), bytes_with(int8, DType::kF16));
  EXPECT_NE(bytes_with(int8, DType::kBF16), bytes_with(int8, DType::kF16));
}

TEST(MatrixEncoder, TakesGgufBlocks) {
  std::vector<std::byte> blocks(4 * 18 * 32);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i % 18 == 1 ? 0x2C : i * 7);
  std::vector<float> x(4 * 1024);
  ASSERT_TRUE(decode_blocks(DType::kQ4_0, blocks, x));
  const StoredFormat format{Codec::kNF4, 64, true};
  Owned a(format, 4, 1024), b(format, 4, 1024);
  auto from_blocks = MatrixEncoder::create(a.matrix, {});
  ASSERT_TRUE(from_blocks->append(DType::kQ4_0, std::span(blocks).first(18 * 5)));
  ASSERT_TRUE(from_blocks->append(DType::kQ4_0, std::span(blocks).subspan(18 * 5)));
  ASSERT_TRUE(from_blocks->finish());
  auto from_floats = MatrixEncoder::create(b.matrix, {});
  ASSERT_TRUE(from_floats->append(x));
  ASSERT_TRUE(from_floats->finish());
  EXPECT_EQ(std::memcmp(a.bytes.get(), b.bytes.get(), a.layout.total_bytes), 0);
}

TEST(MatrixEncoder, ErrorsNameThePlace) {
  const StoredFormat nf4{Codec::kNF4, 64, false}, int8{Codec::kInt8Row, 0, false};
  Owned m(nf4, 3, 70);
  auto encoder = MatrixEncoder::create(m.matrix, {});
  std::vector<float> x(210, 0.5f);
  ASSERT_TRUE(encoder->append(std::span(x).first(100)));
  x[150] = NAN;
  EXPECT_EQ(encoder->append(std::span(x).subspan(100)).error().message,
            "quantizing to nf4 (block 64): expected finite weights, found NaN at row 2, column 10");
  auto short_one = MatrixEncoder::create(m.matrix, {});
  ASSERT_TRUE(short_one->append(std::span(x).first(100)));
  EXPECT_EQ(short_one->finish().error().message, "quantizing to nf4 (block 64): expected 210 elements, found 100");
  EXPECT_EQ(MatrixEncoder::create(m.matrix, {})->append(random_values(211)).error().code, ErrorCode::kInvalidArgument);
  Owned i(int8, 3, 70);
  x[150] = 70000;  // infinite in fp16
  EXPECT_EQ(
      MatrixEncoder::create(i.matrix, {})->append(x).error().message,
      "quantizing to int8: expected finite weights, found a weight that is or becomes infinite at row 2, column 10");
  Owned q(stored_format(Codec::kQ4_K), 1, 256);
  EXPECT_EQ(MatrixEncoder::create(q.matrix, {}).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(MatrixEncoder::create(m.matrix, {.load_dtype = DType::kI8}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(MatrixEncoder::create(m.matrix, {})->append(DType::kI64, {}).error().code, ErrorCode::kUnsupported);
}

TEST(MatrixEncoder, EmptyMatricesAreFine) {
  for (const StoredFormat& format : kTargets) {
    Owned m(format, 0, 64);
    auto encoder = MatrixEncoder::create(m.matrix, {});
    ASSERT_TRUE(encoder);
    EXPECT_TRUE(encoder->append(std::span<const float>()));
    EXPECT_TRUE(encoder->finish()) << format_text(format);
  }
}

}  // namespace
}  // namespace berth::quant
