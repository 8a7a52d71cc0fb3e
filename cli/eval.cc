// cli/eval.cc — berth eval: perplexity and logits of given tokens or text.
#include <fmt/format.h>

#include "berth/base/file.h"
#include "berth/engine/evaluate.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Eval : public Command {
 public:
  std::string name() const override { return "eval"; }
  std::string summary() const override { return "perplexity and logits of given tokens or text"; }
  std::string details() const override { return "Example: berth eval MODEL --text book.txt -c 2048 --numerics int8"; }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("--tokens", tokens_, "a JSON list of token ids")->type_name("FILE")->group("What is evaluated");
    app.add_option("--text", text_, "a text file, tokenized as the model does")->type_name("FILE")->group("What is evaluated")->excludes("--tokens");
    app.add_option("--logits", logits_, "write logits [n, vocab] F32 to this safetensors file")->type_name("OUT.safetensors")->group("What is evaluated");
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    if (tokens_.empty() == text_.empty())
      return Error(ErrorCode::kInvalidArgument, "give either --tokens FILE or --text FILE");
    TRY(options_, engine::with_recorded_options(options_));
    TRY(auto opened, engine::open_model(model_, options_, out.log()));
    TRY(const std::vector<int32_t> tokens, ids(opened));
    options_.all_logits = true;
    if (options_.ctx_size == 0) options_.ctx_size = static_cast<int64_t>(tokens.size());
    TRY(auto planned, engine::plan_model(opened, options_));
    for (const std::string& note : opened.notes) out.note(note);
    TRY(auto running, engine::load_model(opened, std::move(planned), options_, out.log(), engine::NanLook::kWhileFirstUsed));
    engine::LogitsFile file;
    if (!logits_.empty()) {
      TRY(file, engine::LogitsFile::create(logits_, static_cast<int64_t>(tokens.size()), running->model->spec().vocab_size));
    }
    TRY(const auto result, engine::evaluate(*running->model, tokens, [&](int64_t, std::span<const float> row) -> Status {
      if (interrupted()) return Error(ErrorCode::kCancelled, "evaluation was interrupted");
      return file.append(row);
    }));
    TRY_STATUS(file.finish());
    if (out.json()) {
      JsonWriter w(2);
      w.begin_object();
      if (result.nll) {
        w.member("nll", *result.nll).member("perplexity", *result.perplexity);
      } else {
        w.key("nll").null().key("perplexity").null();
      }
      w.member("logits_hash", result.logits_hash).member("tokens", result.tokens).end_object();
      out.print(w.take() + "\n");
    } else {
      const std::string likelihood =
          result.nll ? fmt::format("nll {:.6f}, perplexity {:.6f}", *result.nll, *result.perplexity) : "nothing predicted";
      out.print(fmt::format("{} token{}, {}, logits {}\n", result.tokens, result.tokens == 1 ? "" : "s", likelihood, result.logits_hash));
    }
    return {};
  }

 private:
  Result<std::vector<int32_t>> ids(const engine::OpenedModel& opened) const {
    if (!tokens_.empty()) return engine::read_token_file(tokens_);
    TRY(const std::string text, read_file(text_, size_t{256} << 20));
    TRY(const auto tokenizer, engine::make_tokenizer(*opened.checkpoint));
    return tokenizer.encode(text, true);
  }
  std::string model_, tokens_, text_, logits_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_eval() { return std::make_unique<Eval>(); }

}  // namespace berth::cli
