// quant/row_slice_test.cc — a slice decodes to the same rows as the whole, in every format, wherever it is cut.
#include "berth/quant/row_slice.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace berth::quant {
namespace {

struct Aligned {
  std::vector<std::byte> bytes;
  explicit Aligned(uint64_t size) : bytes(size + 64) {}
  std::byte* data() { return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64; }
};

std::vector<StoredFormat> formats() {
  std::vector<StoredFormat> out;
  for (int c = 0; c < kCodecCount; ++c) out.push_back(stored_format(static_cast<Codec>(c)));
  for (const Codec c : {Codec::kNF4, Codec::kFP4}) {
    out.push_back({c, 32, true});
    out.push_back({c, 128, false});
  }
  return out;
}

TEST(RowSlice, DecodesToTheSameRowsAsTheWhole) {
  for (const StoredFormat& format : formats()) {
    for (const int64_t cols : {int64_t{256}, int64_t{96}, int64_t{40}, int64_t{33}}) {
      const auto whole = packed_layout(format, 700, cols);
      if (!whole) continue;  // widths that the codec does not have
      Aligned memory(whole->total_bytes);
      // Small exponents whatever the plane's type is, so that nothing is NaN.
      for (uint64_t i = 0; i < whole->total_bytes; ++i) memory.data()[i] = static_cast<std::byte>(i * 37 % 56);
      const PackedMatrix matrix = bind_planes(*whole, static_cast<const std::byte*>(memory.data()));
      for (const auto& [begin, count] :
           {std::pair<int64_t, int64_t>{0, 700}, {0, 1}, {699, 1}, {130, 77}, {256, 256}}) {
        const RowSlice slice = row_slice(*whole, begin, count);
        ASSERT_LE(slice.row_begin, begin);
        ASSERT_GE(slice.row_begin + slice.layout.rows, begin + count);
        Aligned copy(slice.layout.total_bytes);
        const MutablePackedMatrix to = bind_planes(slice.layout, copy.data());
        for (int p = 0; p < kPlaneCount; ++p) {
          const auto plane = static_cast<Plane>(p);
          const PlaneLayout& part = slice.layout.plane(plane);
          ASSERT_LE(plane_begin(*whole, slice, plane) + part.bytes, whole->plane(plane).bytes) << format_text(format);
          if (part.bytes > 0)
            std::memcpy(to.planes[static_cast<size_t>(p)],
                        matrix.planes[static_cast<size_t>(p)] + plane_begin(*whole, slice, plane), part.bytes);
        }
        std::vector<float> want(static_cast<size_t>(cols)), got(want.size());
        for (int64_t r = 0; r < count; ++r) {
          decode_row(matrix, begin + r, want.data());
          decode_row(to, begin + r - slice.row_begin, got.data());
          ASSERT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0)
              << format_text(format) << " row " << begin + r << " of " << cols << " columns";
        }
      }
    }
  }
}

TEST(RowSlice, IsNoWiderThanItMustBe) {
  const auto step = [](StoredFormat format, int64_t cols) { return slice_step(format, cols); };
  EXPECT_EQ(step({Codec::kNF4, 64, false}, 2048), 1);
  EXPECT_EQ(step({Codec::kNF4, 64, false}, 96), 2);
  EXPECT_EQ(step({Codec::kNF4, 64, true}, 2880), 256);
  EXPECT_EQ(step({Codec::kFP8Block, 0, false}, 2048), 128);
  EXPECT_EQ(step({Codec::kQ4_K, 0, false}, 2048), 1);
  const auto whole = packed_layout({Codec::kBF16, 0, false}, 96, 10);
  ASSERT_TRUE(whole);
  EXPECT_EQ(plane_bytes(row_slice(*whole, 32, 32).layout), 32u * 10 * 2);
  EXPECT_EQ(plane_begin(*whole, row_slice(*whole, 32, 32), Plane::kCodes), 32u * 10 * 2);
}

}  // namespace
}  // namespace berth::quant
