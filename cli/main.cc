// cli/main.cc — parses the command line, runs one command, maps errors to exit statuses.
#include <cstdio>

#include <fmt/format.h>

#include "berth/base/strings.h"
#include "command.h"

namespace {

using berth::Error;
using berth::ErrorCode;

// Every option and command name a typo could have meant.
std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) words.push_back("--" + name);
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) words.push_back(sub->get_name());
  return words;
}

Error usage_error(const CLI::App& app, const CLI::ParseError& parse, int argc, char** argv) {
  const CLI::App* at = &app;
  for (const CLI::App* sub : app.get_subcommands()) at = sub;
  std::string message = parse.what();
  const std::vector<std::string> words = known_words(*at);
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    const bool option = word.starts_with("--") && word.size() > 2;
    const bool command = i == 1 && !word.starts_with("-") && at == &app;
    if ((option || command) && std::find(words.begin(), words.end(), word) == words.end()) {
      const bool named = message.find(word) != std::string::npos;
      if (!named && !command) continue;
      message = fmt::format("{} {} is not known{}", option ? "option" : "command", berth::quoted(word), berth::did_you_mean(word, words));
      break;
    }
  }
  return Error(ErrorCode::kInvalidArgument, message, {fmt::format("See: berth {}{}--help", at == &app ? "" : at->get_name(), at == &app ? "" : " ")});
}

}  // namespace

int main(int argc, char** argv) {
  berth::cli::Program program;
  const berth::cli::Output out(program.common);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json") program.common.json = true;  // also for errors of parsing
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return program.app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return program.app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return program.app.exit(e);
  } catch (const CLI::ParseError& e) {
    return out.fail(usage_error(program.app, e, argc, argv));
  }
  for (const auto& command : program.commands) {
    if (!program.app.got_subcommand(command->name())) continue;
    auto status = command->run(out);
    if (!status) return out.fail(status.error());
    return command->exit_status;
  }
  return 2;
}
