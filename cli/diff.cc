// cli/diff.cc — berth diff: what moved between two plans, and what that changes.

#include "berth/engine/plan_questions.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Diff : public Command {
 public:
  std::string name() const override { return "diff"; }
  std::string summary() const override { return "what moved between two plans, and what that changes on each device"; }
  std::string details() const override { return "PLANs are what `berth plan MODEL --json` wrote.\nExample: berth diff before.json after.json"; }
  void declare(Arguments& app) override {
    app.add_option("PLAN", from_, "the plan before")->required();
    app.add_option("OTHER", to_, "the plan after")->required();
  }
  Status run(const Output& out) override {
    TRY(const auto from, engine::read_plan_file(from_));
    TRY(const auto to, engine::read_plan_file(to_));
    const plan::PlanDifference difference = plan::diff(from.plan, to.plan);
    if (from.checkpoint != to.checkpoint) out.warning("the plans are for different checkpoints");
    if (out.json()) {
      JsonWriter w(2);
      plan::write_diff(difference, w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(plan::diff_text(difference, {out.style().width, out.style().color}));
    return {};
  }

 private:
  std::string from_, to_;
};

}  // namespace

std::unique_ptr<Command> make_diff() { return std::make_unique<Diff>(); }

}  // namespace berth::cli
