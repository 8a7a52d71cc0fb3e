// engine/library_remedies.h — changes under which a library's plan works on this machine, each planned by that library
// (or, where it is Berth's own placement, by Berth) before it is named; and the same for such a map that Berth runs.
//
// Start reading at: library_remedies.
#pragma once

#include <functional>
#include <vector>

#include "berth/engine/library_plan.h"
#include "berth/plan/refusal.h"

namespace berth::engine {

// The same model under other options (4 or 8 bit); may be empty, and then they are not tried.
using Reopen = std::function<Result<OpenedModel>(const Options&)>;

// Least intrusive first. `options` are those that `planned` was made under. A user's own map is kept throughout.
std::vector<plan::Remedy> library_remedies(const OpenedModel& model, const Options& options, const LibraryPlan& planned,
                                           const Reopen& reopen);

// Adds to the refusal of a library's map that Berth was to run: what makes it fit, each planned before it is named.
// `runs`: whether it does under other options.
void explain_run_failure(const OpenedModel& model, const Options& options, const PlannedModel& planned,
                         const std::function<bool(const Options&)>& runs, Error& refused);

// Adds them to planned.fails_here and to the plan's warnings; does nothing where the map works.
void explain_failure(const OpenedModel& model, const Options& options, const Reopen& reopen, LibraryPlan& planned);

}  // namespace berth::engine
