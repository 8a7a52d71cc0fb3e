// arch/golden_tree.h — for tests: the goldens' module trees (device_maps/trees/*.tsv[.gz]) as ModuleTree values.
//
// Test executables list golden_tree.cc among their sources and link zlib; the library does not contain it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"

namespace berth::arch {

struct GoldenTree {
  ModuleTree tree;
  std::map<std::string, std::string> header;          // "size bf16" -> "total .. block .. leaf .."
  std::map<std::string, bool> nf4, int8;              // modules of class Linear: does bitsandbytes replace it
  std::map<std::string, double> counted_per_element;  // native trees: tensor path -> bytes the quantizer counts
};

// The folder with the goldens: environment BERTH_SHARED, else ../shared beside the repository.
std::string shared_folder();

// A file's text, gunzipped where its name ends in ".gz"; at most `max_bytes`.
Result<std::string> read_maybe_gzipped(const std::string& path, size_t max_bytes = size_t{1} << 28);

Result<GoldenTree> read_golden_tree(const std::string& path);
// The same by model name ("Mixtral-8x7B-v0.1", "gpt-oss-20b.native").
Result<GoldenTree> read_golden_tree_named(const std::string& name);
// "NAME" or "NAME.native" of every tree there, sorted.
Result<std::vector<std::string>> golden_tree_names();

}  // namespace berth::arch

// Leaves the test where the goldens are absent: a named skip, or a failure where CI=true.
#define BERTH_NEED_SHARED(path)                                                                             \
  do {                                                                                                      \
    if (!::berth::path_exists(path)) {                                                                      \
      const char* berth_ci = std::getenv("CI");                                                             \
      if (berth_ci != nullptr && std::string(berth_ci) == "true") FAIL() << "goldens are absent: " << path; \
      GTEST_SKIP() << "goldens are absent: " << path;                                                       \
    }                                                                                                       \
  } while (false)
