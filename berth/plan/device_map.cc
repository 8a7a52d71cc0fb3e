// plan/device_map.cc — reading, looking up, merging and spreading device maps.
#include "berth/plan/device_map.h"

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <unordered_map>

#include "berth/base/strings.h"

namespace berth::plan {

DeviceName DeviceName::accelerator(int64_t index) {
  DeviceName d;
  d.index_ = index;
  return d;
}

DeviceName DeviceName::named(std::string text) {
  DeviceName d;
  d.named_ = true;
  d.text_ = std::move(text);
  return d;
}

DeviceName DeviceName::from_key(std::string_view key) {
  int64_t n = 0;
  const auto [end, err] = std::from_chars(key.data(), key.data() + key.size(), n);
  if (err == std::errc() && end == key.data() + key.size() && !key.empty()) return accelerator(n);
  return named(std::string(key));
}

void DeviceName::write(JsonWriter& out) const {
  if (text_.empty())
    out.value(index_);
  else
    out.value(text_);
}

DeviceName DeviceName::normalized() const {
  if (!named_ || is_cpu() || is_disk() || text_ == "mps") return *this;
  const auto counted = [](std::string_view digits) -> std::optional<DeviceName> {
    const DeviceName d = from_key(digits);
    if (!d.index() || digits.empty() || digits[0] == '-') return std::nullopt;
    return d;
  };
  if (const auto d = counted(text_)) return *d;
  const size_t colon = text_.find(':');
  const std::string kind = text_.substr(0, colon);
  static const std::set<std::string> kKinds = {"cuda", "emu", "xpu", "npu", "hip", "mlu", "musa", "hpu"};
  if (!kKinds.contains(kind)) return *this;
  if (colon == std::string::npos) return accelerator(0);
  return counted(std::string_view(text_).substr(colon + 1)).value_or(*this);
}

namespace {
int rank_of(const DeviceName& d) {
  if (d.index()) return 0;
  if (d == DeviceName::mps()) return 1;
  if (d.is_cpu()) return 2;
  return d.is_disk() ? 3 : 4;
}
}  // namespace

std::strong_ordering DeviceName::operator<=>(const DeviceName& other) const {
  const auto by_rank = rank_of(*this) <=> rank_of(other);
  if (by_rank != 0) return by_rank;
  if (!named_) return index_ <=> other.index_;
  return text_.compare(other.text_) <=> 0;
}

const std::pair<const std::string, DeviceName>* DeviceMap::find(std::string_view path) const {
  for (;;) {
    const auto it = entries.find(path);
    if (it != entries.end()) return &*it;
    if (path.empty()) return nullptr;
    const size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
}

const DeviceName* DeviceMap::lookup(std::string_view path) const {
  const auto* entry = find(path);
  return entry == nullptr ? nullptr : &entry->second;
}

std::vector<DeviceName> DeviceMap::devices() const {
  std::set<DeviceName> all;
  for (const auto& [key, device] : entries) all.insert(device);
  return {all.begin(), all.end()};
}

Result<DeviceMap> device_map_from_json(JsonView object) {
  if (!object.is_object())
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("a device map must be a JSON object from module paths to devices, found {}",
                             json_type_name(object.type())),
                 {"Example: {\"model.embed_tokens\": 0, \"model.layers\": 0, \"lm_head\": \"cpu\"}"});
  DeviceMap out;
  for (JsonView::Cursor c(object); c.next();) {
    const JsonView v = c.value();
    if (const auto n = v.as_int64()) {
      if (*n < 0)
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("device map: {} is on device {}; accelerators count from 0", quoted(c.key()), *n),
                     {"Write \"cpu\" for the host's memory."});
      out.entries.emplace(std::string(c.key()), DeviceName::accelerator(*n));
    } else if (const auto text = v.as_string(); text && !text->empty()) {
      out.entries.emplace(std::string(c.key()), DeviceName::named(std::string(*text)));
    } else {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("device map: the device of {} must be a number, \"cpu\" or \"disk\", found {}",
                               quoted(c.key()), v.text().substr(0, 60)));
    }
  }
  return out;
}

Result<DeviceMap> parse_device_map(std::string_view json_text) {
  auto document = JsonDocument::parse(json_text);
  if (!document) {
    Error e = document.error().with_context("device map");
    e.code = ErrorCode::kInvalidArgument;
    return e;
  }
  return device_map_from_json(document->root());
}

std::string device_map_json(const DeviceMap& map, int indent) {
  JsonWriter w(indent);
  w.begin_object();
  for (const auto& [key, device] : map.entries) {
    w.key(key);
    device.write(w);
  }
  w.end_object();
  return w.take();
}

namespace {

// Entries as a tree by path component, so that merging is linear in the map's text.
struct Trie {
  struct Node {
    std::map<std::string, size_t, std::less<>> children;
    const DeviceName* value = nullptr;
    // Over the entries strictly below this node (at the root: all): how many, and their one device if they agree.
    size_t below = 0;
    const DeviceName* one = nullptr;
  };
  std::vector<Node> nodes{1};

  void add(std::string_view key, const DeviceName& device) {
    size_t at = 0;
    if (!key.empty())
      for (std::string_view rest = key;;) {
        const size_t dot = rest.find('.');
        const auto [it, fresh] = nodes[at].children.try_emplace(std::string(rest.substr(0, dot)), nodes.size());
        at = it->second;
        if (fresh) nodes.emplace_back();
        if (dot == std::string_view::npos) break;
        rest = rest.substr(dot + 1);
      }
    nodes[at].value = &device;
  }

  static void note(Node& n, size_t count, const DeviceName* device) {
    if (count == 0) return;
    n.one = n.below == 0 ? device : (n.one != nullptr && device != nullptr && *n.one == *device ? n.one : nullptr);
    n.below += count;
  }

  // Nodes are made parents first, so going backwards sees children before their parents.
  void count() {
    for (size_t i = nodes.size(); i-- > 0;) {
      Node& n = nodes[i];
      if (i == 0 && n.value != nullptr) note(n, 1, n.value);
      for (const auto& [name, child] : n.children) {
        const Node& c = nodes[child];
        if (c.value != nullptr) note(n, 1, c.value);
        note(n, c.below, c.one);
      }
    }
  }

  void write(size_t at, const std::string& path, std::map<std::string, DeviceName, std::less<>>& out) const {
    // An explicit stack: keys come from files and may have any number of dots.
    std::vector<std::pair<size_t, std::string>> todo{{at, path}};
    while (!todo.empty()) {
      const auto [index, name] = std::move(todo.back());
      todo.pop_back();
      const Node& n = nodes[index];
      if (n.below >= 2 && n.one != nullptr) {
        out.insert_or_assign(name, *n.one);
        continue;
      }
      if (n.value != nullptr) out.insert_or_assign(name, *n.value);
      for (const auto& [child_name, child] : n.children)
        todo.emplace_back(child, index == 0 ? child_name : name + "." + child_name);
    }
  }
};

}  // namespace

DeviceMap cleaned(const DeviceMap& map) {
  Trie trie;
  for (const auto& [key, device] : map.entries) trie.add(key, device);
  trie.count();
  DeviceMap out;
  trie.write(0, "", out.entries);
  return out;
}

std::vector<TensorPlace> expanded(const arch::ModuleTree& tree, const DeviceMap& map) {
  std::vector<TensorPlace> out;
  arch::for_each_module(tree, [&](const std::string& path, const arch::Module& m) {
    const auto add = [&](const std::string& name, bool is_buffer, bool persistent) {
      TensorPlace p{arch::join_path(path, name), path, is_buffer, persistent, std::nullopt};
      if (const DeviceName* d = map.lookup(p.path)) p.device = *d;
      out.push_back(std::move(p));
    };
    for (const arch::Parameter& p : m.parameters) add(p.name, false, true);
    for (const arch::Buffer& b : m.buffers) add(b.name, true, b.persistent);
  });
  return out;
}

DeviceMap collapsed(const arch::ModuleTree& tree, const std::vector<TensorPlace>& places) {
  std::unordered_map<std::string_view, const DeviceName*> device_of;
  for (const TensorPlace& p : places)
    if (p.device) device_of[p.path] = &*p.device;
  DeviceMap out;
  // Per module: its one device, or none where its tensors disagree, one lacks a device, or it has no tensors.
  struct Found {
    bool empty = true, mixed = false;
    const DeviceName* device = nullptr;
    void note(const DeviceName* d) {
      if (d == nullptr || (!empty && (device == nullptr || !(*device == *d)))) mixed = true;
      device = d;
      empty = false;
    }
  };
  const auto visit = [&](auto&& self, const arch::Module& m,
                         const std::string& path) -> std::pair<Found, std::map<std::string, DeviceName, std::less<>>> {
    Found found;
    std::map<std::string, DeviceName, std::less<>> entries;
    const auto tensor = [&](const std::string& name) {
      const std::string full = arch::join_path(path, name);
      const auto it = device_of.find(full);
      found.note(it == device_of.end() ? nullptr : it->second);
      if (it != device_of.end()) entries.emplace(full, *it->second);
    };
    for (const arch::Parameter& p : m.parameters) tensor(p.name);
    for (const arch::Buffer& b : m.buffers) tensor(b.name);
    for (const arch::Module& c : m.children) {
      auto [inner, inner_entries] = self(self, c, arch::join_path(path, c.name));
      if (inner.empty) continue;
      found.note(inner.mixed ? nullptr : inner.device);
      entries.merge(inner_entries);
    }
    if (!found.empty && !found.mixed) {
      const DeviceName one = *found.device;
      entries.clear();
      entries.emplace(path, one);
    }
    return {found, std::move(entries)};
  };
  out.entries = visit(visit, tree.root, "").second;
  return out;
}

}  // namespace berth::plan
