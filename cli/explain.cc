// cli/explain.cc — berth explain: why a module is where it is, and what any other device would make of it.
#include <string>
#include <vector>

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
           "A module with up to 8 units below it (a layer) is explained unit by unit.\n"
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
    // A module with a few units below it, such as a layer, is explained by each of them.
    constexpr size_t kMostUnits = 8;
    std::vector<std::string> modules = plan::units_below(document.plan, module_);
    const bool several = modules.size() > 1 && modules.size() <= kMostUnits;
    if (!several) modules = {module_};
    JsonWriter w(2);
    if (several) w.begin_object().member("module", module_).key("units").begin_array();
    for (size_t k = 0; k < modules.size(); ++k) {
      TRY(const auto explanation, plan::explain_module(recorded.request(), document.plan, modules[k]));
      if (out.json())
        plan::write_explanation(explanation, w);
      else
        out.print((k > 0 ? "\n" : "") + plan::explanation_text(explanation, style));
    }
    if (several) w.end_array().end_object();
    if (out.json()) out.print(w.take() + "\n");
    return {};
  }

 private:
  std::string plan_, module_;
};

}  // namespace

std::unique_ptr<Command> make_explain() { return std::make_unique<Explain>(); }

}  // namespace berth::cli
