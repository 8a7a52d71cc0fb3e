// device/probe.cc — what this host has, judged: nonsense from a driver or from /proc becomes "unknown", with a note.
#include "berth/device/probe.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cstdlib>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/device/backend.h"
#include "berth/device/cpu/memory.h"

namespace berth::device {
namespace {

int64_t whole_rate(double per_s, int64_t fallback) {
  if (!(per_s >= 1) || per_s > static_cast<double>(machine::kMaxRate)) return fallback;
  return static_cast<int64_t>(per_s);
}

machine::DeviceSpec found_cpu(std::vector<std::string>& notes) {
  const HostMemory host = host_memory();
  machine::DeviceSpec cpu = machine::default_cpu(0);
  if (host.available_bytes && *host.available_bytes > 0 && *host.available_bytes <= machine::kMaxMemoryBytes) {
    // What this process keeps for reuse is free to it.
    cpu.memory_bytes = *host.available_bytes + HostRegions::instance()->kept_bytes();
    if (host.limited_by != "free memory")
      notes.push_back(fmt::format("The cpu's memory is limited to {} by {}.", format_bytes(cpu.memory_bytes),
                                  escaped(host.limited_by)));
  } else {
    cpu.memory_known = false;
    notes.push_back("How much host memory is free could not be found out; --max-memory cpu=SIZE says it.");
  }
  return cpu;
}

machine::DeviceSpec found_disk(const std::string& folder, std::vector<std::string>& notes) {
  machine::DeviceSpec disk = machine::default_disk(0);
  struct statvfs s {};
  std::optional<uint64_t> bytes;
  if (::statvfs(folder.c_str(), &s) == 0) bytes = checked_mul<uint64_t>(s.f_bavail, s.f_frsize);
  if (bytes) {
    disk.memory_bytes = std::min(*bytes, machine::kMaxMemoryBytes);
  } else {
    disk.memory_known = false;
    notes.push_back(fmt::format("How much room folder {} has could not be found out; --max-memory disk=SIZE says it.",
                                quoted(folder)));
  }
  return disk;
}

}  // namespace

machine::DeviceSpec cuda_device_spec(const CudaDeviceInfo& info, std::vector<std::string>& notes) {
  machine::DeviceSpec d = machine::emulated_device(0, 0);  // planning rates, where the driver gives none
  d.id = fmt::format("cuda:{}", info.number);
  d.kind = machine::DeviceKind::kCuda;
  d.description = escaped(info.name);
  d.read_bytes_per_s = info.read_bytes_per_s > 0 ? info.read_bytes_per_s : d.read_bytes_per_s;
  d.flops_per_s = info.flops_per_s > 0 ? info.flops_per_s : d.flops_per_s;
  std::string why;
  if (!info.problem.empty())
    why = fmt::format("asking for it failed ({})", escaped(info.problem));
  else if (info.total_bytes == 0 || info.free_bytes == 0)
    why = "the driver says 0 bytes";
  else if (info.free_bytes > info.total_bytes || info.total_bytes > machine::kMaxMemoryBytes)
    why = fmt::format("the driver says {} free of {}", info.free_bytes, info.total_bytes);
  if (why.empty()) {
    d.memory_bytes = info.free_bytes;
  } else {
    d.memory_known = false;
    notes.push_back(fmt::format("The memory of {} is unknown: {}.", d.id, why));
  }
  return d;
}

Found probe_machine(const ProbeOptions& options) {
  Found found;
  if (options.cuda) {
    const CudaProbe cuda = probe_cuda();
    if (!cuda.note.empty()) found.notes.push_back(cuda.note);
    for (const CudaDeviceInfo& info : cuda.devices)
      found.machine.devices.push_back(cuda_device_spec(info, found.notes));
  }
  machine::DeviceSpec cpu = found_cpu(found.notes);
  machine::DeviceSpec disk = found_disk(options.disk_folder, found.notes);
  const CpuIdentity identity = cpu_identity();
  cpu.description = identity.model;
  const std::string rates_file = options.rates_file.empty() ? default_rates_file() : options.rates_file;
  if (const auto rates = load_rates(rates_file, identity)) {
    cpu.read_bytes_per_s = whole_rate(rates->read_bytes_per_s, cpu.read_bytes_per_s);
    cpu.flops_per_s = whole_rate(rates->flops_per_s, cpu.flops_per_s);
    disk.read_bytes_per_s = whole_rate(rates->disk_read_bytes_per_s, disk.read_bytes_per_s);
  } else {
    found.notes.push_back("The cpu's and the disk's rates are planning values; `berth devices` measures them.");
  }
  found.machine.devices.push_back(std::move(cpu));
  found.machine.devices.push_back(std::move(disk));
  return found;
}

CpuIdentity cpu_identity() {
  CpuIdentity identity;
  identity.cores = usable_cores();
  std::string implementer, part;
  if (const auto text = read_kernel_file("/proc/cpuinfo", size_t{16} << 20)) {
    for (const std::string& line : split(*text, '\n')) {
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string_view key = trimmed(std::string_view(line).substr(0, colon));
      const std::string value = escaped(trimmed(std::string_view(line).substr(colon + 1)));
      if (key == "model name" && identity.model.empty()) identity.model = value;
      if (key == "CPU implementer" && implementer.empty()) implementer = value;
      if (key == "CPU part" && part.empty()) part = value;
    }
  }
  if (identity.model.empty() && !implementer.empty()) identity.model = fmt::format("ARM {} {}", implementer, part);
  if (identity.model.empty()) identity.model = "unknown CPU";
  return identity;
}

}  // namespace berth::device
