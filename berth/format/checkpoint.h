// format/checkpoint.h — one interface for everything MODEL can be: names, types, shapes and bytes of tensors, configs,
// tokenizer texts. Opening reads and checks every header; no tensor data is read until read().
//
//   TRY(const Checkpoint checkpoint, Checkpoint::open("org/name", log));
//   for (const TensorEntry& t : checkpoint.tensors()) ...
//   TRY_STATUS(checkpoint.read(*checkpoint.find("model.norm.weight"), 0, bytes));
//
// Files are opened once: the handle that was checked is the one that is read, so a file that is replaced or cut later
// is an ordinary error. Nothing is mapped. Thread-safe once open. Move-only.
//
// Non-goals: what tensors mean (arch/), decoding them (quant/), placing them (load/).
// Start reading at: Checkpoint::open; locate.h has the rules of which files belong to MODEL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/file.h"
#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/format/generation_config.h"
#include "berth/format/gguf_metadata.h"
#include "berth/format/hf_config.h"
#include "berth/format/locate.h"
#include "berth/format/name_index.h"
#include "berth/format/quantization_config.h"
#include "berth/format/tensor_entry.h"

namespace berth::format {

struct OpenOptions {
  std::string hub_cache;    // for repo ids; "" takes hub_cache_folder()
  std::string config_path;  // read instead of the checkpoint's own config.json; "" for its own
};

class Checkpoint {
 public:
  // Notes and warnings go to `log` as they arise and are kept in warnings().
  // Errors: kNotFound, kCorruptData, kUnsupported, kIo; messages name file, tensor or key, expected and found.
  static Result<Checkpoint> open(const std::string& model, const Log& log = {}, const OpenOptions& options = {});

  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  CheckpointKind kind() const { return located_.kind; }
  const std::string& display_name() const { return located_.display_name; }
  const std::string& folder() const { return located_.folder; }        // of its files
  const std::string& tree_path() const { return located_.tree_path; }  // of kind kTree
  const std::vector<std::string>& warnings() const { return warnings_; }

  // By file, then in order of their bytes. Empty for kinds kConfig and kTree.
  std::span<const TensorEntry> tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // nullptr where there is none
  std::span<const File> files() const { return files_; }

  // Fills `out` from byte `offset` of the tensor. Errors: kIo naming file, offset and what changed; kInvalidArgument
  // where the range is not inside the tensor.
  Status read(const TensorEntry& tensor, uint64_t offset, std::span<std::byte> out) const;
  // Whether every file is still what was opened, also under its name.
  Status check_unchanged() const;

  const HfConfig* config() const { return config_ ? &*config_ : nullptr; }  // nullptr for GGUF, and where there is none
  const GgufMetadata* gguf() const { return gguf_ ? &*gguf_ : nullptr; }    // nullptr otherwise
  // From config.json, else from hf_quant_config.json.
  const std::optional<QuantizationConfig>& quantization() const { return quantization_; }

  // The floating-point type (f64, f32, f16, bf16) that most bytes of such tensors are stored in: the default for
  // computing with them, whatever config.json says (a disagreement is among the warnings). Nothing where no tensor has
  // one.
  std::optional<DType> stored_dtype() const { return stored_dtype_; }

  // generation_config.json; without it what config.json or the GGUF metadata state.
  Result<GenerationConfig> generation_config() const;

  // Texts of files beside the weights, read when asked for; nothing where a file is absent and for GGUF.
  Result<std::optional<std::string>> tokenizer_json() const;
  Result<std::optional<std::string>> tokenizer_config_json() const;
  Result<std::optional<std::string>> special_tokens_map_json() const;
  // chat_template.jinja, additional_chat_templates/NAME.jinja, chat_template.json, tokenizer_config.json's
  // chat_template (a text, or a list of named ones), or GGUF's tokenizer.chat_template. `name` "" is the default one.
  Result<std::optional<std::string>> chat_template(std::string_view name = "") const;

  // xxh3-128, hex, over names, dtypes, shapes, files and offsets; for a bare config over its text.
  std::string fingerprint() const;

 private:
  Checkpoint() = default;
  friend class CheckpointOpener;
  Result<std::optional<std::string>> optional_text(std::string_view name, uint64_t max_bytes) const;

  LocatedCheckpoint located_;
  std::vector<File> files_;
  std::vector<TensorEntry> tensors_;
  NameIndex names_;  // of tensors_
  std::optional<HfConfig> config_;
  std::optional<GgufMetadata> gguf_;
  std::optional<QuantizationConfig> quantization_;
  std::optional<DType> stored_dtype_;
  std::vector<std::string> warnings_;
};

}  // namespace berth::format
