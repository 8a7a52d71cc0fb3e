// cli/program.cc — the parser behind arguments.h, the options of the one list, and what happens between argv and a command.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include <fmt/format.h>

#include "berth/base/file_mapping.h"
#include "berth/base/strings.h"
#include "parser.h"

namespace berth::cli {
namespace {

CLI::Option& as_option(void* p) { return *static_cast<CLI::Option*>(p); }
CLI::App& as_app(void* p) { return *static_cast<CLI::App*>(p); }

template <typename T>
Argument option(void* app, const std::string& names, T& value, const std::string& help) {
  CLI::Option* added = as_app(app).add_option(names, value, help);
  if constexpr (std::is_same_v<T, int64_t>)  // which would be read as the nearest that fits
    added->check([](const std::string& text) {
      errno = 0;
      std::strtoll(text.c_str(), nullptr, 10);
      return errno == ERANGE ? text + " does not fit 64 bits" : std::string();
    });
  return Argument(added);
}

template <typename T>
void add_value(Arguments& app, const engine::OptionInfo& info, T& value) {
  const std::string flags = info.short_name.empty() ? fmt::format("--{}", info.name) : fmt::format("-{},--{}", info.short_name, info.name);
  const std::string help(info.help), group(info.group);
  if constexpr (std::is_same_v<T, bool>) app.add_flag(flags, value, help)->group(group);
  else if constexpr (std::is_same_v<T, std::vector<std::string>>) app.add_option(flags, value, help)->type_name(std::string(info.value))->repeatable()->group(group);
  else app.add_option(flags, value, help)->type_name(std::string(info.value))->group(group);
}

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
      message = fmt::format("{} {} is not known{}", option ? "option" : "command", berth::quoted(word), did_you_mean(word, words));
      break;
    }
  }
  return Error(ErrorCode::kInvalidArgument, message, {fmt::format("See: berth {}{}--help", at == &app ? "" : at->get_name(), at == &app ? "" : " ")});
}

}  // namespace

Argument* Argument::group(const std::string& name) { return as_option(option_).group(name), this; }
Argument* Argument::required() { return as_option(option_).required(), this; }
Argument* Argument::type_name(const std::string& name) { return as_option(option_).type_name(name), this; }
Argument* Argument::expected(int least, int most) { return as_option(option_).expected(least, most), this; }
Argument* Argument::delimiter(char separator) { return as_option(option_).delimiter(separator), this; }
Argument* Argument::excludes(const std::string& other) { return as_option(option_).excludes(other), this; }
Argument* Argument::one_of(const std::vector<std::string>& values) { return as_option(option_).check(CLI::IsMember(values)), this; }
Argument* Argument::capture_default_str() { return as_option(option_).capture_default_str(), this; }
Argument* Argument::repeatable() {
  as_option(option_).expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return this;
}

Argument Arguments::add_option(const std::string& n, std::string& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, int& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, int64_t& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, double& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, std::optional<int64_t>& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, std::optional<double>& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, std::vector<std::string>& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_option(const std::string& n, std::vector<int64_t>& v, const std::string& h) { return option(app_, n, v, h); }
Argument Arguments::add_flag(const std::string& n, bool& v, const std::string& h) { return Argument(as_app(app_).add_flag(n, v, h)); }
Argument Arguments::add_flag(const std::string& n, int& v, const std::string& h) { return Argument(as_app(app_).add_flag(n, v, h)); }
void Arguments::allow_extras() { as_app(app_).allow_extras(); }
void Arguments::group(const std::string& name) { as_app(app_).group(name); }

void add_model(Arguments& app, std::string& model, bool required) {
  Argument option = app.add_option("MODEL", model,
                                   "a folder, a Hugging Face repo id in the local cache, *.safetensors, *.safetensors.index.json, *.gguf, or config.json or *.tree.json (planning only)");
  if (required) option->required();
}
void add_options(Arguments& app, engine::Options& options, std::string_view except) {
  engine::visit_options(options, [&](const engine::OptionInfo& info, auto& value) {
    if (info.name != except) add_value(app, info, value);
  });
}
void add_generation_options(Arguments& app, engine::GenerationOptions& options) {
  engine::visit_generation_options(options, [&](const engine::OptionInfo& info, auto& value) { add_value(app, info, value); });
}

Program::Program() : parser_(std::make_unique<Parser>()) {
  CLI::App& app = parser_->app;
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", std::string("berth ") + BERTH_VERSION_TEXT);
  commands_ = all_commands();
  for (const auto& command : commands_) {
    CLI::App* sub = app.add_subcommand(command->name(), command->summary());
    sub->footer(command->details());
    Arguments args(sub);
    command->declare(args);
    args.add_flag("--json", common_.json, "print one JSON document on stdout, failures included")->group("Output");
    args.add_flag("--quiet", common_.quiet, "no notes, warnings or progress")->group("Output");
    args.add_flag("-v,--verbose", common_.verbose, "more notes")->group("Output");
    args.add_option("--color", common_.color, "auto, always or never; NO_COLOR is honoured")->group("Output")->one_of({"auto", "always", "never"});
  }
}

Program::~Program() = default;

int Program::main(int argc, char** argv) {
  catch_interrupts();
  CLI::App& app = parser_->app;
  const Output out(common_);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json") common_.json = true;  // also for errors of parsing
  exit_on_mapping_fault(common_.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return out.fail(usage_error(app, e, argc, argv));
  }
  for (const auto& command : commands_) {
    if (!app.got_subcommand(command->name())) continue;
    const Status status = command->run(out);
    if (!status) return out.fail(status.error());
    return command->exit_status;
  }
  return 2;
}

}  // namespace berth::cli
