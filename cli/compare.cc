// cli/compare.cc — berth compare: the strategies side by side.
#include "makers.h"

namespace berth::cli {
namespace {

class Compare : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override { return "strategies side by side: fit, fullest device, moves, estimated tokens/s"; }
  std::string details() const override {
    return "The fastest that fits is marked with *. A strategy that cannot keep everything on accelerators becomes best and says so.\n"
           "Below Berth's own are the maps of Transformers and accelerate, with their estimates and what goes wrong with them here.\n"
           "Example: berth compare MODEL --load-in-4bit --max-memory 0=18GiB,1=10GiB,cpu=48GiB";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    add_options(app, options_, "device-map");
  }
  Status run(const Output& out) override {
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    TRY(const engine::Comparison compared, engine::compare_plans(opened, options_));
    if (out.json()) {
      JsonWriter w(2);
      engine::write_comparison(compared, w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(plan::compare_text(compared.rows, {out.style().width, out.style().color}));
    for (const std::string& note : compared.notes) out.note(note);
    return {};
  }

 private:
  std::string model_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace berth::cli
