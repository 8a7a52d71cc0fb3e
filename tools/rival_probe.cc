// tools/rival_probe.cc — what `berth bench` measures, measured on llama.cpp; built and run by tools/rival_bench.sh.
//
//   rival_probe FILE.gguf THREADS PROMPT_TOKENS NEW_TOKENS REPEATS
//
// One JSON line: seconds from the start of the load to the first token, the peak of resident memory at that moment, and
// tokens per second of each repeat: a prompt in one call (as llama-bench's pp), tokens one after the other (tg).
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print(const char* name, const std::vector<double>& values) {
  std::printf(", \"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.3f", i > 0 ? ", " : "", values[i]);
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "usage: rival_probe FILE THREADS PROMPT NEW REPEATS\n"), 2;
  const int threads = std::atoi(argv[2]), prompt = std::atoi(argv[3]), fresh = std::atoi(argv[4]);
  const int repeats = std::atoi(argv[5]);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();

  const double start = now_s();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return std::fprintf(stderr, "cannot load %s\n", argv[1]), 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(prompt > fresh ? prompt : fresh) + 8;
  params.n_batch = 2048;
  params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = threads;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return std::fprintf(stderr, "cannot make a context for %s\n", argv[1]), 1;

  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  const int range = vocabulary < 20000 ? vocabulary : 20000;
  std::vector<llama_token> tokens(static_cast<size_t>(prompt > 0 ? prompt : 1));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<llama_token>(i * 7919 % static_cast<size_t>(range));
  const auto decode = [&](int count) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), count)) != 0) std::exit(3);
    llama_synchronize(context);
  };

  decode(1);
  const double ready = now_s() - start;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"ready_s\": %.4f, \"peak_rss_bytes\": %lld", ready, static_cast<long long>(usage.ru_maxrss) * 1024);

  const auto measure = [&](int count, auto&& work) {
    std::vector<double> rates;
    for (int r = 0; count > 0 && r <= repeats; ++r) {  // the first warms
      llama_memory_clear(llama_get_memory(context), false);
      const double from = now_s();
      work();
      if (r > 0) rates.push_back(count / (now_s() - from));
    }
    return rates;
  };
  print("pp", measure(prompt, [&] { decode(prompt); }));
  print("tg", measure(fresh, [&] {
          for (int i = 0; i < fresh; ++i) decode(1);
        }));
  std::printf(", \"system\": \"%s\"}\n", llama_print_system_info());
  std::fflush(stdout);
  _Exit(0);
}
