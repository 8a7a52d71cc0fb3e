// engine/load_rates.cc — see load_rates.h.
#include "berth/engine/load_rates.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "berth/base/bytes.h"
#include "berth/base/file_mapping.h"
#include "berth/base/strings.h"
#include "berth/base/thread_pool.h"
#include "berth/device/cpu/memory.h"
#include "berth/engine/opened_model.h"
#include "berth/engine/planning.h"
#include "berth/engine/running.h"
#include "berth/load/read_ahead.h"

namespace berth::engine {
namespace {

constexpr uint64_t kBlock = uint64_t{4} << 20;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

enum class Method { kRead, kDirect, kMapped };
constexpr std::pair<Method, std::string_view> kMethods[] = {
    {Method::kRead, "read"}, {Method::kDirect, "direct"}, {Method::kMapped, "mapped"}};

// A file descriptor of its own for direct I/O; -1 where the file system has none.
struct Direct {
  explicit Direct(const std::string& path) {
#if defined(O_DIRECT)
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
#endif
  }
  ~Direct() {
    if (descriptor >= 0) ::close(descriptor);
  }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;
  int descriptor = -1;
};

class RawReader {
 public:
  explicit RawReader(std::span<const File> files) : files_(files) {}

  // Seconds for all files; nothing where the method cannot read them.
  Result<std::optional<double>> pass(Method method, bool cold, int threads, ThreadPool& pool) {
    auto regions = device::HostRegions::instance();
    const uint64_t bytes = static_cast<uint64_t>(threads) * kBlock;
    TRY(const std::span<std::byte> memory, regions->acquire(bytes));
    std::fill(memory.begin(), memory.begin() + static_cast<int64_t>(bytes), std::byte{1});
    std::optional<double> seconds = 0;
    std::atomic<bool> failed{false};
    for (const File& file : files_) {
      if (file.size_bytes() == 0) continue;
      if (cold) file.drop_cache(0, 0);
      const Direct direct(method == Method::kDirect ? file.path() : std::string());
      std::unique_ptr<FileMapping> mapping;
      const auto start = Clock::now();
      if (method == Method::kMapped) {
        TRY(mapping, FileMapping::create(file));
      }
      std::atomic<uint64_t> next{0}, sum{0};
      pool.run([&](int share, int) {
        std::byte* const buffer = memory.data() + static_cast<uint64_t>(share) * kBlock;
        for (uint64_t at = next.fetch_add(kBlock); at < file.size_bytes() && !failed; at = next.fetch_add(kBlock)) {
          const uint64_t n = std::min(kBlock, file.size_bytes() - at);
          if (method == Method::kMapped) {
            mapping->populate(at, n);
            uint64_t s = 0;
            for (uint64_t i = 0; i < n; i += 64) s += std::to_integer<uint64_t>(mapping->bytes()[at + i]);
            sum += s;
          } else {
            const bool is_direct = method == Method::kDirect;
            const int from = is_direct ? direct.descriptor : file.descriptor();
            const ssize_t got =
                ::pread(from, buffer, is_direct ? align_up(n, uint64_t{4096}) : n, static_cast<off_t>(at));
            if (got < 0 || static_cast<uint64_t>(got) < n) failed = true;
          }
        }
      });
      *seconds += seconds_since(start);
    }
    regions->release(memory);
    if (failed) seconds.reset();
    return seconds;
  }

 private:
  std::span<const File> files_;
};

// Of /proc/self/status, in bytes; 0 where there is none.
uint64_t status_bytes(std::string_view key) {
  const auto text = read_kernel_file("/proc/self/status");
  if (!text) return 0;
  for (const std::string& line : split(*text, '\n')) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789");
    return digit == std::string::npos ? 0 : std::strtoull(line.c_str() + digit, nullptr, 10) * 1024;
  }
  return 0;
}

// The peak of resident memory starts again from what is resident now.
void reset_peak() {
  const int descriptor = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(descriptor, "5", 1);
  ::close(descriptor);
}

double cpu_seconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Through the page cache, so that the files are in it.
Status read_through(std::span<const File> files) {
  std::vector<std::byte> buffer(uint64_t{4} << 20);
  for (const File& file : files)
    for (uint64_t at = 0; at < file.size_bytes(); at += buffer.size())
      TRY_STATUS(file.read_at(at, std::span(buffer).first(std::min(buffer.size(), file.size_bytes() - at))));
  return {};
}

uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace

Result<std::vector<LoadBenchRow>> load_bench(const std::string& model, const Options& options,
                                             const LoadBenchOptions& bench, const Log& log) {
  std::vector<LoadBenchRow> rows;
  TRY(OpenedModel opened, open_model(model, options, log));
  uint64_t file_bytes = 0;
  for (const File& file : opened.checkpoint->files()) file_bytes += file.size_bytes();
  uint64_t quantized_bytes = 0;
  for (size_t t = 0; t < opened.storage.size(); ++t) {
    if (!opened.storage[t].quantized_on_load) continue;
    const arch::TensorSpec& spec = opened.spec().tensors[t];
    for (const arch::Source& source : spec.recipe.sources)
      if (const format::TensorEntry* entry = opened.checkpoint->find(source.name)) quantized_bytes += entry->size_bytes;
  }
  const auto rate = [&](double seconds) { return seconds > 0 ? static_cast<double>(file_bytes) / seconds / 1e9 : 0; };

  // Loads first: their first memory is fresh.
  int threads = 1;
  for (const bool cold : {true, false}) {
    if (cold && !bench.cold) continue;
    LoadBenchRow row;
    row.what = "load";
    row.cold = cold;
    row.quantized_bytes = quantized_bytes;
    if (!cold) TRY_STATUS(read_through(opened.checkpoint->files()));  // cold loads leave nothing in the page cache
    for (int r = 0; r < bench.repeats; ++r) {
      for (const File& file : opened.checkpoint->files())
        if (cold) file.drop_cache(0, 0);
      TRY(PlannedModel planned, plan_model(opened, options));
      threads = planned.inputs.shape.threads;
      reset_peak();
      const uint64_t before = status_bytes("VmRSS:");
      const double cpu_before = cpu_seconds();
      TRY(const auto running, load_model(opened, std::move(planned), options, log));
      if (r == 0) {
        for (const auto& d : running->devices.devices())
          row.weights_bytes += d->arena().usage()[device::Tag::kWeights].used_bytes;
        row.mapped_bytes = running->weights.mapped_bytes();
        row.beyond_weights_bytes = less(less(status_bytes("VmHWM:"), before), row.weights_bytes);
        row.first_seconds = running->load_s;
      }
      const double cpu = cpu_seconds() - cpu_before;
      if (row.seconds == 0 || running->load_s < row.seconds) row.seconds = running->load_s;
      if (r == 0 || cpu < row.cpu_seconds) row.cpu_seconds = cpu;
    }
    row.gb_per_s = rate(row.seconds);
    rows.push_back(row);
  }
  for (LoadBenchRow& row : rows) row.threads = threads;

  const size_t loads = rows.size();
  for (const bool cold : {true, false}) {
    if (cold && !bench.cold) continue;
    double best = 0;
    for (const auto& [method, name] : kMethods) {
      std::set<int> counts = {1, threads, 2 * threads};
      if (cold) counts.insert(load::ReadAhead::kThreads);  // as many wait for the disk as in a load
      for (const int with : counts) {
        ThreadPool pool(with);
        LoadBenchRow row;
        row.what = name;
        row.cold = cold;
        row.threads = pool.size();
        bool possible = true;
        for (int r = 0; r < bench.repeats && possible; ++r) {
          TRY(const auto seconds, RawReader(opened.checkpoint->files()).pass(method, cold, pool.size(), pool));
          possible = seconds.has_value();
          if (possible && (row.seconds == 0 || *seconds < row.seconds)) row.seconds = *seconds;
        }
        if (!possible) continue;
        row.gb_per_s = rate(row.seconds);
        best = std::max(best, row.gb_per_s);
        rows.push_back(row);
      }
    }
    for (size_t i = 0; i < loads; ++i)
      if (rows[i].cold == cold && best > 0) rows[i].share = rows[i].gb_per_s / best;
  }
  std::rotate(rows.begin(), rows.begin() + static_cast<int64_t>(loads), rows.end());
  return rows;
}

std::string load_bench_text(const std::vector<LoadBenchRow>& rows) {
  std::string out =
      fmt::format("{:<8} {:<5} {:>7} {:>9} {:>8} {:>7}\n", "what", "cache", "threads", "seconds", "GB/s", "share");
  for (const LoadBenchRow& r : rows) {
    out += fmt::format("{:<8} {:<5} {:>7} {:>9.3f} {:>8.2f} {:>7}\n", r.what, r.cold ? "cold" : "warm", r.threads,
                       r.seconds, r.gb_per_s, r.share > 0 ? fmt::format("{:.0f} %", r.share * 100) : "");
    if (r.what == "load")
      out += fmt::format(
          "         weights {}, {} of them mapped; the first time {:.3f} s, {} of host memory beyond them\n",
          format_bytes(r.weights_bytes), format_bytes(r.mapped_bytes), r.first_seconds,
          format_bytes(r.beyond_weights_bytes));
  }
  return out;
}

}  // namespace berth::engine
