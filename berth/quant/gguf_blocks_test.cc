#include "berth/quant/gguf_blocks.h"

#include <gtest/gtest.h>

#include <cstring>

#include "berth/quant/packed.h"
#include "berth/quant/test_golden.h"

namespace berth::quant {
namespace {

bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

std::map<std::string, GoldenTensor> golden() {
  return read_golden(BERTH_SOURCE_DIR "/tests/data/gguf_blocks/blocks.safetensors");
}

// Every type that gguf decodes, on random bytes made by tools/make_gguf_golden.py.
TEST(GgufBlocks, DecodeAsTheGgufPackageDoes) {
  const auto tensors = golden();
  int types = 0;
  size_t values = 0;
  for (const DTypeInfo& info : all_dtypes()) {
    const auto blocks = tensors.find(std::string(info.name) + ".blocks");
    if (blocks == tensors.end()) {
      EXPECT_FALSE(is_block_type(info.dtype) && info.dtype != DType::kQ8_1 && info.dtype != DType::kQ8_K) << info.name;
      continue;
    }
    const auto expected = tensors.at(std::string(info.name) + ".values").floats();
    std::vector<float> out(expected.size());
    ASSERT_TRUE(decode_blocks(info.dtype, blocks->second.span(), out)) << info.name;
    size_t wrong = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!same_float(out[i], expected[i]) && ++wrong == 1) {
        ADD_FAILURE() << info.name << " element " << i << ": " << out[i] << ", expected " << expected[i];
      }
    }
    EXPECT_EQ(wrong, 0u) << info.name;
    ++types;
    values += out.size();
  }
  EXPECT_EQ(types, 24);
  std::printf("%d types, %zu values equal\n", types, values);
}

// Kept packed or decoded from the file: the same bits.
TEST(GgufBlocks, PackedRowsDecodeToTheSameValues) {
  const auto tensors = golden();
  int codecs = 0;
  for (const CodecInfo* info : all_codecs()) {
    const auto found = tensors.find(std::string(dtype_name(info->file_dtype)) + ".blocks");
    if (info->unpack_blocks == nullptr || found == tensors.end()) continue;
    const DTypeInfo& file = dtype_info(info->file_dtype);
    const int64_t rows = static_cast<int64_t>(found->second.count() / file.block_bytes);
    // one block per row and, with the same bytes, two
    for (const int64_t per_row : {1, 2}) {
      const int64_t cols = static_cast<int64_t>(file.block_elements) * per_row;
      const auto layout = packed_layout(stored_format(info->codec), rows / per_row, cols);
      std::unique_ptr<std::byte, decltype(&std::free)> bytes(
          static_cast<std::byte*>(std::aligned_alloc(64, layout->total_bytes)), &std::free);
      const MutablePackedMatrix matrix = bind_planes(*layout, bytes.get());
      // NaN scales are reported, but the planes are filled all the same.
      const Status packed = pack_rows(matrix, info->file_dtype, found->second.span(), 0, rows / per_row);
      if (!packed) EXPECT_EQ(packed.error().code, ErrorCode::kCorruptData) << packed.error().message;
      // The file's rows where they are, as tables are gathered from.
      PackedMatrix in_file{stored_format(info->codec), rows / per_row, cols};
      in_file.planes[0] = found->second.span().data();
      in_file.in_blocks = true;
      std::vector<float> expected(static_cast<size_t>(rows * file.block_elements)), row(static_cast<size_t>(cols));
      std::vector<float> in_place(row.size());
      ASSERT_TRUE(decode_blocks(info->file_dtype, found->second.span(), expected));
      for (int64_t r = 0; r < rows / per_row; ++r) {
        decode_row(matrix, r, row.data());
        decode_row(in_file, r, in_place.data());
        for (int64_t k = 0; k < cols; ++k) {
          if (info->codec != Codec::kMXFP4)
            ASSERT_TRUE(same_float(row[static_cast<size_t>(k)], in_place[static_cast<size_t>(k)])) << info->name;
          const float want = expected[static_cast<size_t>(r * cols + k)];
          // e8m0 255 is NaN to a codec (and refused), an exponent to gguf.
          const bool nan_scale = info->codec == Codec::kMXFP4 &&
                                 matrix.plane<uint8_t>(Plane::kScales)[r * per_row + k / file.block_elements] == 255;
          const float got = row[static_cast<size_t>(k)];
          if (nan_scale) {
            ASSERT_TRUE(got != got);
          } else {
            // -0 of e2m1 code 8 is +0 in gguf's integer table
            ASSERT_TRUE(same_float(got, want) || (got == 0 && want == 0))
                << info->name << " row " << r << " column " << k << ": " << got << ", expected " << want;
          }
        }
      }
    }
    ++codecs;
  }
  EXPECT_EQ(codecs, 10);
}

TEST(GgufBlocks, IntermediateTypesAreScaleTimesCode) {
  std::vector<std::byte> block(292, std::byte{0});
  const float d = 0.3f;
  std::memcpy(block.data(), &d, 4);
  block[4] = std::byte{0x80};
  block[259] = std::byte{0x7F};
  std::vector<float> out(256);
  ASSERT_TRUE(decode_blocks(DType::kQ8_K, block, out));
  EXPECT_EQ(out[0], 0.3f * -128);
  EXPECT_EQ(out[255], 0.3f * 127);
  std::vector<std::byte> small(36, std::byte{2});
  small[0] = std::byte{0x00};
  small[1] = std::byte{0x3C};
  ASSERT_TRUE(decode_blocks(DType::kQ8_1, small, std::span(out).first(32)));
  EXPECT_EQ(out[31], 2.0f);
}

TEST(GgufBlocks, RefusesSizesThatDoNotBelongTogether) {
  std::vector<std::byte> blocks(36);
  std::vector<float> out(64);
  EXPECT_TRUE(decode_blocks(DType::kQ4_0, blocks, out));
  EXPECT_EQ(decode_blocks(DType::kQ4_0, std::span(blocks).first(35), out).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode_blocks(DType::kQ4_0, blocks, std::span(out).first(32)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode_blocks(DType::kI32, blocks, out).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(can_decode_blocks(DType::kU8));
}

}  // namespace
}  // namespace berth::quant
