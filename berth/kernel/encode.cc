// kernel/encode.cc — blocks and rows, edges by quant's scalar encoders, the bulk by the instruction set's loops.
#include "berth/kernel/encode.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"
#include "berth/kernel/cpu/encode_kernels.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/cast.h"
#include "berth/quant/int8_row.h"

namespace berth::kernel {
namespace {

using cpu::EncodeKernels;
using cpu::kInfinityBits;
using cpu::SourceType;
using cpu::Thresholds;

constexpr int64_t kLargestBlock = 4096;

const EncodeKernels* kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return &cpu::kEncodeAvx512;
  if (isa == Isa::kAvx2) return &cpu::kEncodeAvx2;
#endif
  (void)isa;
  return nullptr;
}

SourceType source_type(DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kF32 ? SourceType::kF32 : dtype == DType::kBF16 ? SourceType::kBF16 : SourceType::kF16;
}

int64_t element_bytes(SourceType type) { return type == SourceType::kF32 ? 4 : 2; }

float widened(SourceType type, uint16_t bits) {
  return type == SourceType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

float element(SourceType type, const std::byte* data, int64_t i) {
  if (type == SourceType::kF32) {
    float v;
    std::memcpy(&v, data + 4 * i, 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, data + 2 * i, 2);
  return widened(type, h);
}

void widen(const EncodeKernels* kernels, SourceType type, const std::byte* data, int64_t n, SourceType rounding,
           float* out) {
  if (kernels != nullptr) return kernels->widen(type, data, n, rounding, out);
  const DType dtype = rounding == SourceType::kF32    ? DType::kF32
                      : rounding == SourceType::kBF16 ? DType::kBF16
                                                      : DType::kF16;
  for (int64_t i = 0; i < n; ++i) out[i] = quant::round_through(dtype, element(type, data, i));
}

// The first NaN or infinity, or kAllFinite.
int64_t first_not_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(x[i])) return i;
  return kAllFinite;
}

uint32_t largest(const EncodeKernels* kernels, const float* x, int64_t n) {
  if (kernels != nullptr) return kernels->largest(x, n);
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  return most;
}

// The thresholds and codes that quant's encoder uses, found by asking it: the place of a value is decided by its code
// alone. 15 bisections over the floats between -1 and 1, once.
uint8_t scalar_code(quant::Codec codec, float s) {
  // A block whose absmax is 1, so that the reciprocal changes nothing.
  float x[32] = {s, 0, 1};
  uint8_t codes[16];
  float absmax;
  quant::encode_bnb_4bit(codec, 32, quant::kBnbCpuRules, x, codes, &absmax);
  return codes[0] >> 4;
}

// Floats in order as integers.
int32_t ordered(float f) {
  const int32_t i = std::bit_cast<int32_t>(f);
  return i >= 0 ? i : std::bit_cast<int32_t>(0x80000000u - static_cast<uint32_t>(i));
}
float unordered(int32_t i) {
  return std::bit_cast<float>(i >= 0 ? i : std::bit_cast<int32_t>(0x80000000u - static_cast<uint32_t>(i)));
}

// The last float below `high` (in order) whose code is that of `low`.
float last_with_code_of(quant::Codec codec, float low, float high) {
  int32_t a = ordered(low), b = ordered(high);
  const uint8_t code = scalar_code(codec, low);
  while (b - a > 1) {
    const auto middle = static_cast<int32_t>((int64_t{a} + b) / 2);
    (scalar_code(codec, unordered(middle)) == code ? a : b) = middle;
  }
  return unordered(a);
}

Thresholds find_thresholds(quant::Codec codec) {
  // A sample of every place in ascending order: fine steps near 0, where fp4's codes lie close.
  float at[16];
  int places = 0;
  const auto sample = [&](float s) {
    if (places == 0 || scalar_code(codec, at[places - 1]) != scalar_code(codec, s)) {
      CHECK(places < 16);
      at[places++] = s;
    } else {
      at[places - 1] = s;
    }
  };
  for (int i = -1024; i < 0; ++i) sample(static_cast<float>(i) / 1024.0f);
  for (int i = -64; i <= 64; ++i) sample(static_cast<float>(i) / 65536.0f);
  for (int i = 1; i <= 1024; ++i) sample(static_cast<float>(i) / 1024.0f);
  CHECK(places == 16);
  Thresholds t{};
  for (int p = 0; p < 16; ++p) {
    t.code[p] = scalar_code(codec, at[p]);
    if (p > 0) t.value[p - 1] = last_with_code_of(codec, at[p - 1], at[p]);
  }
  return t;
}

// The smallest magnitude, as bits of bf16 or fp16, that `absmax` scales beyond a threshold on its side of zero: x above
// a positive one, not above a negative one.
uint32_t first_beyond(SourceType type, float threshold, float absmax) {
  const float reciprocal = 1.0f / absmax;
  const auto beyond = [&](uint32_t m) {
    const float x = widened(type, static_cast<uint16_t>(m));
    return threshold > 0 ? x * reciprocal > threshold : !(-x * reciprocal > threshold);
  };
  const float near = std::fabs(threshold) * absmax;
  uint32_t m = type == SourceType::kBF16 ? std::bit_cast<uint32_t>(near) >> 16 : f32_to_f16(near);
  while (beyond(m)) --m;
  while (!beyond(m)) ++m;
  return m;
}

// Bins [first, end) of a table, from `place` on, which grows by one at each of the ascending `steps`: numbers, of which
// bin b has 32b to 32b + 31. Where the bins' bases are given they stay.
void fill_bins(int first, int end, int place, const std::vector<int>& steps, bool bases_given, uint8_t* base,
               uint8_t* above) {
  constexpr int kNever = 32;
  size_t next = 0;
  for (int bin = first; bin < end; ++bin) {
    const bool has_step = next < steps.size() && steps[next] < 32 * (bin + 1);
    above[bin] = static_cast<uint8_t>(has_step ? steps[next] & 31 : kNever);
    if (!bases_given) {
      base[bin] = static_cast<uint8_t>(place);
    } else if (base[bin] != place) {  // stepped already
      CHECK(base[bin] == place - 1 && !has_step);
      above[bin] = 0;
    }
    if (has_step) ++place, ++next;
    CHECK(next == steps.size() || steps[next] >= 32 * (bin + 1));  // one for a bin
  }
  CHECK(next == steps.size());
}

std::unique_ptr<const cpu::Bf16Tables> make_bf16_tables(quant::Codec codec, const Thresholds& t) {
  auto tables = std::make_unique<cpu::Bf16Tables>();
  const bool nf4 = codec == quant::Codec::kNF4;
  for (int i = 0; i < 64; ++i)  // fp4's places of magnitudes: 8..15 upwards, 7..0 downwards
    tables->code[i] = i % 16 < 8 ? t.code[8 + i % 16] : t.code[15 - i % 16];
  for (uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
    cpu::Bf16Table& table = tables->by_mantissa[mantissa];
    const uint32_t number = 0x3f80 + mantissa;
    const float absmax = bf16_to_f32(static_cast<uint16_t>(number));
    const int least = static_cast<int>(number) - (nf4 ? cpu::kNf4Reach : cpu::kFp4Reach);
    std::vector<int> up, down;  // steps of g, ascending
    for (int i = 0; i < 15; ++i) {
      if (t.value[i] == 0) continue;
      const int g = static_cast<int>(first_beyond(SourceType::kBF16, t.value[i], absmax)) - least;
      CHECK(g > 0);
      if (t.value[i] > 0)
        up.push_back(g);
      else
        down.insert(down.begin(), g);
    }
    if (nf4) {
      for (int& g : down) g = 2047 - (g - 1);  // where places rise with 2047 - g
      std::reverse(down.begin(), down.end());
      fill_bins(0, 32, static_cast<int>(down.size()), up, false, table.base, table.above);
      fill_bins(32, 64, 0, down, false, table.base, table.above);
    } else {
      fill_bins(0, 64, 0, up, false, table.base, table.above);
      fill_bins(0, 64, 0, down, true, table.base, table.above_negative);
    }
  }
  return tables;
}

// Keys of a block's thresholds (KeySearch) without what depends on the exponent of absmax.
struct KeyTable {
  cpu::KeySearch search{};
  std::vector<cpu::KeyRow> rows;

  KeyTable(SourceType type, const Thresholds& t) {
    const bool f16 = type == SourceType::kF16;
    std::copy_n(t.code, 16, search.code);
    float least = 1;  // magnitude of a threshold other than 0
    for (int i = 0; i < 15; ++i) {
      const float value = t.value[cpu::kEvenThenOdd[i]];
      search.sign.key[i] = static_cast<int16_t>(value > 0 ? 1 : value < 0 ? -1 : 0);
      if (value != 0) least = std::min(least, std::fabs(value));
    }
    search.mantissa = f16 ? 0x3ff : 0x7f;
    search.least = f16 ? 1 : cpu::kLeastTabled;
    search.end = f16 ? 0x7c00 : cpu::kTabledEnd;
    // Where all thresholds lie above 2^-14, the numbers around them are normal ones.
    search.distinct = f16 ? f32_to_f16(0x1.02p-14f / least) : 0u;
    for (uint32_t row = 0; row < search.distinct + search.mantissa + 1; ++row) {
      // The number of an absmax that the row is for.
      const uint32_t number = row < search.distinct ? std::max(row, 1u)
                              : f16                 ? 0x7800 + ((row - search.distinct) & 0x3ff)
                                                    : 0x3f80 + row;
      rows.push_back(keys_relative_to(type, t, static_cast<uint16_t>(number)));
    }
    search.rows = rows.data();
  }

 private:
  cpu::KeyRow keys_relative_to(SourceType type, const Thresholds& t, uint16_t number) const {
    cpu::KeyRow row{};
    for (int i = 0; i < 15; ++i) {
      const int sign = search.sign.key[i];
      if (sign == 0) continue;
      const auto beyond = static_cast<int>(first_beyond(type, t.value[cpu::kEvenThenOdd[i]], widened(type, number)));
      // The last magnitude that is not above a positive threshold, the first that is not above a negative one.
      row.key[i] = static_cast<int16_t>(sign * ((sign > 0 ? beyond - 1 : beyond) - number));
    }
    return row;
  }
};

cpu::Bins make_bins(const Thresholds& t) {
  cpu::Bins bins;
  double upper_edge[15];  // of each threshold's bin
  for (int i = 0; i < 15; ++i) upper_edge[i] = std::ceil(double{t.value[i]} * double{cpu::kBins});
  for (int number = -15; number <= 16; ++number) {
    float above = std::numeric_limits<float>::infinity();
    int base = 0;
    for (int i = 0; i < 15; ++i) {
      if (upper_edge[i] < number) ++base;
      if (upper_edge[i] != number || double{t.value[i]} * double{cpu::kBins} == number) continue;
      CHECK(std::isinf(above));  // one for a bin
      above = t.value[i];
    }
    bins.base[number & 31] = base;
    bins.above[number & 31] = above;
  }
  return bins;
}

// What each kernel needs for one format, made when it is asked for first.
template <quant::Codec kCodec>
struct Tables {
  static const cpu::Book& book() {
    static const cpu::Book b = [] {
      const Thresholds t = find_thresholds(kCodec);
      return cpu::Book{t, make_bins(t)};
    }();
    return b;
  }
  static const cpu::Bf16Tables& bf16() {
    static const auto t = make_bf16_tables(kCodec, book().thresholds);
    return *t;
  }
  template <SourceType kType>
  static const cpu::KeySearch& keys() {
    static const KeyTable t(kType, book().thresholds);
    return t.search;
  }
};

const cpu::Book& book_of(quant::Codec codec) {
  return codec == quant::Codec::kNF4 ? Tables<quant::Codec::kNF4>::book() : Tables<quant::Codec::kFP4>::book();
}

// Blocks from the beginning of `data`, weights of `type`, each encoded whole; returns how many.
template <quant::Codec kCodec>
int64_t encode_blocks(const EncodeKernels& kernels, SourceType type, const void* data, int64_t blocksize,
                      int64_t blocks, uint8_t* codes, float* absmax) {
  using T = Tables<kCodec>;
  if (type == SourceType::kF32)
    return kernels.f32_to_4bit(T::book(), static_cast<const float*>(data), blocksize, blocks, codes, absmax);
  const auto* const x = static_cast<const uint16_t*>(data);
  const bool f16 = type == SourceType::kF16;
  if (kernels.to_4bit_by_keys != nullptr) {
    const cpu::KeySearch& keys = f16 ? T::template keys<SourceType::kF16>() : T::template keys<SourceType::kBF16>();
    return kernels.to_4bit_by_keys(keys, f16, x, blocksize, blocks, codes, absmax);
  }
  if (f16) return kernels.f16_to_4bit(T::book(), x, blocksize, blocks, codes, absmax);
  const auto bf16 = kCodec == quant::Codec::kNF4 ? kernels.bf16_to_nf4 : kernels.bf16_to_fp4;
  return bf16(T::bf16(), x, blocksize, blocks, codes, absmax);
}

}  // namespace

void order_encoded() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

int64_t encode_4bit(Isa isa, quant::Codec codec, int32_t blocksize, const Weights& weights, uint8_t* codes,
                    float* absmax, bool more_follow) {
  CHECK(quant::is_bnb_4bit(codec) && blocksize >= 32 && blocksize <= kLargestBlock && blocksize % 32 == 0);
  const FloatEnvironmentScope exact_floats;
  const EncodeKernels* const kernels = kernels_of(isa);
  const SourceType type = source_type(weights.dtype), rounding = source_type(weights.load_dtype);
  const bool as_it_is = rounding == SourceType::kF32 || rounding == type;
  const auto* const data = static_cast<const std::byte*>(weights.data);
  const struct Order {
    bool now;
    ~Order() {
      if (now) order_encoded();
    }
  } order{kernels != nullptr && !more_follow};
  alignas(64) float values[kLargestBlock];
  alignas(64) uint16_t rounded[kLargestBlock];
  for (int64_t begin = 0; begin < weights.count; begin += blocksize, ++absmax) {
    if (kernels != nullptr && blocksize % 64 == 0) {
      int64_t blocks = (weights.count - begin) / blocksize;
      const void* x = data + begin * element_bytes(type);
      if (!as_it_is) {
        blocks = std::min<int64_t>(blocks, kLargestBlock / blocksize);
        kernels->narrow(type, x, blocks * blocksize, rounding, rounded);
        x = rounded;
      }
      const auto encode =
          codec == quant::Codec::kNF4 ? encode_blocks<quant::Codec::kNF4> : encode_blocks<quant::Codec::kFP4>;
      const int64_t done =
          encode(*kernels, as_it_is ? type : rounding, x, blocksize, blocks, codes + begin / 2, absmax);
      begin += done * blocksize;
      absmax += done;
      if (begin == weights.count) break;
    }
    const int64_t n = std::min<int64_t>(blocksize, weights.count - begin);
    const std::byte* const block = data + begin * element_bytes(type);
    widen(kernels, type, block, n, rounding, values);
    const uint32_t bits = largest(kernels, values, n);
    if (bits >= kInfinityBits) return begin + first_not_finite(values, n);
    const float most = std::bit_cast<float>(bits);
    if (kernels == nullptr || n < blocksize ||
        most < cpu::kLeastDivisor) {  // scalar, short, zero or tiny: the truth itself
      quant::encode_bnb_4bit(codec, blocksize, quant::kBnbCpuRules, {values, static_cast<size_t>(n)}, codes + begin / 2,
                             absmax);
      continue;
    }
    kernels->classify(book_of(codec), values, n, 1.0f / most, codes + begin / 2);
    *absmax = most;
  }
  return kAllFinite;
}

namespace {

// A row of bf16 or fp16 as it is, where fp16 rounds none of its values that has a code other than 0. False: not so.
//
// What bf16 has below 2^-14, where fp16 has fewer bits, scales to less than 1/2 if the largest is 1/64 or more:
// 2^-14 * 127 * 64 < 1/2.
bool encode_int8_row_16(const EncodeKernels& kernels, SourceType type, const void* row, int64_t count, int8_t* codes,
                        float* scb) {
  const bool f16 = type == SourceType::kF16;
  const auto* const x = static_cast<const uint16_t*>(row);
  const auto bits = static_cast<uint16_t>(kernels.largest_16(x, count));
  const float most = f16 ? f16_to_f32(bits) : f16_to_f32(f32_to_f16(bf16_to_f32(bits)));
  if (!std::isfinite(most) || most == 0 || (!f16 && most < 1.0f / 64)) return false;
  *scb = most;
  kernels.round_int8_16(f16, x, count, (1.0f / most) * 127.0f, codes);
  return true;
}

// n values of `type`, rounded through `first` and then to fp16.
void narrow_to_f16(const EncodeKernels& kernels, SourceType type, const std::byte* data, int64_t n, SourceType first,
                   uint16_t* out) {
  if (first == SourceType::kBF16 && type != SourceType::kBF16) {
    kernels.narrow(type, data, n, SourceType::kBF16, out);
    data = reinterpret_cast<const std::byte*>(out);
    type = SourceType::kBF16;
  }
  if (type == SourceType::kF16)
    std::memcpy(out, data, static_cast<size_t>(n) * 2);
  else
    kernels.narrow(type, data, n, SourceType::kF16, out);
}

}  // namespace

int64_t encode_int8_row(Isa isa, const Weights& row, int8_t* codes, float* scb) {
  const FloatEnvironmentScope exact_floats;
  const EncodeKernels* const kernels = kernels_of(isa);
  const SourceType type = source_type(row.dtype), first = source_type(row.load_dtype);
  const auto* const data = static_cast<const std::byte*>(row.data);
  if (kernels != nullptr && type != SourceType::kF32 && (first == type || first == SourceType::kF32) &&
      encode_int8_row_16(*kernels, type, data, row.count, codes, scb))
    return kAllFinite;
  if (kernels != nullptr) {
    // Twice over the row in pieces of fp16; once where it is one piece.
    constexpr int64_t kPiece = 16384;
    alignas(64) uint16_t piece[kPiece];
    uint32_t bits = 0;
    for (int64_t begin = 0; begin < row.count; begin += kPiece) {
      const int64_t n = std::min(kPiece, row.count - begin);
      narrow_to_f16(*kernels, type, data + begin * element_bytes(type), n, first, piece);
      bits = std::max(bits, kernels->largest_16(piece, n));
      for (int64_t i = 0; bits >= 0x7C00u; ++i)
        if ((piece[i] & 0x7C00u) == 0x7C00u) return begin + i;
    }
    *scb = f16_to_f32(static_cast<uint16_t>(bits));
    if (bits == 0) {
      std::memset(codes, 0, static_cast<size_t>(row.count));
      return kAllFinite;
    }
    for (int64_t begin = 0; begin < row.count; begin += kPiece) {
      const int64_t n = std::min(kPiece, row.count - begin);
      if (row.count > kPiece) narrow_to_f16(*kernels, type, data + begin * element_bytes(type), n, first, piece);
      kernels->round_int8_16(true, piece, n, (1.0f / *scb) * 127.0f, codes + begin);
    }
    return kAllFinite;
  }
  float values[kLargestBlock];
  // Twice over the row in pieces: through the load dtype, then through fp16.
  const auto piece = [&](int64_t begin) {
    const int64_t n = std::min(kLargestBlock, row.count - begin);
    for (int64_t i = 0; i < n; ++i)
      values[i] =
          quant::round_through(DType::kF16, quant::round_through(row.load_dtype, element(type, data, begin + i)));
    return n;
  };
  uint32_t bits = 0;
  for (int64_t begin = 0; begin < row.count; begin += kLargestBlock) {
    const int64_t n = piece(begin);
    bits = std::max(bits, largest(nullptr, values, n));
    if (bits >= kInfinityBits) return begin + first_not_finite(values, n);
  }
  *scb = std::bit_cast<float>(bits);
  const float scale = (1.0f / *scb) * 127.0f;
  for (int64_t begin = 0; begin < row.count; begin += kLargestBlock) {
    const int64_t n = piece(begin);
    for (int64_t i = 0; i < n; ++i) {
      const float q = std::nearbyint(values[i] * scale);
      codes[begin + i] = std::isfinite(q) ? static_cast<int8_t>(q) : int8_t{0};
    }
  }
  return kAllFinite;
}

}  // namespace berth::kernel
