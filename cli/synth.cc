// cli/synth.cc — berth synth: a checkpoint of real shapes with random weights.
#include "berth/engine/synth.h"

#include "makers.h"

namespace berth::cli {
namespace {

class Synth : public Command {
 public:
  std::string name() const override { return "synth"; }
  std::string summary() const override { return "a checkpoint of a config's real shapes with seeded random weights"; }
  std::string details() const override {
    return "For measuring without a download. OUT is a new folder of safetensors, or with --gguf one file.\n"
           "Example: berth synth config.json model-nf4 --load-in-4bit --seed 1\n"
           "Example: berth synth config.json model.gguf --gguf q4_k_m";
  }
  void declare(Arguments& app) override {
    app.add_option("CONFIG", config_, "a config.json, or a model that has one")->required();
    app.add_option("OUT", out_, "the folder or GGUF file to write")->required();
    const std::string group = "What is written";
    app.add_option("--gguf", synth_.gguf, "one GGUF file (Llama's shapes): f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k, q4_k_m")->type_name("TYPE")->group(group);
    app.add_option("--seed", synth_.seed, "of the random numbers")->capture_default_str()->type_name("N")->group(group);
    app.add_option("--max-shard-size", synth_.max_shard_size, "largest file of weights: 5GB, 500MiB")->capture_default_str()->type_name("SIZE")->group(group);
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    TRY(const auto report, engine::synthesize(config_, out_, options_, synth_, out.log()));
    if (out.json()) {
      JsonWriter w(2);
      engine::write_quantize_report(report, w);
      out.print(w.take() + "\n");
    } else {
      out.print(engine::synth_report_text(report));
    }
    return {};
  }

 private:
  std::string config_, out_;
  engine::SynthOptions synth_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_synth() { return std::make_unique<Synth>(); }

}  // namespace berth::cli
