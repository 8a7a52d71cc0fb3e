// cli/solve.cc — berth solve: the longest context, the least memory, the most sequences, the fewest accelerators.
#include <utility>

#include "berth/base/file.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Solve : public Command {
 public:
  std::string name() const override { return "solve"; }
  std::string summary() const override { return "longest context, least memory, most sequences, fewest accelerators"; }
  std::string details() const override {
    return "QUESTION: max-ctx (tokens), min-vram (bytes of one equal budget for every accelerator), max-batch (sequences) or\n"
           "min-devices (accelerators). Proved by a plan at the answer and by its refusal one step beyond.\n"
           "MODEL and QUESTION may come in either order.\n"
           "Example: berth solve MODEL max-ctx --load-in-4bit --max-memory 0=16GiB --no-offload";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("QUESTION", question_, "max-ctx, min-vram, max-batch or min-devices")->required();
    add_options(app, options_, "device-map");
  }
  Status run(const Output& out) override {
    if (!plan::parse_question(question_) && plan::parse_question(model_)) std::swap(question_, model_);  // either order
    if (!plan::parse_question(question_) && path_exists(question_)) std::swap(question_, model_);  // and one misspelt
    TRY(const auto question, plan::parse_question(question_));
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    TRY(const auto solution, engine::solve_question(opened, options_, question));
    if (out.json()) {
      JsonWriter w(2);
      plan::write_solution(solution, w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(plan::solution_text(solution));
    return {};
  }

 private:
  std::string model_, question_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_solve() { return std::make_unique<Solve>(); }

}  // namespace berth::cli
