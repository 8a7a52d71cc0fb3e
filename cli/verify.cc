// cli/verify.cc — berth verify: the same bits under different plans?
#include <fmt/format.h>

#include "berth/engine/verify.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Verify : public Command {
 public:
  std::string name() const override { return "verify"; }
  std::string summary() const override { return "same tokens, same logits bits under several plans?"; }
  std::string details() const override {
    return "Exit status 1 if a single bit differs.\n"
           "Example: berth verify MODEL cpu best '{\"\": 0, \"lm_head\": \"cpu\"}' --emulate 2x4GiB -p \"Hello\" -n 16";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("PLAN", plans_, "strategies, devices, inline maps or map files; at least two")->required()->expected(2, 64);
    add_generation_options(app, generation_);
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    if (generation_.prompt.empty() && generation_.prompt_tokens.empty()) generation_.prompt = "The quick brown fox";
    if (generation_.max_new_tokens < 0) generation_.max_new_tokens = 16;
    TRY(const auto result, engine::verify(model_, plans_, options_, generation_, out.log()));
    exit_status = result.identical ? 0 : 1;
    if (out.json()) {
      JsonWriter w(2);
      w.begin_object().member("identical", result.identical).key("runs").begin_array();
      for (const auto& run : result.runs) {
        w.begin_object().member("plan", run.plan).member("logits_hash", run.logits_hash).key("tokens").begin_array();
        for (const int32_t t : run.tokens) w.value(static_cast<int64_t>(t));
        w.end_array().key("peak").begin_object();
        for (const auto& row : run.memory) w.member(row.device, row.peak.measured);
        w.end_object().end_object();
      }
      w.end_array().end_object();
      out.print(w.take() + "\n");
      return {};
    }
    for (const auto& run : result.runs) {
      std::string peaks;
      for (const auto& row : run.memory) peaks += fmt::format("  {}: {}", row.device, row.peak.measured);
      out.print(fmt::format("{}  {} tokens  peak bytes{}  {}\n", run.logits_hash, run.tokens.size(), peaks, run.plan));
    }
    out.print(result.identical ? "identical: every logit of every step has the same bits\n" : "DIFFERENT bits: this is a bug, please report it\n");
    return {};
  }

 private:
  std::string model_;
  std::vector<std::string> plans_;
  engine::Options options_;
  engine::GenerationOptions generation_;
};

}  // namespace

std::unique_ptr<Command> make_verify() { return std::make_unique<Verify>(); }

}  // namespace berth::cli
