// cli/parser.h — the command line as CLI11 knows it: for program.cc and completion.cc only (its headers are slow to compile).
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace berth::cli {

struct Program::Parser {
  CLI::App app{"A berth for every tensor: plans where every module of a checkpoint lives, loads it there and runs it.", "berth"};
};

}  // namespace berth::cli
