// arch/module.cc — walking a module tree.
#include "berth/arch/module.h"

namespace berth::arch {

std::string join_path(std::string_view parent, std::string_view name) {
  if (parent.empty()) return std::string(name);
  std::string out(parent);
  out += '.';
  out += name;
  return out;
}

Module* Module::child(std::string_view child_name) {
  for (Module& m : children)
    if (m.name == child_name) return &m;
  return nullptr;
}
const Module* Module::child(std::string_view child_name) const {
  for (const Module& m : children)
    if (m.name == child_name) return &m;
  return nullptr;
}

const Module* ModuleTree::find(std::string_view path) const {
  const Module* m = &root;
  while (m != nullptr && !path.empty()) {
    const size_t dot = path.find('.');
    m = m->child(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return m;
}

namespace {
void walk(const std::string& path, const Module& m,
          const std::function<void(const std::string&, const Module&)>& visit) {
  visit(path, m);
  for (const Module& c : m.children) walk(join_path(path, c.name), c, visit);
}
}  // namespace

void for_each_module(const ModuleTree& tree, const std::function<void(const std::string&, const Module&)>& visit) {
  walk("", tree.root, visit);
}

}  // namespace berth::arch
