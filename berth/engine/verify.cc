// engine/verify.cc — see verify.h.
#include "berth/engine/verify.h"

#include "berth/base/strings.h"
#include "berth/engine/plan_questions.h"

namespace berth::engine {

Result<Verification> verify(const std::string& model, const std::vector<std::string>& maps, const Options& options,
                            const GenerationOptions& generation, const Log& log) {
  Verification out;
  for (const std::string& map : maps) {
    Options asked = options;
    const auto one = [&]() -> Result<VerifyRun> {
      // A PLAN document, or a strategy, a device, a map.
      if (map.ends_with(".json") && is_plan_file(map)) asked.plan = map;
      else asked.device_map = map;
      TRY(const Options o, with_recorded_options(asked));
      TRY(OpenedModel opened, open_model(model, o, log));
      TRY(PlannedModel planned, plan_model(opened, o));
      TRY(auto running, load_model(opened, std::move(planned), o, log, NanLook::kWhileFirstUsed));
      TRY(auto generator, Generator::create(*running));
      TRY(const auto result, generator->answer(generation));
      return VerifyRun{map, result.logits_hash, result.tokens, running->memory()};
    };
    auto run = one();
    if (!run) return run.error().with_context("verifying under " + quoted(map));
    out.runs.push_back(*std::move(run));
    const VerifyRun& first = out.runs.front();
    const VerifyRun& last = out.runs.back();
    out.identical = out.identical && first.logits_hash == last.logits_hash && first.tokens == last.tokens;
  }
  return out;
}

}  // namespace berth::engine
