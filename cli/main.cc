// cli/main.cc — the entry point; program.cc parses, one file per command does the work.
#include "command.h"

int main(int argc, char** argv) { return berth::cli::Program().main(argc, argv); }
