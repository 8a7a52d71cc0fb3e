// engine/evaluate.h — perplexity and logits of given tokens; the hash of logits that `eval`, `run` and `verify` print.
//
// Start reading at: evaluate.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/write_safetensors.h"
#include "berth/model/model.h"

namespace berth::engine {

struct Evaluation {
  // Mean over the n - 1 predicted tokens, natural log, summed in double; nothing where a single token predicts none.
  std::optional<double> nll;
  std::optional<double> perplexity;  // exp(nll)
  std::string logits_hash;  // of every position's row, in order
  int64_t tokens = 0;
};

// Runs `tokens` as sequence 0 from an empty cache. `on_row`, if set, gets each position's logits [vocab] in order.
// Errors: kInvalidArgument for no token or more than the context holds.
Result<Evaluation> evaluate(model::Model& model, std::span<const int32_t> tokens,
                            const std::function<Status(int64_t position, std::span<const float>)>& on_row = {});

// Logits of every position as one safetensors file: tensor "logits", [rows, vocab] F32. A default one writes nothing.
class LogitsFile {
 public:
  LogitsFile() = default;
  static Result<LogitsFile> create(const std::string& path, int64_t rows, int64_t vocab);
  Status append(std::span<const float> row);
  // Every row must have come. Without it nothing is left behind.
  Status finish();

 private:
  std::optional<format::SafetensorsWriter> writer_;
  uint64_t written_ = 0;
};

// A JSON list of token ids. Errors: kInvalidArgument naming the file and the first element that is none.
Result<std::vector<int32_t>> read_token_file(const std::string& path);

}  // namespace berth::engine
