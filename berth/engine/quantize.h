// engine/quantize.h — writes the checkpoint that Transformers + bitsandbytes write: from_pretrained with a
// quantization_config, then save_pretrained.
//
// Same tensors (names, types, bytes), same quantization_config, same shards; config.json with `dtype` and
// `quantization_config` set and everything else as it was; generation config, tokenizer and processor files copied. A
// bare file (no config is needed) becomes a bare file: every 2-D float tensor is quantized, the rest is kept.
//
// Nothing appears under the name asked for before it is complete. Host memory: the largest quantized matrix in its
// packed form, and the staging of load/fill_matrix.h.
//
// Non-goals: quantizing to be run at once (load/). Start reading at: quantize_checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/engine/options.h"
#include "berth/tensor/dtype.h"

namespace berth::engine {

struct QuantizeReport {
  std::string out;
  std::vector<std::string> files;  // names in the folder, or the one file
  uint64_t tensors = 0, quantized_modules = 0;
  uint64_t source_bytes = 0, written_bytes = 0;  // tensors read; files written
  double seconds = 0;
};

inline constexpr std::string_view kDefaultMaxShardSize = "50GB";  // Transformers 5's own

// `max_shard_size`: "5GB", "500MiB". Errors: kInvalidArgument (options that contradict one another, OUT exists),
// kUnsupported (quantized already, GGUF, fused experts), kCorruptData (a weight that is not finite), kIo, kCancelled.
Result<QuantizeReport> quantize_checkpoint(const std::string& model, const std::string& out, const Options& options,
                                           const std::string& max_shard_size, const Log& log);

// Whether OUT asks for a bare file.
bool is_bare_file(const std::string& out);

// config.json's text with quantization_config (of `options`; without 4 and 8 bit none) and dtype set, in the form Transformers saves it.
Result<std::string> quantized_config_json(const std::string& path, const Options& options, DType dtype);

// Copies what a checkpoint needs beside its weights: generation config, tokenizer, chat templates, processors, code.
Status copy_companion_files(const std::string& from_folder, const std::string& to_folder);

void write_quantize_report(const QuantizeReport& report, JsonWriter& w);
std::string quantize_report_text(const QuantizeReport& report);

}  // namespace berth::engine
