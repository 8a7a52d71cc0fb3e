// cli/explain.cc — berth explain: why a module is where it is, and what any other device would make of it.
#include "berth/engine/plan_questions.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Explain : public Command {
 public:
  std::string name() const override { return "explain"; }
  std::string summary() const override { return "why a module is where it is, and what moving it would cost"; }
  std::string details() const override {
    return "PLAN is what `berth plan MODEL --json` wrote; the checkpoint is not needed. Without MODULE: the whole plan, drawn.\n"
           "Example: berth explain plan.json model.layers.3.mlp";
  }
  void declare(Arguments& app) override {
    app.add_option("PLAN", plan_, "a plan, as written by: berth plan --json")->required();
    app.add_option("MODULE", module_, "a module's path, as named_modules() has it");
  }
  Status run(const Output& out) override {
    TRY(const auto document, engine::read_plan_file(plan_));
    const plan::PictureStyle style{out.style().width, out.style().color};
    if (module_.empty()) {
      if (out.json()) {
        out.print(plan::plan_json(document) + "\n");
        return {};
      }
      out.print(plan::plan_picture(document.plan, style, document.model.name + "  " + document.model.architecture));
      return {};
    }
    TRY(const auto recorded, plan::recorded_request(document));
    TRY(const auto explanation, plan::explain_module(recorded.request(), document.plan, module_));
    if (out.json()) {
      JsonWriter w(2);
      plan::write_explanation(explanation, w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(plan::explanation_text(explanation, style));
    return {};
  }

 private:
  std::string plan_, module_;
};

}  // namespace

std::unique_ptr<Command> make_explain() { return std::make_unique<Explain>(); }

}  // namespace berth::cli
