// cli/inspect.cc — berth inspect: the module tree with bytes stored and touched.
#include "makers.h"

namespace berth::cli {
namespace {

class Inspect : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override { return "the module tree: bytes stored, bytes touched per token, formats"; }
  std::string details() const override {
    return "\"touched\" is what one decoded token reads: all of a Linear layer, one row of an embedding.\n"
           "Example: berth inspect Qwen/Qwen3-8B --depth 4";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("--depth", depth_, "how deep the tree is shown")->capture_default_str();
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    if (out.json()) {
      JsonWriter w(2);
      engine::write_inspect(opened, w);
      out.print(w.take() + "\n");
    } else {
      out.print(engine::inspect_text(opened, depth_, out.style()));
    }
    return {};
  }

 private:
  std::string model_;
  int depth_ = 3;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_inspect() { return std::make_unique<Inspect>(); }

}  // namespace berth::cli
