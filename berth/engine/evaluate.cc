// engine/evaluate.cc — see evaluate.h.
#include "berth/engine/evaluate.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "berth/base/hash.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"

namespace berth::engine {
namespace {

// -log softmax(row)[id], in double.
double negative_log_likelihood(std::span<const float> row, int32_t id) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
  return std::log(sum) + top - static_cast<double>(row[static_cast<size_t>(id)]);
}

}  // namespace

Result<Evaluation> evaluate(model::Model& model, std::span<const int32_t> tokens,
                            const std::function<Status(int64_t, std::span<const float>)>& on_row) {
  if (tokens.empty()) return Error(ErrorCode::kInvalidArgument, "evaluating needs at least one token; none were given");
  Hasher128 hash;
  double sum = 0;
  model.kv().set_length(0, 0);
  TRY_STATUS(model.prefill(0, tokens, model::LogitRows::kAll, [&](size_t, int64_t position, std::span<const float> row) -> Status {
    hash.add(row.data(), row.size_bytes());
    if (static_cast<size_t>(position) + 1 < tokens.size()) {
      const int32_t next = tokens[static_cast<size_t>(position) + 1];
      if (static_cast<size_t>(next) >= row.size())
        return Error(ErrorCode::kInvalidArgument, fmt::format("token id {} is beyond the {} that logits cover", next, row.size()));
      sum += negative_log_likelihood(row, next);
    }
    return on_row ? on_row(position, row) : Status();
  }));
  Evaluation out;
  out.tokens = static_cast<int64_t>(tokens.size());
  if (tokens.size() > 1) {
    out.nll = sum / static_cast<double>(tokens.size() - 1);
    out.perplexity = std::exp(*out.nll);
  }
  out.logits_hash = hash.hex();
  return out;
}

Result<LogitsFile> LogitsFile::create(const std::string& path, int64_t rows, int64_t vocab) {
  LogitsFile file;
  TRY(auto writer, format::SafetensorsWriter::create(path, {{"logits", DType::kF32, {rows, vocab}, 0}}));
  file.writer_.emplace(std::move(writer));
  return file;
}

Status LogitsFile::append(std::span<const float> row) {
  if (!writer_) return {};
  TRY_STATUS(writer_->write(0, written_, std::as_bytes(row)));
  written_ += row.size_bytes();
  return {};
}

Status LogitsFile::finish() { return writer_ ? writer_->finish() : Status(); }

Result<std::vector<int32_t>> read_token_file(const std::string& path) {
  TRY(const JsonDocument document, JsonDocument::parse_file(path));
  if (!document.root().is_array())
    return Error(ErrorCode::kInvalidArgument, fmt::format("{}: a JSON list of token ids was expected, {} was found", quoted(path),
                                                          json_type_name(document.root().type())));
  std::vector<int32_t> ids;
  for (const JsonView v : document.root().elements()) {
    const auto id = v.as_int64();
    if (!id || *id < 0 || *id > INT32_MAX)
      return Error(ErrorCode::kInvalidArgument, fmt::format("{}: element {} is no token id", quoted(path), ids.size()));
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace berth::engine
