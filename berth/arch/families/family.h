// arch/families/family.h — what one file in this folder provides.
//
// A family reads numbers into a Decoder, from a Hugging Face config or from GGUF metadata, and lays out modules and
// tensors from it. To add one: write families/NAME.cc with `std::span<const Family> NAME_families()`; CMake finds the
// file and lists it (docs/adding.md).
//
// Start reading at: Family, then llama.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/builder.h"
#include "berth/arch/config_reader.h"
#include "berth/arch/gguf_reader.h"
#include "berth/arch/model_spec.h"
#include "berth/arch/text_config.h"

namespace berth::arch {

// One model as its config describes it: everything but the tensors.
struct Decoder {
  std::string architecture;  // the class to build: one of Family::architectures
  ModelSpec spec;
  TextKeys keys;           // for messages about shapes
  std::string activation;  // the config's word; its class is in the tree
  // The whole config, for towers beside the text model; without keys for GGUF.
  format::ConfigView config;
  std::vector<std::string> rope_names;  // of spec.ropes, where the class keeps one set of frequencies per layer type
  int64_t extra_layers = 0;  // layers past the last that files may hold and nobody reads (multi-token prediction)

  const LayerSpec& layer(int64_t i) const { return spec.layers[static_cast<size_t>(i)]; }
  Dim hidden() const { return {spec.hidden, std::string(keys.hidden)}; }
  Dim vocab() const { return {spec.vocab_size, std::string(keys.vocab)}; }
};

// Reads the common numbers into keys, activation and a spec of equal Llama layers; ropes are left to the family.
TextConfig read_decoder(ConfigReader& config, Decoder& decoder, const TextDefaults& defaults,
                        const TextKeys& keys = {});
// The same from GGUF, with one rope from its keys.
TextConfig read_gguf_decoder(GgufReader& gguf, Decoder& decoder, std::string_view activation, double default_theta);

struct Family {
  std::string_view model_type;   // of config.json's outermost object
  std::string_view text_object;  // the nested object with the text model's keys; "": the outermost one
  // Class names a config may ask for in `architectures`; the first one where it names none of them.
  std::span<const std::string_view> architectures;
  // `text` reads the text model's object; failures stay in it. decoder.architecture and config are filled already.
  void (*read_config)(ConfigReader& text, Decoder& decoder);
  void (*build)(const Decoder& decoder, Builder& builder);
  // GGUF: the architecture names that mean this family; null: none.
  std::span<const std::string_view> gguf_architectures = {};
  void (*read_gguf)(GgufReader& gguf, Decoder& decoder) = nullptr;
};

}  // namespace berth::arch
