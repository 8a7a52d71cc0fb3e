// device/measure.cc — read bandwidth, arithmetic and disk rates of this host, measured in the same run.
//
// Reading: every thread walks its part of a buffer larger than the last-level cache in four streams far apart (one
// sequential stream does not saturate memory from one thread; four adjacent ones defeat the prefetcher). The figure is
// the best pass, since what is wanted is the machine's limit and others share the host.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/device/cpu/memory.h"
#include "berth/device/cpu/peak.h"
#include "berth/device/probe.h"

namespace berth::device {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int kStreams = 4;
constexpr uint64_t kLine = 64;
// 64 bytes as the compiler likes to load them.
typedef uint64_t Line __attribute__((vector_size(64)));

// Reads [begin, begin + bytes) once, in four streams a quarter apart; bytes is a multiple of 4 * 64. kAhead: lines by
// which each line is asked for before it is read. 0 leaves that to the hardware, the slower way on some processors.
template <uint64_t kAhead>
uint64_t read_once(const std::byte* begin, uint64_t bytes) {
  const uint64_t quarter = bytes / kStreams;
  std::array<const Line*, kStreams> stream;
  for (uint64_t s = 0; s < kStreams; ++s) stream[s] = reinterpret_cast<const Line*>(begin + s * quarter);
  Line sum[kStreams] = {};
  for (uint64_t i = 0; i < quarter / kLine; ++i)
    for (int s = 0; s < kStreams; ++s) {
      if (kAhead > 0) __builtin_prefetch(stream[static_cast<size_t>(s)] + i + kAhead, 0, 3);
      sum[s] += stream[static_cast<size_t>(s)][i];
    }
  uint64_t total = 0;
  for (const Line& line : sum)
    for (int k = 0; k < 8; ++k) total += line[k];
  return total;
}

// Best bytes/s over `buffer` by the pool (or the caller alone) in about `seconds`. The buffer is read section by
// section, each timed alone: a section is short enough to fall between two interruptions, and by the time it comes
// round again the rest of the buffer has pushed it out of the caches.
double read_rate(ThreadPool* pool, std::span<const std::byte> buffer, double seconds) {
  constexpr uint64_t kSections = 16;
  const auto threads = static_cast<uint64_t>(pool == nullptr ? 1 : pool->size());
  const uint64_t part = buffer.size() / kSections / threads / (kStreams * kLine) * (kStreams * kLine);
  std::vector<uint64_t> sums(threads);
  double best = 0;
  const auto start = Clock::now();
  do {
    for (uint64_t section = 0; section < kSections; ++section) {
      const std::byte* const from = buffer.data() + section * threads * part;
      const auto pass = [&](int share, int) {
        const std::byte* const own = from + part * static_cast<uint64_t>(share);
        sums[static_cast<size_t>(share)] += section % 2 == 0 ? read_once<0>(own, part) : read_once<32>(own, part);
      };
      const auto begin = Clock::now();
      if (pool == nullptr)
        pass(0, 1);
      else
        pool->run(pass);
      best = std::max(best, static_cast<double>(part * threads) / seconds_since(begin));
    }
  } while (seconds_since(start) < seconds);
  volatile uint64_t kept = 0;  // the sums must be computed
  for (const uint64_t s : sums) kept = kept + s;
  return best;
}

PeakLoop fastest_loop() {
  switch (best_isa()) {
    case Isa::kAvx512:
      return peak_loop_avx512;
    case Isa::kAvx2:
      return peak_loop_avx2;
    default:
      return peak_loop_ref;
  }
}

double flops_rate(ThreadPool* pool, double seconds) {
  const int threads = pool == nullptr ? 1 : pool->size();
  const PeakLoop loop = fastest_loop();
  constexpr uint64_t kRounds = 200'000;  // about a millisecond
  struct alignas(64) Result {
    uint64_t flops = 0;
    float sink = 0;
  };
  std::vector<Result> results(static_cast<size_t>(threads));
  const auto pass = [&](int share, int) {
    Result& mine = results[static_cast<size_t>(share)];
    mine.flops = loop(kRounds, &mine.sink);
  };
  double best = 0;
  const auto start = Clock::now();
  do {
    const auto begin = Clock::now();
    if (pool == nullptr)
      pass(0, 1);
    else
      pool->run(pass);
    const double elapsed = seconds_since(begin);
    double flops = 0;
    for (const Result& r : results) flops += static_cast<double>(r.flops);
    best = std::max(best, flops / elapsed);
  } while (seconds_since(start) < seconds);
  return best;
}

// A file that is gone as soon as its descriptor is closed.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder) : path_(path_join(folder, "berth-disk-test-XXXXXX")) {
    fd_ = ::mkstemp(path_.data());
    if (fd_ >= 0) ::unlink(path_.c_str());
  }
  ~ScratchFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  int descriptor() const { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
};

// Writes `bytes` of `block` repeated, drops them from the page cache and times reading them back.
Result<double> disk_rate(const std::string& folder, uint64_t bytes, std::span<std::byte> block) {
  const auto failed = [&](std::string_view doing) {
    return Error(ErrorCode::kIo, fmt::format("measuring the disk of folder {}: {}: {}", quoted(folder, 400), doing,
                                             std::strerror(errno)));
  };
  const ScratchFile file(folder);
  if (file.descriptor() < 0) return failed("making a file");
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::write(file.descriptor(), block.data(), std::min<uint64_t>(block.size(), bytes - done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("writing");
    done += static_cast<uint64_t>(n);
  }
  if (::fdatasync(file.descriptor()) != 0) return failed("writing");
  ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const auto begin = Clock::now();
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(file.descriptor(), block.data(), std::min<uint64_t>(block.size(), bytes - done),
                              static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("reading back");
    done += static_cast<uint64_t>(n);
  }
  return static_cast<double>(bytes) / seconds_since(begin);
}

}  // namespace

// Eight chains of plain C++: what a compiler makes of it without an instruction set to aim at.
uint64_t peak_loop_ref(uint64_t rounds, float* sink) {
  constexpr int kChains = 8;
  float sum[kChains];
  for (int i = 0; i < kChains; ++i) sum[i] = static_cast<float>(i);
  for (uint64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kChains; ++i) sum[i] = sum[i] * 0.999f + 0.001f;
  *sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
  return rounds * kChains * 2;
}

Result<Rates> measure_rates(ThreadPool& pool, const MeasureOptions& options) {
  constexpr uint64_t kBlock = uint64_t{4} << 20;
  const uint64_t bytes = align_up(std::max(options.read_bytes, kBlock), HostRegions::kPageBytes);
  Arena arena("cpu", bytes, HostRegions::instance());
  auto buffer = arena.allocate(bytes, Tag::kStaging);
  if (!buffer) return std::move(buffer).error().with_context("measuring the rate of memory");
  const std::span<std::byte> data = buffer->bytes();
  // First touch, and not all alike: a host may share equal pages.
  pool.parallel_for(static_cast<int64_t>(bytes / kBlock), 1, [&](int64_t begin, int64_t end, int) {
    uint64_t x = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(begin + 1);
    for (uint64_t at = static_cast<uint64_t>(begin) * kBlock; at < static_cast<uint64_t>(end) * kBlock; at += 8) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
      store_le(data.data() + at, x);
    }
  });
  Rates rates;
  rates.threads = pool.size();
  rates.read_bytes_per_s_1_thread = read_rate(nullptr, data, options.seconds);
  // All threads are never slower than one of them: where others took the cores meanwhile, one is the better figure.
  rates.read_bytes_per_s = std::max(rates.read_bytes_per_s_1_thread, read_rate(&pool, data, options.seconds));
  rates.flops_per_s_1_thread = flops_rate(nullptr, options.seconds / 4);
  rates.flops_per_s = std::max(rates.flops_per_s_1_thread, flops_rate(&pool, options.seconds / 4));
  if (!options.disk_folder.empty()) {
    TRY(rates.disk_read_bytes_per_s, disk_rate(options.disk_folder, options.disk_bytes, data.first(kBlock)));
  }
  return rates;
}

}  // namespace berth::device
