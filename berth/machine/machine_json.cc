// machine/machine_json.cc — machine files, both ways. One row per key of a device: what it must be and where it goes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "berth/base/strings.h"
#include "berth/machine/machine.h"

namespace berth::machine {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kMaxLatencyS = 1e5;  // fits picoseconds into 64 bits with room for sums
constexpr size_t kMaxFileBytes = size_t{1} << 20;

// What a value looks like in a message: its own text, cut.
std::string shown(JsonView v) {
  if (!v.valid()) return "nothing";
  if (v.is_object() || v.is_array()) return std::string(json_type_name(v.type()));
  std::string text = escaped(v.text());
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

Error wrong(const std::string& where, std::string_view key, std::string_view expected, JsonView found) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{}: \"{}\" must be {}, found {}", where, key, expected, shown(found)));
}

class Reader {
 public:
  Reader(JsonView object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<std::string> text(std::string_view key) const {
    const auto value = object_[key].as_string();
    if (!value || value->empty()) return wrong(where_, key, "a string", object_[key]);
    return std::string(*value);
  }
  Result<std::string> optional_text(std::string_view key) const {
    if (!object_.contains(key)) return std::string();
    return text(key);
  }

  Result<uint64_t> bytes(std::string_view key, std::optional<uint64_t> fallback = std::nullopt) const {
    const JsonView v = object_[key];
    if (!v.valid() && fallback) return *fallback;
    constexpr std::string_view kExpected = "a whole number of bytes from 0 to 2^60";
    if (const auto n = v.as_uint64()) {
      if (*n > kMaxMemoryBytes) return wrong(where_, key, kExpected, v);
      return *n;
    }
    // 1.6e10 is a whole number too, if a JSON writer chose that spelling.
    const auto d = v.as_double();
    if (!d || !(*d >= 0) || *d > 9007199254740992.0 || *d != std::floor(*d)) {
      const Error e = wrong(where_, key, kExpected, v);
      return v.is_string() ? e.with_hint("Machine files give sizes as plain numbers: 16 GiB is 17179869184.") : e;
    }
    return static_cast<uint64_t>(*d);
  }

  // A rate per second, rounded to a whole number; above 0 unless `fallback` stands in for an absent key.
  Result<int64_t> rate(std::string_view key, std::optional<int64_t> fallback = std::nullopt) const {
    const JsonView v = object_[key];
    if (!v.valid() && fallback) return *fallback;
    const auto d = v.as_double();
    if (!d || !(*d >= 0.5) || *d > static_cast<double>(kMaxRate))
      return wrong(where_, key, "a number above 0 and at most 1e18", v);
    return static_cast<int64_t>(std::llround(*d));
  }

  Result<int64_t> latency(std::string_view key, std::optional<int64_t> fallback) const {
    const JsonView v = object_[key];
    if (!v.valid() && fallback) return *fallback;
    const auto d = v.as_double();
    if (!d || !(*d >= 0) || *d > kMaxLatencyS)
      return wrong(where_, key, fmt::format("a number of seconds from 0 to {:g}", kMaxLatencyS), v);
    return static_cast<int64_t>(std::llround(*d * kPicosecondsPerSecond));
  }

 private:
  JsonView object_;
  std::string where_;
};

Result<DeviceKind> read_kind(JsonView v, const std::string& where) {
  static constexpr DeviceKind kKinds[] = {DeviceKind::kEmulated, DeviceKind::kCuda, DeviceKind::kCpu,
                                          DeviceKind::kDisk};
  const auto text = v.as_string();
  std::vector<std::string> names;
  for (const DeviceKind kind : kKinds) {
    if (text && *text == device_kind_name(kind)) return kind;
    names.emplace_back(device_kind_name(kind));
  }
  Error e = wrong(where, "kind", fmt::format("one of {}", join(names, ", ")), v);
  if (text) e.message += did_you_mean(*text, names);
  return e;
}

Result<std::optional<Isa>> read_kernels(JsonView v, const std::string& where) {
  if (!v.valid()) return std::optional<Isa>();
  const auto text = v.as_string();
  if (text && *text == "auto") return std::optional<Isa>();
  std::vector<std::string> names = {"auto"};
  for (const Isa isa : all_isas()) {
    if (text && *text == isa_name(isa)) return std::optional<Isa>(isa);
    names.emplace_back(isa_name(isa));
  }
  Error e = wrong(where, "kernels", fmt::format("one of {}", join(names, ", ")), v);
  if (text) e.message += did_you_mean(*text, names);
  return e;
}

Result<DeviceSpec> read_device(JsonView v, size_t index) {
  std::string where = fmt::format("devices[{}]", index);
  if (!v.is_object())
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} must be an object, found {}", where, shown(v)));
  DeviceSpec d;
  TRY(d.id, Reader(v, where).text("id"));
  where += fmt::format(" ({})", quoted(d.id));
  const Reader read(v, where);
  TRY(d.kind, read_kind(v["kind"], where));
  const bool disk = d.kind == DeviceKind::kDisk;
  const std::optional<int64_t> absent_is_zero(0), required;
  d.memory_known = !v["memory_bytes"].valid() || v["memory_bytes"].type() != JsonType::kNull;
  if (d.memory_known) {
    TRY(d.memory_bytes, read.bytes("memory_bytes"));
  }
  TRY(d.read_bytes_per_s, read.rate("read_bytes_per_s"));
  TRY(d.flops_per_s, read.rate("flops_per_s", disk ? absent_is_zero : required));
  if (d.is_accelerator()) {  // cpu and disk have no link of their own; what a file says of one means nothing
    TRY(d.link_bytes_per_s, read.rate("link_bytes_per_s"));
    TRY(d.link_latency_ps, read.latency("link_latency_s", absent_is_zero));
  }
  TRY(d.overhead_bytes, read.bytes("overhead_bytes", 0));
  TRY(d.kernels, read_kernels(v["kernels"], where));
  TRY(d.description, read.optional_text("name"));
  return d;
}

Result<LinkSpec> read_link(JsonView v, size_t index) {
  const std::string where = fmt::format("links[{}]", index);
  if (!v.is_object())
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} must be an object, found {}", where, shown(v)));
  const Reader read(v, where);
  LinkSpec l;
  TRY(l.from, read.text("from"));
  TRY(l.to, read.text("to"));
  TRY(l.bytes_per_s, read.rate("bytes_per_s"));
  TRY(l.latency_ps, read.latency("latency_s", 0));
  return l;
}

// A machine file is the user's to mend, whatever is wrong with it: exit 2, not "corrupt checkpoint".
Error as_usage_error(Error e) {
  if (e.code == ErrorCode::kCorruptData) e.code = ErrorCode::kInvalidArgument;
  return e;
}

}  // namespace

Result<Machine> machine_from_json(JsonView json) {
  if (!json.is_object())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a machine must be an object with \"devices\", found {}", shown(json)));
  const JsonView devices = json["devices"];
  if (!devices.is_array()) return wrong("machine", "devices", "an array of objects", devices);
  if (devices.size() > kMaxDevices)
    return Error(ErrorCode::kInvalidArgument, fmt::format("machine: \"devices\" must have at most {} entries, found {}",
                                                          kMaxDevices, devices.size()));
  Machine machine;
  for (const JsonView v : devices.elements()) {
    TRY(auto device, read_device(v, machine.devices.size()));
    machine.devices.push_back(std::move(device));
  }
  if (const JsonView links = json["links"]; links.valid() && !links.is_null()) {
    if (!links.is_array()) return wrong("machine", "links", "an array of objects", links);
    if (links.size() > kMaxDevices * kMaxDevices)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("machine: \"links\" has too many entries, found {}", links.size()));
    for (const JsonView v : links.elements()) {
      TRY(auto link, read_link(v, machine.links.size()));
      machine.links.push_back(std::move(link));
    }
  }
  TRY_STATUS(validate(machine));
  return machine;
}

Result<Machine> parse_machine(std::string_view json_text) {
  auto document = JsonDocument::parse(json_text, {.max_bytes = kMaxFileBytes});
  if (!document) return as_usage_error(std::move(document).error().with_context("reading a machine"));
  return machine_from_json(document->root());
}

Result<Machine> read_machine_file(const std::string& path) {
  auto document = JsonDocument::parse_file(path, {.max_bytes = kMaxFileBytes});
  if (!document) return as_usage_error(std::move(document).error().with_context("reading a machine file"));
  auto machine = machine_from_json(document->root());
  if (!machine) return std::move(machine).error().with_context(fmt::format("machine file {}", quoted(path, 400)));
  return machine;
}

void write_machine(const Machine& machine, JsonWriter& out) {
  out.begin_object().key("devices").begin_array();
  for (const DeviceSpec& d : machine.devices) {
    out.begin_object().member("id", d.id).member("kind", device_kind_name(d.kind));
    if (!d.description.empty()) out.member("name", d.description);
    out.key("memory_bytes");
    if (d.memory_known)
      out.value(d.memory_bytes);
    else
      out.null();
    out.member("read_bytes_per_s", d.read_bytes_per_s);
    if (d.kind != DeviceKind::kDisk) out.member("flops_per_s", d.flops_per_s);
    if (d.is_accelerator()) {
      out.member("link_bytes_per_s", d.link_bytes_per_s);
      out.member("link_latency_s", d.link_latency_s());
    }
    if (d.is_accelerator() || d.overhead_bytes != 0) out.member("overhead_bytes", d.overhead_bytes);
    if (d.kind == DeviceKind::kEmulated || d.kernels) out.member("kernels", d.kernels ? isa_name(*d.kernels) : "auto");
    out.end_object();
  }
  out.end_array();
  if (!machine.links.empty()) {
    out.key("links").begin_array();
    for (const LinkSpec& l : machine.links)
      out.begin_object()
          .member("from", l.from)
          .member("to", l.to)
          .member("bytes_per_s", l.bytes_per_s)
          .member("latency_s", static_cast<double>(l.latency_ps) / kPicosecondsPerSecond)
          .end_object();
    out.end_array();
  }
  out.end_object();
}

std::string machine_json(const Machine& machine, int indent) {
  JsonWriter out(indent);
  write_machine(machine, out);
  return out.take();
}

}  // namespace berth::machine
