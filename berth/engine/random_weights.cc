// engine/random_weights.cc — see random_weights.h.
#include "berth/engine/random_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/kernel/double_math.h"
#include "berth/tensor/float16.h"

namespace berth::engine {
namespace {

// A bijection of 64-bit words whose outputs for neighbouring inputs look unrelated (the finisher of splitmix64).
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr int kPlaceBits = 12;
using Quantiles = std::array<float, size_t{1} << kPlaceBits>;

// The normal distribution's quantiles at the middles of 4096 equal parts: its density summed up in small steps, with an
// exp() that is the same on every machine.
const Quantiles& quantiles() {
  static const Quantiles table = [] {
    constexpr double kReach = 5.0;
    constexpr int kSteps = 200000;
    const double step = 2 * kReach / kSteps;
    const auto density = [](double x) { return kernel::pow_f64(2.718281828459045, -0.5 * x * x) * 0.3989422804014327; };
    Quantiles t{};
    double below = 0, at = density(-kReach);
    size_t place = 0;
    for (int i = 1; i <= kSteps && place < t.size(); ++i) {
      const double x = -kReach + i * step, next = density(x);
      below += (at + next) / 2 * step;
      at = next;
      while (place < t.size() && below >= (static_cast<double>(place) + 0.5) / static_cast<double>(t.size()))
        t[place++] = static_cast<float>(x);
    }
    CHECK(place == t.size());
    return t;
  }();
  return table;
}

// FNV-1a.
uint64_t hash64(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

template <typename T, typename Make>
std::vector<T> scaled(float mean, float deviation, Make make) {
  std::vector<T> out;
  out.reserve(quantiles().size());
  for (const float q : quantiles()) out.push_back(make(mean + deviation * q));
  return out;
}

}  // namespace

RandomWeights::RandomWeights(int64_t seed, std::string_view name)
    : key_(mix(hash64(name) ^ mix(static_cast<uint64_t>(seed) + 0x9E3779B97F4A7C15u))) {}

uint64_t RandomWeights::word(uint64_t index) const { return mix(key_ + (index + 1) * 0x9E3779B97F4A7C15u); }

void RandomWeights::bytes(uint64_t first, std::span<std::byte> out) const {
  CHECK(first % 8 == 0);
  const uint64_t whole = out.size() / 8;
  for (uint64_t i = 0; i < whole; ++i) store_le(out.data() + 8 * i, word(first / 8 + i));
  const uint64_t last = word(first / 8 + whole);
  if (out.size() % 8 != 0) std::memcpy(out.data() + 8 * whole, &last, out.size() % 8);
}

void RandomWeights::normals(DType dtype, float mean, float deviation, uint64_t first, std::span<std::byte> out) const {
  CHECK(first % 4 == 0);
  const auto fill = [&](const auto& table) {
    using T = typename std::remove_cvref_t<decltype(table)>::value_type;
    const uint64_t n = out.size() / sizeof(T);
    for (uint64_t i = 0; i < n; i += 4) {
      uint64_t w = word((first + i) / 4);
      for (uint64_t k = i; k < std::min(n, i + 4); ++k, w >>= 16)
        store_le(out.data() + sizeof(T) * k, table[(w & 0xFFFF) >> (16 - kPlaceBits)]);
    }
  };
  if (dtype == DType::kF32) return fill(scaled<float>(mean, deviation, [](float v) { return v; }));
  CHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  const bool bf16 = dtype == DType::kBF16;
  fill(scaled<uint16_t>(mean, deviation, [bf16](float v) { return bf16 ? f32_to_bf16(v) : f32_to_f16(v); }));
}

}  // namespace berth::engine
