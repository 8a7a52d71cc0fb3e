// text/test_files.h — where the tests find goldens and models, and gzip. For tests only.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "berth/base/file.h"
#include "berth/base/json.h"

namespace berth::text {

inline std::string shared_folder() {
  const char* shared = std::getenv("BERTH_SHARED");
  return shared && *shared ? std::string(shared) : std::string(BERTH_SOURCE_DIR) + "/../shared";
}

inline std::string golden_folder(const std::string& name) { return shared_folder() + "/golden/" + name; }

inline bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

// Skips (in CI: fails) the running test where `path` is absent.
#define REQUIRE_PATH(path)                                               \
  do {                                                                   \
    if (!::berth::path_exists(path)) {                                   \
      if (::berth::text::in_ci()) FAIL() << "missing in CI: " << (path); \
      GTEST_SKIP() << "not here: " << (path);                            \
    }                                                                    \
  } while (false)

// PATH, or PATH.gz unpacked; empty where neither is there.
inline std::string read_maybe_gzip(const std::string& path) {
  if (path_exists(path)) return read_file(path).value();
  std::string out;
  gzFile file = gzopen((path + ".gz").c_str(), "rb");
  if (!file) return out;
  char buffer[1 << 16];
  for (int n = 0; (n = gzread(file, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  return out;
}

// The lines of a .jsonl file, parsed.
inline std::vector<JsonDocument> read_json_lines(const std::string& path) {
  std::vector<JsonDocument> documents;
  const std::string text = read_file(path).value();
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    documents.push_back(JsonDocument::parse(std::string_view(text).substr(at, end - at)).value());
    at = end + 1;
  }
  return documents;
}

}  // namespace berth::text
