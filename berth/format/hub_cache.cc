// format/hub_cache.cc — see hub_cache.h.
#include "berth/format/hub_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth::format {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool is_link(const std::string& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0 && S_ISLNK(s.st_mode);
}

// The path without links, or "" where it leads nowhere.
std::string resolved(const std::string& path) {
  char buffer[PATH_MAX];
  return ::realpath(path.c_str(), buffer) == nullptr ? std::string() : std::string(buffer);
}

// A snapshot's files are links to blobs of the same repository. What leads elsewhere is read all the same (whole caches
// are moved to other disks that way) but said.
std::vector<std::string> outside_links(const std::string& repo_folder, const std::string& snapshot) {
  std::vector<std::string> warnings;
  const std::string blobs = path_join(repo_folder, "blobs");
  if (is_link(blobs))
    warnings.push_back(fmt::format("{} is itself a link, to {}: files are read through it", quoted(blobs, 400),
                                   quoted(resolved(blobs), 400)));
  const std::string inside = resolved(repo_folder) + "/";
  const auto names = list_folder(snapshot);
  if (!names || !warnings.empty()) return warnings;
  for (const std::string& name : *names) {
    const std::string path = path_join(snapshot, name);
    const std::string target = is_link(path) ? resolved(path) : std::string();
    if (!target.empty() && !target.starts_with(inside))
      warnings.push_back(fmt::format("{} is a link out of its repository's cache folder, to {}", quoted(path, 400),
                                     quoted(target, 400)));
  }
  return warnings;
}

}  // namespace

std::string hub_cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string v = environment(name); !v.empty()) return v;
  if (const std::string v = environment("HF_HOME"); !v.empty()) return path_join(v, "hub");
  if (const std::string v = environment("XDG_CACHE_HOME"); !v.empty()) return path_join(v, "huggingface/hub");
  if (const std::string v = environment("HOME"); !v.empty()) return path_join(v, ".cache/huggingface/hub");
  return "";
}

bool is_repo_id(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos && text.find('/', slash + 1) != std::string_view::npos) return false;
  if (text.find("--") != std::string_view::npos || text.find("..") != std::string_view::npos) return false;
  const auto good = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && part.front() != '.' && part.front() != '-' && part.back() != '.' &&
           part.back() != '-' && std::all_of(part.begin(), part.end(), is_name_character);
  };
  if (slash == std::string_view::npos) return good(text);
  return good(text.substr(0, slash)) && good(text.substr(slash + 1));
}

std::string hub_repo_folder(std::string_view repo_id) {
  std::string out = "models--";
  for (const char c : repo_id) out += c == '/' ? std::string("--") : std::string(1, c);
  return out;
}

Result<HubSnapshot> find_snapshot(const std::string& repo_folder, std::string_view revision) {
  const std::string snapshots = path_join(repo_folder, "snapshots");
  HubSnapshot out;
  // A revision is a path below refs/ ("refs/pr/3" is one): it must not lead out of it.
  const bool safe = !revision.empty() && revision.front() != '/' && revision.find("..") == std::string_view::npos;
  const std::string ref = path_join(path_join(repo_folder, "refs"), revision);
  if (safe && path_exists(ref) && !is_directory(ref)) {
    TRY(const std::string text, read_file(ref, 4096));
    out.commit = trimmed(text);
    if (out.commit.empty() || !std::all_of(out.commit.begin(), out.commit.end(), is_name_character) ||
        out.commit.front() == '.')
      return Error(ErrorCode::kCorruptData, fmt::format("reading {}: a commit was expected, {} was found",
                                                        quoted(ref, 400), quoted(out.commit, 60)));
  } else if (safe && is_directory(path_join(snapshots, revision))) {
    out.commit = revision;
  } else if (revision == "main") {
    const auto names = list_folder(snapshots);
    if (names && names->size() == 1) out.commit = names->front();
  }
  out.folder = path_join(snapshots, out.commit);
  if (out.commit.empty() || !is_directory(out.folder))
    return Error(ErrorCode::kNotFound,
                 fmt::format("no snapshot of revision {} in {}", quoted(revision), quoted(repo_folder, 400)),
                 {"Download it into the cache with Hugging Face's own tool: hf download REPO."});
  out.warnings = outside_links(repo_folder, out.folder);
  return out;
}

}  // namespace berth::format
