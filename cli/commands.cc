// cli/commands.cc — every command, in the order help lists them.
#include "command.h"
#include "makers.h"

namespace berth::cli {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> out;
  for (auto make : {make_inspect, make_plan, make_compare, make_explain, make_solve, make_diff, make_export, make_run, make_eval,
                    make_verify, make_bench, make_quantize, make_synth, make_tokenize, make_detokenize,
                    make_template, make_devices, make_doctor, make_completion, make_man})
    out.push_back(make());
  add_later_commands(out);
  return out;
}

}  // namespace berth::cli
