// cli/compare.cc — berth compare: the strategies side by side.
#include "makers.h"

namespace berth::cli {
namespace {

class Compare : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override { return "strategies side by side: fit, fullest device, moves, estimated tokens/s"; }
  std::string details() const override {
    return "The fastest is marked with *. A strategy that cannot keep everything on accelerators becomes best and says so.\n"
           "Example: berth compare MODEL --load-in-4bit --max-memory 0=18GiB,1=10GiB,cpu=48GiB";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    add_options(app, options_, "device-map");
  }
  Status run(const Output& out) override {
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    engine::PlannedModel planned;
    TRY(planned.inputs, engine::plan_inputs(opened, options_));
    TRY(const auto rows, engine::compare_plans(opened, planned.inputs, options_));
    if (out.json()) {
      JsonWriter w(2);
      w.begin_array();
      for (const plan::ComparedPlan& row : rows) {
        if (row.plan) {
          planned.plan = *row.plan;
          engine::Options asked = options_;
          asked.device_map = row.name;
          plan::write_plan_summary(engine::plan_document(opened, planned, asked), w);
        } else {
          JsonWriter error;
          engine::write_error(*row.error, error);
          TRY(const auto document, JsonDocument::parse(error.str()));
          w.begin_object().member("strategy", row.name).member("fits", false).key("error").raw(document.root()["error"].text()).end_object();
        }
      }
      w.end_array();
      out.print(w.take() + "\n");
      return {};
    }
    out.print(plan::compare_text(rows, {out.style().width, out.style().color}));
    for (const std::string& note : planned.inputs.notes) out.note(note);
    return {};
  }

 private:
  std::string model_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_compare() { return std::make_unique<Compare>(); }

}  // namespace berth::cli
