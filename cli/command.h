// cli/command.h — what a command is, and what all of them share: output, errors, interruption.
//
// A command declares its options (arguments.h), then runs with them. Results go to stdout, everything else to stderr; with
// --json exactly one JSON document goes to stdout, failures included. The list of commands is commands.cc.
//
// Start reading at: Command.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "berth/base/log.h"
#include "berth/base/result.h"
#include "berth/engine/generation.h"
#include "berth/engine/options.h"
#include "berth/engine/plan_lines.h"
#include "berth/engine/plan_questions.h"
#include "berth/engine/report.h"

namespace berth::cli {

// Options of every command.
struct Common {
  bool json = false;
  bool quiet = false;
  int verbose = 0;
  std::string color = "auto";
};

class Output {
 public:
  explicit Output(const Common& common) : common_(common) {}
  bool json() const { return common_.json; }
  engine::TextStyle style() const;        // for stdout
  engine::TextStyle error_style() const;  // for stderr
  void print(std::string_view text) const;  // stdout, as it is
  void note(const std::string& text) const;
  void warning(const std::string& text) const;
  // Notes, warnings and a progress line (a bar on a terminal, a line every few seconds elsewhere).
  Log log() const;
  // Prints the error in the form asked for; returns its exit status.
  int fail(const Error& error) const;

 private:
  const Common& common_;
};

// True once Ctrl-C was pressed. A second one ends the process at once.
bool interrupted();
void catch_interrupts();

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  // A few sentences and examples, shown below the options.
  virtual std::string details() const { return ""; }
  virtual void declare(Arguments& app) = 0;
  virtual Status run(const Output& out) = 0;
  // Whether other than success and failure (verify: 1 where bits differ).
  int exit_status = 0;
};

using CommandMaker = std::function<std::unique_ptr<Command>()>;
std::vector<std::unique_ptr<Command>> all_commands();

// --- declaring options from the one list ---
// `required` false: the command asks for it where it needs one.
void add_model(Arguments& app, std::string& model, bool required = true);
// `except`: an option that the command declares itself.
void add_options(Arguments& app, engine::Options& options, std::string_view except = "");
void add_generation_options(Arguments& app, engine::GenerationOptions& options);

// The whole command line, described once: main parses with it, completion and man page print it.
class Program {
 public:
  Program();
  ~Program();
  // Parses and runs one command; returns the exit status.
  int main(int argc, char** argv);

  struct Parser;  // CLI11, known to program.cc and completion.cc only
  const Parser& parser() const { return *parser_; }

 private:
  Common common_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::unique_ptr<Parser> parser_;
};

std::string completion_script(const Program& program, const std::string& shell);  // bash, zsh, fish
std::string man_page(const Program& program);

}  // namespace berth::cli
