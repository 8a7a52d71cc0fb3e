// cli/bench.cc — berth bench: tokens per second, as shares of the memory limit measured in the same run.
#include <chrono>

#include "makers.h"

namespace berth::cli {
namespace {

class Bench : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override { return "prefill and decode tokens/s, and the share of the memory limit"; }
  std::string details() const override {
    return "Example: berth bench MODEL -t 1,2 --numerics int8; berth bench MODEL --load --load-in-4bit";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    app.add_option("-p,--prompt-tokens", bench_.prompt, "tokens of the prompt test; 0: none")->capture_default_str()->group("What is measured");
    app.add_option("-n,--new-tokens", bench_.generate, "tokens of the decode test; 0: none")->capture_default_str()->group("What is measured");
    app.add_option("-d,--depth", bench_.depth, "tokens already in the context when either test begins")->capture_default_str()->group("What is measured");
    app.add_option("-r,--repeats", bench_.repeats, "runs of each test")->capture_default_str()->group("What is measured");
    app.add_option("-t,--threads", threads_, "thread counts: 1,2")->delimiter(',')->group("What is measured");
    app.add_flag("--trace", bench_.trace, "after the decode test once more, timed by operation: computing and waiting")->group("What is measured");
    app.add_flag("--load", load_, "instead: seconds and rates of loading, cold and warm, beside raw reads of the files")->group("What is measured");
    add_options(app, options_, "threads");
  }
  Status run(const Output& out) override {
    if (threads_.empty()) threads_.push_back(0);
    if (bench_.prompt < 0 || bench_.generate < 0 || bench_.depth < 0 || bench_.repeats < 1)
      return Error(ErrorCode::kInvalidArgument, "token counts must not be negative and repeats at least 1");
    if (load_) return measure_load(out);
    if (options_.ctx_size == 0) options_.ctx_size = bench_.depth + std::max<int64_t>({bench_.prompt, bench_.generate, 1});
    std::vector<engine::BenchRow> rows;
    for (const int64_t threads : threads_) {
      options_.threads = threads;
      bench_.started = std::chrono::steady_clock::now();
      TRY(options_, engine::with_recorded_options(options_));
      TRY(auto opened, engine::open_model(model_, options_, out.log()));
      TRY(auto planned, engine::plan_model(opened, options_));
      TRY(auto running, engine::load_model(opened, std::move(planned), options_, out.log(), engine::NanLook::kWhileFirstUsed));
      TRY(const auto more, engine::bench(*running, bench_));
      rows.insert(rows.end(), more.begin(), more.end());
      if (interrupted()) return Error(ErrorCode::kCancelled, "the bench was interrupted");
    }
    if (out.json()) {
      JsonWriter w(2);
      engine::write_bench(rows, w);
      out.print(w.take() + "\n");
    } else {
      out.print(engine::bench_text(rows));
    }
    return {};
  }

 private:
  Status measure_load(const Output& out) {
    options_.threads = threads_.front();
    TRY(const auto rows, engine::load_bench(model_, options_, {.repeats = bench_.repeats}, out.log()));
    if (!out.json()) {
      out.print(engine::load_bench_text(rows));
      return {};
    }
    JsonWriter w(2);
    engine::write_load_bench(rows, w);
    out.print(w.take() + "\n");
    return {};
  }

  bool load_ = false;
  std::string model_;
  engine::BenchOptions bench_;
  std::vector<int64_t> threads_;
  engine::Options options_;
};

}  // namespace

std::unique_ptr<Command> make_bench() { return std::make_unique<Bench>(); }

}  // namespace berth::cli
