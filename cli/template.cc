// cli/template.cc — berth template: a conversation on stdin, rendered by the model's chat template.
#include <iostream>

#include "makers.h"

namespace berth::cli {
namespace {

class Template : public Command {
 public:
  std::string name() const override { return "template"; }
  std::string summary() const override { return "render {\"messages\": [..], ...} from stdin with the chat template"; }
  std::string details() const override {
    return "Keys besides messages: tools, documents, add_generation_prompt and whatever the template reads;\n"
           "\"now\": \"2026-01-15T12:34:56\" fixes its clock. No newline is added to the text.";
  }
  void declare(Arguments& app) override { add_model(app, model_); }
  Status run(const Output& out) override {
    const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    TRY(const std::string rendered, engine::render_template(model_, input, out.log()));
    out.print(rendered);
    return {};
  }

 private:
  std::string model_;
};

}  // namespace

std::unique_ptr<Command> make_template() { return std::make_unique<Template>(); }

}  // namespace berth::cli
