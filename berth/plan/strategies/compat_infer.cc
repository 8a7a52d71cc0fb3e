// plan/strategies/compat_infer.cc — the loop of section 4, with the queue kept as a stack whose entries know the
// largest layer below them, so that a step costs no walk over the rest of the model.
#include "berth/plan/strategies/compat_infer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "berth/base/strings.h"

namespace berth::plan::compat {
namespace {

bool is_under(std::string_view name, std::string_view module) {  // name.startswith(module + ".")
  return name.size() > module.size() && name[module.size()] == '.' && name.starts_with(module);
}

// The largest thing that cannot be divided below each module ("layer" in the libraries), found once per module.
class LargestLayers {
 public:
  explicit LargestLayers(const Model& model) : model_(model), known_(model.items().size()) {}

  // Tensors, modules without children and blocks count whole; other modules by their children, without their tensors.
  Number of(int32_t i) {
    auto& slot = known_[static_cast<size_t>(i)];
    if (!slot) {
      if (is_whole(i)) {
        slot = model_.item(i).size;
      } else {
        Number most;
        for (const int32_t c : model_.children(i)) most = max_of(most, of(c));
        known_[static_cast<size_t>(i)] = most;
      }
    }
    return *known_[static_cast<size_t>(i)];
  }

  // Names at or below i whose size is `size`, the largest there.
  void collect(int32_t i, const Number& size, std::set<std::string_view>& names) {
    if (is_whole(i)) {
      if (model_.item(i).size == size) names.insert(model_.item(i).path);
      return;
    }
    for (const int32_t c : model_.children(i))
      if (of(c) == size) collect(c, size, names);
  }

 private:
  bool is_whole(int32_t i) const { return !model_.has_children(i) || model_.item(i).is_block; }
  const Model& model_;
  std::vector<std::optional<Number>> known_;
};

// The modules and tensors still to place, front first.
class Queue {
 public:
  Queue(const Model& model, LargestLayers& largest) : model_(model), largest_(largest) {}

  bool empty() const { return stack_.empty(); }
  void push_front(int32_t i) {
    Number below = stack_.empty() ? Number() : stack_.back().largest;
    if (model_.item(i).is_module()) {
      const Number own = largest_.of(i);
      if (own >= below && own > Number()) below = own;  // the front one is met first
    }
    stack_.push_back({i, below});
  }
  int32_t pop_front() {
    const int32_t i = stack_.back().item;
    stack_.pop_back();
    return i;
  }
  // Front to back.
  std::vector<int32_t> list() const {
    std::vector<int32_t> out;
    out.reserve(stack_.size());
    for (size_t k = stack_.size(); k-- > 0;) out.push_back(stack_[k].item);
    return out;
  }
  void assign(const std::vector<int32_t>& items) {
    stack_.clear();
    push_all_front(items);
  }
  void push_all_front(const std::vector<int32_t>& items) {
    for (size_t k = items.size(); k-- > 0;) push_front(items[k]);
  }

  // The largest layer of the modules (not the bare tensors) in the queue, and every name that reaches it.
  Number largest_of_modules(std::set<std::string_view>& names) {
    names.clear();
    const Number most = stack_.empty() ? Number() : stack_.back().largest;
    for (size_t k = stack_.size(); k-- > 0 && stack_[k].largest == most;)
      if (model_.item(stack_[k].item).is_module() && largest_.of(stack_[k].item) == most)
        largest_.collect(stack_[k].item, most, names);
    return most;
  }

 private:
  struct Entry {
    int32_t item;
    Number largest;  // over the modules from here to the back
  };
  const Model& model_;
  LargestLayers& largest_;
  std::vector<Entry> stack_;
};

class Inference {
 public:
  Inference(const Model& model, const Budgets& budgets, const InferOptions& options)
      : model_(model),
        options_(options),
        hf_(model.library() == Library::kTransformers),
        repaired_(hf_ && options.revision != Revision::kBefore47203),
        largest_(model),
        queue_(model, largest_) {
    for (const auto& [name, bytes] : budgets.entries) devices_.push_back({name, bytes});
    if (budgets.find(DeviceName::disk()) == nullptr) devices_.push_back({DeviceName::disk(), Number()});
    size_t first = devices_.size(), mps = devices_.size();
    for (size_t d = devices_.size(); d-- > 0;) {
      if (devices_[d].name.is_accelerator()) first = d;
      if (devices_[d].name == DeviceName::mps()) mps = d;
    }
    for (size_t d = 0; d < devices_.size(); ++d)
      devices_[d].keeps_reserve = mps < devices_.size() ? d == mps : d == first || devices_[d].name.is_cpu();
    for (const auto& group : model.tied_groups()) {
      auto& dotted = groups_.emplace_back();
      for (const std::string& name : group) dotted.push_back(name + ".");
    }
    no_placement_.insert(options.no_placement.begin(), options.no_placement.end());
  }

  Outcome<Inferred> run() {
    std::vector<int32_t> start = model_.direct_parameters(0);
    append(start, model_.children(0));
    append(start, model_.direct_buffers(0));
    queue_.assign(start);
    for (const int32_t i : start) big_ = max_of(big_, largest_.of(i));
    for (const int32_t i : start)
      if (largest_.of(i) == big_) largest_.collect(i, big_, names_);
    // Each step places, splits, rescues or leaves a device; more steps than that would never end.
    size_t steps = 8 * (model_.items().size() + devices_.size()) + 64;
    while (!queue_.empty()) {
      if (steps-- == 0)
        return Raised{"RuntimeError",
                      "the library's loop does not end on this model (it rescues the same module again and again)"};
      if (!step()) return *raised_;
    }
    return finish();
  }

 private:
  struct Device {
    DeviceName name;
    Number budget;
    bool keeps_reserve = false;
    Number used, buffers;
    std::optional<Number> needed;  // set where the device was left empty
    bool unlimited() const { return name.is_disk(); }
    bool holds(const Number& bytes, const Number& reserve) const {  // an exact fit is one
      return unlimited() || used + bytes <= budget - reserve;
    }
  };
  // Partners of x that go with it, as queue entries.
  struct WithTies {
    Number total;
    std::vector<int32_t> entries;
  };

  static void append(std::vector<int32_t>& to, const std::vector<int32_t>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  bool fail(std::string type, std::string message) {
    raised_ = Raised{std::move(type), std::move(message)};
    return false;
  }
  bool can_split(int32_t i) const {
    return model_.item(i).is_module() && model_.has_children(i) && !model_.item(i).is_block;
  }
  // What a split module is replaced by: its direct buffers are forgotten.
  std::vector<int32_t> parts(int32_t i) const {
    std::vector<int32_t> out = model_.direct_parameters(i);
    append(out, model_.children(i));
    return out;
  }
  std::vector<int32_t> with_parts_for(const std::vector<int32_t>& items, int32_t opened) const {
    std::vector<int32_t> out;
    for (const int32_t i : items) {
      if (i == opened)
        append(out, parts(i));
      else
        out.push_back(i);
    }
    return out;
  }

  void forget_largest(std::string_view name) {
    names_.erase(name);
    const std::string dot = std::string(name) + ".";
    for (auto it = names_.lower_bound(dot); it != names_.end() && it->starts_with(dot);) it = names_.erase(it);
  }

  // Members of tied groups that have a part in x and a part outside: those outside. "In" is a substring test.
  std::vector<std::string_view> partners(const std::string& name) const {
    std::vector<std::string_view> out;
    if (groups_.empty()) return out;
    const std::string dotted = name + ".";
    for (const auto& group : groups_) {
      const auto inside = [&](const std::string& member) { return member.find(dotted) != std::string::npos; };
      const auto count = static_cast<size_t>(std::count_if(group.begin(), group.end(), inside));
      if (count == 0 || count == group.size()) continue;
      for (const std::string& member : group)
        if (!inside(member)) out.push_back(std::string_view(member).substr(0, member.size() - 1));
    }
    return out;
  }

  // 4.3. `queue` front to back, without x.
  std::optional<WithTies> with_ties(const std::vector<std::string_view>& partners, const Number& own,
                                    const std::vector<int32_t>& queue) {
    WithTies out{own, {}};
    for (const std::string_view p : partners) {
      const auto it =
          std::find_if(queue.begin(), queue.end(), [&](int32_t i) { return is_under(p, model_.item(i).path); });
      if (it == queue.end()) {
        fail("IndexError", fmt::format("the tied partner {} is in no module that is still to be placed", quoted(p)));
        return std::nullopt;
      }
      const bool known = std::find(out.entries.begin(), out.entries.end(), *it) != out.entries.end();
      if (repaired_ && known) continue;
      out.entries.push_back(*it);
      out.total += repaired_ ? model_.item(*it).size : model_.item(*it).size - size_of_name(p);
    }
    return out;
  }

  Number size_of_name(std::string_view name) {
    if (by_name_.empty())
      for (size_t i = 0; i < model_.items().size(); ++i)
        by_name_.emplace(model_.items()[i].path, static_cast<int32_t>(i));
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? Number() : model_.item(it->second).size;
  }

  bool step() {
    const int32_t x = queue_.pop_front();
    const Item& item = model_.item(x);
    forget_largest(item.path);
    if (names_.empty()) big_ = queue_.largest_of_modules(names_);
    const auto tied = partners(item.path);
    Device& d = devices_[at_];
    const Number reserve = d.keeps_reserve ? big_ : Number();
    WithTies all{item.size, {}};
    if (!tied.empty()) {
      auto found = with_ties(tied, item.size, queue_.list());
      if (!found) return false;
      all = *std::move(found);
    }
    if (d.holds(all.total, reserve)) return place(x, all);
    if (!tied.empty() && d.holds(item.size, reserve)) {
      // x alone would fit: open the first partner that can be opened.
      for (const int32_t t : all.entries) {
        if (!can_split(t)) continue;
        queue_.assign(with_parts_for(queue_.list(), t));
        queue_.push_front(x);
        big_ = queue_.largest_of_modules(names_);
        return true;
      }
    }
    if (repaired_ || !(d.used + item.size < d.budget - reserve)) {
      if (can_split(x)) {
        queue_.push_all_front(parts(x));
        big_ = queue_.largest_of_modules(names_);
        return true;
      }
      if (leave_parameters_out(x, all.total)) return true;
    }
    if (!hf_ && options_.fallback_allocation && d.used == Number() && !d.unlimited()) {
      bool rescued = false;
      if (!rescue(x, d.budget - max_of(big_, all.total), rescued)) return false;
      if (rescued) return true;
    }
    if (d.used == Number()) d.needed = all.total + reserve;
    d.used += reserve;
    ++at_;
    queue_.push_front(x);
    return true;
  }

  bool place(int32_t x, const WithTies& all) {
    Device& d = devices_[at_];
    d.used += all.total;
    placed_.insert_or_assign(model_.item(x).path, at_);
    for (const int32_t t : all.entries) placed_.insert_or_assign(model_.item(t).path, at_);
    if (!all.entries.empty()) {
      std::vector<int32_t> rest;
      for (const int32_t i : queue_.list())
        if (std::find(all.entries.begin(), all.entries.end(), i) == all.entries.end()) rest.push_back(i);
      queue_.assign(rest);
    }
    if (!options_.offload_buffers && model_.item(x).is_module()) d.buffers += model_.buffer_bytes(x);
    return true;
  }

  // 4.6: a block that owns parameters which need no place is taken apart instead of leaving the device.
  bool leave_parameters_out(int32_t x, const Number& total) {
    if (!repaired_ || no_placement_.empty() || !model_.item(x).is_module() || !model_.item(x).is_block) return false;
    if (at_ + 1 >= devices_.size()) return false;
    const Device& next = devices_[at_ + 1];
    if (!next.name.is_accelerator() || next.holds(total, Number())) return false;
    const size_t prefix = model_.item(x).path.size() + 1;
    const auto named = [&](int32_t i) { return no_placement_.contains(model_.item(i).path.substr(prefix)); };
    std::vector<int32_t> inner = model_.all_tensors(x, Item::Kind::kParameter);
    if (std::none_of(inner.begin(), inner.end(), named)) return false;
    append(inner, model_.all_tensors(x, Item::Kind::kBuffer));
    inner.erase(std::remove_if(inner.begin(), inner.end(), named), inner.end());
    queue_.push_all_front(inner);
    return true;
  }

  // 4.4: for a device that is still empty, the first module of the rest that it can hold. Returns false where raised.
  bool rescue(int32_t x, const Number& limit, bool& rescued) {
    if (limit.is_float())
      return fail("AttributeError", "fallback_allocation needs whole numbers: a float budget has no such method");
    if (limit < Number()) return true;
    const std::vector<int32_t> rest = queue_.list();
    std::deque<int32_t> todo(rest.begin(), rest.end());
    std::unordered_map<int32_t, int32_t> container;  // of what was opened on the way down
    while (!todo.empty()) {
      const int32_t y = todo.front();
      todo.pop_front();
      const auto tied = partners(model_.item(y).path);
      Number total = model_.item(y).size;
      if (!tied.empty()) {
        const auto found = with_ties(tied, total, {todo.begin(), todo.end()});
        if (!found) return false;
        total = found->total;
      }
      if (total <= limit) {
        std::vector<int32_t> way;
        for (auto it = container.find(y); it != container.end(); it = container.find(it->second))
          way.push_back(it->second);
        std::vector<int32_t> opened = rest;
        for (size_t k = way.size(); k-- > 0;) opened = with_parts_for(opened, way[k]);
        opened.erase(std::remove(opened.begin(), opened.end(), y), opened.end());
        queue_.assign(opened);
        queue_.push_front(x);
        queue_.push_front(y);
        rescued = true;
        return true;
      }
      if (!can_split(y)) continue;
      const std::vector<int32_t> inner = parts(y);
      for (const int32_t i : inner) container[i] = y;
      todo.insert(todo.begin(), inner.begin(), inner.end());
    }
    return true;
  }

  // 4.5
  Outcome<Inferred> finish() {
    Inferred out;
    for (const auto& [path, d] : placed_) out.map.entries.emplace(path, devices_[d].name);
    if (!(hf_ && !no_placement_.empty())) out.map = cleaned(out.map);
    LogFact empty{LogFact::Kind::kEmptyDevices, {}, {}};
    Number away;
    bool any_accelerator = false;
    for (const Device& d : devices_) {
      if (d.needed) empty.required.emplace_back(d.name, *d.needed);
      if (d.name.is_accelerator())
        any_accelerator = true;
      else
        away += d.buffers;
    }
    if (!empty.required.empty()) out.log.push_back(std::move(empty));
    if (away > Number() && !options_.offload_buffers && any_accelerator) {
      const auto room = [&](const Device& d) { return d.name.is_accelerator() && d.budget >= away + d.used; };
      if (std::none_of(devices_.begin(), devices_.end(), room))
        out.log.push_back({LogFact::Kind::kOffloadedBuffers, away, {}});
    }
    if (hf_) {
      for (const auto& group : model_.tied_groups()) {
        std::set<DeviceName> on;
        for (const std::string& name : group) {
          const DeviceName* d = out.map.lookup(name);
          if (d == nullptr)
            return Raised{"ValueError", fmt::format("the tied parameter {} has no device", quoted(name))};
          on.insert(*d);
        }
        if (on.size() > 1) out.log.push_back({LogFact::Kind::kTiedSplit, {}, {}});
      }
    }
    return out;
  }

  const Model& model_;
  const InferOptions& options_;
  const bool hf_;
  const bool repaired_;  // Transformers since #46625
  LargestLayers largest_;
  Queue queue_;
  std::vector<Device> devices_;
  size_t at_ = 0;  // the device being filled; never goes back
  Number big_;     // the largest layer, and the names that reach it and were not met since
  std::set<std::string_view> names_;
  std::vector<std::vector<std::string>> groups_;  // tied names with a dot behind
  std::unordered_set<std::string> no_placement_;
  std::unordered_map<std::string_view, int32_t> by_name_;
  std::map<std::string, size_t, std::less<>> placed_;  // path -> index into devices_
  std::optional<Raised> raised_;
};

}  // namespace

Outcome<Inferred> infer_device_map(const Model& model, const Budgets& budgets, const InferOptions& options) {
  return Inference(model, budgets, options).run();
}

}  // namespace berth::plan::compat
