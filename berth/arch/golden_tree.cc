// arch/golden_tree.cc — the TSV trees of the goldens (device_maps/README.md), for tests.
#include "berth/arch/golden_tree.h"

#include <zlib.h>

#include <cstdlib>
#include <set>
#include <unordered_map>

#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/tensor/dtype.h"

namespace berth::arch {
namespace {

Error bad(const std::string& what) { return Error(ErrorCode::kCorruptData, "golden tree: " + what); }

std::pair<std::string, std::string> owner_and_leaf(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

Result<DType> dtype_of(const std::string& text) {
  if (const auto d = dtype_from_name(text)) return *d;
  return bad("unknown dtype " + quoted(text));
}

Result<Shape> shape_of(const std::string& text) {
  TRY(const JsonDocument doc, JsonDocument::parse(text));
  Shape shape;
  for (const JsonView v : doc.root().elements()) {
    const auto n = v.as_int64();
    if (!n) return bad("shape " + quoted(text));
    shape.push_back(*n);
  }
  return shape;
}

void read_header_line(const std::string& line, GoldenTree& out) {  // "# key: value"
  const size_t colon = line.find(": ");
  if (colon == std::string::npos) return;
  const std::string key = line.substr(2, colon - 2), value = line.substr(colon + 2);
  if (key == "tied") {
    const size_t arrow = value.find(" -> ");
    out.tree.ties.emplace_back(value.substr(0, arrow), value.substr(arrow + 4));
    return;
  }
  out.header[key] = value;
  const auto words = [&](std::vector<std::string>& list) {
    for (const std::string& w : split(value, ' '))
      if (w != "-" && !w.empty()) list.push_back(w);
  };
  if (key == "no_split_modules") words(out.tree.no_split_classes);
  if (key == "no_placement_params") words(out.tree.no_placement);
  if (key == "keep_in_fp32_modules") words(out.tree.keep_in_fp32);
  if (key == "keep_in_fp32_modules_strict") words(out.tree.keep_in_fp32_strict);
}

// Modules come before what they contain, so a parent's address may move while siblings are added: rows are attached by
// path from the root, and only the deepest open path is cached.
Module* module_at(Module& root, const std::string& path) {
  Module* m = &root;
  if (path.empty()) return m;
  for (const std::string& part : split(path, '.')) {
    if (m == nullptr) return nullptr;
    // the newest child is nearly always the one meant
    m = !m->children.empty() && m->children.back().name == part ? &m->children.back() : m->child(part);
  }
  return m;
}

}  // namespace

std::string shared_folder() {
  const char* env = std::getenv("BERTH_SHARED");
  if (env != nullptr && *env != '\0') return env;
  return std::string(BERTH_SOURCE_DIR) + "/../shared";
}

Result<std::string> read_maybe_gzipped(const std::string& path, size_t max_bytes) {
  if (!path.ends_with(".gz")) return read_file(path, max_bytes);
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return Error(ErrorCode::kNotFound, "cannot open " + quoted(path));
  std::string out;
  char block[1 << 16];
  int n = 0;
  while ((n = gzread(file, block, sizeof block)) > 0 && out.size() <= max_bytes)
    out.append(block, static_cast<size_t>(n));
  const bool whole = n == 0;
  gzclose(file);
  if (!whole) return Error(ErrorCode::kCorruptData, "cannot gunzip " + quoted(path));
  return out;
}

Result<GoldenTree> read_golden_tree(const std::string& path) {
  TRY(const std::string text, read_maybe_gzipped(path));
  GoldenTree out;
  std::unordered_map<std::string, size_t> column;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    if (line.starts_with("# ")) {
      read_header_line(line, out);
      continue;
    }
    const std::vector<std::string> row = split(line, '\t');
    if (column.empty()) {
      for (size_t i = 0; i < row.size(); ++i) column[row[i]] = i;
      continue;
    }
    if (row.size() != column.size()) return bad("a row with " + std::to_string(row.size()) + " columns");
    const auto cell = [&](const char* name) -> const std::string& { return row[column.at(name)]; };
    const auto [owner_path, leaf] = owner_and_leaf(cell("path"));
    if (cell("kind") == "module") {
      Module m;
      m.name = leaf;
      m.class_name = cell("class");
      if (cell("same_as") != "-") m.same_as = cell("same_as");
      if (column.contains("nf4") && m.class_name == "Linear") {
        out.nf4[cell("path")] = cell("nf4") == "1";
        out.int8[cell("path")] = cell("int8") == "1";
      }
      if (cell("path").empty()) {
        out.tree.root = std::move(m);
        continue;
      }
      Module* owner = module_at(out.tree.root, owner_path);
      if (owner == nullptr) return bad("no module " + quoted(owner_path));
      owner->children.push_back(std::move(m));
      continue;
    }
    Module* owner = module_at(out.tree.root, owner_path);
    if (owner == nullptr) return bad("no module " + quoted(owner_path));
    TRY(const Shape shape, shape_of(cell("shape")));
    TRY(const DType dtype, dtype_of(cell("dtype")));
    TRY(const DType dtype_f32, dtype_of(cell(column.contains("dtype_fp32") ? "dtype_fp32" : "dtype")));
    if (column.contains("counted_bytes_per_element"))
      out.counted_per_element[cell("path")] = std::strtod(cell("counted_bytes_per_element").c_str(), nullptr);
    if (cell("kind") == "param") {
      owner->parameters.push_back({leaf, shape, dtype, dtype_f32});
    } else {
      owner->buffers.push_back({leaf, shape, dtype, dtype_f32, cell("persistent") == "1"});
    }
  }
  return out;
}

Result<GoldenTree> read_golden_tree_named(const std::string& name) {
  const std::string base = shared_folder() + "/golden/device_maps/trees/" + name + ".tsv";
  return read_golden_tree(path_exists(base) ? base : base + ".gz");
}

Result<std::vector<std::string>> golden_tree_names() {
  TRY(const auto files, list_folder(shared_folder() + "/golden/device_maps/trees"));
  std::set<std::string> names;
  for (std::string f : files) {
    if (f.ends_with(".gz")) f.resize(f.size() - 3);
    if (f.ends_with(".tsv")) names.insert(f.substr(0, f.size() - 4));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

}  // namespace berth::arch
