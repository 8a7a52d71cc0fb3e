#include "berth/quant/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/quant/code_books.h"
#include "berth/tensor/float16.h"

namespace berth::quant {
namespace {

// A packed matrix that owns its bytes.
struct Owned {
  PackedLayout layout;
  std::unique_ptr<std::byte, decltype(&std::free)> bytes{nullptr, &std::free};
  MutablePackedMatrix matrix;
  Owned(StoredFormat format, int64_t rows, int64_t cols) : layout(*packed_layout(format, rows, cols)) {
    bytes.reset(static_cast<std::byte*>(std::aligned_alloc(64, layout.total_bytes)));
    std::memset(bytes.get(), 0xA5, layout.total_bytes);
    matrix = bind_planes(layout, bytes.get());
  }
  std::vector<float> row(int64_t r) const {
    std::vector<float> out(static_cast<size_t>(matrix.cols));
    decode_row(matrix, r, out.data());
    return out;
  }
};

template <typename T>
std::span<const std::byte> as_bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

std::vector<StoredFormat> every_format() {
  std::vector<StoredFormat> all;
  for (const CodecInfo* info : all_codecs()) {
    all.push_back(stored_format(info->codec));
    if (is_bnb_4bit(info->codec)) {
      all.push_back({info->codec, 32, false});
      all.push_back({info->codec, 64, true});
      all.push_back({info->codec, 4096, true});
    }
  }
  return all;
}

TEST(CodecRegistry, IsInEnumOrderAndNamesAreUnique) {
  ASSERT_EQ(all_codecs().size(), static_cast<size_t>(kCodecCount));
  for (int i = 0; i < kCodecCount; ++i) {
    const CodecInfo& info = *all_codecs()[static_cast<size_t>(i)];
    EXPECT_EQ(static_cast<int>(info.codec), i);
    EXPECT_EQ(codec_from_name(info.name), info.codec) << info.name;
    EXPECT_EQ(info.code_kind == CodeKind::kBook, info.code_book != nullptr) << info.name;
    EXPECT_EQ(info.scaling == Scaling::kNone, info.row_scales == nullptr) << info.name;
    if (info.int8_mode) EXPECT_EQ(info.code_book != nullptr, info.int8_book != nullptr) << info.name;
  }
  EXPECT_EQ(codec_from_name("NF4"), std::nullopt);
}

TEST(CodeBooks, IntegersAreTheRoundedScaledCodes) {
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(kNF4Integers[i], static_cast<int>(std::rint(124.12 * static_cast<double>(kNF4Book[i])))) << i;
    EXPECT_EQ(kFP4Integers[i], static_cast<int>(std::rint(120 * static_cast<double>(kFP4Book[i])))) << i;
    EXPECT_EQ(static_cast<float>(kE2M1Integers[i]), 2 * kE2M1Book[i]) << i;
    EXPECT_EQ(static_cast<float>(kIQ4NLIntegers[i]), kIQ4NLBook[i]) << i;
  }
  EXPECT_EQ(kNF4Kappa, static_cast<float>(1 / 124.12));
  EXPECT_EQ(kFP4Kappa, static_cast<float>(1 / 120.0));
}

TEST(PackedLayout, PlanesAreAlignedOrderedAndPaddedForEveryFormat) {
  int cases = 0;
  for (const StoredFormat& format : every_format()) {
    for (const int64_t rows : {0, 1, 3, 129}) {
      for (const int64_t cols : {0, 256, 768, 8192}) {
        const auto layout = packed_layout(format, rows, cols);
        ASSERT_TRUE(layout) << layout.error().message;
        uint64_t end = 0;
        for (const PlaneLayout& plane : layout->planes) {
          EXPECT_EQ(plane.offset % 64, 0u);
          EXPECT_GE(plane.offset, end);
          EXPECT_LT(plane.offset - end, 64u);
          EXPECT_EQ(plane.bytes, plane.count * dtype_info(plane.dtype).block_bytes);
          end = plane.offset + plane.bytes;
        }
        EXPECT_GE(layout->total_bytes, end + 64);
        EXPECT_LT(layout->total_bytes, end + 128);
        EXPECT_EQ(layout->total_bytes % 64, 0u);
        ++cases;
      }
    }
  }
  std::printf("%d layouts\n", cases);
}

TEST(PackedLayout, IsAtMostTwoPercentOverTheFile) {
  for (const StoredFormat& format : every_format()) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{576, 1536}, {4096, 4096}, {151936, 1024}}) {
      const uint64_t memory = packed_layout(format, rows, cols)->total_bytes, file = *file_bytes(format, rows, cols);
      EXPECT_LE(static_cast<double>(memory), 1.02 * static_cast<double>(file)) << format_text(format);
      EXPECT_GE(memory, file - 1024) << format_text(format);
    }
  }
}

uint64_t plane_bytes(StoredFormat format, int64_t rows, int64_t cols) {
  const PackedLayout layout = *packed_layout(format, rows, cols);
  uint64_t sum = 0;
  for (const PlaneLayout& p : layout.planes) sum += p.bytes;
  return sum;
}

// The table "codec | disk | memory" of docs/formats/memory.md has every codec, with these bytes per 256 elements.
TEST(PackedLayout, BytesAreThoseOfTheDocumentation) {
  const auto text = read_file(BERTH_SOURCE_DIR "/docs/formats/memory.md");
  ASSERT_TRUE(text) << text.error().message;
  int rows_found = 0;
  for (const std::string& line : split(*text, '\n')) {
    const auto cells = split(line, '|');
    const auto codec = cells.size() > 6 ? codec_from_name(trimmed(cells[1])) : std::nullopt;
    if (!codec) continue;
    ++rows_found;
    const uint64_t disk = std::stoull(cells[2]), memory = std::stoull(cells[3]);
    const StoredFormat format = stored_format(*codec);
    uint64_t disk_extra = 0, memory_extra = 0;  // scales that the table leaves to the text below it: [256, 512]
    if (is_bnb_4bit(*codec)) {
      memory_extra = 4 * 2048;
      disk_extra = memory_extra + 64;
    } else if (*codec == Codec::kInt8Row) {
      memory_extra = 4 * 256;
      disk_extra = memory_extra + 1;
    } else if (*codec == Codec::kFP8Block) {
      memory_extra = disk_extra = 4 * 2 * 4;
    }
    EXPECT_EQ(plane_bytes(format, 256, 512), 512 * memory + memory_extra) << codec_name(*codec);
    EXPECT_EQ(*file_bytes(format, 256, 512), 512 * disk + disk_extra) << codec_name(*codec);
  }
  EXPECT_EQ(rows_found, kCodecCount);
}

TEST(PackedLayout, PartialBlocksAndTilesCount) {
  EXPECT_EQ(plane_bytes(stored_format(Codec::kInt8Row), 10, 513), 5130u + 40);
  EXPECT_EQ(plane_bytes(stored_format(Codec::kFP8Block), 129, 300), 129u * 300 + 2 * 3 * 4);
  EXPECT_EQ(plane_bytes({Codec::kNF4, 64, false}, 3, 67), 101u + 4 * 4);
  EXPECT_EQ(plane_bytes({Codec::kNF4, 32, true}, 100, 512), 25600u + 1600 + 7 * 4 + 1024 + 4);
  EXPECT_EQ(*file_bytes({Codec::kNF4, 32, true}, 100, 512), 25600u + 1600 + 7 * 4 + 1024 + 64);
}

TEST(PackedLayout, RefusesWhatCannotBe) {
  const auto why = [](StoredFormat f, int64_t rows, int64_t cols) {
    const auto layout = packed_layout(f, rows, cols);
    return layout ? std::string() : layout.error().message;
  };
  EXPECT_EQ(why({Codec::kQ4_K, 0, false}, 2, 128),
            "laying out a [2, 128] matrix as q4_k: expected rows of a multiple of 256 elements, found 128");
  EXPECT_NE(why({Codec::kNF4, 48, false}, 2, 128).find("found 48"), std::string::npos);
  EXPECT_NE(why({Codec::kNF4, 0, false}, 2, 128).find("found 0"), std::string::npos);
  EXPECT_NE(why({Codec::kQ8_0, 32, false}, 2, 128).find("fixed form"), std::string::npos);
  EXPECT_NE(why({Codec::kF32, 0, false}, -1, 128), "");
  EXPECT_NE(why({Codec::kF32, 0, false}, INT64_MAX, 2), "");
  EXPECT_NE(why({Codec::kF32, 0, false}, int64_t{1} << 40, int64_t{1} << 40), "");
  EXPECT_EQ(why({Codec::kF32, 0, false}, int64_t{1} << 24, int64_t{1} << 24), "");
}

TEST(RowBlocks, StraddleRowsInBitsandbytesFormats) {
  Owned m({Codec::kNF4, 64, false}, 3, 100);
  RowBlocks b = row_blocks(m.matrix, 0);
  EXPECT_EQ(b.count, 2);
  EXPECT_EQ(b.first, 64);
  b = row_blocks(m.matrix, 1);  // elements 100..199: 28 of block 1, 64 of block 2, 8 of block 3
  EXPECT_EQ(b.count, 3);
  EXPECT_EQ(b.first, 28);
  EXPECT_EQ(b.block_of(27), 0);
  EXPECT_EQ(b.block_of(28), 1);
  EXPECT_EQ(b.block_of(92), 2);
  EXPECT_EQ(b.begin(2), 92);
  Owned small({Codec::kNF4, 4096, false}, 3, 7);
  b = row_blocks(small.matrix, 2);
  EXPECT_EQ(b.count, 1);
  EXPECT_EQ(b.first, 7);
}

TEST(DecodeRow, ReadsNestedNf4WithRowsThatBeginInMidByte) {
  Owned m({Codec::kNF4, 32, true}, 3, 33);
  std::vector<uint8_t> codes(50);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 + 11);
  std::vector<float> map(256);
  for (size_t i = 0; i < 256; ++i) map[i] = static_cast<float>(i) / 256;
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kCodes, DType::kU8, as_bytes_of(codes), 0));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kScales, DType::kU8, as_bytes_of(std::vector<uint8_t>{1, 2, 3, 255}), 0));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kNestedAbsmax, DType::kF32, as_bytes_of(std::vector<float>{0.3f}), 0));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kNestedMap, DType::kF32, as_bytes_of(map), 0));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kNestedOffset, DType::kF32, as_bytes_of(std::vector<float>{0.7f}), 0));
  for (int64_t r = 0; r < 3; ++r) {
    const auto row = m.row(r);
    for (int64_t k = 0; k < 33; ++k) {
      const int64_t i = r * 33 + k;
      const uint8_t byte = codes[static_cast<size_t>(i / 2)];
      const float c = kNF4Book[i % 2 == 0 ? byte >> 4 : byte & 15];
      const uint8_t q[4] = {1, 2, 3, 255};
      const float product = map[q[i / 32]] * 0.3f;
      const float absmax = product + 0.7f;
      EXPECT_EQ(row[static_cast<size_t>(k)], c * absmax) << r << "," << k;
    }
  }
}

TEST(PackRows, ChunksGiveTheSameBytesAsOneCall) {
  int formats = 0;
  for (const CodecInfo* info : all_codecs()) {
    const StoredFormat format = stored_format(info->codec);
    const auto row_bytes = file_row_bytes(format, info->file_dtype, 512);
    if (!row_bytes) continue;
    ++formats;
    std::vector<uint8_t> file(7 * *row_bytes);
    uint32_t s = 1;
    for (auto& b : file) b = static_cast<uint8_t>(((s = s * 1664525 + 1013904223) >> 24) & 0x37);  // never a NaN
    Owned whole(format, 7, 512), chunked(format, 7, 512);
    ASSERT_TRUE(pack_rows(whole.matrix, info->file_dtype, as_bytes_of(file), 0, 7)) << info->name;
    for (const auto& [at, n] : {std::pair<int64_t, int64_t>{4, 3}, {0, 1}, {1, 3}}) {
      ASSERT_TRUE(pack_rows(
          chunked.matrix, info->file_dtype,
          as_bytes_of(file).subspan(static_cast<size_t>(at) * *row_bytes, static_cast<size_t>(n) * *row_bytes), at, n));
    }
    EXPECT_EQ(std::memcmp(whole.bytes.get(), chunked.bytes.get(), whole.layout.total_bytes), 0) << info->name;
  }
  EXPECT_EQ(formats, 15);
}

TEST(PackRows, ConvertsBetweenFloatWidthsAndFindsNaN) {
  Owned m({Codec::kF16, 0, false}, 2, 3);
  std::vector<float> rows = {1.0f, -2.5f, 65519.9f, 1e-8f, 3.14159274f, -0.0f};
  ASSERT_TRUE(pack_rows(m.matrix, DType::kF32, as_bytes_of(rows), 0, 2));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(m.matrix.plane<uint16_t>(Plane::kCodes)[i], f32_to_f16(rows[i])) << i;
  }
  rows[4] = NAN;
  const Status bad = pack_rows(m.matrix, DType::kF32, as_bytes_of(rows), 0, 2);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "expected finite weights, found NaN at row 1, column 1");
  EXPECT_EQ(bad.error().code, ErrorCode::kCorruptData);
  std::vector<uint16_t> b16(6, 0x3F80);
  b16[5] = 0xFF81;
  EXPECT_FALSE(pack_rows(m.matrix, DType::kBF16, as_bytes_of(b16), 0, 2));
  b16[5] = 0xFF80;  // infinity is a value
  EXPECT_TRUE(pack_rows(m.matrix, DType::kBF16, as_bytes_of(b16), 0, 2));
}

TEST(PackRows, FindsNaNScalesInBlocks) {
  Owned m({Codec::kQ4_0, 0, false}, 2, 64);
  std::vector<uint8_t> file(4 * 18, 0x11);
  file[3 * 18] = 0x00;
  file[3 * 18 + 1] = 0x7E;  // d of row 1's second block is a NaN
  const Status bad = pack_rows(m.matrix, DType::kQ4_0, as_bytes_of(file), 0, 2);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "expected finite weights, found NaN at row 1, column 32");
}

// What is already where it stays is refused for the same weights as what is packed.
TEST(CheckFinite, FindsNaNInPlanesAndInBlocks) {
  std::vector<uint16_t> rows(64 * 96, 0x3F80);
  PackedMatrix bf16{stored_format(Codec::kBF16), 64, 96};
  bf16.planes[0] = reinterpret_cast<const std::byte*>(rows.data());
  EXPECT_TRUE(check_finite(bf16, Plane::kCodes, 0, rows.size()));
  rows[5 * 96 + 7] = 0xFF80;  // an infinity is a weight
  EXPECT_TRUE(check_finite(bf16, Plane::kCodes, 0, rows.size()));
  rows[63 * 96 + 95] = 0xFF81;
  EXPECT_TRUE(check_finite(bf16, Plane::kCodes, 0, rows.size() - 1));
  const Status nan = check_finite(bf16, Plane::kCodes, 4096, rows.size() - 4096);
  ASSERT_FALSE(nan);
  EXPECT_EQ(nan.error().code, ErrorCode::kCorruptData);
  EXPECT_NE(nan.error().message.find("row 63, column 95"), std::string::npos) << nan.error().message;
  EXPECT_FALSE(check_finite(bf16, Plane::kCodes, 0, rows.size() + 1));

  std::vector<uint8_t> blocks(3 * 2 * kQ8BlockBytes, 1);
  PackedMatrix q8{stored_format(Codec::kQ8_0), 3, 64};
  q8.planes[0] = reinterpret_cast<const std::byte*>(blocks.data());
  q8.in_blocks = true;
  EXPECT_TRUE(check_finite(q8, Plane::kCodes, 0, 3 * 64));
  uint8_t* const last = blocks.data() + 5 * kQ8BlockBytes;
  last[0] = 0, last[1] = 0x7C;  // an infinite scale is one only with a code of 0
  EXPECT_TRUE(check_finite(q8, Plane::kCodes, 0, 3 * 64));
  last[2 + 9] = 0;
  const Status zero_times_infinity = check_finite(q8, Plane::kCodes, 64, 128);
  ASSERT_FALSE(zero_times_infinity);
  EXPECT_NE(zero_times_infinity.error().message.find("row 2, column 41"), std::string::npos)
      << zero_times_infinity.error().message;
  last[2 + 9] = 1, last[0] = 1;
  EXPECT_FALSE(check_finite(q8, Plane::kCodes, 0, 3 * 64));
}

TEST(PackRows, NamesWhatDoesNotFit) {
  Owned m({Codec::kQ4_0, 0, false}, 2, 64);
  const std::vector<uint8_t> file(4 * 18, 0x11);
  EXPECT_EQ(pack_rows(m.matrix, DType::kQ4_1, as_bytes_of(file), 0, 2).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(pack_rows(m.matrix, DType::kQ4_0, as_bytes_of(file), 1, 2).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(pack_rows(m.matrix, DType::kQ4_0, as_bytes_of(file).first(71), 0, 2).error().message,
            "packing 2 rows of q4_0: expected 72 bytes, found 71");
  EXPECT_EQ(pack_plane(m.matrix, Plane::kMins, DType::kF16, as_bytes_of(file), 0).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(PackRows, TakesGptOssBlocksLowNibbleFirst) {
  Owned m({Codec::kMXFP4, 0, false}, 1, 32);
  std::vector<uint8_t> blocks(16);
  for (size_t i = 0; i < 16; ++i) blocks[i] = static_cast<uint8_t>((i & 15) | ((15 - i) << 4));
  ASSERT_TRUE(pack_rows(m.matrix, DType::kU8, as_bytes_of(blocks), 0, 1));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kScales, DType::kU8, as_bytes_of(std::vector<uint8_t>{129}), 0));
  const auto row = m.row(0);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(row[2 * i], 4 * kE2M1Book[i]);
    EXPECT_EQ(row[2 * i + 1], 4 * kE2M1Book[15 - i]);
  }
  EXPECT_FALSE(pack_plane(m.matrix, Plane::kScales, DType::kU8, as_bytes_of(std::vector<uint8_t>{255}), 0));
}

TEST(PackPlane, Fp8ScalesMayBeE8M0OrBf16) {
  Owned m({Codec::kFP8Block, 0, false}, 129, 130);
  const std::vector<uint8_t> rows(129 * 130, 0x38);  // 1.0
  ASSERT_TRUE(pack_rows(m.matrix, DType::kF8E4M3, as_bytes_of(rows), 0, 129));
  ASSERT_TRUE(pack_plane(m.matrix, Plane::kScales, DType::kF8E8M0, as_bytes_of(std::vector<uint8_t>{127, 128}), 0));
  ASSERT_TRUE(
      pack_plane(m.matrix, Plane::kScales, DType::kBF16, as_bytes_of(std::vector<uint16_t>{0x4080, 0x4100}), 2));
  EXPECT_EQ(m.row(127)[127], 1.0f);
  EXPECT_EQ(m.row(127)[128], 2.0f);
  EXPECT_EQ(m.row(128)[0], 4.0f);
  EXPECT_EQ(m.row(128)[129], 8.0f);
  auto bad = rows;
  bad[131] = 0xFF;
  EXPECT_EQ(pack_rows(m.matrix, DType::kF8E4M3, as_bytes_of(bad), 0, 129).error().message,
            "expected finite weights, found NaN at row 1, column 1");
}

TEST(RowInt8Codes, AreTheExactCodesTimesTheirConstant) {
  for (const CodecInfo* info : all_codecs()) {
    if (!info->int8_mode) continue;
    Owned m(stored_format(info->codec), 1, 256);
    std::vector<float> c(256);
    std::vector<int8_t> q(256);
    for (uint64_t i = 0; i < m.layout.total_bytes; ++i) m.bytes.get()[i] = static_cast<std::byte>(i * 29 + 3);
    row_codes(m.matrix, 0, c.data());
    row_int8_codes(m.matrix, 0, q.data());
    for (size_t k = 0; k < 256; ++k) {
      EXPECT_NEAR(static_cast<float>(q[k]) * info->kappa, c[k],
                  info->codec == Codec::kNF4 || info->codec == Codec::kFP4 ? 0.005 : 0)
          << info->name << " " << k;
    }
  }
}

}  // namespace
}  // namespace berth::quant
