// sizing/tree_units.cc — see tree_units.h.
#include "berth/sizing/tree_units.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "berth/base/bytes.h"

namespace berth::sizing {
namespace {

constexpr uint64_t kDivideAbove = 512;  // modules of at most this part of the model stay whole

// The last part of a path that is a number: "model.layers.12" -> 12.
int32_t layer_of(const std::string& path) {
  const std::string last = path.substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1);
  if (last.empty() || last.size() > 6 || last.find_first_not_of("0123456789") != std::string::npos) return -1;
  return static_cast<int32_t>(std::stol(last));
}

class TreeUnitMaker {
 public:
  TreeUnitMaker(const arch::ModuleTree& tree, const TreeBytes& bytes, const RunShape& shape)
      : tree_(tree), bytes_(bytes), shape_(shape), blocks_(tree.no_split_classes.begin(), tree.no_split_classes.end()) {
    measure(tree.root, "");
  }

  UnitTable make() {
    walk(tree_.root, "");
    if (chain_.empty()) std::swap(chain_, tables_);  // nothing but embeddings: they run
    join_ties();
    name_blocks();
    UnitTable out;
    for (Unit& u : chain_)
      if (!u.paths.empty()) out.units.push_back(std::move(u));
    out.chain_size = static_cast<int32_t>(out.units.size());
    if (out.chain_size > 0) out.logits_bytes = static_cast<uint64_t>(shape_.batch) * 4 * last_width_;
    for (Unit& u : tables_) {
      u.consumer = 0;
      out.units.push_back(std::move(u));
    }
    for (size_t t = 0; t < stored_with_.size(); ++t) {
      if (stored_with_[t].empty()) continue;
      Unit& table = out.units[static_cast<size_t>(out.chain_size) + t];
      for (int32_t u = 0; u < out.chain_size; ++u)
        if (out.units[static_cast<size_t>(u)].path == stored_with_[t]) table.stored_with = u;
    }
    out.memory_footprint_bytes = bytes_.total();
    return out;
  }

 private:
  uint64_t measure(const arch::Module& m, const std::string& path) {
    uint64_t sum = 0;
    if (m.same_as.empty()) {
      for (const auto& p : m.parameters) sum += bytes_(arch::join_path(path, p.name));
      for (const auto& b : m.buffers) sum += bytes_(arch::join_path(path, b.name));
      for (const auto& c : m.children) sum += measure(c, arch::join_path(path, c.name));
    }
    return size_[path] = sum;
  }

  void walk(const arch::Module& m, const std::string& path) {
    if (!m.same_as.empty() || size_[path] == 0) return;
    const bool whole = blocks_.contains(m.class_name) || m.children.empty() ||
                       (!path.empty() && !holds_block(m) && size_[path] <= bytes_.total() / kDivideAbove);
    if (whole) {
      const bool table = m.class_name.ends_with("Embedding") && m.children.empty() && m.parameters.size() == 1 &&
                         m.parameters[0].shape.size() == 2;
      Unit u = start(path);
      u.kind = table ? UnitKind::kTable : blocks_.contains(m.class_name) ? UnitKind::kLayer : UnitKind::kMlp;
      if (u.kind == UnitKind::kLayer) u.layer = layer_of(path);
      add_subtree(u, m, path);
      u.paths = {path};
      (table ? tables_ : chain_).push_back(finish(std::move(u)));
      return;
    }
    Unit own = start(path);
    own.kind = UnitKind::kMlp;
    add_own(own, m, path);
    for (const auto& p : m.parameters) own.paths.push_back(arch::join_path(path, p.name));
    for (const auto& b : m.buffers) own.paths.push_back(arch::join_path(path, b.name));
    if (own.stored_bytes > 0) {
      own.path = own.paths.front();
      chain_.push_back(finish(std::move(own)));
    }
    for (const auto& c : m.children) walk(c, arch::join_path(path, c.name));
  }

  bool holds_block(const arch::Module& m) const {
    return std::any_of(m.children.begin(), m.children.end(), [&](const arch::Module& c) {
      return c.same_as.empty() && (blocks_.contains(c.class_name) || holds_block(c));
    });
  }

  static Unit start(const std::string& path) {
    Unit u;
    u.path = path;
    return u;
  }

  void add_tensor(Unit& u, const Shape& shape, uint64_t bytes) {
    const auto batch = static_cast<uint64_t>(shape_.batch), chunk = static_cast<uint64_t>(shape_.prefill_chunk);
    u.stored_bytes += align_up<uint64_t>(bytes, 64);
    u.stored_bytes_512 += align_up<uint64_t>(bytes, 512);
    u.touched_bytes += bytes;
    u.moved_bytes += bytes;
    u.grain_bytes = std::max(u.grain_bytes, bytes);
    u.disk_bytes += bytes;
    if (shape.size() < 2) return;
    const uint64_t elements = element_count(shape).value_or(0);
    const auto in = static_cast<uint64_t>(shape.back()), out = static_cast<uint64_t>(shape[shape.size() - 2]);
    u.flops += 2 * elements * batch;
    u.prefill_flops += 2 * elements * chunk;
    if (u.input_bytes == 0) {
      u.input_bytes = batch * 4 * in;
      u.prefill_input_bytes = chunk * 4 * in;
    }
    u.workspace_bytes = std::max(u.workspace_bytes, static_cast<uint64_t>(shape_.rows()) * 4 * (in + out));
    last_width_ = out;
  }
  void add_own(Unit& u, const arch::Module& m, const std::string& path) {
    for (const auto& p : m.parameters) add_tensor(u, p.shape, bytes_(arch::join_path(path, p.name)));
    for (const auto& b : m.buffers) add_tensor(u, {}, bytes_(arch::join_path(path, b.name)));
  }
  void add_subtree(Unit& u, const arch::Module& m, const std::string& path) {
    if (!m.same_as.empty()) return;
    add_own(u, m, path);
    for (const auto& c : m.children) add_subtree(u, c, arch::join_path(path, c.name));
  }
  Unit finish(Unit u) {
    if (u.kind == UnitKind::kTable) {
      const arch::Module* m = tree_.find(u.path);
      const auto rows = static_cast<uint64_t>(std::max<int64_t>(m->parameters[0].shape[0], 1));
      u.row_bytes = ceil_div<uint64_t>(u.touched_bytes, rows);
      u.touched_bytes = u.row_bytes * static_cast<uint64_t>(shape_.batch);
      u.input_bytes = u.prefill_input_bytes = u.touched_bytes;
      u.flops = u.prefill_flops = 0;
      u.workspace_bytes = 0;
    }
    return u;
  }

  // The unit that holds a tensor.
  static Unit* holder(std::vector<Unit>& units, const std::string& tensor) {
    for (Unit& u : units)
      for (const std::string& path : u.paths)
        if (path.empty() || tensor == path || (tensor.starts_with(path) && tensor[path.size()] == '.')) return &u;
    return nullptr;
  }

  void join_ties() {
    stored_with_.assign(tables_.size(), "");
    for (const auto& [target, source] : tree_.ties) {
      const uint64_t bytes = bytes_(target);
      Unit* a = holder(chain_, target);
      Unit* b = holder(chain_, source);
      if (a != nullptr && b != nullptr) {
        if (a != b) merge(*a, *b);
        Unit& one = a < b ? *a : *b;
        take_off(one, bytes);
        continue;
      }
      Unit* chain = a != nullptr ? a : b;
      Unit* table = holder(tables_, a != nullptr ? source : target);
      if (chain == nullptr || table == nullptr) continue;
      std::string& with = stored_with_[static_cast<size_t>(table - tables_.data())];
      if (!with.empty()) continue;
      with = chain->path;
      table->stored_bytes = table->stored_bytes_512 = table->disk_bytes = 0;
    }
  }

  // The tied tensor was counted under both names.
  static void take_off(Unit& u, uint64_t bytes) {
    const auto less = [](uint64_t& n, uint64_t by) { n -= std::min(n, by); };
    less(u.stored_bytes, align_up<uint64_t>(bytes, 64));
    less(u.stored_bytes_512, align_up<uint64_t>(bytes, 512));
    less(u.disk_bytes, bytes);
  }

  // Two units of the chain become one, where the first stands.
  static void merge(Unit& a, Unit& b) {
    Unit& into = &a < &b ? a : b;
    Unit& from = &a < &b ? b : a;
    into.stored_bytes += from.stored_bytes;
    into.stored_bytes_512 += from.stored_bytes_512;
    into.touched_bytes += from.touched_bytes;
    into.moved_bytes += from.moved_bytes;
    into.disk_bytes += from.disk_bytes;
    into.flops += from.flops;
    into.prefill_flops += from.prefill_flops;
    into.grain_bytes = std::max(into.grain_bytes, from.grain_bytes);
    into.workspace_bytes = std::max(into.workspace_bytes, from.workspace_bytes);
    into.paths.insert(into.paths.end(), from.paths.begin(), from.paths.end());
    from = Unit{};
  }

  // Layers are numbered along the stack with the most bytes; other towers' blocks stand beside it.
  void name_blocks() {
    std::map<std::string, uint64_t> by_stack;
    const auto stack_of = [](const Unit& u) {
      return u.path.substr(0, u.path.rfind('.') == std::string::npos ? 0 : u.path.rfind('.'));
    };
    for (const Unit& u : chain_)
      if (u.layer >= 0) by_stack[stack_of(u)] += u.stored_bytes;
    std::string main;
    for (const auto& [stack, sum] : by_stack)
      if (main.empty() || sum > by_stack[main]) main = stack;
    for (Unit& u : chain_) {
      if (u.layer < 0 && u.kind == UnitKind::kLayer) u.kind = UnitKind::kMlp;
      if (u.layer >= 0 && by_stack.size() > 1 && stack_of(u) != main) {
        u.layer = -1;
        u.kind = UnitKind::kMlp;
      }
    }
  }

  const arch::ModuleTree& tree_;
  const TreeBytes& bytes_;
  const RunShape& shape_;
  std::set<std::string> blocks_;
  std::map<std::string, uint64_t> size_;
  std::vector<Unit> chain_, tables_;
  std::vector<std::string> stored_with_;  // by table: path of the unit it is stored with
  uint64_t last_width_ = 0;
};

}  // namespace

UnitTable make_tree_units(const arch::ModuleTree& tree, const TreeBytes& bytes, const RunShape& shape) {
  return TreeUnitMaker(tree, bytes, shape).make();
}

}  // namespace berth::sizing
