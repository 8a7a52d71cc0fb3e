// kernel/encode_bench.cc — quantize on load, out of the cache: BM_Encode/FORMAT/SOURCE/ISA, bytes of weights per
// second of one thread.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "berth/kernel/encode.h"
#include "berth/kernel/parity.h"
#include "berth/quant/bnb_4bit.h"
#include "berth/quant/cast.h"
#include "berth/quant/int8_row.h"

namespace berth::kernel {
namespace {

constexpr int64_t kRows = 64, kCols = 2048;  // 256 KiB of bf16, as a piece of a load

enum class Format { kNF4, kFP4, kInt8 };

struct Case {
  Format format;
  DType dtype;
  Isa isa;

  int64_t encode(const std::vector<std::byte>& data, std::vector<uint8_t>& codes, std::vector<float>& scales) const {
    if (format != Format::kInt8)
      return encode_4bit(isa, format == Format::kNF4 ? quant::Codec::kNF4 : quant::Codec::kFP4, 64,
                         {dtype, data.data(), kRows * kCols, dtype}, codes.data(), scales.data());
    const int64_t row = kCols * static_cast<int64_t>(dtype_info(dtype).block_bytes);
    int64_t bad = kAllFinite;
    for (int64_t r = 0; r < kRows && bad == kAllFinite; ++r)
      bad = encode_int8_row(isa, {dtype, data.data() + r * row, kCols, dtype},
                            reinterpret_cast<int8_t*>(codes.data()) + r * kCols, &scales[static_cast<size_t>(r)]);
    return bad;
  }
};

// Normal weights as the file has them.
std::vector<std::byte> weights(DType dtype) {
  parity::Random random(1);
  const size_t size = dtype_info(dtype).block_bytes;
  std::vector<std::byte> data(static_cast<size_t>(kRows * kCols) * size);
  for (size_t i = 0; i < static_cast<size_t>(kRows * kCols); ++i) {
    const float v = random.normal() * 0.02f;
    const uint16_t h = dtype == DType::kBF16 ? f32_to_bf16(v) : f32_to_f16(v);
    if (dtype == DType::kF32)
      std::memcpy(data.data() + i * 4, &v, 4);
    else
      std::memcpy(data.data() + i * 2, &h, 2);
  }
  return data;
}

void run(benchmark::State& state, Case c) {
  const std::vector<std::byte> data = weights(c.dtype);
  std::vector<uint8_t> codes(kRows * kCols), expected(codes.size());
  std::vector<float> scales(kRows * kCols / 64), expected_scales(scales.size());
  c.encode(data, codes, scales);
  Case{c.format, c.dtype, Isa::kRef}.encode(data, expected, expected_scales);
  if (codes != expected || scales != expected_scales) return state.SkipWithError("differs from the scalar encoder");
  for (auto _ : state) {
    benchmark::DoNotOptimize(c.encode(data, codes, scales));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(data.size()));
}

[[maybe_unused]] const bool kRegistered = [] {
  constexpr std::pair<Format, const char*> kFormats[] = {
      {Format::kNF4, "nf4"}, {Format::kFP4, "fp4"}, {Format::kInt8, "int8"}};
  for (const auto& [format, format_name] : kFormats)
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
      for (const Isa isa : available_isas()) {
        if (isa == Isa::kRef) continue;
        const std::string name = std::string("BM_Encode/") + format_name + "/" + std::string(dtype_name(dtype)) + "/" +
                                 std::string(isa_name(isa));
        const Case c{format, dtype, isa};
        benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { run(state, c); });
      }
  return true;
}();

}  // namespace
}  // namespace berth::kernel
