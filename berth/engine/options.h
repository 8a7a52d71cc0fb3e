// engine/options.h — every option of planning and running, once: the command line, JSON inputs and help come from here.
//
// Names are Transformers' where it has them, llama.cpp's otherwise (contract.md 4, 5). visit_options() calls the visitor
// with an OptionInfo and a reference to the member: std::string, bool, int64_t, double, std::vector<std::string>.
//
// Start reading at: Options, then visit_options.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace berth::engine {

struct OptionInfo {
  std::string_view name;        // without dashes
  std::string_view short_name;  // "c" or ""
  std::string_view value;       // what stands for the value in help
  std::string_view group;
  std::string_view help;
};

struct Options {
  // how weights are held
  std::string dtype;
  bool load_in_4bit = false, load_in_8bit = false;
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = false;
  int64_t bnb_4bit_blocksize = 64;
  std::string llm_int8_skip_modules;
  bool llm_int8_enable_fp32_cpu_offload = false;
  bool quantize_experts = false;
  // of BitsAndBytesConfig, written into checkpoints; Berth itself computes in fp32 and leaves activations as they are
  double llm_int8_threshold = 6;
  bool llm_int8_has_fp16_weight = false;
  std::string bnb_4bit_compute_dtype = "float32";
  std::string bnb_4bit_quant_storage = "uint8";
  bool no_mmap = false;
  // where they go
  std::string device_map = "best";
  std::string max_memory;
  std::string machine, emulate;
  std::vector<std::string> pin;
  std::string tables = "auto";
  bool no_offload = false;
  std::string margin;
  std::string offload_folder;
  std::string compat, target = "berth", purpose = "inference";
  int64_t plan_effort = 1000000;
  std::string plan;
  bool replan = false;
  // what a run needs
  int64_t ctx_size = 0;  // 0: min(4096, the model's)
  int64_t batch = 1;
  std::string kv_dtype;
  int64_t prefill_chunk = 512;
  std::string prefill_room;
  bool all_logits = false;  // room for the logits of every position: `eval` sets it, nobody asks for it
  // with what it computes
  std::string numerics = "exact";
  std::string isa = "auto";
  int64_t threads = 0;  // 0: the cores this process may use

  bool operator==(const Options&) const = default;
};

template <typename OptionsType, typename Visitor>
void visit_options(OptionsType& o, Visitor&& visit) {
  constexpr std::string_view kWeights = "How weights are held", kPlace = "Where they go", kShape = "What a run needs",
                             kCompute = "With what it computes";
  visit(OptionInfo{"dtype", "", "TYPE", kWeights, "float32, float16 or bfloat16: what unquantized weights are stored as (default: as the checkpoint has them)"}, o.dtype);
  visit(OptionInfo{"load-in-4bit", "", "", kWeights, "quantize Linear weights to 4 bit on load, as bitsandbytes does"}, o.load_in_4bit);
  visit(OptionInfo{"load-in-8bit", "", "", kWeights, "quantize Linear weights to LLM.int8 on load"}, o.load_in_8bit);
  visit(OptionInfo{"bnb-4bit-quant-type", "", "TYPE", kWeights, "nf4 or fp4"}, o.bnb_4bit_quant_type);
  visit(OptionInfo{"bnb-4bit-use-double-quant", "", "", kWeights, "store the scales of 4-bit blocks in 8 bits"}, o.bnb_4bit_use_double_quant);
  visit(OptionInfo{"bnb-4bit-blocksize", "", "N", kWeights, "elements per scale: 32, 64, ... 4096"}, o.bnb_4bit_blocksize);
  visit(OptionInfo{"llm-int8-skip-modules", "", "A,B", kWeights, "modules kept wide in 4 and 8 bit, separated by commas or as a JSON list; replaces the automatic list (head and tied weights)"}, o.llm_int8_skip_modules);
  visit(OptionInfo{"llm-int8-enable-fp32-cpu-offload", "", "", kWeights, "accepted for Transformers' sake: quantized modules stay quantized on cpu and disk"}, o.llm_int8_enable_fp32_cpu_offload);
  visit(OptionInfo{"quantize-experts", "", "", kWeights, "quantize fused MoE experts too, which Transformers leaves wide"}, o.quantize_experts);
  visit(OptionInfo{"llm-int8-threshold", "", "X", kWeights, "recorded in checkpoints that are written: activations from which on the library computes apart"}, o.llm_int8_threshold);
  visit(OptionInfo{"llm-int8-has-fp16-weight", "", "", kWeights, "8-bit modules keep their 16-bit weights, as there"}, o.llm_int8_has_fp16_weight);
  visit(OptionInfo{"bnb-4bit-compute-dtype", "", "TYPE", kWeights, "recorded in checkpoints that are written: what the library computes in"}, o.bnb_4bit_compute_dtype);
  visit(OptionInfo{"bnb-4bit-quant-storage", "", "TYPE", kWeights, "the type under which packed bytes are written: uint8, int8, float16, bfloat16, float32, float64"}, o.bnb_4bit_quant_storage);
  visit(OptionInfo{"no-mmap", "", "", kWeights, "copy weights that the cpu could use from the mapped checkpoint as they are: slower to start, and the files may change afterwards"}, o.no_mmap);
  visit(OptionInfo{"device-map", "", "MAP", kPlace, "best (= auto; with --compat auto = balanced), balanced, balanced_low_0, sequential, a device, a JSON file or inline JSON"}, o.device_map);
  visit(OptionInfo{"max-memory", "", "LIST", kPlace, "caps: 0=18GiB,1=10GiB,cpu=48GiB; accelerators not named are left out, 0 excludes"}, o.max_memory);
  visit(OptionInfo{"machine", "", "FILE", kPlace, "plan for the machine this JSON file describes (see: berth devices --json)"}, o.machine);
  visit(OptionInfo{"emulate", "", "LIST", kPlace, "emulated accelerators: 2x16GiB,1x8GiB"}, o.emulate);
  visit(OptionInfo{"pin", "", "PATH=DEVICE", kPlace, "fix a module (or a glob of modules) to a device; repeatable"}, o.pin);
  visit(OptionInfo{"tables", "", "WHERE", kPlace, "auto: embedding tables may live in host memory; accelerator: only there if it saves time"}, o.tables);
  visit(OptionInfo{"no-offload", "", "", kPlace, "nothing may leave the accelerators"}, o.no_offload);
  visit(OptionInfo{"margin", "", "SIZE", kPlace, "kept free on every device: 512MiB or 2% (default: 1 % or 64 MiB on real devices, 0 on emulated ones)"}, o.margin);
  visit(OptionInfo{"offload-folder", "", "DIR", kPlace, "where weights that must live on disk in another form are kept"}, o.offload_folder);
  visit(OptionInfo{"compat", "", "LIBRARY", kPlace, "transformers or accelerate: plan exactly as that library does, and say what will go wrong"}, o.compat);
  visit(OptionInfo{"target", "", "ENGINE", kPlace, "berth, transformers or llama.cpp: what will run the plan"}, o.target);
  visit(OptionInfo{"for", "", "PURPOSE", kPlace, "inference or training"}, o.purpose);
  visit(OptionInfo{"plan-effort", "", "N", kPlace, "how many labels the planner may make before it stops proving"}, o.plan_effort);
  visit(OptionInfo{"plan", "", "FILE", kPlace, "take this plan, as written by: berth plan --json"}, o.plan);
  visit(OptionInfo{"replan", "", "", kPlace, "with --plan: plan anew with the recorded options where checkpoint or machine differ"}, o.replan);
  visit(OptionInfo{"ctx-size", "c", "N", kShape, "positions per sequence, prompt and answer together (default: 4096 or the model's, whichever is less)"}, o.ctx_size);
  visit(OptionInfo{"batch", "", "N", kShape, "sequences at once"}, o.batch);
  visit(OptionInfo{"kv-dtype", "", "TYPE", kShape, "float32, float16 or bfloat16: the KV cache (default: the model's dtype; GGUF: float16)"}, o.kv_dtype);
  visit(OptionInfo{"prefill-chunk", "", "N", kShape, "prompt tokens computed at once"}, o.prefill_chunk);
  visit(OptionInfo{"prefill-room", "", "SIZE", kShape, "left free on every accelerator, so that modules off it can be brought over while a prompt is read: prompts faster, answers slower"}, o.prefill_room);
  visit(OptionInfo{"numerics", "", "MODE", kCompute, "exact: fp32 arithmetic; int8: faster, activations in 8 bits. Neither depends on placement"}, o.numerics);
  visit(OptionInfo{"isa", "", "SET", kCompute, "instruction set of the cpu's kernels: auto, ref, avx2, avx512, neon"}, o.isa);
  visit(OptionInfo{"threads", "t", "N", kCompute, "computing threads (default: the cores this process may use)"}, o.threads);
}

}  // namespace berth::engine
