// cli/tokenize.cc — berth tokenize and detokenize: JSON lines in, JSON lines out.
#include <iostream>

#include <fmt/format.h>

#include "berth/base/json.h"
#include "makers.h"

namespace berth::cli {
namespace {

Result<text::Tokenizer> open_tokenizer(const std::string& model, const Output& out) {
  TRY(const auto checkpoint, engine::open_checkpoint(model, out.log()));
  TRY(auto tokenizer, engine::make_tokenizer(checkpoint));
  for (const std::string& note : tokenizer.notes()) out.note(note);
  return tokenizer;
}

// Calls f(line number, parsed line) for each line of standard input that is not empty.
Status for_each_json_line(const std::function<Status(int64_t, JsonView)>& f) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.empty()) continue;
    auto document = JsonDocument::parse(line);
    if (!document) {
      Error e = document.error().with_context(fmt::format("reading line {} of standard input", number));
      e.code = ErrorCode::kInvalidArgument;
      return e;
    }
    TRY_STATUS(f(number, document->root()));
    if (interrupted()) return Error(ErrorCode::kCancelled, "interrupted");
  }
  return {};
}

class Tokenize : public Command {
 public:
  std::string name() const override { return "tokenize"; }
  std::string summary() const override { return "JSON strings, one per line -> JSON lists of token ids"; }
  std::string details() const override { return "Example: echo '\"Hello\"' | berth tokenize MODEL"; }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_flag("--no-special", no_special_, "without the tokenizer's own begin and end tokens");
  }
  Status run(const Output& out) override {
    TRY(const auto tokenizer, open_tokenizer(model_, out));
    return for_each_json_line([&](int64_t number, JsonView line) -> Status {
      const auto text = line.as_string();
      if (!text) return Error(ErrorCode::kInvalidArgument, fmt::format("line {}: a JSON string was expected, {} was found", number, json_type_name(line.type())));
      TRY(const auto ids, tokenizer.encode(*text, !no_special_));
      std::string list = "[";
      for (size_t i = 0; i < ids.size(); ++i) list += (i > 0 ? ", " : "") + std::to_string(ids[i]);
      out.print(list + "]\n");
      return {};
    });
  }

 private:
  std::string model_;
  bool no_special_ = false;
};

class Detokenize : public Command {
 public:
  std::string name() const override { return "detokenize"; }
  std::string summary() const override { return "JSON lists of token ids, one per line -> JSON strings"; }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_flag("--skip-special", skip_special_, "leave special tokens out");
  }
  Status run(const Output& out) override {
    TRY(const auto tokenizer, open_tokenizer(model_, out));
    return for_each_json_line([&](int64_t number, JsonView line) -> Status {
      std::vector<int32_t> ids;
      if (!line.is_array()) return Error(ErrorCode::kInvalidArgument, fmt::format("line {}: a JSON list of ids was expected, {} was found", number, json_type_name(line.type())));
      for (const JsonView v : line.elements()) {
        const auto id = v.as_int64();
        if (!id || *id < 0 || *id > INT32_MAX) return Error(ErrorCode::kInvalidArgument, fmt::format("line {}: element {} is no token id", number, ids.size()));
        ids.push_back(static_cast<int32_t>(*id));
      }
      TRY(const std::string text, tokenizer.decode(ids, skip_special_));
      out.print(json_quoted(text) + "\n");
      return {};
    });
  }

 private:
  std::string model_;
  bool skip_special_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tokenize() { return std::make_unique<Tokenize>(); }
std::unique_ptr<Command> make_detokenize() { return std::make_unique<Detokenize>(); }

}  // namespace berth::cli
