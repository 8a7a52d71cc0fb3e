// The vectors of specs/quantization.md 10: what cannot be recorded without a GPU (CUDA rules), and the CPU beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "berth/quant/bnb_4bit.h"
#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/quant/cast.h"
#include "berth/quant/int8_row.h"

namespace berth::quant {
namespace {

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t b : bytes) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

struct Made {
  std::string codes;
  std::vector<float> absmax;
};
Made make(Codec codec, const Bnb4Rules& rules, const std::vector<float>& x, int32_t block = 64) {
  std::vector<uint8_t> codes((x.size() + 1) / 2);
  Made made;
  made.absmax.resize((x.size() + static_cast<size_t>(block) - 1) / static_cast<size_t>(block));
  encode_bnb_4bit(codec, block, rules, x, codes.data(), made.absmax.data());
  made.codes = hex(codes);
  return made;
}

// U in [0, 1) with 24 bits, as the spec's generator draws it.
class Draw {
 public:
  explicit Draw(uint32_t seed) : state_(seed) {}
  float operator()() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(state_ >> 8) * 0x1p-24f;
  }

 private:
  uint32_t state_;
};

std::vector<float> from_bits(std::initializer_list<uint32_t> words) {
  std::vector<float> out;
  for (const uint32_t w : words) out.push_back(std::bit_cast<float>(w));
  return out;
}

TEST(Bnb4Rules, V1OneBlockIsTheSameUnderBothRules) {
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(static_cast<float>(((37 * i + 11) % 129) - 64) / 64);
  for (const Bnb4Rules& rules : {kBnbCpuRules, kBnbCudaRules}) {
    EXPECT_EQ(make(Codec::kNF4, rules, x).codes, "14bf28d15bf28d15bf28e15bf28e15cf28e15cf39e15cf39e15c039e16c039e1");
    EXPECT_EQ(make(Codec::kFP4, rules, x).codes, "af43d12af43d12af43d12ae43d62ae43d62ae43d62ae53d62ae5bd62ae5bc62a");
  }
}

TEST(Bnb4Rules, V2SmallNumbersDifferInOneFp4Byte) {
  Draw draw(12345);
  std::vector<float> x;
  for (int i = 0; i < 128; ++i) x.push_back((draw() - 0.5f) * 0.08f);
  const std::string nf4 =
      "008ae1789d0cf0c65f5ffb5735b11e30639f0d33f8bba1fd6c3c9d626b8e5fc1b44dd115ec825ed4eb8eae5de1aa19e13dc413e5dc1ce82e"
      "52bdf0b0417ef34e";
  std::string fp4 =
      "bb672a9665b53b49f3e334e8de4aa2cb9d63b5cc36447a35e5c565eae412f35a4cf22aae251df22f241273f52a77a62ad55fad2f55a526d2"
      "ea423b4bca123cc3";
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, x).codes, nf4);
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, x).codes, nf4);
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, x).absmax, from_bits({0x3d21c4bd, 0x3d23d0d3}));
  EXPECT_EQ(make(Codec::kFP4, kBnbCudaRules, x).codes, fp4);
  fp4.replace(22, 2, "e0");
  EXPECT_EQ(make(Codec::kFP4, kBnbCpuRules, x).codes, fp4);
  round_through(DType::kBF16, x);
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, x).codes,
            "008ae1789d0cf0c65f5ffb5735b11e30639f0d33f8bba1fd6c4c9d626b8e5ec1b44dd115ec825ed4eb8eae5de1aa19e13dc413e5dc"
            "1ce82e52bdf0b0417ef34e");
}

TEST(Bnb4Rules, V3OddLengthPadsWithTheCodeOfZero) {
  std::vector<float> x;
  for (int i = 0; i < 67; ++i) x.push_back(static_cast<float>(((29 * i + 5) % 101) - 50) / 40);
  for (const Bnb4Rules& rules : {kBnbCpuRules, kBnbCudaRules}) {
    EXPECT_EQ(make(Codec::kNF4, rules, x).codes,
              "04ae27d04ae27d04bf27d14bf28d14bf28d15bf28e15bf28e15cf28e15cf39e15c07");
    EXPECT_EQ(make(Codec::kFP4, rules, x).codes,
              "bc73a95bc73d05bf43d12bf43d12af43d12af43d12ae43d62ae43d62ae53d62ae5b0");
  }
  // An all-zero last block: CUDA's pad is that block's zero code.
  std::vector<float> zero_end(67, 0.0f);
  std::fill_n(zero_end.begin(), 64, 1.0f);
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, zero_end).codes.substr(64), "0000");
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, zero_end).codes.substr(64), "7777");
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, zero_end).absmax[1], 1e-38f);
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, zero_end).absmax[1], 0.0f);
}

TEST(Bnb4Rules, V4TiesFollowTheRule) {
  auto x = from_bits({0xbf591cd8, 0xbf1c5270, 0xbeeb8480, 0xbeadea76, 0xbe703cec, 0xbe0d38bc, 0xbd3a7871, 0x3d22faff,
                      0x3df64862, 0x3e5067e0, 0x3e9582d4, 0x3ec753f9, 0x3f006d04, 0x3f248daf, 0x3f5c89da, 0x3f800000});
  x.resize(64, 0.0f);
  for (const Bnb4Rules& rules : {kBnbCpuRules, kBnbCudaRules}) {
    EXPECT_EQ(make(Codec::kNF4, rules, x).codes.substr(0, 16), "0123456789abcdef");
  }
  const auto magnitudes = [](std::initializer_list<uint32_t> thresholds) {
    auto v = from_bits(thresholds);
    for (size_t i = 0; i < thresholds.size(); ++i) v.push_back(-v[i]);
    v.push_back(1.0f);
    v.resize(64, 0.0f);
    return v;
  };
  const auto cuda = magnitudes({0x3b2aaab9, 0x3db00000, 0x3e555555, 0x3e955555, 0x3ed55556, 0x3f155550, 0x3f555555});
  EXPECT_EQ(make(Codec::kFP4, kBnbCudaRules, cuda).codes.substr(0, 16), "016745289efcda30");
  EXPECT_EQ(make(Codec::kFP4, kBnbCpuRules, cuda).codes.substr(0, 16), "11674529eefdda30");
  const auto midpoints =
      magnitudes({0x3b2aaaab, 0x3db00000, 0x3e555556, 0x3e955556, 0x3ed55556, 0x3f155556, 0x3f555556});
  EXPECT_EQ(make(Codec::kFP4, kBnbCudaRules, midpoints).codes.substr(0, 16), "017442389fccab30");
  EXPECT_EQ(make(Codec::kFP4, kBnbCpuRules, midpoints).codes.substr(0, 16), "81674529efcdab30");
}

TEST(Bnb4Rules, V9SpecialValues) {
  std::vector<float> x(64, 0.0f);
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, x).codes, std::string(64, '0'));
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, x).codes, std::string(64, '7'));
  Bnb4Rules mixed = kBnbCpuRules;  // the switch works by itself
  mixed.zero_block_byte = 0x00;
  EXPECT_EQ(make(Codec::kNF4, mixed, x).codes, std::string(64, '0'));

  std::fill(x.begin(), x.end(), 0.25f);
  x[10] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, x).codes, std::string(10, '7') + "07" + std::string(52, '7'));
  EXPECT_EQ(make(Codec::kNF4, kBnbCpuRules, x).codes, std::string(10, '7') + "f7" + std::string(52, '7'));

  x[10] = NAN;
  x[11] = -0.5f;
  const Made cuda = make(Codec::kNF4, kBnbCudaRules, x);
  EXPECT_EQ(cuda.absmax[0], 0.5f);
  EXPECT_EQ(cuda.codes.substr(10, 2), "00");
  const Made cpu = make(Codec::kNF4, kBnbCpuRules, x);
  EXPECT_TRUE(std::isnan(cpu.absmax[0]));
  EXPECT_EQ(cpu.codes, std::string(64, 'f'));
  std::fill(x.begin(), x.end(), NAN);
  EXPECT_EQ(make(Codec::kNF4, kBnbCudaRules, x).absmax[0], -std::numeric_limits<float>::max());
}

TEST(Bnb8BitBlocks, V5DoubleQuantizationUnderBothRules) {
  Draw draw(777);
  std::vector<float> absmax;
  for (int i = 0; i < 300; ++i) {
    const float product = draw() * 0.06f;
    absmax.push_back(product + 0.02f);
  }
  EXPECT_EQ(std::bit_cast<uint32_t>(absmax[0]), 0x3d55f0fbu);
  EXPECT_EQ(std::bit_cast<uint32_t>(absmax[299]), 0x3cc3639au);
  for (const NearestRule rule : {NearestRule::kCpuBins, NearestRule::kCuda}) {
    auto differences = absmax;
    std::vector<uint8_t> codes(300);
    std::vector<float> nested(2), restored(300);
    float offset = 0;
    nest_absmax(differences, rule, codes.data(), nested.data(), &offset);
    EXPECT_EQ(std::bit_cast<uint32_t>(offset), 0x3d4c88aeu);
    EXPECT_EQ(nested, from_bits({0x3cf61530, 0x3ce96533}));
    EXPECT_EQ(hex(codes).substr(0, 144),
              "b6dce83d20c5255ddf1f30e7cb3f3bd0d51136d08eeb18fa20bfcecad5e0f2bfebbbdbc618ec0a3a362e38263050bff4d9ccc222"
              "0de0ff0a32123bde"
              "eef8e316d2d9f4fc1e31040c");
    EXPECT_EQ(hex(codes).substr(576), "fafcd2e4d100ee248f00ca06");
    unnest_absmax(codes, dynamic_map(), nested.data(), offset, restored.data());
    restored.resize(4);
    EXPECT_EQ(restored, from_bits({0x3d55e587, 0x3d85f0c4, 0x3d905276, 0x3d3be773}));
  }
}

TEST(Bnb8BitBlocks, TheRulesDifferAroundZeroAndOnTies) {
  const auto code = [](float s, NearestRule rule) {
    const std::vector<float> x = {1.0f, s};
    uint8_t codes[2];
    float absmax;
    encode_8bit_blocks(x, 256, rule, codes, &absmax);
    EXPECT_EQ(codes[0], 255);
    return codes[1];
  };
  EXPECT_EQ(code(0, NearestRule::kCpuBins), 131);
  EXPECT_EQ(code(0, NearestRule::kCuda), 127);
  EXPECT_EQ(code(-1, NearestRule::kCuda), 0);
  EXPECT_EQ(code(NAN, NearestRule::kCuda), 0);
  const auto map = dynamic_map();
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(code(map[i], NearestRule::kCuda), i);
  for (size_t i = 0; i < 255; ++i) {
    const float middle = 0.5f * (map[i] + map[i + 1]);
    EXPECT_EQ(code(middle, NearestRule::kCuda), i % 2 == 0 ? i : i + 1);
    EXPECT_EQ(code(std::nextafter(middle, 2.0f), NearestRule::kCuda), i + 1);
  }
}

TEST(Int8Row, V6Rows) {
  const auto codes_of = [](const std::vector<float>& row, float& scb) {
    std::vector<int8_t> q(row.size());
    scb = encode_int8_row(row, Int8Scale::kCpu, q.data());
    return std::vector<int>(q.begin(), q.end());
  };
  float scb = 0;
  EXPECT_EQ(codes_of({0.5f, -1.25f, 3, 0, 2.75f, -3, 0.015625f, 1}, scb),
            (std::vector<int>{21, -53, 127, 0, 116, -127, 1, 42}));
  EXPECT_EQ(scb, 3.0f);
  const std::vector<int8_t> q = {21, -53, 127, 0, 116, -127, 1, 42};
  std::vector<float> values(8);
  decode_int8_row(q, 3.0f, values.data());
  EXPECT_EQ(values, from_bits({0x3efdfbf8, 0xbfa04081, 0x40400000, 0, 0x402f5ebd, 0xc0400000, 0x3cc18306, 0x3f7dfbf8}));
  EXPECT_EQ(codes_of({127, .5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f, 100.25f}, scb),
            (std::vector<int>{127, 0, 2, 2, 0, -2, -2, 100}));
  EXPECT_EQ(codes_of({0, -0.0f}, scb), (std::vector<int>{0, 0}));
  EXPECT_EQ(scb, 0.0f);
}

}  // namespace
}  // namespace berth::quant
