// engine/doctor.cc — see doctor.h.
#include "berth/engine/doctor.h"

#include <chrono>

#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/device/probe.h"

namespace berth::engine {

Result<machine::Machine> devices(const Options& options, bool measure, std::vector<std::string>& notes) {
  // Once: what was measured is kept for this CPU.
  const std::string kept = device::default_rates_file();
  if (measure || (options.machine.empty() && (kept.empty() || !device::load_rates(kept, device::cpu_identity())))) {
    ThreadPool pool(chosen_threads(options));
    device::MeasureOptions what;
    what.disk_folder = ".";
    TRY(const device::Rates rates, device::measure_rates(pool, what));
    if (const auto saved = device::save_rates(kept, device::cpu_identity(), rates); !saved) notes.push_back(saved.error().message);
  }
  return find_machine(options, notes);
}

std::vector<Finding> doctor(const Options& options) {
  using Level = Finding::Level;
  std::vector<Finding> out;
  const device::CpuIdentity cpu = device::cpu_identity();
  out.push_back({Level::kGood, fmt::format("cpu: {}", cpu.model.empty() ? "unknown" : cpu.model), fmt::format("{} cores for this process", cpu.cores)});
  for (const Isa isa : all_isas()) {
    if (isa == Isa::kRef) continue;
    if (isa_available(isa)) out.push_back({Level::kGood, fmt::format("kernels {}", isa_name(isa)), isa == best_isa() ? "chosen" : "available"});
    else out.push_back({Level::kNote, fmt::format("kernels {}", isa_name(isa)), fmt::format("not on this CPU (lacks {})", isa_missing(isa))});
  }
  if (best_isa() == Isa::kRef)
    out.push_back({Level::kBad, "no fast kernels", "everything runs, slowly: this CPU has none of the instruction sets kernels were written for"});
  std::vector<std::string> notes;
  const auto machine = find_machine(options, notes);
  if (!machine) {
    out.push_back({Level::kBad, "machine", machine.error().message});
  } else {
    for (const machine::DeviceSpec& d : machine->devices)
      out.push_back({d.memory_known ? Level::kGood : Level::kNote, fmt::format("device {}", d.id),
                     d.memory_known ? fmt::format("{} ({})", format_bytes(d.memory_bytes), machine::device_kind_name(d.kind))
                                    : "its memory is unknown: it is used only with a --max-memory of its own"});
  }
  for (const std::string& note : notes) out.push_back({Level::kNote, "note", note});
  const std::string rates = device::default_rates_file();
  if (rates.empty()) out.push_back({Level::kNote, "measured rates", "neither XDG_CACHE_HOME nor HOME is set: they cannot be kept"});
  else if (!device::load_rates(rates, cpu)) out.push_back({Level::kNote, "measured rates", "none yet: estimates use planning values until you run berth devices"});
  else out.push_back({Level::kGood, "measured rates", quoted(rates, 300)});

  ThreadPool pool(chosen_threads(options));
  double best = 1;
  for (int round = 0; round < 200; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([](int, int) {});
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const bool slow = best > 20e-6;
  out.push_back({slow ? Level::kBad : Level::kGood, fmt::format("fork and join of {} threads", pool.size()),
                 slow ? fmt::format("{:.1f} us at best: other processes hold the cores; use fewer --threads", best * 1e6)
                      : fmt::format("{:.1f} us at best", best * 1e6)});
  return out;
}

}  // namespace berth::engine
