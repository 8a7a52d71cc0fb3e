// device/probe.h — fills a machine::Machine from what this host has, and measures its rates.
//
// Memory of the cpu is what this process may still take: MemAvailable under its cgroup's (v1, v2) and its own (ulimit)
// limits. Rates are measured once by `berth devices` and kept in a small cache file keyed by CPU model and cores;
// until then planning values stand in.
//
// A CUDA device whose probe answers 0 bytes, an error, or more free than total has unknown memory: it is listed and
// used only where the user gives it a budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/base/thread_pool.h"
#include "berth/machine/machine.h"

namespace berth::device {

struct Rates {
  double read_bytes_per_s_1_thread = 0;  // four streams per thread, huge pages, > 256 MiB
  double read_bytes_per_s = 0;           // all threads
  double flops_per_s_1_thread = 0;       // fp32 fma, best instruction set
  double flops_per_s = 0;
  double disk_read_bytes_per_s = 0;  // 0: not measured
  int threads = 0;
};

struct ProbeOptions {
  std::string disk_folder = ".";  // whose file system is the "disk"
  bool cuda = true;
  std::string rates_file;  // "" = default_rates_file()
};

struct Found {
  machine::Machine machine;        // accelerators, cpu, disk
  std::vector<std::string> notes;  // complete sentences: unknown memory, which limit binds, unmeasured rates
};

// Never fails: what cannot be found out is noted. Takes milliseconds (the CUDA driver's start-up aside).
Found probe_machine(const ProbeOptions& options = {});

// "AMD EPYC 9B45" and the cores this process may use.
struct CpuIdentity {
  std::string model;
  int cores = 0;
};
CpuIdentity cpu_identity();

struct MeasureOptions {
  uint64_t read_bytes = uint64_t{512} << 20;
  double seconds = 0.5;     // per figure, about
  std::string disk_folder;  // "" = do not measure the disk
  uint64_t disk_bytes = uint64_t{256} << 20;
};
// Errors: kDevice (no memory for the test), kIo (the folder).
Result<Rates> measure_rates(ThreadPool& pool, const MeasureOptions& options = {});

// $XDG_CACHE_HOME/berth/machine-rates.json, else ~/.cache/berth/..; "" where neither variable is set.
std::string default_rates_file();
// Nothing where the file is absent, malformed, or has no entry of this CPU.
std::optional<Rates> load_rates(const std::string& path, const CpuIdentity& cpu);
// Keeps other CPUs' entries. Errors: kIo.
Status save_rates(const std::string& path, const CpuIdentity& cpu, const Rates& rates);

}  // namespace berth::device
