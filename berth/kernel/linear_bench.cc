// kernel/linear_bench.cc — linear() against this machine's limits, measured in the same run. A plain program:
//
//   berth_kernel_bench [--formats nf4,q4_k] [--modes exact,int8] [--threads 1,2] [--m 1,4,512] [--k 4096] [--n 4096]
//                      [--isa avx512] [--repeats 9] [--clock wall|cpu] [--per-input yes]
//
// With --benchmark_filter=... first, the benches of attention_bench.cc and rows_bench.cc run instead.
//
// M = 1..8 ("decode"): GB/s of all weight bytes (codes and scales), weights cycling through more than 256 MiB, paired
// with a plain read of the same memory by the same threads in four streams each, and the same loop over one matrix that
// stays in cache ("in cache"). M >= 16: GFLOP/s against the peak of fma (exact) or of the int8 dot (int8).
// Each repetition times limit and kernel one after the other (a peak before and after); the share is the median of
// their ratios, the rates are the best of all repetitions: on a shared machine absolute figures drift.
//
// --per-input: one line per format and mode instead: us per input for each M, the same matrix again and again, the best
// of all repetitions (which take the M in turn, each after one call that is not timed); then where it is above that of
// a smaller M by more than 3 %.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/isa.h"
#include "berth/base/thread_pool.h"
#include "berth/kernel/linear.h"
#include "berth/quant/codec.h"
#include "berth/quant/packed.h"
#include "berth/quant/scratch.h"
#include "berth/tensor/float16.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace berth;
using kernel::Numerics;

constexpr uint64_t kCycleBytes = uint64_t{320} << 20;

bool cpu_clock = false;  // of the whole process, all threads; else wall time

double now_s() {
  if (cpu_clock) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Memory in huge pages, as weights are kept.
struct Buffer {
  explicit Buffer(size_t bytes) : size(bytes) {
    const size_t rounded = (bytes + (size_t{2} << 20) - 1) >> 21 << 21;
    data = static_cast<std::byte*>(std::aligned_alloc(size_t{2} << 20, rounded));
#if defined(__linux__)
    madvise(data, rounded, MADV_HUGEPAGE);
#endif
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data;
  size_t size;
};

uint64_t random_state = 88172645463325252ull;
uint64_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  return random_state ^= random_state << 17;
}

// Random codes, scales near 1.
void fill(const quant::PackedLayout& layout, std::byte* base) {
  for (size_t i = 0; i < layout.planes.size(); ++i) {
    const quant::PlaneLayout& plane = layout.planes[i];
    std::byte* p = base + plane.offset;
    const bool codes = i == 0;
    for (uint64_t e = 0; e < plane.bytes; ++e) p[e] = static_cast<std::byte>(random_bits() >> 20);
    if (plane.dtype == DType::kF32)
      for (uint64_t e = 0; e < plane.count; ++e) {
        const float v = 1.0f + static_cast<float>(random_bits() % 1000) * 1e-3f;
        std::memcpy(p + 4 * e, &v, 4);
      }
    if (plane.dtype == DType::kF16 || plane.dtype == DType::kBF16)
      for (uint64_t e = 0; e < plane.count; ++e) {
        const float v = 1.0f + static_cast<float>(random_bits() % 1000) * 1e-3f;
        const uint16_t h = plane.dtype == DType::kF16 ? f32_to_f16(v) : f32_to_bf16(v);
        std::memcpy(p + 2 * e, &h, 2);
      }
    if (plane.dtype == DType::kF8E4M3 || (layout.format.codec == quant::Codec::kMXFP4 && !codes))
      for (uint64_t e = 0; e < plane.bytes; ++e) p[e] = static_cast<std::byte>(0x38 + random_bits() % 64);
  }
}

struct Weights {
  Weights(const quant::StoredFormat& format, int64_t n, int64_t k, uint64_t cycle_bytes)
      : layout(quant::packed_layout(format, n, k).value()),
        count(cycle_bytes / layout.total_bytes + 1),
        stride((layout.total_bytes + 4095) / 4096 * 4096),
        memory(count * stride) {
    fill(layout, memory.data);
    for (uint64_t i = 1; i < count; ++i) std::memcpy(memory.data + i * stride, memory.data, layout.total_bytes);
    for (uint64_t i = 0; i < count; ++i)
      matrices.push_back(quant::bind_planes(layout, const_cast<const std::byte*>(memory.data + i * stride)));
    for (const quant::PlaneLayout& plane : layout.planes) bytes += plane.bytes;
  }
  quant::PackedLayout layout;
  uint64_t count, stride;
  Buffer memory;
  std::vector<quant::PackedMatrix> matrices;
  uint64_t bytes = 0;  // of one matrix
};

volatile uint64_t sink;

// Sums of four streams; independent 64-byte sums keep the adders out of the way. `ahead`: each line is asked for so
// many bytes before it is read (0: the hardware's prefetcher alone, which is the better way on some processors).
uint64_t read_four_streams(const std::byte* p, size_t bytes, size_t ahead) {
  const size_t quarter = bytes / 4 / 256 * 256;
  using V = uint64_t __attribute__((vector_size(64), aligned(8), may_alias));
  V sum[4] = {};
  for (size_t at = 0; at < quarter; at += 256) {
    if (ahead != 0)
      for (size_t line = 0; line < 16; ++line)
        __builtin_prefetch(p + line / 4 * quarter + at + line % 4 * 64 + ahead, 0, 3);
    for (size_t s = 0; s < 4; ++s)
      for (size_t i = 0; i < 4; ++i) sum[i] += *reinterpret_cast<const V*>(p + s * quarter + at + i * 64);
  }
  return (sum[0] + sum[1] + sum[2] + sum[3])[0];
}

// The better of the two ways to read.
double time_read(ThreadPool& pool, const Buffer& memory) {
  double best = 0;
  for (const size_t ahead : {size_t{0}, size_t{2048}}) {
    const double start = now_s();
    pool.run([&](int share, int shares) {
      const size_t part = memory.size / static_cast<size_t>(shares) / 4096 * 4096;
      sink = sink + read_four_streams(memory.data + static_cast<size_t>(share) * part, part, ahead);
    });
    const double took = now_s() - start;
    if (best == 0 || took < best) best = took;
  }
  return best;
}

struct Options {
  std::vector<std::string> formats, modes = {"exact", "int8"};
  std::vector<int> threads = {1, 2}, m = {1, 512};
  int64_t k = 4096, n = 4096;
  int repeats = 9;
  bool per_input = false;
  Isa isa = best_isa();
};

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    parts.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

struct Run {
  const Options& options;
  Weights& weights;
  ThreadPool& pool;
  kernel::Context context;
  Buffer x, y, scratch;  // as a model's arenas: aligned, in huge pages

  Run(const Options& o, Weights& w, ThreadPool& p, Numerics numerics, int64_t m)
      : options(o),
        weights(w),
        pool(p),
        x(static_cast<size_t>(m * o.k) * sizeof(float)),
        y(static_cast<size_t>(m * o.n) * sizeof(float)),
        scratch(quant::linear_scratch_bytes(m, o.k, numerics == Numerics::kInt8, p.size())) {
    context.isa = o.isa;
    context.numerics = numerics;
    context.pool = &p;
    for (size_t i = 0; i < static_cast<size_t>(m * o.k); ++i)
      floats(x)[i] = static_cast<float>(random_bits() % 2001) * 1e-3f - 1.0f;
    std::memset(y.data, 0, y.size);
  }

  static float* floats(const Buffer& b) { return reinterpret_cast<float*>(b.data); }

  double time(int64_t m, uint64_t first, uint64_t count, int times) {
    const double start = now_s();
    for (int t = 0; t < times; ++t)
      for (uint64_t i = first; i < first + count; ++i) {
        const kernel::LinearJob job{&weights.matrices[i], 0, options.n, nullptr, floats(y), options.n};
        kernel::linear(context, {floats(x), m, options.k, options.k}, {&job, 1}, {scratch.data, scratch.size});
      }
    return now_s() - start;
  }
};

void decode(Run& run, int64_t m, const std::string& label) {
  const double all_bytes = static_cast<double>(run.weights.bytes * run.weights.count);
  std::vector<double> shares;
  double best_read = 0, best_kernel = 0, best_cached = 0;
  run.time(m, 0, 1, 1);
  const int times = std::max(1, static_cast<int>(4e8 / static_cast<double>(run.options.n * run.options.k)));
  for (int i = 0; i < run.options.repeats; ++i) {
    const double read = static_cast<double>(run.weights.memory.size) / time_read(run.pool, run.weights.memory);
    const double rate = all_bytes / run.time(m, 0, run.weights.count, 1);
    best_read = std::max(best_read, read);
    best_kernel = std::max(best_kernel, rate);
    shares.push_back(rate / read);
    // In cache: as many rows as fit the second-level caches.
    best_cached = std::max(best_cached, static_cast<double>(run.weights.bytes) * times / run.time(m, 0, 1, times));
  }
  std::printf(
      "%-34s read %6.1f GB/s  kernel %6.1f GB/s  share %4.0f %% (best/best %3.0f %%)  one matrix again %6.1f GB/s\n",
      label.c_str(), best_read * 1e-9, best_kernel * 1e-9, 100 * median(shares), 100 * best_kernel / best_read,
      best_cached * 1e-9);
  std::fflush(stdout);
}

// Operations of `rounds` rounds of 12 (or 16) independent chains of the instructions that a gemm is made of, on
// registers.
#if defined(__x86_64__)
#define BERTH_CHAINS(V, first, next, last)                                                    \
  V c0 = first, c1 = first, c2 = first, c3 = first, c4 = first, c5 = first;                   \
  V c6 = first, c7 = first, c8 = first, c9 = first, c10 = first, c11 = first;                 \
  for (int64_t r = 0; r < rounds; ++r) {                                                      \
    c0 = next(c0), c1 = next(c1), c2 = next(c2), c3 = next(c3), c4 = next(c4), c5 = next(c5); \
    c6 = next(c6), c7 = next(c7), c8 = next(c8), c9 = next(c9), c10 = next(c10);              \
    c11 = last(c11);                                                                          \
    __asm__ volatile("" : "+v"(c0), "+v"(c1), "+v"(c2), "+v"(c3), "+v"(c4), "+v"(c5));        \
    __asm__ volatile("" : "+v"(c6), "+v"(c7), "+v"(c8), "+v"(c9), "+v"(c10), "+v"(c11));      \
  }
// 16 chains: with 12, each waiting 5 cycles, Intel's two ports are busy 97 % of the time only.
__attribute__((target("avx512f,avx512vnni"))) double peak_int8_avx512(int64_t rounds) {
  const __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(2);
  __m512i c12 = _mm512_setzero_si512(), c13 = c12, c14 = c12, c15 = c12;
#define BERTH_NEXT(c) _mm512_dpbusd_epi32(c, w, x)
#define BERTH_LAST(c)                                                                         \
  BERTH_NEXT(c);                                                                              \
  c12 = BERTH_NEXT(c12), c13 = BERTH_NEXT(c13), c14 = BERTH_NEXT(c14), c15 = BERTH_NEXT(c15); \
  __asm__ volatile("" : "+v"(c12), "+v"(c13), "+v"(c14), "+v"(c15))
  BERTH_CHAINS(__m512i, _mm512_setzero_si512(), BERTH_NEXT, BERTH_LAST)
#undef BERTH_LAST
#undef BERTH_NEXT
  return static_cast<double>(rounds) * 16 * 64 * 2;
}
__attribute__((target("avx512f"))) double peak_exact_avx512(int64_t rounds) {
  const __m512 w = _mm512_set1_ps(0.999f), x = _mm512_set1_ps(0.001f);
#define BERTH_NEXT(c) _mm512_fmadd_ps(c, w, x)
  BERTH_CHAINS(__m512, _mm512_setzero_ps(), BERTH_NEXT, BERTH_NEXT)
#undef BERTH_NEXT
  return static_cast<double>(rounds) * 12 * 16 * 2;
}
// |q| * psign(code, q) in pairs, to 32 bits, added: what a product costs without VNNI.
__attribute__((target("avx2"))) double peak_int8_avx2(int64_t rounds) {
  const __m256i x = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
#define BERTH_NEXT(c) _mm256_add_epi32(c, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_sign_epi8(c, x)), ones))
  BERTH_CHAINS(__m256i, _mm256_setzero_si256(), BERTH_NEXT, BERTH_NEXT)
#undef BERTH_NEXT
  return static_cast<double>(rounds) * 12 * 32 * 2;
}
__attribute__((target("avx2,fma"))) double peak_exact_avx2(int64_t rounds) {
  const __m256 w = _mm256_set1_ps(0.999f), x = _mm256_set1_ps(0.001f);
#define BERTH_NEXT(c) _mm256_fmadd_ps(c, w, x)
  BERTH_CHAINS(__m256, _mm256_setzero_ps(), BERTH_NEXT, BERTH_NEXT)
#undef BERTH_NEXT
  return static_cast<double>(rounds) * 12 * 8 * 2;
}
#undef BERTH_CHAINS
#endif

// Operations a second of all threads of the pool; 0: not known for this instruction set.
double peak_rate(ThreadPool& pool, Isa isa, bool int8) {
  double (*loop)(int64_t) = nullptr;
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) loop = int8 ? peak_int8_avx512 : peak_exact_avx512;
  if (isa == Isa::kAvx2) loop = int8 ? peak_int8_avx2 : peak_exact_avx2;
#endif
  if (loop == nullptr) return 0;
  constexpr int64_t kRounds = 2'000'000;
  std::vector<double> done(static_cast<size_t>(pool.size()));
  const double start = now_s();
  pool.run([&](int share, int) { done[static_cast<size_t>(share)] = loop(kRounds); });
  const double took = now_s() - start;
  double sum = 0;
  for (const double d : done) sum += d;
  return sum / took;
}

void gemm(Run& run, int64_t m, const std::string& label) {
  const double flop =
      2.0 * static_cast<double>(m) * static_cast<double>(run.options.n) * static_cast<double>(run.options.k);
  double best = 0, peak = peak_rate(run.pool, run.options.isa, run.context.numerics == Numerics::kInt8);
  std::vector<double> shares;
  const uint64_t count =
      std::min<uint64_t>(run.weights.count, std::max<uint64_t>(1, static_cast<uint64_t>(2e10 / flop)));
  run.time(m, 0, 1, 1);
  const bool int8 = run.context.numerics == Numerics::kInt8;
  for (int i = 0; i < run.options.repeats; ++i) {
    const double rate = flop * static_cast<double>(count) / run.time(m, 0, count, 1);
    const double after = peak_rate(run.pool, run.options.isa, int8);
    if (peak > 0) shares.push_back(2 * rate / (peak + after));
    best = std::max(best, rate);
    peak = after;
  }
  std::printf("%-34s %8.1f GFLOP/s  share of the peak %5.1f %%  %8.2f us per row of x\n", label.c_str(), best * 1e-9,
              100 * median(shares), flop / best * 1e6 / static_cast<double>(m));
  std::fflush(stdout);
}

// The least time per input of each M, and which M takes longer than some smaller one. What the machine gives changes by
// more than 3 % from one moment to the next, and a least value may be one lucky moment's: so both are timed within a
// few milliseconds in each repeat, and the median of their ratios tells.
void per_input(const Options& o, Weights& weights, ThreadPool& pool, Numerics numerics, const std::string& label) {
  Run run(o, weights, pool, numerics, *std::max_element(o.m.begin(), o.m.end()));
  std::vector<std::vector<double>> took(o.m.size());  // by M, by repeat
  for (int repeat = 0; repeat < o.repeats; ++repeat)
    for (size_t i = 0; i < o.m.size(); ++i) {
      const int times = std::max(1, 16 / o.m[i]);
      // Its code, x and scratch, which the first M of another path would else pay for, over several calls.
      run.time(o.m[i], 0, 1, times + 3);
      took[i].push_back(run.time(o.m[i], 0, 1, times) / times / o.m[i]);
    }
  std::printf("%-22s", label.c_str());
  size_t least = 0;  // of the M so far, by median
  std::string rises;
  for (size_t i = 0; i < took.size(); ++i) {
    std::printf(" %.0f", *std::min_element(took[i].begin(), took[i].end()) * 1e6);
    std::vector<double> ratios;
    for (size_t r = 0; r < took[i].size(); ++r) ratios.push_back(took[i][r] / took[least][r]);
    if (const double ratio = median(ratios); ratio > 1.03)
      rises += " M=" + std::to_string(o.m[i]) + " +" + std::to_string(std::lround(100 * (ratio - 1))) + "%";
    if (median(took[i]) < median(took[least])) least = i;
  }
  std::printf(" |%s\n", rises.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]).starts_with("--benchmark")) {  // attention_bench.cc, rows_bench.cc
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  Options o;
  for (const quant::CodecInfo* info : quant::all_codecs()) o.formats.emplace_back(info->name);
  o.formats.emplace_back("nf4-nested");
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const auto numbers = [&] {
      std::vector<int> v;
      for (const std::string& s : split(argv[i + 1])) v.push_back(std::atoi(s.c_str()));
      return v;
    };
    if (name == "--formats")
      o.formats = split(argv[i + 1]);
    else if (name == "--modes")
      o.modes = split(argv[i + 1]);
    else if (name == "--threads")
      o.threads = numbers();
    else if (name == "--m")
      o.m = numbers();
    else if (name == "--k")
      o.k = std::atoll(argv[i + 1]);
    else if (name == "--n")
      o.n = std::atoll(argv[i + 1]);
    else if (name == "--repeats")
      o.repeats = std::atoi(argv[i + 1]);
    else if (name == "--clock")
      cpu_clock = std::string_view(argv[i + 1]) == "cpu";
    else if (name == "--per-input")
      o.per_input = true;
    else if (name == "--isa")
      o.isa = parse_isa(argv[i + 1]).value();
    else
      return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  std::printf("isa %s, K %lld, N %lld\n", std::string(isa_name(o.isa)).c_str(), static_cast<long long>(o.k),
              static_cast<long long>(o.n));
  for (const std::string& name : o.formats) {
    const bool nested = name == "nf4-nested";
    const auto codec = quant::codec_from_name(nested ? "nf4" : name);
    if (!codec) return std::fprintf(stderr, "unknown format %s\n", name.c_str()), 2;
    quant::StoredFormat format = quant::stored_format(*codec);
    format.nested = nested;
    if (o.k % quant::codec_info(*codec).cols_multiple != 0) continue;
    Weights weights(format, o.n, o.k, o.per_input ? 0 : kCycleBytes);
    for (const std::string& mode : o.modes) {
      const Numerics numerics = mode == "int8" ? Numerics::kInt8 : Numerics::kExact;
      if (numerics == Numerics::kInt8 && !quant::codec_info(*codec).int8_mode) continue;
      for (const int threads : o.threads) {
        ThreadPool pool(threads);
        if (o.per_input) {
          per_input(o, weights, pool, numerics, name + " " + mode + " threads=" + std::to_string(threads));
          continue;
        }
        for (const int m : o.m) {
          Run run(o, weights, pool, numerics, m);
          const std::string label =
              name + " " + mode + " M=" + std::to_string(m) + " threads=" + std::to_string(threads);
          m <= 8 ? decode(run, m, label) : gemm(run, m, label);
        }
      }
    }
  }
  return 0;
}
