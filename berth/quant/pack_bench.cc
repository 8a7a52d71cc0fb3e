// Taking file rows apart into planes, and the scalar encoders: bytes of file read per second, one thread.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "berth/quant/encode.h"
#include "berth/quant/packed.h"

namespace berth::quant {
namespace {

constexpr int64_t kRows = 2048, kCols = 4096;

struct Target {
  PackedLayout layout;
  std::unique_ptr<std::byte, decltype(&std::free)> bytes{nullptr, &std::free};
  MutablePackedMatrix matrix;
  explicit Target(StoredFormat format) : layout(*packed_layout(format, kRows, kCols)) {
    bytes.reset(static_cast<std::byte*>(std::aligned_alloc(64, layout.total_bytes)));
    matrix = bind_planes(layout, bytes.get());
  }
};

void pack(benchmark::State& state, Codec codec) {
  const CodecInfo& info = codec_info(codec);
  Target target(stored_format(codec));
  const uint64_t row_bytes = *file_row_bytes(target.layout.format, info.file_dtype, kCols);
  const std::vector<std::byte> file(kRows * row_bytes, std::byte{0x21});
  for (auto _ : state) {
    if (!pack_rows(target.matrix, info.file_dtype, file, 0, kRows)) state.SkipWithError("pack_rows failed");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * file.size()));
}

void encode(benchmark::State& state, StoredFormat format) {
  Target target(format);
  std::vector<uint16_t> file(kRows * kCols);
  uint32_t s = 1;
  for (auto& v : file) v = static_cast<uint16_t>(0x3C00 | ((s = s * 1664525u + 1013904223u) >> 16 & 0x81FF));
  for (auto _ : state) {
    auto encoder = MatrixEncoder::create(target.matrix, {.load_dtype = DType::kBF16});
    if (!encoder->append(DType::kBF16, std::as_bytes(std::span(file))) || !encoder->finish())
      state.SkipWithError("failed");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * file.size() * 2));
}

const int kRegistered = [] {
  for (const CodecInfo* info : all_codecs()) {
    if (!file_row_bytes(stored_format(info->codec), info->file_dtype, kCols)) continue;
    benchmark::RegisterBenchmark(("BM_PackRows/" + std::string(info->name)).c_str(), pack, info->codec);
  }
  for (const StoredFormat format :
       {StoredFormat{Codec::kNF4, 64, false}, {Codec::kFP4, 64, true}, {Codec::kInt8Row, 0, false}}) {
    benchmark::RegisterBenchmark(("BM_Encode/" + format_text(format)).c_str(), encode, format);
  }
  return 0;
}();

}  // namespace
}  // namespace berth::quant
