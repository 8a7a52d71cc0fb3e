// cli/later.cc — commands that are planned for later versions: known by name, refused with "unsupported" and exit 2.
#include <fmt/format.h>

#include "makers.h"

namespace berth::cli {
namespace {

class Later : public Command {
 public:
  Later(std::string name, std::string summary) : name_(std::move(name)), summary_(std::move(summary)) {}
  std::string name() const override { return name_; }
  std::string summary() const override { return summary_ + " (not in this version)"; }
  void declare(Arguments& app) override {
    app.allow_extras();
    app.group("Not in this version");
  }
  Status run(const Output&) override {
    return Error(ErrorCode::kNotAvailable, fmt::format("berth {} is not in this version", name_));
  }

 private:
  std::string name_, summary_;
};

}  // namespace

void add_later_commands(std::vector<std::unique_ptr<Command>>& commands) {
  for (const auto& [name, summary] : {std::pair("pull", "fetch from a hub"),
                                      {"serve", "an HTTP server"}})
    commands.push_back(std::make_unique<Later>(name, summary));
}

}  // namespace berth::cli
