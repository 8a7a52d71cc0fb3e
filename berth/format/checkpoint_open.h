// format/checkpoint_open.h — how a Checkpoint comes to be: its files, their headers, and the rules between them.
// Private to format/; checkpoint.h is the interface.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "berth/base/log.h"
#include "berth/format/checkpoint.h"
#include "berth/format/sharded_index.h"

namespace berth::format {

class CheckpointOpener {
 public:
  CheckpointOpener(const Log& log, const OpenOptions& options) : log_(log), options_(options) {}
  Result<Checkpoint> open(const std::string& model);

 private:
  void warn(std::string message);
  Status open_config();
  Status open_safetensors();
  Status open_sharded();    // with an index
  Status open_numbered();   // without; one file or a numbered set
  Status look_at_rivals();  // other files of the folder with the same tensors
  Status open_gguf();
  // Opens `path`, or finds that it is a file already open under another name. The position in files_.
  Result<uint32_t> open_file(const std::string& path);
  Status index_names();      // fills names_, refuses names that occur twice
  void find_stored_dtype();  // and warns where config.json says another
  void note_unlisted_files(const ShardedIndex& index);
  std::optional<Error> missing_shards(const ShardedIndex& index, const std::vector<std::string>& paths);
  Error incomplete_numbering() const;

  const Log& log_;
  const OpenOptions& options_;
  Checkpoint c_;
};

}  // namespace berth::format
