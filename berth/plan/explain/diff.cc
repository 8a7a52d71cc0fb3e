// plan/explain/diff.cc — see diff.h.
#include "berth/plan/explain/diff.h"

#include <fmt/format.h>

#include <map>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/plan/device_map.h"

namespace berth::plan {
namespace {

int64_t change(uint64_t from, uint64_t to) { return static_cast<int64_t>(to) - static_cast<int64_t>(from); }

std::string signed_bytes(int64_t bytes) {
  if (bytes == 0) return "0";
  return (bytes < 0 ? "-" : "+") + format_bytes(static_cast<uint64_t>(bytes < 0 ? -bytes : bytes));
}

}  // namespace

PlanDifference diff(const Plan& from, const Plan& to) {
  PlanDifference out;
  std::map<std::string, const PlacedUnit*, std::less<>> later;
  for (const PlacedUnit& u : to.units) later[u.path] = &u;
  std::map<std::string, bool, std::less<>> seen;
  for (const PlacedUnit& u : from.units) {
    seen[u.path] = true;
    const auto other = later.find(u.path);
    if (other == later.end()) {
      out.moved.push_back({u.path, u.device, "", u.computed_on, "", u.stored_bytes});
    } else if (other->second->device != u.device || other->second->computed_on != u.computed_on) {
      out.moved.push_back({u.path, u.device, other->second->device, u.computed_on, other->second->computed_on,
                           other->second->stored_bytes});
    }
  }
  for (const PlacedUnit& u : to.units)
    if (!seen.contains(u.path)) out.moved.push_back({u.path, "", u.device, "", u.computed_on, u.stored_bytes});
  std::vector<std::string> ids;
  for (const DeviceUse& d : from.devices) ids.push_back(d.id);
  for (const DeviceUse& d : to.devices)
    if (from.device(d.id) == nullptr) ids.push_back(d.id);
  for (const std::string& id : ids) {
    static const DeviceUse kNone;
    const DeviceUse& a = from.device(id) == nullptr ? kNone : *from.device(id);
    const DeviceUse& b = to.device(id) == nullptr ? kNone : *to.device(id);
    const PlanDifference::DeviceChange c{id,
                                         a.used(),
                                         b.used(),
                                         change(a.weights_bytes, b.weights_bytes),
                                         change(a.kv_bytes, b.kv_bytes),
                                         change(a.workspace_bytes, b.workspace_bytes),
                                         change(a.staging_bytes, b.staging_bytes),
                                         change(a.free_bytes(), b.free_bytes())};
    if (c.any()) out.devices.push_back(c);
  }
  out.decode_tokens_per_s_from = from.estimate.decode_tokens_per_s;
  out.decode_tokens_per_s_to = to.estimate.decode_tokens_per_s;
  return out;
}

std::string diff_text(const PlanDifference& d, const PictureStyle&) {
  if (d.moved.empty() && d.devices.empty()) return "The plans are the same.\n";
  std::string out;
  const auto place = [](const std::string& stored, const std::string& computed) {
    if (stored.empty()) return std::string("absent");
    return computed == stored || computed.empty() ? stored : stored + " (computed on " + computed + ")";
  };
  for (const auto& m : d.moved)
    out += fmt::format("  {:<44} {} -> {}  {}\n", escaped(m.path), place(m.from, m.computed_from),
                       place(m.to, m.computed_to), format_bytes(m.bytes));
  if (!d.devices.empty())
    out += fmt::format("\n  {:<8} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "device", "weights", "KV cache", "workspace",
                       "staging", "free");
  for (const auto& c : d.devices)
    out += fmt::format("  {:<8} {:>12} {:>12} {:>12} {:>12} {:>12}\n", c.id, signed_bytes(c.weights_bytes),
                       signed_bytes(c.kv_bytes), signed_bytes(c.workspace_bytes), signed_bytes(c.staging_bytes),
                       signed_bytes(c.free_bytes));
  if (d.decode_tokens_per_s_from > 0 && d.decode_tokens_per_s_to > 0)
    out +=
        fmt::format("\n  decoding {:.1f} -> {:.1f} tokens/s\n", d.decode_tokens_per_s_from, d.decode_tokens_per_s_to);
  return out;
}

void write_diff(const PlanDifference& d, JsonWriter& out) {
  const auto device = [&](std::string_view key, const std::string& id) {
    out.key(key);
    if (id.empty())
      out.null();
    else
      DeviceName::from_key(id).write(out);
  };
  out.begin_array();
  for (const auto& m : d.moved) {
    out.begin_object().member("path", m.path);
    device("from", m.from);
    device("to", m.to);
    out.member("bytes", m.bytes);
    device("computed_from", m.computed_from);
    device("computed_to", m.computed_to);
    out.end_object();
  }
  for (const auto& c : d.devices)
    out.begin_object()
        .key("path")
        .null()
        .member("device", c.id)
        .member("from", c.used_from)
        .member("to", c.used_to)
        .member("bytes", change(c.used_from, c.used_to))
        .member("weights_bytes", c.weights_bytes)
        .member("kv_bytes", c.kv_bytes)
        .member("workspace_bytes", c.workspace_bytes)
        .member("staging_bytes", c.staging_bytes)
        .member("free_bytes", c.free_bytes)
        .end_object();
  out.end_array();
}

}  // namespace berth::plan
