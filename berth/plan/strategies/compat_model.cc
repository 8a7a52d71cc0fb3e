// plan/strategies/compat_model.cc — objects and names from a tree, and the sizes both libraries count.
#include "berth/plan/strategies/compat_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "berth/base/strings.h"
#include "berth/tensor/dtype.h"

namespace berth::plan::compat {
namespace {

constexpr size_t kMaxItems = 2'000'000;
constexpr size_t kMaxDepth = 1000;
constexpr double kMaxBytes = 1125899906842624.0;  // 2^50

bool is_integer_type(DType d) { return d <= DType::kI64; }  // bool, and signed and unsigned of any width

// accelerate's dtype_byte_size: bool an eighth; the number that ends the type's name, over 8, floored.
Number accelerate_width(DType d) {
  if (d == DType::kBool) return Number::real(0.125);
  if (d == DType::kF4) return Number::whole(0);  // "float4_e2m1fn_x2": 2 // 8
  const DTypeInfo& t = dtype_info(d);
  if (t.block_elements == 1) return Number::whole(t.block_bytes);
  return Number::real(static_cast<double>(t.block_bytes) / static_cast<double>(t.block_elements));
}

}  // namespace

std::string_view library_name(Library library) {
  return library == Library::kTransformers ? "transformers" : "accelerate";
}

// Builds items by walking the tree over all names, then sizes by walking it as the libraries do.
class ModelBuilder {
 public:
  ModelBuilder(const arch::ModuleTree& tree, const SizeRules& rules, const std::vector<std::string>& no_split)
      : tree_(tree), rules_(rules) {
    model_.library_ = rules.library;
    model_.no_split_ = no_split;
    for (const std::string& c : no_split) blocks_.insert(c);
  }

  Result<Model> build() {
    index_modules(tree_.root, "");
    index_parameters();
    TRY_STATUS(add_module(tree_.root, -1, "", 0));
    model_.objects_ = next_object_;
    mark_relations();
    TRY_STATUS(add_sizes(Item::Kind::kParameter));
    TRY_STATUS(add_sizes(Item::Kind::kBuffer));
    find_tied_groups();
    return std::move(model_);
  }

 private:
  struct TensorSource {
    int32_t object;
    DType dtype;
    uint64_t count;
  };

  void index_modules(const arch::Module& m, const std::string& path) {
    if (!m.same_as.empty()) return;
    modules_[path] = &m;
    for (const arch::Module& c : m.children) index_modules(c, arch::join_path(path, c.name));
  }

  // Parameter objects by first spelling; for accelerate a tie makes two names one object, in the order of the list.
  void index_parameters() {
    arch::for_each_module(tree_, [&](const std::string& path, const arch::Module& m) {
      object_of(&m);
      for (const arch::Parameter& p : m.parameters) parameters_[arch::join_path(path, p.name)] = source(p);
    });
    if (rules_.library == Library::kTransformers) {
      for (const auto& [target, source] : tree_.ties) skipped_.insert(target);
      return;
    }
    for (const auto& [target, source] : tree_.ties) {
      const auto from = parameters_.find(source);
      const auto to = parameters_.find(target);
      if (from != parameters_.end() && to != parameters_.end()) to->second = from->second;
    }
  }

  template <typename T>
  TensorSource source(const T& t) {
    return {next_object_++, rules_.built_as_f32 ? t.dtype_f32 : t.dtype, element_count(t.shape).value_or(0)};
  }

  int32_t object_of(const arch::Module* m) {
    const auto [it, fresh] = objects_.try_emplace(m, next_object_);
    if (fresh) ++next_object_;
    return it->second;
  }

  int32_t class_of(const std::string& name) {
    const auto [it, fresh] = class_ids_.try_emplace(name, static_cast<int32_t>(model_.classes_.size()));
    if (fresh) model_.classes_.push_back(name);
    return it->second;
  }

  int32_t add_item(std::string path, Item::Kind kind, int32_t object) {
    Item item;
    item.path = std::move(path);
    item.kind = kind;
    item.object = object;
    model_.items_.push_back(std::move(item));
    model_.tensor_bytes_.emplace_back();
    return static_cast<int32_t>(model_.items_.size()) - 1;
  }
  Item& at(int32_t i) { return model_.items_[static_cast<size_t>(i)]; }

  Status add_module(const arch::Module& named, int32_t parent, const std::string& path, size_t depth) {
    const arch::Module* m = &named;
    std::string first = first_path_;
    if (!named.same_as.empty()) {
      const auto it = modules_.find(named.same_as);
      if (it == modules_.end())
        return Error(ErrorCode::kInvalidArgument, fmt::format("module {} is the same as {}, which does not exist",
                                                              quoted(path), quoted(named.same_as)));
      m = it->second;
      first = named.same_as;
    }
    if (depth > kMaxDepth || model_.items_.size() > kMaxItems)
      return Error(ErrorCode::kUnsupported,
                   fmt::format("compat planning: the tree has over {} names or is over {} deep (at {})", kMaxItems,
                               kMaxDepth, quoted(path)),
                   {"Modules under second names (same_as) may multiply; give the tree without them."});
    const int32_t self = add_item(path, Item::Kind::kModule, object_of(m));
    at(self).class_id = class_of(m->class_name);
    at(self).is_block = blocks_.contains(m->class_name);
    if (parent >= 0) at(parent).modules.push_back(self);
    parents_.push_back(parent);
    const bool small = rules_.library == Library::kTransformers && rules_.quantizer == Quantizer::kBitsandbytes &&
                       (m->class_name == "Linear4bit" || m->class_name == "Linear8bitLt");
    const Number small_width = m->class_name == "Linear4bit" ? Number::real(0.5) : Number::whole(1);
    const auto tensor = [&](const std::string& name, Item::Kind kind, const TensorSource& t) -> Status {
      const std::string full = arch::join_path(path, name);
      const int32_t i = add_item(full, kind, t.object);
      parents_.push_back(self);
      (kind == Item::Kind::kParameter ? at(self).parameters : at(self).buffers).push_back(i);
      const auto counted = bytes_of(t, arch::join_path(first, name),
                                    small && name != "bias" ? std::optional(small_width) : std::nullopt);
      if (!counted || counted->as_double() > kMaxBytes)
        return Error(ErrorCode::kUnsupported,
                     fmt::format("compat planning: {} counts more than 2^50 bytes", quoted(full)));
      model_.tensor_bytes_[static_cast<size_t>(i)] = *counted;
      return {};
    };
    for (const arch::Parameter& p : m->parameters)
      TRY_STATUS(tensor(p.name, Item::Kind::kParameter, parameters_.at(arch::join_path(first, p.name))));
    for (const arch::Buffer& b : m->buffers) {
      const auto [it, fresh] = buffers_.try_emplace(&b, TensorSource{});
      if (fresh) it->second = source(b);
      TRY_STATUS(tensor(b.name, Item::Kind::kBuffer, it->second));
    }
    for (const arch::Module& c : m->children) {
      const std::string saved = first_path_;
      first_path_ = arch::join_path(first, c.name);
      TRY_STATUS(add_module(c, self, arch::join_path(path, c.name), depth + 1));
      first_path_ = saved;
    }
    return {};
  }

  std::optional<Number> bytes_of(const TensorSource& t, const std::string& first_name, std::optional<Number> width) {
    const Number count = Number::whole(static_cast<Wide>(t.count));
    if (t.count > (uint64_t{1} << 60)) return std::nullopt;
    if (rules_.library == Library::kTransformers) {
      if (width) return count * *width;
      if (rules_.quantizer == Quantizer::kOther && rules_.counted_width)
        if (const auto counted = rules_.counted_width(first_name)) return count * *counted;
      const auto bytes = dtype_bytes(t.dtype, t.count);
      if (!bytes) return std::nullopt;
      return Number::whole(static_cast<Wide>(*bytes));
    }
    if (const auto it = rules_.special_dtypes.find(first_name); it != rules_.special_dtypes.end())
      return count * accelerate_width(it->second);
    const Number own = accelerate_width(t.dtype);
    if (!rules_.dtype || is_integer_type(t.dtype)) return count * own;
    return count * min_of(accelerate_width(*rules_.dtype), own);
  }

  void mark_relations() {
    std::unordered_set<int32_t> seen;
    // Items come after what contains them.
    for (size_t i = model_.items_.size(); i-- > 0;)
      if (parents_[i] >= 0 && (model_.items_[i].kind == Item::Kind::kBuffer || model_.items_[i].any_buffers))
        at(parents_[i]).any_buffers = true;
    for (Item& item : model_.items_)
      for (const auto* list : {&item.parameters, &item.buffers, &item.modules}) {
        if (list->size() < 2) continue;
        seen.clear();
        for (const int32_t i : *list) at(i).repeated = !seen.insert(at(i).object).second;
      }
  }

  Status add_sizes(Item::Kind kind) {
    Number total;
    for (const int32_t i : model_.all_tensors(0, kind)) {
      if (skipped_.contains(at(i).path)) continue;
      const Number bytes = model_.tensor_bytes_[static_cast<size_t>(i)];
      total += bytes;
      if (total.as_double() > kMaxBytes)
        return Error(ErrorCode::kUnsupported, "compat planning: the model counts more than 2^50 bytes");
      std::vector<int32_t> chain;  // the tensor, its module, ... the root
      for (int32_t j = i; j >= 0; j = parents_[static_cast<size_t>(j)]) chain.push_back(j);
      for (size_t k = chain.size(); k-- > 0;) {
        Item& item = at(chain[k]);
        if (!item.sized) model_.sized_order_.push_back(chain[k]);
        item.sized = true;
        item.size += bytes;
      }
      if (chain.size() > 2) {  // tensors of the root are in no module's own bytes
        at(chain[1]).own += bytes;
        at(chain[1]).owns_sized = true;
      }
    }
    return {};
  }

  void find_tied_groups() {
    auto& groups = model_.tied_groups_;
    if (rules_.library == Library::kTransformers) {
      std::unordered_map<std::string, size_t> by_source;
      for (const auto& [target, source] : tree_.ties) {
        const auto [it, fresh] = by_source.try_emplace(source, groups.size());
        if (fresh) groups.push_back({source});
        groups[it->second].push_back(target);
      }
    } else {
      std::unordered_map<int32_t, size_t> by_object;
      std::vector<std::vector<std::string>> names;
      for (const Item& item : model_.items_) {
        if (item.kind != Item::Kind::kParameter) continue;
        const auto [it, fresh] = by_object.try_emplace(item.object, names.size());
        if (fresh) names.emplace_back();
        names[it->second].push_back(item.path);
      }
      for (auto& n : names)
        if (n.size() > 1) groups.push_back(std::move(n));
    }
    for (auto& g : groups) std::sort(g.begin(), g.end());
  }

  const arch::ModuleTree& tree_;
  const SizeRules& rules_;
  Model model_;
  std::unordered_set<std::string> blocks_, skipped_;
  std::unordered_map<std::string, const arch::Module*> modules_;
  std::unordered_map<std::string, TensorSource> parameters_;
  std::unordered_map<const arch::Buffer*, TensorSource> buffers_;
  std::unordered_map<const arch::Module*, int32_t> objects_;
  std::unordered_map<std::string, int32_t> class_ids_;
  std::vector<int32_t> parents_;  // by item
  std::string first_path_;        // the first spelling of the module being added
  int32_t next_object_ = 0;
};

Result<Model> Model::build(const arch::ModuleTree& tree, const SizeRules& rules,
                           const std::vector<std::string>& no_split) {
  return ModelBuilder(tree, rules, no_split).build();
}

std::vector<int32_t> Model::first_of(const std::vector<int32_t>& all) const {
  std::vector<int32_t> out;
  out.reserve(all.size());
  for (const int32_t i : all)
    if (!item(i).repeated) out.push_back(i);
  return out;
}

std::vector<int32_t> Model::all_tensors(int32_t module, Item::Kind kind) const {
  std::vector<int32_t> out;
  std::vector<bool> seen(static_cast<size_t>(objects_), false);
  const auto first = [&](int32_t i) {
    const auto o = static_cast<size_t>(item(i).object);
    if (seen[o]) return false;
    return static_cast<bool>(seen[o] = true);
  };
  const auto visit = [&](auto&& self, int32_t m) -> void {
    if (!first(m)) return;
    for (const int32_t t : kind == Item::Kind::kParameter ? item(m).parameters : item(m).buffers)
      if (first(t)) out.push_back(t);
    for (const int32_t c : item(m).modules) self(self, c);
  };
  visit(visit, module);
  return out;
}

Number Model::buffer_bytes(int32_t module) const {
  Number sum;
  if (!item(module).any_buffers) return sum;
  for (const int32_t b : all_tensors(module, Item::Kind::kBuffer)) sum += tensor_bytes_[static_cast<size_t>(b)];
  return sum;
}

std::vector<int32_t> Model::named_modules() const {
  std::vector<int32_t> out;
  std::vector<bool> seen(static_cast<size_t>(objects_), false);
  const auto visit = [&](auto&& self, int32_t m) -> void {
    const auto o = static_cast<size_t>(item(m).object);
    if (seen[o]) return;
    seen[o] = true;
    out.push_back(m);
    for (const int32_t c : item(m).modules) self(self, c);
  };
  visit(visit, 0);
  return out;
}

}  // namespace berth::plan::compat
