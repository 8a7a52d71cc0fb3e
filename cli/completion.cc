// cli/completion.cc — shell completion and the man page, printed from the same description that parses the command line.
#include <algorithm>

#include <fmt/format.h>

#include "makers.h"
#include "parser.h"

namespace berth::cli {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) { return app.get_subcommands([](const CLI::App*) { return true; }); }

std::vector<std::string> option_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* o : app.get_options()) {
    for (const std::string& n : o->get_lnames()) words.push_back("--" + n);
    for (const std::string& n : o->get_snames()) words.push_back("-" + n);
  }
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// troff text: backslashes and leading dots must not be commands.
std::string troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  if (out.starts_with('.') || out.starts_with('\'')) out = "\\&" + out;
  return out;
}

}  // namespace

std::string completion_script(const Program& program, const std::string& shell) {
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands(program.parser().app)) names.push_back(sub->get_name());
  std::string out;
  if (shell == "fish") {
    out += fmt::format("complete -c berth -n __fish_use_subcommand -a '{}'\n", joined(names));
    for (const CLI::App* sub : subcommands(program.parser().app))
      for (const CLI::Option* o : sub->get_options())
        for (const std::string& n : o->get_lnames()) {
          std::string help = o->get_description();
          std::replace(help.begin(), help.end(), '\'', ' ');
          out += fmt::format("complete -c berth -n '__fish_seen_subcommand_from {}' -l {} -d '{}'\n", sub->get_name(), n, help);
        }
    return out;
  }
  if (shell == "zsh") out += "autoload -U +X bashcompinit && bashcompinit\n";
  out += "_berth() {\n  local current=${COMP_WORDS[COMP_CWORD]} words\n";
  out += fmt::format("  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '{}' -- \"$current\")); return; fi\n", joined(names));
  out += "  case ${COMP_WORDS[1]} in\n";
  for (const CLI::App* sub : subcommands(program.parser().app)) out += fmt::format("    {}) words='{}' ;;\n", sub->get_name(), joined(option_words(*sub)));
  out += "  esac\n  case $current in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n  esac\n}\n";
  out += "complete -o filenames -F _berth berth\n";
  return out;
}

std::string man_page(const Program& program) {
  std::string out = fmt::format(".TH BERTH 1 \"\" \"berth {}\" \"User Commands\"\n.SH NAME\nberth \\- {}\n.SH SYNOPSIS\n.B berth\n.I COMMAND\n.RI [ MODEL ]\n.RI [ OPTIONS ]\n",
                                BERTH_VERSION_TEXT, troff(program.parser().app.get_description()));
  out += ".SH COMMANDS\n";
  for (const CLI::App* sub : subcommands(program.parser().app)) out += fmt::format(".TP\n.B {}\n{}\n", troff(sub->get_name()), troff(sub->get_description()));
  for (const CLI::App* sub : subcommands(program.parser().app)) {
    if (sub->get_group() == "Not in this version") continue;
    out += fmt::format(".SH BERTH {}\n{}\n", sub->get_name(), troff(sub->get_description()));
    std::string group;
    for (const CLI::Option* o : sub->get_options()) {
      if (o->get_group() != group && !o->get_positional()) out += fmt::format(".SS {}\n", troff(group = o->get_group()));
      out += fmt::format(".TP\n.B {}{}\n{}\n", troff(o->get_name(true, true)), o->get_type_size() > 0 && !o->get_positional() ? " " + troff(o->get_type_name()) : "",
                         troff(o->get_description()));
    }
    std::string line;
    const std::string footer = sub->get_footer();
    if (footer.empty()) continue;
    out += ".PP\n.nf\n";
    for (const char c : footer + "\n") {
      if (c != '\n') {
        line += c;
        continue;
      }
      out += troff(line) + "\n";
      line.clear();
    }
    out += ".fi\n";
  }
  out += ".SH EXIT STATUS\n0 done or it fits, 1 failed, 2 usage, 3 does not fit, 4 corrupt or unsupported checkpoint, 130 interrupted.\n";
  out += ".SH ENVIRONMENT\nNO_COLOR, HF_HOME and HF_HUB_CACHE (where repo ids are looked up), XDG_CACHE_HOME (measured rates).\n";
  return out;
}

namespace {

class Completion : public Command {
 public:
  std::string name() const override { return "completion"; }
  std::string summary() const override { return "a completion script for bash, zsh or fish"; }
  std::string details() const override { return "Example: berth completion bash > ~/.local/share/bash-completion/completions/berth"; }
  void declare(Arguments& app) override { app.add_option("SHELL", shell_, "bash, zsh or fish")->required()->one_of({"bash", "zsh", "fish"}); }
  Status run(const Output& out) override {
    out.print(completion_script(Program(), shell_));
    return {};
  }

 private:
  std::string shell_;
};

class Man : public Command {
 public:
  std::string name() const override { return "man"; }
  std::string summary() const override { return "the manual page, as troff"; }
  std::string details() const override { return "Example: berth man | man -l -"; }
  void declare(Arguments&) override {}
  Status run(const Output& out) override {
    out.print(man_page(Program()));
    return {};
  }
};

}  // namespace

std::unique_ptr<Command> make_completion() { return std::make_unique<Completion>(); }
std::unique_ptr<Command> make_man() { return std::make_unique<Man>(); }

}  // namespace berth::cli
