// cli/makers.h — one line per command file.
#pragma once

#include "command.h"

namespace berth::cli {

std::unique_ptr<Command> make_inspect();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_compare();
std::unique_ptr<Command> make_explain();
std::unique_ptr<Command> make_solve();
std::unique_ptr<Command> make_diff();
std::unique_ptr<Command> make_export();
std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_eval();
std::unique_ptr<Command> make_verify();
std::unique_ptr<Command> make_bench();
std::unique_ptr<Command> make_quantize();
std::unique_ptr<Command> make_synth();
std::unique_ptr<Command> make_tokenize();
std::unique_ptr<Command> make_detokenize();
std::unique_ptr<Command> make_template();
std::unique_ptr<Command> make_devices();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_completion();
std::unique_ptr<Command> make_man();
// Commands of later versions: known by name, refused with exit 2.
void add_later_commands(std::vector<std::unique_ptr<Command>>& commands);

}  // namespace berth::cli
