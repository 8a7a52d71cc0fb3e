// machine/budget.cc — see budget.h.
#include "berth/machine/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::machine {
namespace {

constexpr uint64_t kMaxAccelerators = kMaxDevices - 2;  // a cpu and a disk beside them
constexpr size_t kMaxJsonBytes = size_t{1} << 20;

// The accelerator number of "0", "cuda:0" or "emu:12"; nothing for "00", " 0", "0x0", "-1", "cuda:", "cuda:01".
std::optional<uint64_t> accelerator_number(std::string_view name) {
  const size_t colon = name.find(':');
  std::string_view digits = name;
  if (colon != std::string_view::npos) {
    const std::string_view prefix = name.substr(0, colon);
    if (prefix != "cuda" && prefix != "emu") return std::nullopt;
    digits = name.substr(colon + 1);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  return value;
}

bool plausible_name(std::string_view name) {
  if (name == "cpu" || name == "disk" || accelerator_number(name)) return true;
  // Some machine file's own id; machine_for_caps() and device_budgets() tell whether it exists.
  return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && name[0] != '-' && name[0] != '+' &&
         trimmed(name).size() == name.size();
}

Error bad_name(std::string_view name) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("--max-memory: {} is no device name", quoted(name)),
               {"Devices are named 0, 1, .. (or cuda:0, emu:0), cpu and disk, for example 0=18GiB,1=10GiB,cpu=48GiB."});
}

Status add_entry(MemoryCaps& caps, std::string_view name, uint64_t bytes) {
  if (!plausible_name(name)) return bad_name(name);
  if (bytes > kMaxMemoryBytes)
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--max-memory: {} bytes for {} are more than 2^60", bytes, quoted(name)));
  for (const MemoryCaps::Entry& e : caps.entries) {
    // "0" and "cuda:0" may still be one device: that is for device_budgets(), which knows the machine.
    if (e.name == name)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--max-memory: {} and {} name the same device", quoted(e.name), quoted(name)));
  }
  caps.entries.push_back({std::string(name), bytes});
  return {};
}

Status add_entry(MemoryCaps& caps, std::string_view name, std::string_view size_text) {
  auto size = parse_size(size_text);
  if (!size) return std::move(size).error().with_context(fmt::format("--max-memory, device {}", quoted(name)));
  if (size->lower_case_b)
    caps.notes.push_back(fmt::format("--max-memory {}={} is read as {} bytes: a lower-case b means bytes, not bits.",
                                     name, escaped(size_text), size->bytes));
  return add_entry(caps, name, size->bytes);
}

// The device an entry means; nothing where the machine has no such device.
std::optional<size_t> device_of(const Machine& machine, std::string_view name) {
  if (const auto exact = machine.find(name)) return exact;
  // "cuda:0" means accelerator 0 also where that is emulated: people keep their command lines.
  const auto number = accelerator_number(name);
  const std::vector<size_t> accelerators = machine.accelerators();
  if (number && *number < accelerators.size()) return accelerators[*number];
  return std::nullopt;
}

Error unknown_device(const Machine& machine, std::string_view name) {
  std::vector<std::string> names = machine.names();
  for (std::string& n : names) n = escaped(n);
  if (accelerator_number(name)) {
    const size_t count = machine.accelerators().size();
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("--max-memory names accelerator {}, but the machine has {} accelerator{}", quoted(name),
                             count, count == 1 ? "" : "s"),
                 {"`berth plan` can plan for devices that are not here; --emulate makes them for commands that run."});
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("--max-memory: the machine has no device {}{}; it has {}", quoted(name),
                           did_you_mean(escaped(name), names), join(names, ", ")));
}

uint64_t margin_of(const DeviceSpec& device, uint64_t budget_bytes, const Margin& margin) {
  if (device.kind == DeviceKind::kDisk || budget_bytes == 0) return 0;
  if (margin.bytes) return *margin.bytes;
  if (margin.share) return static_cast<uint64_t>(*margin.share * static_cast<double>(budget_bytes));
  if (device.kind == DeviceKind::kEmulated) return 0;
  return std::max(ceil_div<uint64_t>(budget_bytes, 100), kDefaultMarginBytes);
}

}  // namespace

Result<MemoryCaps> parse_max_memory(std::string_view text) {
  const std::string_view body = trimmed(text);
  if (!body.empty() && body[0] == '{') {
    auto document = JsonDocument::parse(body, {.max_bytes = kMaxJsonBytes});
    if (!document) {
      Error e = std::move(document).error().with_context("--max-memory");
      e.code = ErrorCode::kInvalidArgument;
      return e;
    }
    return max_memory_from_json(document->root());
  }
  MemoryCaps caps;
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      return Error(ErrorCode::kInvalidArgument, fmt::format("--max-memory: {} has no =SIZE", quoted(part)),
                   {"Write it as 0=18GiB,1=10GiB,cpu=48GiB."});
    TRY_STATUS(add_entry(caps, std::string_view(part).substr(0, equals), std::string_view(part).substr(equals + 1)));
  }
  return caps;
}

Result<MemoryCaps> max_memory_from_json(JsonView json) {
  if (!json.is_object())
    return Error(ErrorCode::kInvalidArgument, fmt::format("max_memory must be an object from device to size, found {}",
                                                          json_type_name(json.type())));
  MemoryCaps caps;
  for (const auto& [name, value] : json.members()) {
    if (const auto text = value.as_string()) {
      TRY_STATUS(add_entry(caps, name, *text));
    } else if (const auto bytes = value.as_uint64()) {
      TRY_STATUS(add_entry(caps, name, *bytes));
    } else {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("max_memory of {} must be a size (\"18GiB\") or a whole number of bytes, found {}", quoted(name),
                      value.is_number() ? value.text() : std::string(json_type_name(value.type()))));
    }
  }
  return caps;
}

Result<Machine> machine_for_caps(const Machine& machine, const MemoryCaps& caps, BeyondMachine beyond) {
  Machine out = machine;
  std::vector<std::pair<uint64_t, uint64_t>> absent;  // number, bytes
  for (const MemoryCaps::Entry& e : caps.entries) {
    if (device_of(machine, e.name) || e.name == "cpu" || e.name == "disk") continue;
    const auto number = accelerator_number(e.name);
    if (!number || beyond == BeyondMachine::kRefuse) return unknown_device(machine, e.name);
    if (*number >= kMaxAccelerators)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--max-memory: accelerator {} is beyond the {} that a machine may have", quoted(e.name),
                               kMaxAccelerators));
    absent.emplace_back(*number, e.bytes);
  }
  if (absent.empty()) return out;
  std::sort(absent.begin(), absent.end());
  const std::vector<size_t> existing = machine.accelerators();
  size_t position = existing.empty() ? 0 : existing.back() + 1;
  for (uint64_t number = existing.size(); number <= absent.back().first; ++number) {
    const auto named = std::find_if(absent.begin(), absent.end(), [&](const auto& a) { return a.first == number; });
    DeviceSpec device = emulated_device(number, named == absent.end() ? 0 : named->second);
    for (uint64_t k = number + 1; out.find(device.id); ++k)
      device.id = fmt::format("emu:{}", k);  // taken by a file's own
    out.devices.insert(out.devices.begin() + static_cast<std::ptrdiff_t>(position++), std::move(device));
  }
  TRY_STATUS(validate(out));
  return out;
}

Result<Margin> parse_margin(std::string_view text) {
  Margin margin;
  const std::string_view body = trimmed(text);
  if (!body.empty() && body.back() == '%') {
    const std::string_view number = body.substr(0, body.size() - 1);
    double percent = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
    if (error != std::errc() || end != number.data() + number.size() || !(percent >= 0 && percent < 100))
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("--margin {}: a share from 0% to below 100% was expected", quoted(text)),
                   {"Write it as 512MiB or 2%."});
    margin.share = percent / 100;
    return margin;
  }
  auto size = parse_size(body);
  if (!size) return std::move(size).error().with_context("--margin");
  if (size->bytes > kMaxMemoryBytes)
    return Error(ErrorCode::kInvalidArgument, fmt::format("--margin {}: more than 2^60 bytes", quoted(text)));
  margin.bytes = size->bytes;
  return margin;
}

Result<Budgets> device_budgets(const Machine& machine, const MemoryCaps& caps, const Margin& margin) {
  std::vector<std::optional<uint64_t>> cap(machine.devices.size());
  std::vector<std::string_view> capped_by(machine.devices.size());
  bool accelerator_named = false;
  for (const MemoryCaps::Entry& e : caps.entries) {
    const auto index = device_of(machine, e.name);
    if (!index) {
      if (e.name == "cpu" || e.name == "disk") continue;  // caps what is not there: nothing to do
      return unknown_device(machine, e.name);
    }
    if (cap[*index])
      return Error(ErrorCode::kInvalidArgument, fmt::format("--max-memory: {} and {} name the same device",
                                                            quoted(capped_by[*index]), quoted(e.name)));
    cap[*index] = e.bytes;
    capped_by[*index] = e.name;
    accelerator_named |= machine.devices[*index].is_accelerator();
  }

  Budgets out;
  out.notes = caps.notes;
  std::vector<std::string> unnamed;
  for (size_t i = 0; i < machine.devices.size(); ++i) {
    const DeviceSpec& d = machine.devices[i];
    DeviceBudget b;
    b.map_name = machine.map_name(i);
    b.machine_id = d.id;
    b.capped = cap[i].has_value();
    if (b.capped) {
      b.budget_bytes = d.memory_known ? std::min(d.memory_bytes, *cap[i]) : *cap[i];
      b.left_out = b.budget_bytes == 0;
      if (d.memory_known && *cap[i] > d.memory_bytes && d.kind != DeviceKind::kDisk)
        out.notes.push_back(fmt::format("Device {} has {}; the cap of {} changes nothing.", b.map_name,
                                        format_bytes(d.memory_bytes), format_bytes(*cap[i])));
    } else if (d.is_accelerator() && accelerator_named) {
      b.left_out = true;
      unnamed.push_back(b.map_name);
    } else if (!d.memory_known) {
      b.left_out = true;
      out.notes.push_back(
          fmt::format("How much memory device {} ({}) has could not be found out; it is left out. "
                      "--max-memory {}=SIZE uses it.",
                      b.map_name, escaped(d.id), b.map_name));
    } else {
      b.budget_bytes = d.memory_bytes;
    }
    if (b.budget_bytes > 0) b.overhead_bytes = d.overhead_bytes;
    b.margin_bytes = margin_of(d, b.budget_bytes, margin);
    out.devices.push_back(std::move(b));
  }
  if (!unnamed.empty())
    out.notes.push_back(fmt::format("--max-memory names accelerators, so those it does not name are left out: {}.",
                                    join(unnamed, ", ")));
  return out;
}

}  // namespace berth::machine
