// tests/plan/plan_times.cc — how long planning takes: every checkpoint of a folder on a set of machines, in 16, 8 and 4
// bit.
//
//   plan_times CHECKPOINTS [--repeats N] [--machines 1x24,2x16,18+10] [--cpu GIB] [--effort N] [--only NAME]
//       [--rows | --json]
//
// Sizes are GiB, or with % parts of the model's weights as stored: "16x5%" and "--cpu 60%" make every model tight
// alike. Timed is what follows reading headers: units and their sizes, the search, reasons and bytes of the plan, or
// the refusal with its remedies. Prints median, 95th percentile and worst of the wall and CPU times of all plans, by
// what became of them: everything on accelerators, partly on the cpu, refused. --rows prints every plan; --json as
// well, with a digest of where everything is, so that two builds can be compared. tests/plan/planner_times.py puts
// accelerate's times beside them.
//
// Non-goals: asserting anything about time (no test here does).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/engine/planning.h"

namespace berth {
namespace {

constexpr double kGiB = 1 << 30;

// "24" in GiB, "5%" of the model.
uint64_t size_of(const std::string& text, uint64_t model_bytes) {
  const double number = std::stod(text);
  return static_cast<uint64_t>(text.ends_with("%") ? number / 100 * static_cast<double>(model_bytes) : number * kGiB);
}

// "4x24" or "18+10": accelerators.
std::vector<uint64_t> cards(const std::string& text, uint64_t model_bytes) {
  std::vector<uint64_t> out;
  for (const std::string_view part : split(text, '+')) {
    const size_t times = part.find('x');
    const std::string count(times == std::string_view::npos ? "1" : part.substr(0, times));
    const std::string size(times == std::string_view::npos ? part : part.substr(times + 1));
    for (int k = std::stoi(count); k-- > 0;) out.push_back(size_of(size, model_bytes));
  }
  return out;
}

machine::Machine machine_of(const std::string& text, const std::string& cpu, uint64_t model_bytes) {
  machine::Machine m;
  for (const uint64_t bytes : cards(text, model_bytes))
    m.devices.push_back(machine::emulated_device(m.devices.size(), bytes));
  m.devices.push_back(machine::default_cpu(size_of(cpu, model_bytes)));
  return m;
}

struct Row {
  std::string model, machine, dtype, outcome, refusal;
  double wall_ms = 0, cpu_ms = 0, gap_percent = 0, tokens_per_s = 0, value_s = 0;
  uint64_t labels = 0, digest = 0;
};

// Where everything is, as one number (FNV-1a).
uint64_t digest_of(const plan::Plan& plan) {
  uint64_t sum = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    sum = (sum ^ 0xff) * 0x100000001b3u;
  };
  for (const plan::PlacedUnit& u : plan.units) {
    add(u.path);
    add(u.device);
    add(u.computed_on);
  }
  return sum;
}

double cpu_now_ms() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

Row plan_once(const engine::OpenedModel& model, const engine::Options& options, int repeats) {
  Row row;
  std::vector<double> wall, cpu;
  for (int k = 0; k < repeats; ++k) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu_start = cpu_now_ms();
    const auto planned = engine::plan_model(model, options);
    cpu.push_back(cpu_now_ms() - cpu_start);
    wall.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    if (!planned) {
      row.outcome = planned.error().code == ErrorCode::kDoesNotFit ? "refused" : std::string(planned.error().message);
      row.refusal = planned.error().details_json;
      continue;
    }
    const plan::Plan& plan = planned->plan;
    bool away = false;
    for (const plan::PlacedUnit& u : plan.units) away |= u.access != plan::Access::kGather && u.computed_on == "cpu";
    row.outcome = away ? "offloads" : "fits";
    row.labels = plan.certificate->labels;
    row.digest = digest_of(plan);
    row.value_s = plan.certificate->value_s;
    row.gap_percent = 100 * plan.certificate->gap_s / plan.certificate->value_s;
    row.tokens_per_s = plan.estimate.decode_tokens_per_s;
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  row.wall_ms = wall[wall.size() / 2];
  row.cpu_ms = cpu[cpu.size() / 2];
  return row;
}

std::string summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
  };
  return fmt::format("median {:8.2f}  95 % {:8.2f}  worst {:8.2f}", at(0.5), at(0.95), values.back());
}

int run(int argc, char** argv) {
  std::string folder, only;
  std::string machines = "1x24,2x16,18+10,4x24,8x80,8x165";
  int repeats = 3;
  std::string host = "512";
  int64_t effort = engine::Options().plan_effort;
  bool rows = false, json = false;
  for (int k = 1; k < argc; ++k) {
    const std::string word = argv[k];
    const auto next = [&] { return std::string(k + 1 < argc ? argv[++k] : ""); };
    if (word == "--repeats")
      repeats = std::max(1, std::atoi(next().c_str()));
    else if (word == "--machines")
      machines = next();
    else if (word == "--only")
      only = next();
    else if (word == "--cpu")
      host = next();
    else if (word == "--effort")
      effort = std::atoll(next().c_str());
    else if (word == "--rows")
      rows = true;
    else if (word == "--json")
      json = true;
    else
      folder = word;
  }
  if (folder.empty() || !std::filesystem::is_directory(folder)) {
    std::fprintf(
        stderr,
        "usage: plan_times CHECKPOINTS [--repeats N] [--machines 1x24,18+10] [--only NAME] [--rows | --json]\n");
    return 2;
  }
  const std::string machine_file =
      (std::filesystem::temp_directory_path() / fmt::format("berth-plan-times-{}.json", getpid())).string();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::vector<Row> all;
  const std::pair<const char*, void (*)(engine::Options&)> dtypes[] = {
      {"as stored", [](engine::Options&) {}},
      {"int8", [](engine::Options& o) { o.load_in_8bit = true; }},
      {"nf4", [](engine::Options& o) { o.load_in_4bit = true; }}};
  for (const std::string& name : names) {
    if (!only.empty() && name.find(only) == std::string::npos) continue;
    for (const auto& [dtype, set] : dtypes) {
      engine::Options options;
      set(options);
      const auto opened = engine::open_model(folder + "/" + name + "/config.json", options, Log());
      if (!opened) {
        if (rows) fmt::print("{:32} {:9} not opened: {}\n", name, dtype, opened.error().message);
        continue;
      }
      if (dtype != std::string_view("as stored") && !opened->quantize_to) continue;  // comes quantized otherwise
      const auto shape = engine::run_shape(*opened, options);
      if (!shape) continue;
      const uint64_t model_bytes = engine::model_units(*opened, *shape, false).memory_footprint_bytes;
      for (const std::string_view machine : split(machines, ',')) {
        if (const Status written = write_file_atomically(
                machine_file, machine::machine_json(machine_of(std::string(machine), host, model_bytes)));
            !written) {
          std::fprintf(stderr, "%s\n", written.error().message.c_str());
          return 1;
        }
        engine::Options o = options;
        o.machine = machine_file;
        o.plan_effort = effort;
        Row row = plan_once(*opened, o, repeats);
        row.model = name, row.machine = machine, row.dtype = dtype;
        if (rows)
          fmt::print(
              "{:32} {:9} {:12} {:9} wall {:8.2f} ms  cpu {:8.2f} ms  labels {:8}  gap {:.4f} %  {:.1f} tokens/s\n",
              row.model, row.dtype, row.machine, row.outcome, row.wall_ms, row.cpu_ms, row.labels, row.gap_percent,
              row.tokens_per_s);
        if (json) {
          JsonWriter w;
          w.begin_object().member("model", row.model).member("dtype", row.dtype).member("machine", row.machine);
          w.member("outcome", row.outcome).member("wall_ms", row.wall_ms).member("cpu_ms", row.cpu_ms);
          w.member("labels", row.labels).member("gap_percent", row.gap_percent).member("step_s", row.value_s);
          w.member("digest", fmt::format("{:016x}", row.digest)).key("refusal");
          row.refusal.empty() ? w.null() : w.raw(row.refusal);
          w.end_object();
          fmt::print("{}\n", w.take());
        }
        std::fflush(stdout);
        all.push_back(std::move(row));
      }
    }
  }
  std::remove(machine_file.c_str());
  if (json) return 0;
  std::map<std::string, std::vector<const Row*>> by_outcome;
  for (const Row& row : all) by_outcome[row.outcome].push_back(&row);
  for (const auto& [outcome, group] : by_outcome) {
    std::vector<double> wall, cpu;
    int unproven = 0;
    double largest_gap = 0;
    for (const Row* row : group) {
      wall.push_back(row->wall_ms);
      cpu.push_back(row->cpu_ms);
      unproven += row->gap_percent > 0 ? 1 : 0;
      largest_gap = std::max(largest_gap, row->gap_percent);
    }
    fmt::print("{:9} {:4} plans  wall ms: {}   cpu ms: {}   gap > 0: {}, at most {:.4f} %\n", outcome, group.size(),
               summary(wall), summary(cpu), unproven, largest_gap);
  }
  return all.empty() ? 1 : 0;
}

}  // namespace
}  // namespace berth

int main(int argc, char** argv) { return berth::run(argc, argv); }
