// cli/devices.cc — berth devices and doctor: what this machine has, and what is wrong with it.
#include <fmt/format.h>

#include "berth/base/bytes.h"
#include "berth/engine/doctor.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Devices : public Command {
 public:
  std::string name() const override { return "devices"; }
  std::string summary() const override { return "the devices of this machine and their rates; --json prints a machine file"; }
  void declare(Arguments& app) override {
    app.add_flag("--measure", measure_, "measure memory, arithmetic and disk rates anew (the first call does) and keep them for later plans");
    app.add_option("--machine", options_.machine, "show this machine file instead");
    app.add_option("--emulate", options_.emulate, "with emulated accelerators: 2x16GiB,1x8GiB");
  }
  Status run(const Output& out) override {
    std::vector<std::string> notes;
    TRY(const auto machine, engine::devices(options_, measure_, notes));
    for (const std::string& note : notes) out.note(note);
    if (out.json()) {
      out.print(machine::machine_json(machine) + "\n");
      return {};
    }
    out.print(fmt::format("{:<8} {:<9} {:>10} {:>12} {:>14} {:>12}\n", "device", "kind", "memory", "read", "arithmetic", "link"));
    for (size_t d = 0; d < machine.devices.size(); ++d) {
      const auto& spec = machine.devices[d];
      out.print(fmt::format("{:<8} {:<9} {:>10} {:>12} {:>14} {:>12}  {}\n", machine.map_name(d), machine::device_kind_name(spec.kind),
                            spec.memory_known ? format_bytes(spec.memory_bytes) : "unknown",
                            fmt::format("{:.1f} GB/s", static_cast<double>(spec.read_bytes_per_s) / 1e9),
                            spec.flops_per_s > 0 ? fmt::format("{:.0f} GFLOP/s", static_cast<double>(spec.flops_per_s) / 1e9) : "",
                            spec.link_bytes_per_s > 0 ? fmt::format("{:.1f} GB/s", static_cast<double>(spec.link_bytes_per_s) / 1e9) : "",
                            spec.description));
    }
    return {};
  }

 private:
  engine::Options options_;
  bool measure_ = false;
};

class Doctor : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override { return "checks this machine: kernels, memory limits, threads"; }
  void declare(Arguments& app) override { app.add_option("-t,--threads", options_.threads, "computing threads to check with"); }
  Status run(const Output& out) override {
    using Level = engine::Finding::Level;
    const auto findings = engine::doctor(options_);
    JsonWriter w(2);
    w.begin_array();
    for (const auto& f : findings) {
      const std::string_view level = f.level == Level::kGood ? "good" : f.level == Level::kNote ? "note" : "bad";
      if (f.level == Level::kBad) exit_status = 1;
      w.begin_object().member("level", level).member("what", f.what).member("detail", f.detail).end_object();
      if (!out.json()) out.print(fmt::format("{:<5} {:<36} {}\n", level, f.what, f.detail));
    }
    w.end_array();
    if (out.json()) out.print(w.take() + "\n");
    return {};
  }

 private:
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_devices() { return std::make_unique<Devices>(); }
std::unique_ptr<Command> make_doctor() { return std::make_unique<Doctor>(); }

}  // namespace berth::cli
