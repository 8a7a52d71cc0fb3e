// device/rates_file.cc — measured rates between runs: one small JSON file, an entry per CPU model and core count.
//
//   {"format": "berth-rates-1", "cpus": [{"model": "..", "cores": 2, "threads": 2, "read_bytes_per_s": 7e10, ..}]}
#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>

#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/device/probe.h"

namespace berth::device {
namespace {

constexpr std::string_view kFormat = "berth-rates-1";
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxEntries = 256;

struct Field {
  const char* key;
  double Rates::*member;
};
constexpr Field kFields[] = {
    {"read_bytes_per_s_1_thread", &Rates::read_bytes_per_s_1_thread}, {"read_bytes_per_s", &Rates::read_bytes_per_s},
    {"flops_per_s_1_thread", &Rates::flops_per_s_1_thread},           {"flops_per_s", &Rates::flops_per_s},
    {"disk_read_bytes_per_s", &Rates::disk_read_bytes_per_s},
};

struct Entry {
  CpuIdentity cpu;
  Rates rates;
};

// All well-formed entries; a file that is absent or malformed has none.
std::vector<Entry> read_entries(const std::string& path) {
  std::vector<Entry> entries;
  const auto document = JsonDocument::parse_file(path, {.max_bytes = kMaxFileBytes});
  if (!document || document->root()["format"].as_string() != kFormat) return entries;
  for (const JsonView v : document->root()["cpus"].elements()) {
    Entry e;
    const auto model = v["model"].as_string();
    const auto cores = v["cores"].as_int64();
    const auto threads = v["threads"].as_int64();
    bool good = model && cores && *cores > 0 && *cores < 100000 && threads && *threads > 0 && *threads < 100000;
    for (const Field& field : kFields) {
      const auto rate = v[field.key].as_double();
      good = good && rate && *rate >= 0 && *rate < 1e18;
      if (good) e.rates.*field.member = *rate;
    }
    if (!good || entries.size() == kMaxEntries) continue;
    e.cpu = {std::string(*model), static_cast<int>(*cores)};
    e.rates.threads = static_cast<int>(*threads);
    entries.push_back(std::move(e));
  }
  return entries;
}

Status make_folders(const std::string& path) {
  if (path.empty() || is_directory(path)) return {};
  TRY_STATUS(make_folders(path_folder(path)));
  if (::mkdir(path.c_str(), 0777) != 0 && !is_directory(path))
    return Error(ErrorCode::kIo, fmt::format("making folder {}: {}", quoted(path, 400), std::strerror(errno)));
  return {};
}

}  // namespace

std::string default_rates_file() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return path_join(cache, "berth/machine-rates.json");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] != '\0') return path_join(home, ".cache/berth/machine-rates.json");
  return "";
}

std::optional<Rates> load_rates(const std::string& path, const CpuIdentity& cpu) {
  if (path.empty()) return std::nullopt;
  for (const Entry& e : read_entries(path))
    if (e.cpu.model == cpu.model && e.cpu.cores == cpu.cores) return e.rates;
  return std::nullopt;
}

Status save_rates(const std::string& path, const CpuIdentity& cpu, const Rates& rates) {
  if (path.empty())
    return Error(ErrorCode::kIo, "keeping measured rates: neither XDG_CACHE_HOME nor HOME says where",
                 {"Set XDG_CACHE_HOME to a folder that can be written to."});
  std::vector<Entry> entries = {{cpu, rates}};
  for (Entry& e : read_entries(path))
    if (entries.size() < kMaxEntries && !(e.cpu.model == cpu.model && e.cpu.cores == cpu.cores))
      entries.push_back(std::move(e));
  JsonWriter out(2);
  out.begin_object().member("format", kFormat).key("cpus").begin_array();
  for (const Entry& e : entries) {
    out.begin_object().member("model", e.cpu.model).member("cores", e.cpu.cores).member("threads", e.rates.threads);
    for (const Field& field : kFields) out.member(field.key, std::round(e.rates.*field.member));
    out.end_object();
  }
  out.end_array().end_object();
  TRY_STATUS(make_folders(path_folder(path)));
  return write_file_atomically(path, out.str() + "\n");
}

}  // namespace berth::device
