// machine/machine.cc — look-ups in a machine, its invariants, and the machines one can name in a word.
#include "berth/machine/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::machine {
namespace {

// The contract's rates for an emulated accelerator, and planning values where nothing is measured (specs/limits.md 3).
constexpr int64_t kEmulatedReadBytesPerS = 900'000'000'000;
constexpr int64_t kEmulatedFlopsPerS = 60'000'000'000'000;
constexpr int64_t kEmulatedLinkBytesPerS = 25'000'000'000;
constexpr int64_t kEmulatedLinkLatencyPs = 10'000'000;
constexpr int64_t kCpuReadBytesPerS = 40'000'000'000;
constexpr int64_t kCpuFlopsPerS = 500'000'000'000;
constexpr int64_t kDiskReadBytesPerS = 2'000'000'000;

constexpr uint64_t kMaxEmulated = 64;

std::optional<size_t> first_of(const Machine& machine, DeviceKind kind) {
  for (size_t i = 0; i < machine.devices.size(); ++i)
    if (machine.devices[i].kind == kind) return i;
  return std::nullopt;
}

Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

Status check_rate(const std::string& where, std::string_view key, int64_t value, int64_t least) {
  if (value >= least && value <= kMaxRate) return {};
  return invalid(fmt::format("{}: \"{}\" must be {} {} and at most 1e18, found {}", where, key,
                             least == 0 ? "at least" : "above", 0, value));
}

Status check_device(const DeviceSpec& d, const std::string& where) {
  if (d.id.empty()) return invalid(fmt::format("{}: \"id\" must be a name, found an empty string", where));
  if ((d.id == "cpu") != (d.kind == DeviceKind::kCpu) || (d.id == "disk") != (d.kind == DeviceKind::kDisk))
    return invalid(fmt::format(
        "{}: a device of kind \"{}\" cannot have the id {}: \"cpu\" and \"disk\" are the ids of these kinds "
        "and of no other",
        where, device_kind_name(d.kind), quoted(d.id)));
  if (d.memory_bytes > kMaxMemoryBytes)
    return invalid(fmt::format("{}: \"memory_bytes\" must be at most 2^60, found {}", where, d.memory_bytes));
  if (d.overhead_bytes > kMaxMemoryBytes)
    return invalid(fmt::format("{}: \"overhead_bytes\" must be at most 2^60, found {}", where, d.overhead_bytes));
  const bool disk = d.kind == DeviceKind::kDisk;
  TRY_STATUS(check_rate(where, "read_bytes_per_s", d.read_bytes_per_s, 1));
  TRY_STATUS(check_rate(where, "flops_per_s", d.flops_per_s, disk ? 0 : 1));
  TRY_STATUS(check_rate(where, "link_bytes_per_s", d.link_bytes_per_s, d.is_accelerator() ? 1 : 0));
  TRY_STATUS(check_rate(where, "link_latency_s", d.link_latency_ps, 0));
  if (d.kernels && (d.kind == DeviceKind::kCuda || disk))
    return invalid(
        fmt::format("{}: \"kernels\" chooses CPU kernels, which a device of kind \"{}\" does not use: leave it "
                    "out or write \"auto\", found \"{}\"",
                    where, device_kind_name(d.kind), isa_name(*d.kernels)));
  return {};
}

// "3" -> 3; nothing for "03", " 3", "+3", "0x3", "-1".
std::optional<size_t> plain_number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return value;
}

}  // namespace

std::string_view device_kind_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kEmulated:
      return "emulated";
    case DeviceKind::kCuda:
      return "cuda";
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kDisk:
      return "disk";
  }
  return "cpu";
}

std::vector<size_t> Machine::accelerators() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].is_accelerator()) out.push_back(i);
  return out;
}

std::optional<size_t> Machine::cpu() const { return first_of(*this, DeviceKind::kCpu); }
std::optional<size_t> Machine::disk() const { return first_of(*this, DeviceKind::kDisk); }

std::string Machine::map_name(size_t device_index) const {
  if (!devices[device_index].is_accelerator()) return std::string(device_kind_name(devices[device_index].kind));
  return std::to_string(std::count_if(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(device_index),
                                      [](const DeviceSpec& d) { return d.is_accelerator(); }));
}

std::optional<size_t> Machine::find(std::string_view name) const {
  if (const auto number = plain_number(name)) {
    const std::vector<size_t> list = accelerators();
    if (*number < list.size()) return list[*number];
  }
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].id == name) return i;
  return std::nullopt;
}

std::vector<std::string> Machine::names() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < devices.size(); ++i) {
    out.push_back(map_name(i));
    if (devices[i].id != out.back()) out.push_back(devices[i].id);
  }
  return out;
}

const LinkSpec* Machine::link(size_t a, size_t b) const {
  const std::string& x = devices[a].id;
  const std::string& y = devices[b].id;
  for (const LinkSpec& l : links)
    if ((l.from == x && l.to == y) || (l.from == y && l.to == x)) return &l;
  return nullptr;
}

Status validate(const Machine& machine) {
  if (machine.devices.empty()) return invalid("\"devices\": at least one device was expected, found none");
  if (machine.devices.size() > kMaxDevices)
    return invalid(fmt::format("\"devices\": at most {} were expected, found {}", kMaxDevices, machine.devices.size()));
  const size_t accelerators = machine.accelerators().size();
  for (size_t i = 0; i < machine.devices.size(); ++i) {
    const DeviceSpec& d = machine.devices[i];
    const std::string where = fmt::format("devices[{}] ({})", i, quoted(d.id));
    TRY_STATUS(check_device(d, where));
    for (size_t j = 0; j < i; ++j)
      if (machine.devices[j].id == d.id)
        return invalid(fmt::format("{}: \"id\" must be unique, devices[{}] has the same one", where, j));
    // "1" names accelerator 1; an id that says another number would name two devices.
    if (const auto number = plain_number(d.id); number && *number < accelerators && machine.map_name(i) != d.id)
      return invalid(
          fmt::format("{}: \"id\" is the device-map name of another accelerator; this one is {} in device maps", where,
                      quoted(machine.map_name(i))));
  }
  for (size_t i = 0; i < machine.links.size(); ++i) {
    const LinkSpec& l = machine.links[i];
    const std::string where = fmt::format("links[{}] ({} to {})", i, quoted(l.from), quoted(l.to));
    for (const auto& [key, id] : {std::pair<const char*, const std::string&>{"from", l.from}, {"to", l.to}}) {
      const auto at = std::find_if(machine.devices.begin(), machine.devices.end(),
                                   [&id = id](const DeviceSpec& d) { return d.id == id; });
      std::vector<std::string> ids;
      for (const DeviceSpec& d : machine.devices) ids.push_back(escaped(d.id));
      if (at == machine.devices.end())
        return invalid(fmt::format("{}: \"{}\" must be the id of a device, found {}{}; there are {}", where, key,
                                   quoted(id), did_you_mean(escaped(id), ids), join(ids, ", ")));
    }
    if (l.from == l.to) return invalid(fmt::format("{}: \"from\" and \"to\" must be two devices", where));
    TRY_STATUS(check_rate(where, "bytes_per_s", l.bytes_per_s, 1));
    TRY_STATUS(check_rate(where, "latency_s", l.latency_ps, 0));
    for (size_t j = 0; j < i; ++j) {
      const LinkSpec& other = machine.links[j];
      if ((other.from == l.from && other.to == l.to) || (other.from == l.to && other.to == l.from))
        return invalid(fmt::format("{}: links[{}] already joins these two devices (a link goes both ways)", where, j));
    }
  }
  return {};
}

DeviceSpec emulated_device(size_t number, uint64_t memory_bytes) {
  DeviceSpec d;
  d.id = fmt::format("emu:{}", number);
  d.kind = DeviceKind::kEmulated;
  d.memory_bytes = memory_bytes;
  d.read_bytes_per_s = kEmulatedReadBytesPerS;
  d.flops_per_s = kEmulatedFlopsPerS;
  d.link_bytes_per_s = kEmulatedLinkBytesPerS;
  d.link_latency_ps = kEmulatedLinkLatencyPs;
  return d;
}

DeviceSpec default_cpu(uint64_t memory_bytes) {
  DeviceSpec d;
  d.id = "cpu";
  d.kind = DeviceKind::kCpu;
  d.memory_bytes = memory_bytes;
  d.read_bytes_per_s = kCpuReadBytesPerS;
  d.flops_per_s = kCpuFlopsPerS;
  return d;
}

DeviceSpec default_disk(uint64_t memory_bytes) {
  DeviceSpec d;
  d.id = "disk";
  d.kind = DeviceKind::kDisk;
  d.memory_bytes = memory_bytes;
  d.read_bytes_per_s = kDiskReadBytesPerS;
  return d;
}

Result<EmulateSpec> parse_emulate(std::string_view text) {
  EmulateSpec out;
  for (const std::string& part : split(text, ',')) {
    const auto bad = [&](std::string_view why) {
      return Error(ErrorCode::kInvalidArgument, fmt::format("--emulate {}: {} {}", quoted(text), quoted(part), why),
                   {"Write devices as COUNTxSIZE, for example 2x16GiB or 2x16GiB,1x8GiB."});
    };
    const std::string_view trimmed_part = trimmed(part);
    const size_t cross = trimmed_part.find('x');
    uint64_t count = 1;
    std::string_view size_text = trimmed_part;
    if (cross != std::string_view::npos) {
      const auto number = plain_number(trimmed_part.substr(0, cross));
      if (!number) return bad("does not begin with a number of devices");
      count = *number;
      size_text = trimmed_part.substr(cross + 1);
    }
    if (count == 0 || count > kMaxEmulated || out.accelerators.size() + count > kMaxEmulated)
      return bad(fmt::format("asks for {} devices; 1 to {} in all are accepted", count, kMaxEmulated));
    auto size = parse_size(size_text);
    if (!size) return size.error().with_context(fmt::format("--emulate {}", quoted(text)));
    if (size->bytes == 0) return bad("gives a device no memory");
    if (size->bytes > kMaxMemoryBytes) return bad("gives a device more than 2^60 bytes");
    if (size->lower_case_b)
      out.notes.push_back(
          fmt::format("{} is read as {} bytes: a lower-case b means bytes, not bits.", quoted(size_text), size->bytes));
    for (uint64_t i = 0; i < count; ++i)
      out.accelerators.push_back(emulated_device(out.accelerators.size(), size->bytes));
  }
  return out;
}

}  // namespace berth::machine
