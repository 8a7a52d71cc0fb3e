// format/hub_cache.h — the Hugging Face hub's local cache: which folder holds a repository's files.
//
//   CACHE/models--ORG--NAME/refs/main                 text: the commit
//   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE     link to ../../blobs/HASH
//
// CACHE is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub. Read only; downloading writes the same layout elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth::format {

// "" where no variable and no home folder is set.
std::string hub_cache_folder();

// "name" or "org/name" of letters, digits, '-', '_' and '.'; no "..", "--", leading or trailing '.' or '-'.
bool is_repo_id(std::string_view text);
// "models--org--name"
std::string hub_repo_folder(std::string_view repo_id);

struct HubSnapshot {
  std::string folder;  // with the files
  std::string commit;
  std::vector<std::string> warnings;  // blobs or a file lead out of the repository's folder
};

// The snapshot of `revision` (branch, tag or commit) below `repo_folder` (CACHE/models--..). Where the revision is
// "main", has no ref and there is only one snapshot, that one. Errors: kNotFound, kCorruptData (a ref that is no
// commit).
Result<HubSnapshot> find_snapshot(const std::string& repo_folder, std::string_view revision = "main");

}  // namespace berth::format
