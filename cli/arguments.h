// cli/arguments.h — how a command declares its options, without the parser's own headers (they are slow to compile).
//
//   args.add_option("--depth", depth_, "how deep the tree is shown")->capture_default_str()->group("Output");
//
// Names and meaning are CLI11's, which does the work (program.cc); only what commands need is here.
// Start reading at: Arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {

// One declared option; each call changes it and returns it.
class Argument {
 public:
  explicit Argument(void* option) : option_(option) {}
  Argument* operator->() { return this; }
  Argument* group(const std::string& name);         // heading in help
  Argument* required();
  Argument* type_name(const std::string& name);     // what stands for the value in help
  Argument* expected(int least, int most);          // how many values
  Argument* delimiter(char separator);              // several values in one word
  Argument* excludes(const std::string& other);  // "--text": not both
  Argument* one_of(const std::vector<std::string>& values);
  Argument* capture_default_str();                  // help shows the present value
  Argument* repeatable();                           // one value each time, all of them are kept

 private:
  void* option_;  // CLI::Option
};

class Arguments {
 public:
  explicit Arguments(void* app) : app_(app) {}

  // "-p,--prompt" or "NAME" for a positional one. `value` must outlive the parse.
  Argument add_option(const std::string& names, std::string& value, const std::string& help);
  Argument add_option(const std::string& names, int& value, const std::string& help);
  Argument add_option(const std::string& names, int64_t& value, const std::string& help);
  Argument add_option(const std::string& names, double& value, const std::string& help);
  Argument add_option(const std::string& names, std::optional<int64_t>& value, const std::string& help);
  Argument add_option(const std::string& names, std::optional<double>& value, const std::string& help);
  Argument add_option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  Argument add_option(const std::string& names, std::vector<int64_t>& values, const std::string& help);
  Argument add_flag(const std::string& names, bool& value, const std::string& help);
  Argument add_flag(const std::string& names, int& count, const std::string& help);
  void allow_extras();                 // words nobody declared are no error
  void group(const std::string& name); // heading of the command in help

 private:
  void* app_;  // CLI::App
};

}  // namespace berth::cli
