// quant/bnb_8bit_blocks.cc — the map, its bins, the quantizer and torch's mean.
#include "berth/quant/bnb_8bit_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace berth::quant {
namespace {

// Entries 127..255 ("table W" of specs/quantization.md 2.3; sha256 of all 1024 bytes e732639a...). The rest is their
// mirror.
// clang-format off
constexpr uint32_t kUpperHalf[129] = {
    0x00000000, 0x3513a3b7, 0x365a1a94, 0x370205ff, 0x37b24206, 0x38378034, 0x388aefb3, 0x38ba1f4b,
    0x3923d70b, 0x398ce705, 0x39c7e283, 0x3a016f01, 0x3a1eecc1, 0x3a3c6a80, 0x3a59e83e, 0x3a7765ff,
    0x3aa7ef9d, 0x3af1a9fc, 0x3b1db22d, 0x3b428f5c, 0x3b676c8a, 0x3b8624dd, 0x3b989374, 0x3bab020d,
    0x3bbd70a4, 0x3bcfdf3b, 0x3be24dd3, 0x3bf4bc6a, 0x3c039581, 0x3c0ccccd, 0x3c160418, 0x3c1f3b64,
    0x3c3ae148, 0x3c68f5c3, 0x3c8b851f, 0x3ca28f5d, 0x3cb9999a, 0x3cd0a3d7, 0x3ce7ae15, 0x3cfeb852,
    0x3d0ae148, 0x3d166667, 0x3d21eb85, 0x3d2d70a3, 0x3d38f5c3, 0x3d447ae1, 0x3d500000, 0x3d5b851f,
    0x3d670a3d, 0x3d728f5d, 0x3d7e147b, 0x3d84cccd, 0x3d8a8f5d, 0x3d9051eb, 0x3d96147b, 0x3d9bd70a,
    0x3da1999a, 0x3da75c2a, 0x3dad1eb8, 0x3db2e148, 0x3db8a3d7, 0x3dbe6667, 0x3dc428f7, 0x3dc9eb85,
    0x3ddb3334, 0x3df80000, 0x3e0a6666, 0x3e18cccd, 0x3e273333, 0x3e35999a, 0x3e440000, 0x3e526666,
    0x3e60cccd, 0x3e6f3333, 0x3e7d9999, 0x3e860000, 0x3e8d3334, 0x3e946666, 0x3e9b999a, 0x3ea2cccc,
    0x3eaa0000, 0x3eb13333, 0x3eb86666, 0x3ebf999a, 0x3ec6cccc, 0x3ece0000, 0x3ed53333, 0x3edc6666,
    0x3ee3999a, 0x3eeacccc, 0x3ef20000, 0x3ef93332, 0x3f003333, 0x3f03cccc, 0x3f076666, 0x3f0b0000,
    0x3f0e999a, 0x3f123334, 0x3f15cccd, 0x3f196666, 0x3f1d0000, 0x3f20999a, 0x3f243334, 0x3f27cccd,
    0x3f2b6666, 0x3f2f0000, 0x3f32999a, 0x3f363334, 0x3f39cccd, 0x3f3d6666, 0x3f410000, 0x3f44999a,
    0x3f483333, 0x3f4bcccd, 0x3f4f6666, 0x3f530000, 0x3f56999a, 0x3f5a3333, 0x3f5dcccd, 0x3f616666,
    0x3f650000, 0x3f68999a, 0x3f6c3333, 0x3f6fcccd, 0x3f736666, 0x3f770000, 0x3f7a999a, 0x3f7e3333,
    0x3f800000,
};
// clang-format on

constexpr std::array<float, 256> make_map() {
  std::array<float, 256> map{};
  for (int i = 0; i < 129; ++i) map[static_cast<size_t>(127 + i)] = std::bit_cast<float>(kUpperHalf[i]);
  for (int i = 1; i < 128; ++i) map[static_cast<size_t>(127 - i)] = std::bit_cast<float>(kUpperHalf[i] | 0x80000000u);
  return map;
}
constexpr std::array<float, 256> kMap = make_map();

float midpoint(int i) { return 0.5f * (kMap[static_cast<size_t>(i)] + kMap[static_cast<size_t>(i) + 1]); }

// Bin i covers values near -1 + 2i/65535: its code is the number of midpoints below that value.
const std::vector<uint8_t>& cpu_bins() {
  static const std::vector<uint8_t> bins = [] {
    std::vector<uint8_t> table(65536);
    int code = 0;
    for (int i = 0; i < 65536; ++i) {
      const float value = -1.0f + (2.0f * static_cast<float>(i)) / 65535.0f;
      while (code < 255 && midpoint(code) < value) ++code;
      table[static_cast<size_t>(i)] = static_cast<uint8_t>(code);
    }
    return table;
  }();
  return bins;
}

uint8_t nearest_cpu(float s) {
  if (std::isnan(s)) return 0;
  const float t = (std::clamp(s, -1.0f, 1.0f) + 1.0f) * 0.5f * 65535.0f + 0.5f;
  return cpu_bins()[static_cast<size_t>(std::min(static_cast<int32_t>(t), 65535))];
}

// The nearest entry by fp32 midpoints; on a midpoint the even index.
uint8_t nearest_cuda(float s) {
  if (std::isnan(s)) return 0;
  int low = 0, high = 255;  // number of midpoints below s
  while (low < high) {
    const int middle = (low + high) / 2;
    if (midpoint(middle) < s) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const bool tie = low < 255 && midpoint(low) == s;
  return static_cast<uint8_t>(tie && low % 2 == 1 ? low + 1 : low);
}

// --- torch's mean ---

int ceil_log2(int64_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(n - 1)); }

// Sums `vectors` vectors of kLanes floats into `lanes`: four accumulators dealt round-robin, each a cascade of four
// levels so that partial sums of like size meet; vectors that are left over go to accumulator 0.
template <int kLanes>
void sum_vectors(const float* x, int64_t vectors, float* lanes) {
  constexpr int kWidth = 4 * kLanes;
  const int64_t rounds = vectors / 4;
  const int power = std::max(4, ceil_log2(rounds) / 4);
  const int64_t step = int64_t{1} << power, mask = step - 1;
  float level[4][kWidth] = {};
  const auto add_round = [&](int64_t i) {
    for (int k = 0; k < kWidth; ++k) level[0][k] += x[i * kWidth + k];
  };
  int64_t i = 0;
  while (i + step <= rounds) {
    for (const int64_t end = i + step; i < end; ++i) add_round(i);
    for (int j = 1; j < 4; ++j) {
      for (int k = 0; k < kWidth; ++k) {
        level[j][k] += level[j - 1][k];
        level[j - 1][k] = 0;
      }
      if ((i & (mask << (j * power))) != 0) break;
    }
  }
  for (; i < rounds; ++i) add_round(i);
  for (int k = 0; k < kWidth; ++k) level[0][k] = ((level[0][k] + level[1][k]) + level[2][k]) + level[3][k];
  for (int64_t v = rounds * 4; v < vectors; ++v) {
    for (int k = 0; k < kLanes; ++k) level[0][k] += x[v * kLanes + k];
  }
  for (int k = 0; k < kLanes; ++k) {
    lanes[k] = ((level[0][k] + level[0][kLanes + k]) + level[0][2 * kLanes + k]) + level[0][3 * kLanes + k];
  }
}

}  // namespace

std::span<const float, 256> dynamic_map() { return kMap; }

void encode_8bit_blocks(std::span<const float> x, int64_t block, NearestRule rule, uint8_t* codes, float* absmax) {
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float a = std::fabs(x[static_cast<size_t>(i)]);
      if (a > largest) largest = a;
    }
    *absmax++ = largest;
    const float reciprocal = 1.0f / largest;
    for (int64_t i = begin; i < end; ++i) {
      const float s = x[static_cast<size_t>(i)] * reciprocal;
      codes[i] = rule == NearestRule::kCpuBins ? nearest_cpu(s) : nearest_cuda(s);
    }
  }
}

void decode_8bit_blocks(std::span<const uint8_t> codes, int64_t block, std::span<const float, 256> map,
                        const float* absmax, float* out) {
  for (size_t i = 0; i < codes.size(); ++i) out[i] = map[codes[i]] * absmax[static_cast<int64_t>(i) / block];
}

float torch_mean(std::span<const float> x) {
  constexpr int kLanes = 8;
  const auto n = static_cast<int64_t>(x.size());
  float total = 0;
  if (n < kLanes) {
    sum_vectors<1>(x.data(), n, &total);
  } else {
    float lanes[kLanes];
    sum_vectors<kLanes>(x.data(), n / kLanes, lanes);
    for (int64_t k = n / kLanes * kLanes; k < n; ++k) total += x[static_cast<size_t>(k)];
    for (const float lane : lanes) total += lane;
  }
  return total / static_cast<float>(n);
}

void nest_absmax(std::span<float> absmax, NearestRule rule, uint8_t* codes, float* nested_absmax, float* offset) {
  *offset = torch_mean(absmax);
  for (float& a : absmax) a = a - *offset;
  encode_8bit_blocks(absmax, kNestedBlock, rule, codes, nested_absmax);
}

void unnest_absmax(std::span<const uint8_t> codes, std::span<const float, 256> map, const float* nested_absmax,
                   float offset, float* absmax) {
  decode_8bit_blocks(codes, kNestedBlock, map, nested_absmax, absmax);
  for (size_t i = 0; i < codes.size(); ++i) absmax[i] = absmax[i] + offset;
}

}  // namespace berth::quant
