// kernel/parity_inputs.cc — the inputs and comparisons of parity.h; shared with the benches.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "berth/kernel/parity.h"
#include "berth/quant/codec.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::parity {
namespace {

uint16_t random_f16(Random& random) {
  // exponents of 2^-9 .. 2^2, now and then 0 or a subnormal
  const int64_t kind = random.below(32);
  if (kind == 0) return 0;
  if (kind == 1) return static_cast<uint16_t>(random.below(1024));
  const uint64_t exponent = 6 + static_cast<uint64_t>(random.below(12));
  return static_cast<uint16_t>((random.below(2) << 15) | static_cast<int64_t>(exponent << 10) | random.below(1024));
}

}  // namespace

uint64_t Random::bits() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

float Random::normal() {
  float sum = 0;
  for (int i = 0; i < 6; ++i) sum = sum + signed_unit();
  return sum * 0.7071f;
}

uint64_t seed_of(const std::string& name) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return h;
}

std::vector<float> values(Random& random, int64_t n, Inputs kind) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) {
    x = random.normal();
    if (kind == Inputs::kPlain) continue;
    switch (random.below(24)) {
      case 0:
        x = 0.0f;
        break;
      case 1:
        x = -0.0f;
        break;
      case 2:
        x = x * 1e-40f;
        break;
      case 3:
        x = std::copysign(1e30f, x);
        break;
      case 4:
        x = x * 1e-20f;
        break;
      default:
        break;
    }
  }
  return v;
}

Aligned::Aligned(size_t bytes) : memory_(new std::byte[bytes + 64]), size_(bytes) {
  const auto at = reinterpret_cast<uintptr_t>(memory_.get());
  data_ = memory_.get() + ((at + 63) / 64 * 64 - at);
  std::memset(data_, 0xFF, bytes);  // as floats NaN: what was never written and reaches a sum, even times zero, shows
}

Matrix::Matrix(const quant::StoredFormat& format, int64_t rows, int64_t cols, Random& random)
    : layout(*quant::packed_layout(format, rows, cols)), memory(layout.total_bytes) {
  const quant::MutablePackedMatrix m = quant::bind_planes(layout, memory.data());
  const quant::CodecInfo& info = quant::codec_info(format.codec);
  for (int i = 0; i < quant::kPlaneCount; ++i) {
    const auto plane = static_cast<quant::Plane>(i);
    const quant::PlaneLayout& at = layout.plane(plane);
    if (at.count == 0) continue;
    if (plane == quant::Plane::kCodes && at.dtype == DType::kF8E4M3) {
      for (uint64_t j = 0; j < at.count; ++j) {
        uint8_t b = static_cast<uint8_t>(random.bits());
        if ((b & 0x7F) == 0x7F) b ^= 1;
        m.plane<uint8_t>(plane)[j] = b;
      }
    } else if (at.dtype == DType::kF8E8M0 ||
               (at.dtype == DType::kU8 && info.codec == quant::Codec::kMXFP4 && plane == quant::Plane::kScales)) {
      for (uint64_t j = 0; j < at.count; ++j) m.plane<uint8_t>(plane)[j] = static_cast<uint8_t>(118 + random.below(12));
    } else if (at.dtype == DType::kF32) {
      for (uint64_t j = 0; j < at.count; ++j) {
        const int64_t kind = random.below(64);
        float v = plane == quant::Plane::kCodes ? random.normal() : random.uniform() * 0.25f;
        if (kind == 0) v = 0.0f;
        if (kind == 1) v = v * 1e-38f;
        m.plane<float>(plane)[j] = v;
      }
    } else if (at.dtype == DType::kF16) {
      for (uint64_t j = 0; j < at.count; ++j) m.plane<uint16_t>(plane)[j] = random_f16(random);
    } else if (at.dtype == DType::kBF16) {
      for (uint64_t j = 0; j < at.count; ++j) m.plane<uint16_t>(plane)[j] = f32_to_bf16(random.normal());
    } else {
      const uint64_t bytes = at.bytes;
      for (uint64_t j = 0; j < bytes; ++j) m.plane<uint8_t>(plane)[j] = static_cast<uint8_t>(random.bits());
    }
  }
  view = m;
}

std::vector<quant::StoredFormat> formats() {
  std::vector<quant::StoredFormat> all;
  for (const quant::CodecInfo* info : quant::all_codecs()) {
    all.push_back(quant::stored_format(info->codec));
    if (!quant::is_bnb_4bit(info->codec)) continue;
    all.push_back({info->codec, 64, true});
    for (const int32_t blocksize : {32, 128, 4096}) all.push_back({info->codec, blocksize, false});
    if (info->codec == quant::Codec::kNF4) all.push_back({info->codec, 256, true});
  }
  return all;
}

bool same_bits(std::span<const float> a, std::span<const float> b, size_t* first_difference) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) || (a[i] != a[i] && b[i] != b[i])) continue;
    *first_difference = i;
    return false;
  }
  *first_difference = std::min(a.size(), b.size());
  return a.size() == b.size();
}

uint64_t hash_floats(std::span<const float> values, uint64_t hash) {
  for (const float v : values) {
    const uint32_t bits = v != v ? 0x7FC00000u : std::bit_cast<uint32_t>(v);
    hash = (hash ^ bits) * 0x100000001B3u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace berth::kernel::parity
