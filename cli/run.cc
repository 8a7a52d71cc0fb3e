// cli/run.cc — berth run: generate from a checkpoint under a plan; an interactive chat on a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "berth/base/read_once.h"
#include "makers.h"

namespace berth::cli {
namespace {

class Run : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string summary() const override { return "generate text; without a prompt, an interactive chat"; }
  std::string details() const override {
    return "Greedy unless --temp, --top-k... say otherwise, or --sample takes the model's generation_config.\n"
           "Examples:\n"
           "  berth run MODEL -p \"Once upon a time\" -n 64\n"
           "  berth run MODEL --chat -p \"What is a berth?\" --load-in-4bit --emulate 2x100MiB --report";
  }
  void declare(Arguments& app) override {
    add_model(app, model_);
    add_generation_options(app, generation_);
    app.add_flag("--report", report_, "print the plan, predicted and measured memory, and rates on stderr")
        ->group("Output");
    add_options(app, options_);
  }
  Status run(const Output& out) override {
    const bool terminal = ::isatty(STDIN_FILENO) == 1;
    const bool prompted = !generation_.prompt.empty() || !generation_.prompt_tokens.empty();
    const bool interactive = !prompted && terminal && !out.json();
    if (!prompted && !interactive) {
      std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
      generation_.prompt = std::move(text);
    }
    TRY(options_, engine::with_recorded_options(options_));
    TRY(auto opened, engine::open_model(model_, options_, out.log()));
    // A broken tokenizer or prompt shows before the weights are read.
    TRY_STATUS(engine::check_runnable(opened, options_));
    TRY(auto text, engine::read_text_parts(*opened.checkpoint));
    TRY_STATUS(text.check(generation_, interactive));
    TRY(auto planned, engine::plan_model(opened, options_));
    for (const std::string& note : opened.notes) out.note(note);
    for (const std::string& note : planned.inputs.notes) out.note(note);
    if (report_) std::fputs(engine::plan_text(opened, planned, out.error_style()).c_str(), stderr);
    // Who types reads slowly: a damaged file is better told before.
    const auto look = interactive ? engine::NanLook::kWhileLoading : engine::NanLook::kWhileFirstUsed;
    TRY(auto running, engine::load_model(opened, std::move(planned), options_, out.log(), look));
    // What was not in the page cache has been read past it.
    for (const File& file : opened.checkpoint->files())
      if (is_cold(file)) cache_in_background(file);
    TRY(auto generator, engine::Generator::create(*running, std::move(text)));
    if (interactive) return chat(out, *running, *generator);
    return once(out, *running, *generator);
  }

 private:
  Status once(const Output& out, engine::RunningModel& running, engine::Generator& generator) {
    const auto show = [&](std::string_view text) {
      if (!out.json()) out.print(text);
      return !interrupted();
    };
    TRY(const auto result, generator.answer(generation_, show));
    if (result.reason == generate::StopReason::kCancelled) {
      if (!out.json()) out.print("\n");
      return Error(ErrorCode::kCancelled, "generation was interrupted");
    }
    if (out.json()) {
      write(out, running, result);
    } else {
      if (generator.tokenizer() == nullptr) {
        JsonWriter ids;
        ids.begin_array();
        for (const int32_t t : result.tokens) ids.value(static_cast<int64_t>(t));
        out.print(ids.end_array().take());
      }
      out.print("\n");
      if (report_) report(running, result);
    }
    return {};
  }

  void write(const Output& out, engine::RunningModel& running, const generate::GenerateResult& result) {
    JsonWriter w(2);
    w.begin_object().member("text", result.text).key("tokens").begin_array();
    for (const int32_t t : result.tokens) w.value(static_cast<int64_t>(t));
    w.end_array()
        .member("prompt_tokens", result.prompt_tokens)
        .member("stop_reason", generate::stop_reason_name(result.reason));
    w.key("hf_device_map").begin_object();
    for (const auto& [path, device] : engine::device_map_of(*running.opened, running.planned.plan).entries) {
      w.key(path);
      device.write(w);
    }
    w.end_object().key("memory");
    engine::write_memory(running.memory(), w);
    w.key("moved_per_token");
    engine::write_traffic(running.traffic(), w);
    w.member("load_s", running.load_s)
        .member("prefill_tokens_per_s", result.prefill_tokens_per_s())
        .member("decode_tokens_per_s", result.decode_tokens_per_s())
        .member("numerics", options_.numerics)
        .member("logits_hash", result.logits_hash)
        .end_object();
    out.print(w.take() + "\n");
  }

  static void report(engine::RunningModel& running, const generate::GenerateResult& result) {
    std::fputs(engine::memory_text(running.memory()).c_str(), stderr);
    std::fputs(engine::traffic_text(running.traffic()).c_str(), stderr);
    std::fprintf(stderr,
                 "loaded in %.2f s; prompt of %lld tokens at %.1f tokens/s; %zu tokens at %.1f tokens/s; stopped by "
                 "%s; logits %s\n",
                 running.load_s, static_cast<long long>(result.prompt_tokens), result.prefill_tokens_per_s(),
                 result.tokens.size(), result.decode_tokens_per_s(),
                 std::string(generate::stop_reason_name(result.reason)).c_str(), result.logits_hash.c_str());
  }

  Status chat(const Output& out, engine::RunningModel& running, engine::Generator& generator) {
    const bool chats = generator.has_chat_template();
    std::fprintf(stderr, "%s Ctrl-D ends%s.\n",
                 chats ? "Chat with the model;" : "This model has no chat template: it continues your text.",
                 report_ ? "" : ", --report shows memory");
    for (;;) {
      std::fputs("> ", stderr);
      std::string line;
      if (!std::getline(std::cin, line) || interrupted()) break;
      if (line.empty()) continue;
      const auto show = [&](std::string_view text) {
        out.print(text);
        return !interrupted();
      };
      engine::GenerationOptions turn = generation_;
      turn.prompt = line;
      auto result = chats ? generator.chat_turn(line, turn, show) : generator.answer(turn, show);
      out.print("\n");
      if (!result) return result.error();
      if (result->reason == generate::StopReason::kCancelled)
        return Error(ErrorCode::kCancelled, "generation was interrupted");
      if (result->reason == generate::StopReason::kContextFull)
        out.note("the context is full: start again with a larger --ctx-size");
      if (report_) report(running, *result);
    }
    return {};
  }

  std::string model_;
  engine::Options options_;
  engine::GenerationOptions generation_;
  bool report_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }

}  // namespace berth::cli
