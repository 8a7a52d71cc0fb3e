// cli/plan.cc — berth plan: where everything goes, before a byte of weights is read.
#include <fmt/format.h>

#include "berth/base/file.h"
#include "berth/engine/plan_questions.h"
#include "makers.h"

namespace berth::cli {
namespace {

class PlanCommand : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override { return "where every module goes; proves that it fits or says what is missing"; }
  std::string details() const override {
    return "Exit status 0: it fits; 3: it does not (the device, the module and the bytes missing are named).\n"
           "Examples:\n"
           "  berth plan MODEL --load-in-4bit --max-memory 0=18GiB,1=10GiB,cpu=48GiB\n"
           "  berth plan MODEL --emulate 2x16GiB -c 8500 --json > plan.json";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("--svg", svg_, "also draw the plan into this SVG file")->type_name("FILE")->group("Output");
    app.add_option("--html", html_, "also write it as one HTML page (no network needed to view it)")->type_name("FILE")->group("Output");
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    TRY(const auto planned, engine::plan_model(opened, options_));
    const std::string title = fmt::format("{} ({})", opened.name, opened.spec().architecture);
    if (!svg_.empty()) {
      TRY_STATUS(write_file_atomically(svg_, plan::plan_svg(planned.plan, title)));
    }
    if (!html_.empty()) {
      TRY_STATUS(write_file_atomically(html_, plan::plan_html(planned.plan, title)));
    }
    if (out.json()) {
      JsonWriter w(2);
      engine::write_plan(opened, planned, options_, w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(engine::plan_text(opened, planned, out.style()));
    for (const std::string& note : opened.notes) out.note(note);
    for (const std::string& note : planned.inputs.notes) out.note(note);
    return {};
  }

 private:
  std::string model_, svg_, html_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_plan() { return std::make_unique<PlanCommand>(); }

}  // namespace berth::cli
