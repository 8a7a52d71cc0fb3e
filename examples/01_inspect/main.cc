// 01_inspect — opens a checkpoint and says what is in it. Only headers are read, so any size takes milliseconds.
//
//   cmake -S examples/01_inspect -B out && cmake --build out
//   out/inspect tests/data/stories260k
//
// Expected output ("..." stands for anything):
//   LlamaForCausalLM, 260032 parameters, 5 layers, 1016 KiB
//   model.embed_tokens.weight                        [512, 64] f32  131072 bytes
//   model.layers.0.input_layernorm.weight                 [64] f32     256 bytes
//   ...
//   model.norm.weight                                     [64] f32     256 bytes
#include <cstdio>

#include "berth/berth.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: inspect MODEL\n");
    return 2;
  }
  const auto opened = berth::engine::open_model(argv[1], berth::engine::Options(), berth::Log());
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return berth::exit_status(opened.error().code);
  }
  uint64_t bytes = 0;
  for (const auto& tensor : opened->checkpoint->tensors()) bytes += tensor.size_bytes;
  std::printf("%s, %llu parameters, %zu layers, %s\n", opened->spec().architecture.c_str(),
              static_cast<unsigned long long>(opened->parameters()), opened->spec().layers.size(), berth::format_bytes(bytes).c_str());
  for (const auto& tensor : opened->checkpoint->tensors())
    std::printf("%-48s %9s %s %7llu bytes\n", tensor.name.c_str(), berth::shape_text(tensor.shape).c_str(),
                std::string(berth::dtype_name(tensor.dtype)).c_str(), static_cast<unsigned long long>(tensor.size_bytes));
  return 0;
}
