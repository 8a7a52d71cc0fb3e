// arch/tree_json.cc — module trees from JSON: every name, number and reference checked before use.
#include "berth/arch/tree_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"
#include "berth/tensor/dtype.h"

namespace berth::arch {
namespace {

// More than any machine holds, and far from where sums of bytes would wrap.
constexpr uint64_t kMaxTreeBytes = uint64_t{1} << 60;
constexpr size_t kMaxRank = 64;

Error corrupt(std::string message, std::vector<std::string> hints = {}) {
  return Error(ErrorCode::kCorruptData, "module tree: " + std::move(message), std::move(hints));
}

// "the root" or "module "a.b"".
std::string named(std::string_view path) { return path.empty() ? "the root" : "module " + quoted(path); }

std::vector<std::string> dtype_spellings() {
  std::vector<std::string> out;
  for (const DTypeInfo& t : all_dtypes()) out.emplace_back(t.name);
  return out;
}

class Reader {
 public:
  Result<Module> module(JsonView view, const std::string& path, std::string_view name) {
    if (!view.is_object())
      return corrupt(fmt::format("{} must be an object, found {}", named(path), json_type_name(view.type())));
    Module m;
    m.name = std::string(name);
    if (const JsonView same = view["same_as"]; same.valid()) {
      const auto target = same.as_string();
      if (!target)
        return corrupt(
            fmt::format("\"same_as\" of {} must be a path, found {}", named(path), json_type_name(same.type())));
      if (path.empty()) return corrupt("the root cannot be the second name of another module");
      m.same_as = std::string(*target);
      if (m.same_as.empty()) return corrupt(fmt::format("{} is \"same_as\" the root, which contains it", named(path)));
      return m;
    }
    const auto cls = view["c"].as_string();
    if (!cls) return corrupt(fmt::format("{} has no class: \"c\" must be a text", named(path)));
    m.class_name = std::string(*cls);
    std::unordered_set<std::string> used;
    TRY_STATUS(parameters(view["p"], path, used, m));
    TRY_STATUS(buffers(view["b"], path, used, m));
    TRY_STATUS(children(view["m"], path, used, m));
    return m;
  }

 private:
  Result<std::string> local_name(JsonView view, const std::string& path, std::unordered_set<std::string>& used) {
    const auto name = view.as_string();
    if (!name)
      return corrupt(fmt::format("a name in {} must be a text, found {}", named(path), json_type_name(view.type())));
    if (name->empty()) return corrupt(fmt::format("an empty name in {}", named(path)));
    if (name->find('.') != std::string_view::npos)
      return corrupt(
          fmt::format("name {} in {} has a dot; dots separate the parts of a path", quoted(*name), named(path)));
    if (!used.insert(std::string(*name)).second)
      return corrupt(fmt::format("name {} occurs twice in {}", quoted(*name), named(path)));
    return std::string(*name);
  }

  // The list `view` (absent: empty), each item a list of `size` values.
  template <typename F>
  Status items(JsonView view, const std::string& path, const char* key, size_t size, F&& each) {
    if (!view.valid() || view.is_null()) return {};
    if (!view.is_array())
      return corrupt(
          fmt::format("\"{}\" of {} must be a list, found {}", key, named(path), json_type_name(view.type())));
    for (JsonView::Cursor c(view); c.next();) {
      const JsonView item = c.value();
      if (!item.is_array() || item.size() != size)
        return corrupt(fmt::format("each item of \"{}\" in {} must be a list of {} values", key, named(path), size));
      TRY_STATUS(each(item.elements()));
    }
    return {};
  }

  Status tensor(const std::string& path, const std::string& name, JsonView shape_view, JsonView dtype_view,
                Shape& shape, DType& dtype) {
    const std::string full = join_path(path, name);
    if (!shape_view.is_array()) return corrupt(fmt::format("the shape of {} must be a list", quoted(full)));
    if (shape_view.size() > kMaxRank)
      return corrupt(
          fmt::format("{} has {} dimensions; at most {} are read", quoted(full), shape_view.size(), kMaxRank));
    for (JsonView::Cursor c(shape_view); c.next();) {
      const auto extent = c.value().as_int64();
      if (!extent || *extent < 0)
        return corrupt(fmt::format("the shape of {} must hold whole numbers >= 0, found {}", quoted(full),
                                   c.value().text().substr(0, 40)));
      shape.push_back(*extent);
    }
    const auto text = dtype_view.as_string();
    if (!text) return corrupt(fmt::format("the dtype of {} must be a text", quoted(full)));
    const auto found = dtype_from_name(*text);
    if (!found)
      return corrupt(fmt::format("{} has the unknown dtype {}{}", quoted(full), quoted(*text),
                                 did_you_mean(*text, dtype_spellings())));
    dtype = *found;
    const auto count = element_count(shape);
    const auto bytes = count ? dtype_bytes(dtype, *count) : std::nullopt;
    if (!bytes || *bytes > kMaxTreeBytes - total_)
      return corrupt(fmt::format("{} of shape {} and dtype {} has no possible size in bytes (or the tree exceeds {})",
                                 quoted(full), shape_text(shape), dtype_name(dtype), format_bytes(kMaxTreeBytes)));
    total_ += *bytes;
    return {};
  }

  Status parameters(JsonView view, const std::string& path, std::unordered_set<std::string>& used, Module& m) {
    return items(view, path, "p", 3, [&](const std::vector<JsonView>& v) -> Status {
      Parameter p;
      TRY(p.name, local_name(v[0], path, used));
      TRY_STATUS(tensor(path, p.name, v[1], v[2], p.shape, p.dtype));
      p.dtype_f32 = p.dtype;
      m.parameters.push_back(std::move(p));
      return {};
    });
  }

  Status buffers(JsonView view, const std::string& path, std::unordered_set<std::string>& used, Module& m) {
    return items(view, path, "b", 4, [&](const std::vector<JsonView>& v) -> Status {
      Buffer b;
      TRY(b.name, local_name(v[0], path, used));
      TRY_STATUS(tensor(path, b.name, v[1], v[2], b.shape, b.dtype));
      b.dtype_f32 = b.dtype;
      const auto flag = v[3].as_bool();
      if (!flag)
        return corrupt(
            fmt::format("buffer {} must say whether it is persistent: true or false", quoted(join_path(path, b.name))));
      b.persistent = *flag;
      m.buffers.push_back(std::move(b));
      return {};
    });
  }

  Status children(JsonView view, const std::string& path, std::unordered_set<std::string>& used, Module& m) {
    return items(view, path, "m", 2, [&](const std::vector<JsonView>& v) -> Status {
      TRY(const std::string name, local_name(v[0], path, used));
      TRY(Module child, module(v[1], join_path(path, name), name));
      m.children.push_back(std::move(child));
      return {};
    });
  }

  uint64_t total_ = 0;
};

// Follows `path` from the root, going on from the first name wherever a second one stands; nothing where it ends in
// nothing or runs in circles. `last_too`: a second name at the very end is followed as well.
std::optional<std::string> first_spelling(const ModuleTree& tree, std::string_view path, bool last_too,
                                          size_t hops = 0) {
  if (hops > 64) return std::nullopt;
  const Module* m = &tree.root;
  std::string at;
  std::string_view rest = path;
  while (!rest.empty()) {
    const size_t dot = rest.find('.');
    m = m->child(rest.substr(0, dot));
    if (m == nullptr) return std::nullopt;
    at = join_path(at, m->name);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    if (!m->same_as.empty() && (last_too || !rest.empty()))
      return first_spelling(tree, rest.empty() ? m->same_as : m->same_as + "." + std::string(rest), last_too, hops + 1);
  }
  return at;
}

void collect_aliases(Module& m, const std::string& path, std::vector<std::pair<std::string, Module*>>& out) {
  if (!m.same_as.empty()) out.emplace_back(path, &m);
  for (Module& c : m.children) collect_aliases(c, join_path(path, c.name), out);
}

bool is_or_is_under(std::string_view path, std::string_view top) {
  return path == top || (path.size() > top.size() && path.starts_with(top) && path[top.size()] == '.');
}

std::vector<std::string> module_paths(const ModuleTree& tree) {
  std::vector<std::string> out;
  for_each_module(tree, [&](const std::string& path, const Module&) { out.push_back(path); });
  return out;
}

// Each `same_as` becomes the first spelling of its target; a module inside itself, over any number of second names, is
// refused, since no walk over such a tree ends.
Status resolve_aliases(ModuleTree& tree) {
  std::vector<std::pair<std::string, Module*>> aliases;
  collect_aliases(tree.root, "", aliases);
  std::vector<std::string> targets;
  for (const auto& [path, m] : aliases) {
    const auto target = first_spelling(tree, m->same_as, true);
    if (!target)
      return corrupt(fmt::format("{} is \"same_as\" {}, which names no module{}", named(path), quoted(m->same_as),
                                 did_you_mean(m->same_as, module_paths(tree))));
    targets.push_back(*target);
  }
  for (size_t i = 0; i < aliases.size(); ++i) aliases[i].second->same_as = targets[i];
  // Containment: alias i lies inside module P and stands for T. Walk T's subtree; meeting an alias again is a circle.
  enum class State : uint8_t { kNew, kOpen, kDone };
  std::vector<State> state(aliases.size(), State::kNew);
  std::function<bool(size_t)> ends = [&](size_t i) {
    if (state[i] != State::kNew) return state[i] == State::kDone;
    state[i] = State::kOpen;
    if (is_or_is_under(aliases[i].first, targets[i])) return false;
    for (size_t j = 0; j < aliases.size(); ++j)
      if (is_or_is_under(aliases[j].first, targets[i]) && !ends(j)) return false;
    state[i] = State::kDone;
    return true;
  };
  constexpr size_t kMaxAliases = 4096;  // the walk above is quadratic and as deep as aliases chain
  if (aliases.size() > kMaxAliases)
    return corrupt(fmt::format("{} modules are \"same_as\" others; at most {} are read", aliases.size(), kMaxAliases));
  for (size_t i = 0; i < aliases.size(); ++i)
    if (!ends(i))
      return corrupt(
          fmt::format("{} is \"same_as\" {}, which contains it", named(aliases[i].first), quoted(targets[i])));
  return {};
}

// The parameter a full name means, and its first spelling.
Result<std::pair<std::string, const Parameter*>> find_parameter(const ModuleTree& tree, std::string_view full,
                                                                const std::string& role) {
  const size_t dot = full.rfind('.');
  const std::string_view owner = dot == std::string_view::npos ? std::string_view() : full.substr(0, dot);
  const std::string_view leaf = dot == std::string_view::npos ? full : full.substr(dot + 1);
  if (const auto path = first_spelling(tree, owner, true)) {
    const Module* m = tree.find(*path);
    for (const Parameter& p : m->parameters)
      if (p.name == leaf) return std::pair(join_path(*path, leaf), &p);
  }
  std::vector<std::string> all;
  for_each_module(tree, [&](const std::string& path, const Module& m) {
    for (const Parameter& p : m.parameters) all.push_back(join_path(path, p.name));
  });
  return corrupt(fmt::format("the {} of a tie, {}, is no parameter{}", role, quoted(full), did_you_mean(full, all)));
}

Status read_ties(JsonView view, ModuleTree& tree) {
  if (!view.valid() || view.is_null()) return {};
  if (!view.is_array()) return corrupt("\"ties\" must be a list of [target, source] pairs");
  std::unordered_set<std::string> targets;
  for (JsonView::Cursor c(view); c.next();) {
    const auto pair = c.value().elements();
    if (!c.value().is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return corrupt(fmt::format("a tie must be a pair of parameter paths, found {}", c.value().text().substr(0, 80)));
    TRY(const auto target, find_parameter(tree, *pair[0].as_string(), "target"));
    TRY(const auto source, find_parameter(tree, *pair[1].as_string(), "source"));
    if (target.first == source.first) return corrupt(fmt::format("{} is tied to itself", quoted(target.first)));
    if (!targets.insert(target.first).second)
      return corrupt(fmt::format("{} is the target of two ties", quoted(target.first)));
    tree.ties.emplace_back(target.first, source.first);
  }
  return {};
}

Result<std::vector<std::string>> text_list(JsonView view, const char* key) {
  std::vector<std::string> out;
  if (!view.valid() || view.is_null()) return out;
  if (!view.is_array()) return corrupt(fmt::format("\"{}\" must be a list of texts", key));
  for (JsonView::Cursor c(view); c.next();) {
    const auto text = c.value().as_string();
    if (!text)
      return corrupt(fmt::format("\"{}\" must be a list of texts, found {}", key, json_type_name(c.value().type())));
    out.emplace_back(*text);
  }
  return out;
}

void write_module(JsonWriter& w, const Module& m) {
  w.begin_object();
  if (!m.same_as.empty()) {
    w.member("same_as", m.same_as).end_object();
    return;
  }
  w.member("c", m.class_name);
  const auto tensor = [&](const auto& t) {
    w.begin_array().value(t.name).begin_array();
    for (const int64_t d : t.shape) w.value(d);
    w.end_array().value(dtype_name(t.dtype));
  };
  if (!m.parameters.empty()) {
    w.key("p").begin_array();
    for (const Parameter& p : m.parameters) {
      tensor(p);
      w.end_array();
    }
    w.end_array();
  }
  if (!m.buffers.empty()) {
    w.key("b").begin_array();
    for (const Buffer& b : m.buffers) {
      tensor(b);
      w.value(b.persistent).end_array();
    }
    w.end_array();
  }
  if (!m.children.empty()) {
    w.key("m").begin_array();
    for (const Module& c : m.children) {
      w.begin_array().value(c.name);
      write_module(w, c);
      w.end_array();
    }
    w.end_array();
  }
  w.end_object();
}

void write_list(JsonWriter& w, const char* key, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  w.key(key).begin_array();
  for (const std::string& t : texts) w.value(t);
  w.end_array();
}

}  // namespace

Result<ModuleTree> read_tree_json(JsonView object, const TreeJsonOptions& options) {
  if (!object.is_object())
    return corrupt(fmt::format("the text must be a JSON object, found {}", json_type_name(object.type())));
  const JsonView format = object["format"];
  if (format.valid() ? format.as_string() != kTreeFormat : options.require_format)
    return corrupt(fmt::format("\"format\" must be {}, found {}", quoted(kTreeFormat),
                               format.valid() ? format.text().substr(0, 80) : "none"));
  ModuleTree tree;
  if (!object.contains("tree")) return corrupt("\"tree\" is missing");
  TRY(tree.root, Reader().module(object["tree"], "", ""));
  TRY_STATUS(resolve_aliases(tree));
  TRY(tree.no_split_classes, text_list(object["no_split"], "no_split"));
  TRY(tree.no_placement, text_list(object["no_placement"], "no_placement"));
  TRY(tree.keep_in_fp32, text_list(object["keep_in_fp32"], "keep_in_fp32"));
  TRY_STATUS(read_ties(object["ties"], tree));
  return tree;
}

Result<ModuleTree> parse_tree_json(std::string_view text, const TreeJsonOptions& options) {
  TRY(const JsonDocument document, JsonDocument::parse(text));
  return read_tree_json(document.root(), options);
}

Result<ModuleTree> read_tree_json_file(const std::string& path) {
  TRY(const JsonDocument document, JsonDocument::parse_file(path));
  auto tree = read_tree_json(document.root());
  if (!tree) return tree.error().with_context("while reading " + quoted(path));
  return tree;
}

std::string tree_json(const ModuleTree& tree) {
  JsonWriter w;
  w.begin_object().member("format", kTreeFormat);
  w.key("tree");
  write_module(w, tree.root);
  write_list(w, "no_split", tree.no_split_classes);
  if (!tree.ties.empty()) {
    w.key("ties").begin_array();
    for (const auto& [target, source] : tree.ties) w.begin_array().value(target).value(source).end_array();
    w.end_array();
  }
  write_list(w, "no_placement", tree.no_placement);
  write_list(w, "keep_in_fp32", tree.keep_in_fp32);
  w.end_object();
  return w.take();
}

}  // namespace berth::arch
