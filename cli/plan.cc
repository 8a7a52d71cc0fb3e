// cli/plan.cc — berth plan: where everything goes, before a byte of weights is read.
#include <fmt/format.h>

#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/library_plan.h"
#include "berth/engine/library_remedies.h"
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
    add_model(app, model_, false);
    app.add_option("--from-jsonl", from_jsonl_, "plan each line of this file (- is standard input) as transformers or accelerate would: a module tree (or \"model\": MODEL) with \"library\", \"mode\", \"max_memory\"; one JSON line out for each")
        ->type_name("FILE")->group("In bulk");
    app.add_option("--svg", svg_, "also draw the plan into this SVG file")->type_name("FILE")->group("Output");
    app.add_option("--html", html_, "also write it as one HTML page (no network needed to view it)")->type_name("FILE")->group("Output");
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    if (!from_jsonl_.empty()) return run_lines(out);
    if (model_.empty()) return Error(ErrorCode::kInvalidArgument, "MODEL is required", {"See: berth plan --help"});
    TRY(options_, engine::with_recorded_options(options_));
    TRY(const auto opened, engine::open_model(model_, options_, out.log()));
    if (!options_.compat.empty()) return run_as_library(opened, out);
    TRY(auto planned, engine::plan_model(opened, options_));
    TRY_STATUS(engine::note_prefill(opened, options_, planned));
    TRY_STATUS(draw(planned.plan, fmt::format("{} ({})", opened.name, opened.spec().architecture)));
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
  Status draw(const plan::Plan& plan, const std::string& title) const {
    if (!svg_.empty()) {
      TRY_STATUS(write_file_atomically(svg_, plan::plan_svg(plan, title)));
    }
    if (!html_.empty()) {
      TRY_STATUS(write_file_atomically(html_, plan::plan_html(plan, title)));
    }
    return {};
  }
  Status run_as_library(const engine::OpenedModel& opened, const Output& out) const {
    TRY(engine::LibraryPlan planned, engine::plan_as_library(opened, options_));
    engine::explain_failure(opened, options_, [&](const engine::Options& o) { return engine::open_model(model_, o, {}); }, planned);
    TRY_STATUS(draw(planned.planned.plan, fmt::format("{} ({}), as {} plans it", opened.name, opened.spec().architecture, options_.compat)));
    if (out.json()) {
      JsonWriter w(2);
      plan::write_plan(engine::library_document(opened, planned, options_), w);
      out.print(w.take() + "\n");
      return {};
    }
    out.print(engine::library_plan_text(opened, planned, out.style()));
    for (const std::string& note : planned.planned.inputs.notes) out.note(note);
    return {};
  }
  Status run_lines(const Output& out) {
    if (!model_.empty())
      return Error(ErrorCode::kInvalidArgument, fmt::format("--from-jsonl plans the trees of its file, and MODEL {} was given as well", quoted(model_)));
    TRY(const engine::PlannedLines done, engine::plan_lines(from_jsonl_, [&](const std::string& answer) -> Status {
      out.print(answer + "\n");
      if (interrupted()) return Error(ErrorCode::kCancelled, "interrupted");
      return {};
    }));
    if (done.unreadable > 0) {
      out.warning(fmt::format("{} of {} lines could not be read; their answers say why", done.unreadable, done.lines));
      exit_status = 1;
    }
    return {};
  }

  std::string model_, svg_, html_, from_jsonl_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_plan() { return std::make_unique<PlanCommand>(); }

}  // namespace berth::cli
