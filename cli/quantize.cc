// cli/quantize.cc — berth quantize: a checkpoint that Transformers + bitsandbytes load.
#include "berth/engine/quantize.h"

#include "makers.h"

namespace berth::cli {
namespace {

class Quantize : public Command {
 public:
  std::string name() const override { return "quantize"; }
  std::string summary() const override { return "write a checkpoint that Transformers + bitsandbytes load"; }
  std::string details() const override {
    return "Writes what from_pretrained(quantization_config=...) and save_pretrained write. OUT is a new folder; an OUT that ends in\n"
           ".safetensors is one file made from one file, with every 2-D float tensor quantized.\n"
           "Example: berth quantize MODEL model-nf4 --load-in-4bit --bnb-4bit-use-double-quant";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("OUT", out_, "the folder or .safetensors file to write")->required();
    app.add_option("--max-shard-size", max_shard_size_, "largest file of weights: 5GB, 500MiB")->capture_default_str()->type_name("SIZE")->group("What is written");
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    TRY(const auto report, engine::quantize_checkpoint(model_, out_, options_, max_shard_size_, out.log()));
    if (out.json()) {
      JsonWriter w(2);
      engine::write_quantize_report(report, w);
      out.print(w.take() + "\n");
    } else {
      out.print(engine::quantize_report_text(report));
    }
    return {};
  }

 private:
  std::string model_, out_, max_shard_size_{engine::kDefaultMaxShardSize};
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_quantize() { return std::make_unique<Quantize>(); }

}  // namespace berth::cli
