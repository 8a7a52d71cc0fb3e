// plan/map_faults.cc — one pass over the tensors, then a line for each thing that goes wrong.
#include "berth/plan/map_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/plan/strategies/compat_transformers.h"

namespace berth::plan {
namespace {

// Loader check: names times keys; beyond this the check is left out (a map of that size is no hand-written one).
constexpr size_t kMaxLoaderChecks = 50'000'000;

std::string list_of(const std::vector<DeviceName>& devices) {
  std::string s;
  for (size_t i = 0; i < devices.size(); ++i)
    s += (i == 0 ? "" : i + 1 == devices.size() ? " and " : ", ") + devices[i].text();
  return s;
}

std::string plural(size_t n, std::string_view word) {
  return fmt::format("{} {}{}", group_digits(n), word, n == 1 ? "" : "s");
}

class Faults {
 public:
  explicit Faults(const MapFaultsRequest& request) : r_(request), places_(expanded(*request.tree, *request.map)) {
    for (const auto& [target, source] : r_.tree->ties) source_of_[target] = source;
    for (const DeviceLimit& l : r_.limits)
      if (l.device.is_accelerator() && l.budget_bytes > 0) accelerators_.push_back(l);
    add_up();
  }

  std::vector<MapFault> run() {
    refusal();
    uncovered();
    loader();
    budgets();
    kv();
    streaming_room();
    empty_accelerators();
    offloaded();
    quantized_away();
    ties();
    split_blocks();
    too_large();
    return std::move(out_);
  }

 private:
  void add(MapFaultKind kind, std::string message, const DeviceName* device = nullptr, std::string module = "",
           uint64_t needed = 0, uint64_t available = 0) {
    out_.push_back(
        {kind, std::move(message), device == nullptr ? "" : device->text(), std::move(module), needed, available});
  }

  // The one name a tied tensor is counted under.
  const std::string& counted_name(const std::string& path) const {
    const auto it = source_of_.find(path);
    return it == source_of_.end() ? path : it->second;
  }

  void add_up() {
    std::set<std::pair<DeviceName, std::string>> counted;
    std::map<std::string, uint64_t> streamed;  // by owning module
    main_ = DeviceName::cpu();
    for (const DeviceName& d : r_.map->devices())
      if (d.is_accelerator()) {
        main_ = d;
        break;
      }
    for (const TensorPlace& p : places_) {
      const uint64_t bytes = r_.stored_bytes(p.path);
      if (counted_everywhere_.insert(counted_name(p.path)).second) total_ += bytes;
      if (!p.device) continue;
      const bool away = !p.device->is_accelerator() && main_.is_accelerator();
      // Buffers of what is away stay on the main accelerator (offload_buffers=False).
      const DeviceName& on = away && p.is_buffer ? main_ : *p.device;
      if (!counted.emplace(on, counted_name(p.path)).second) continue;
      weights_[on] += bytes;
      if (away && !p.is_buffer) {
        away_bytes_ += bytes;
        away_modules_.insert(p.module);
        const std::string& key = r_.map->find(p.path)->first;
        if (away_entries_.empty() || away_entries_.back().first != key) away_entries_.emplace_back(key, 0);
        away_entries_.back().second += bytes;
        streamed[p.module] += bytes;
      }
    }
    for (const auto& [module, bytes] : streamed)
      if (bytes > largest_streamed_) {
        largest_streamed_ = bytes;
        largest_streamed_module_ = module;
      }
    for (const KvShare& k : r_.kv) {
      const DeviceName* d = r_.map->lookup(k.module);
      if (d == nullptr) {  // a map may only name what the module contains
        for (const TensorPlace& p : places_)
          if (p.device && p.path.size() > k.module.size() && p.path.starts_with(k.module) &&
              p.path[k.module.size()] == '.') {
            d = &*p.device;
            break;
          }
      }
      if (d != nullptr) kv_[d->is_accelerator() ? *d : main_] += k.bytes;
    }
  }

  uint64_t weights_on(const DeviceName& d) const {
    const auto it = weights_.find(d);
    return it == weights_.end() ? 0 : it->second;
  }
  uint64_t kv_on(const DeviceName& d) const {
    const auto it = kv_.find(d);
    return it == kv_.end() ? 0 : it->second;
  }

  void refusal() {
    if (r_.planned == nullptr || !r_.planned->error || r_.planned->error->stage == compat::Stage::kValidate)
      return;  // that one: quantized_away
    const auto& e = *r_.planned->error;
    add(MapFaultKind::kRefused,
        fmt::format("{} stops while {} with {}: {}.", compat::library_name(r_.planned->library),
                    e.stage == compat::Stage::kBalance ? "balancing" : "planning", e.raised.type, e.raised.message));
  }

  void uncovered() {
    size_t persistent = 0, computed = 0;
    std::string first;
    for (const TensorPlace& p : places_) {
      if (p.device) continue;
      if (first.empty() || (p.persistent && persistent == 0)) first = p.path;
      (p.persistent ? persistent : computed) += 1;
    }
    if (persistent + computed == 0) return;
    std::string text =
        fmt::format("{} no device, {} first: the module that owns {} was split, and its own tensors are in no entry",
                    persistent + computed == 1 ? "1 tensor has" : fmt::format("{} tensors have", persistent + computed),
                    quoted(first), persistent + computed == 1 ? "it" : "them");
    text += persistent > 0 ? "; dispatching refuses such a map."
                           : "; computed buffers are not checked, and stay where they were made.";
    add(MapFaultKind::kNoDevice, text, nullptr, first);
  }

  void loader() {
    if (places_.size() * (r_.map->entries.size() + 1) > kMaxLoaderChecks) return;
    size_t count = 0;
    std::string text, module;
    for (const TensorPlace& p : places_) {
      if (!p.device || p.is_buffer) continue;
      const auto got = compat::loader_device(*r_.map, p.path);
      if (got && *got == *p.device) continue;
      if (count++ > 0) continue;
      module = p.path;
      text = got ? fmt::format("{} to {} instead of {}", quoted(p.path), got->text(), p.device->text())
                 : fmt::format("{} nowhere (KeyError)", quoted(p.path));
    }
    if (count > 0)
      add(MapFaultKind::kLoaderReadsOtherwise,
          fmt::format(
              "Transformers' loader matches keys without a boundary and would load {} elsewhere than the map says: {}.",
              plural(count, "parameter"), text),
          nullptr, module);
  }

  std::string counted_by_library(const DeviceName& device) const {
    if (r_.planned == nullptr) return "";
    for (const auto& [name, bytes] : r_.planned->counted)
      if (name == device)
        return fmt::format("; {} counted {}", compat::library_name(r_.planned->library),
                           format_bytes(bytes.as_bytes()));
    return "";
  }

  void budgets() {
    for (const DeviceLimit& l : r_.limits) {
      const uint64_t held = weights_on(l.device);
      if (held <= l.budget_bytes) continue;
      add(MapFaultKind::kOverBudget,
          fmt::format("Device {}: its weights take {} as stored, {} more than its {}{}.", l.device.text(),
                      format_bytes(held), format_bytes(held - l.budget_bytes), format_bytes(l.budget_bytes),
                      counted_by_library(l.device)),
          &l.device, "", held, l.budget_bytes);
    }
    // A map may also use what has no budget at all.
    for (const auto& [device, held] : weights_) {
      const DeviceName& name = device;  // clang 14 captures no structured bindings
      const bool listed =
          std::any_of(r_.limits.begin(), r_.limits.end(), [&](const DeviceLimit& l) { return l.device == name; });
      if (listed || held == 0 || device.is_disk()) continue;  // the libraries never limit the disk
      add(MapFaultKind::kOverBudget,
          fmt::format("Device {} holds {} of weights but has no budget here.", device.text(), format_bytes(held)),
          &device, "", held, 0);
    }
  }

  void kv() {
    for (const DeviceLimit& l : r_.limits) {
      const uint64_t held = weights_on(l.device), cache = kv_on(l.device);
      if (cache == 0 || held > l.budget_bytes || cache <= l.budget_bytes - held) continue;
      add(MapFaultKind::kKvNotCounted,
          fmt::format("Device {}: the KV cache{} needs {}, and the weights leave {} of {}.", l.device.text(),
                      r_.kv_for.empty() ? "" : " for " + r_.kv_for, format_bytes(cache),
                      format_bytes(l.budget_bytes - held), format_bytes(l.budget_bytes)),
          &l.device, "", held + cache, l.budget_bytes);
    }
  }

  void streaming_room() {
    if (away_bytes_ == 0) return;
    for (const DeviceLimit& l : r_.limits) {
      if (!(l.device == main_)) continue;
      const uint64_t held = weights_on(main_) + kv_on(main_);
      if (held > l.budget_bytes || largest_streamed_ <= l.budget_bytes - held) continue;
      add(MapFaultKind::kNoRoomToStream,
          fmt::format("Device {} runs what is offloaded, but has {} free for {} of {}, which must come in whole.",
                      main_.text(), format_bytes(l.budget_bytes - held), format_bytes(largest_streamed_),
                      quoted(largest_streamed_module_)),
          &main_, largest_streamed_module_, held + largest_streamed_, l.budget_bytes);
    }
  }

  void empty_accelerators() {
    std::vector<DeviceName> empty;
    uint64_t bytes = 0;
    for (const DeviceLimit& l : accelerators_)
      if (weights_on(l.device) == 0) {
        empty.push_back(l.device);
        bytes += l.budget_bytes;
      }
    if (empty.empty()) return;
    add(MapFaultKind::kEmptyAccelerators,
        fmt::format("{} {} stay{} empty: {} unused.", empty.size() == 1 ? "Accelerator" : "Accelerators",
                    list_of(empty), empty.size() == 1 ? "s" : "", format_bytes(bytes)),
        empty.size() == 1 ? &empty[0] : nullptr, "", 0, bytes);
  }

  void offloaded() {
    if (away_bytes_ == 0) return;
    uint64_t room = 0;
    for (const DeviceLimit& l : accelerators_) room += l.budget_bytes;
    uint64_t kv = 0;
    for (const auto& [device, bytes] : kv_) kv += bytes;
    std::string first;
    for (size_t i = 0; i < away_entries_.size() && i < 3; ++i)
      first += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted(away_entries_[i].first),
                           format_bytes(away_entries_[i].second));
    if (away_entries_.size() > 3) first += ", ...";
    const std::string what =
        fmt::format("{} ({}: {}) {} on the cpu or the disk", plural(away_modules_.size(), "module"),
                    format_bytes(away_bytes_), first, away_modules_.size() == 1 ? "is" : "are");
    if (r_.native) {
      if (r_.native->on_accelerators_only)
        add(MapFaultKind::kOffloadedAlthough,
            fmt::format("{} although everything fits on accelerator{} {}: plan with --device-map best.", what,
                        r_.native->uses.size() == 1 ? "" : "s", list_of(r_.native->uses)),
            nullptr, "", total_ + kv, room);
    } else if (total_ + kv <= room) {
      add(MapFaultKind::kOffloadedAlthough,
          fmt::format("{} although the model{} has {} and the accelerators together {}.", what,
                      kv > 0 ? " with its KV cache" : "", format_bytes(total_ + kv), format_bytes(room)),
          nullptr, "", total_ + kv, room);
    }
    add(MapFaultKind::kStreamed,
        fmt::format("{}: not computed there, but copied to device {} for every token, {} each time.", what,
                    main_.text(), format_bytes(away_bytes_)),
        &main_, "", away_bytes_, 0);
    const DeviceName disk = DeviceName::disk();
    if (r_.planned != nullptr && weights_on(disk) > 0 && r_.planned->filled.find(DeviceName::cpu()) == nullptr)
      add(MapFaultKind::kNoCpuBudget,
          fmt::format("{} go to the disk because max_memory names no \"cpu\": {} then uses no RAM at all.",
                      format_bytes(weights_on(disk)), compat::library_name(r_.planned->library)),
          &disk, "", weights_on(disk), 0);
  }

  void quantized_away() {
    if (!r_.bitsandbytes) return;
    const bool refused = compat::bitsandbytes_refuses(*r_.map, r_.enable_fp32_cpu_offload);
    size_t modules = 0;
    uint64_t narrow = 0, wide = 0;
    std::string first;
    arch::for_each_module(*r_.tree, [&](const std::string& path, const arch::Module& m) {
      if (m.class_name != "Linear4bit" && m.class_name != "Linear8bitLt") return;
      bool away = false;
      for (const auto& p : m.parameters) {
        const std::string full = arch::join_path(path, p.name);
        const DeviceName* d = r_.map->lookup(full);
        if (d == nullptr || d->is_accelerator()) continue;
        away = true;
        narrow += r_.stored_bytes(full);
        wide +=
            r_.wide_bytes ? r_.wide_bytes(full) : dtype_bytes(p.dtype, element_count(p.shape).value_or(0)).value_or(0);
      }
      if (!away) return;
      if (modules++ == 0) first = path;
    });
    if (refused) {
      std::string what = modules > 0 ? fmt::format("{} ({} first) {} there", plural(modules, "quantized module"),
                                                   quoted(first), modules == 1 ? "is" : "are")
                                     : std::string("no quantized module is even there");
      add(MapFaultKind::kQuantizedRefused,
          fmt::format("Transformers refuses this map: it has cpu or disk entries and llm_int8_enable_fp32_cpu_offload "
                      "is off; {}.",
                      what),
          nullptr, first, narrow, 0);
      return;
    }
    if (modules == 0 || !r_.enable_fp32_cpu_offload) return;
    if (r_.map_is_users)
      add(MapFaultKind::kQuantizedWidened,
          fmt::format("{} ({} first) on the cpu or the disk stay wide: {} instead of {}.", plural(modules, "module"),
                      quoted(first), format_bytes(wide), format_bytes(narrow)),
          nullptr, first, wide, narrow);
    else
      add(MapFaultKind::kQuantizedWidened,
          fmt::format("{} ({} first) stay quantized on the cpu or the disk although llm_int8_enable_fp32_cpu_offload "
                      "says fp32: the map was not known when layers were replaced.",
                      plural(modules, "module"), quoted(first)),
          nullptr, first, wide, narrow);
  }

  void ties() {
    std::map<std::string, std::vector<std::string>> groups;  // source -> targets
    for (const auto& [target, source] : r_.tree->ties) groups[source].push_back(target);
    for (const auto& [source, targets] : groups) {
      std::map<DeviceName, std::string> on;
      for (const std::string& name : targets)
        if (const DeviceName* d = r_.map->lookup(name)) on.emplace(*d, name);
      if (const DeviceName* d = r_.map->lookup(source)) on.insert_or_assign(*d, source);
      if (on.size() < 2) continue;
      std::string text;
      for (const auto& [device, name] : on)
        text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", quoted(name), device.text());
      const uint64_t bytes = r_.stored_bytes(source);
      add(MapFaultKind::kTiesSplit,
          fmt::format("One tied tensor of {} lies on {} devices, held on each: {}.", format_bytes(bytes), on.size(),
                      text),
          nullptr, source, bytes * on.size(), bytes);
    }
  }

  void split_blocks() {
    const std::set<std::string> classes(r_.tree->no_split_classes.begin(), r_.tree->no_split_classes.end());
    if (classes.empty()) return;
    std::vector<std::string> blocks;
    arch::for_each_module(*r_.tree, [&](const std::string& path, const arch::Module& m) {
      if (classes.contains(m.class_name)) blocks.push_back(path);
    });
    // Tensors come in definition order, and so do blocks: one pass.
    size_t cut = 0;
    std::string first;
    for (size_t b = 0, t = 0; b < blocks.size(); ++b) {
      const std::string prefix = blocks[b] + ".";
      while (t < places_.size() && !places_[t].path.starts_with(prefix)) ++t;
      std::set<DeviceName> on;
      for (size_t k = t; k < places_.size() && places_[k].path.starts_with(prefix); ++k)
        if (places_[k].device) on.insert(*places_[k].device);
      if (t == places_.size()) t = 0;  // a block without tensors: start over for the next one
      if (on.size() > 1 && cut++ == 0) first = blocks[b];
    }
    if (cut > 0)
      add(MapFaultKind::kBlockSplit,
          fmt::format("{} that must stay whole {} divided between devices, {} first: Transformers' forward pass fails "
                      "or copies there.",
                      plural(cut, "block"), cut == 1 ? "is" : "are", quoted(first)),
          nullptr, first);
  }

  // What the libraries' planners cannot divide: modules without children.
  void too_large() {
    if (accelerators_.empty()) return;
    uint64_t most = 0;
    DeviceName roomiest;
    for (const DeviceLimit& l : accelerators_)
      if (l.budget_bytes > most) {
        most = l.budget_bytes;
        roomiest = l.device;
      }
    size_t count = 0;
    uint64_t worst = 0;
    std::string module;
    arch::for_each_module(*r_.tree, [&](const std::string& path, const arch::Module& m) {
      if (!m.same_as.empty()) return;
      uint64_t own = 0;
      for (const auto& p : m.parameters) own += r_.stored_bytes(arch::join_path(path, p.name));
      if (own <= most) return;
      ++count;
      if (own > worst) {
        worst = own;
        module = path;
      }
    });
    if (count == 0) return;
    add(MapFaultKind::kTooLargeForAny,
        fmt::format("{} alone takes {}{}, more than any accelerator holds ({}: {}); a smaller format, a larger budget, "
                    "or a table left on the cpu would help.",
                    quoted(module), format_bytes(worst),
                    count > 1 ? fmt::format(" (and {} more are too large)", count - 1) : "", roomiest.text(),
                    format_bytes(most)),
        nullptr, module, worst, most);
  }

  const MapFaultsRequest& r_;
  std::vector<TensorPlace> places_;
  std::unordered_map<std::string, std::string> source_of_;  // tie's target -> source
  std::vector<DeviceLimit> accelerators_;                   // those with a budget
  DeviceName main_;                                         // runs what is away
  std::map<DeviceName, uint64_t> weights_, kv_;
  std::set<std::string> counted_everywhere_, away_modules_;
  uint64_t total_ = 0, away_bytes_ = 0, largest_streamed_ = 0;
  std::string largest_streamed_module_;
  std::vector<std::pair<std::string, uint64_t>> away_entries_;  // map entries off the accelerators and their weights
  std::vector<MapFault> out_;
};

}  // namespace

std::string_view map_fault_name(MapFaultKind kind) {
  switch (kind) {
    case MapFaultKind::kRefused:
      return "refused";
    case MapFaultKind::kNoDevice:
      return "no_device";
    case MapFaultKind::kLoaderReadsOtherwise:
      return "loader_reads_otherwise";
    case MapFaultKind::kOverBudget:
      return "over_budget";
    case MapFaultKind::kKvNotCounted:
      return "kv_not_counted";
    case MapFaultKind::kNoRoomToStream:
      return "no_room_to_stream";
    case MapFaultKind::kEmptyAccelerators:
      return "empty_accelerators";
    case MapFaultKind::kOffloadedAlthough:
      return "offloaded_although";
    case MapFaultKind::kStreamed:
      return "streamed";
    case MapFaultKind::kNoCpuBudget:
      return "no_cpu_budget";
    case MapFaultKind::kQuantizedRefused:
      return "quantized_refused";
    case MapFaultKind::kQuantizedWidened:
      return "quantized_widened";
    case MapFaultKind::kTiesSplit:
      return "ties_split";
    case MapFaultKind::kBlockSplit:
      return "block_split";
    case MapFaultKind::kTooLargeForAny:
      return "too_large_for_any";
  }
  return "";
}

std::vector<MapFault> map_faults(const MapFaultsRequest& request) { return Faults(request).run(); }

}  // namespace berth::plan
