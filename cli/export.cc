// cli/export.cc — berth export: a plan in another engine's words.

#include "berth/engine/plan_questions.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Export : public Command {
 public:
  std::string name() const override { return "export"; }
  std::string summary() const override { return "a plan for transformers, accelerate, llama.cpp or vllm, ready to paste"; }
  std::string details() const override {
    return "What the target cannot express is said on stderr. Plan with --target transformers or llama.cpp for maps made for them.\n"
           "Example: berth plan MODEL --target transformers --json > plan.json && berth export plan.json --to transformers";
  }
  void declare(Arguments& app) override {
    app.add_option("PLAN", plan_, "a plan, as written by: berth plan --json")->required();
    app.add_option("--to", target_, "transformers, accelerate, llama.cpp or vllm")->required()->type_name("ENGINE");
  }
  Status run(const Output& out) override {
    TRY(const auto target, plan::parse_export_target(target_));
    TRY(const auto document, engine::read_plan_file(plan_));
    const plan::Exported exported = plan::export_plan(document, target);
    for (const std::string& note : exported.notes) out.warning(note);
    if (out.json()) {
      JsonWriter w(2);
      w.begin_object().member("to", target_).member("text", exported.text).key("notes").begin_array();
      for (const std::string& note : exported.notes) w.value(note);
      w.end_array().end_object();
      out.print(w.take() + "\n");
      return {};
    }
    out.print(exported.text);
    return {};
  }

 private:
  std::string plan_, target_;
};

}  // namespace

std::unique_ptr<Command> make_export() { return std::make_unique<Export>(); }

}  // namespace berth::cli
