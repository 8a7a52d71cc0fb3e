// fuzz/json_config_fuzz.cc — any text as config.json: no crash, and what is accepted is in range.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/format/generation_config.h"
#include "berth/format/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)berth::format::parse_hf_quant_config(text, "hf_quant_config.json");
  const auto config = berth::format::HfConfig::parse(text, "config.json");
  if (!config) {
    CHECK(!config.error().message.empty());
    return 0;
  }
  const berth::format::CommonConfig& c = config->common();
  if (c.num_hidden_layers) CHECK(*c.num_hidden_layers >= 1 && *c.num_hidden_layers <= 65536);
  if (c.num_attention_heads && c.num_key_value_heads) CHECK(*c.num_attention_heads % *c.num_key_value_heads == 0);
  if (c.rope.all.rope_theta) CHECK(*c.rope.all.rope_theta > 0);
  CHECK(c.layer_types.empty() || !c.num_hidden_layers ||
        c.layer_types.size() == static_cast<size_t>(*c.num_hidden_layers));
  for (const char* key : {"head_dim", "num_key_value_heads", "hidden_size"})
    for (const size_t layer : {0u, 1u, 70000u}) (void)config->find_int_for_layer(key, layer);
  (void)berth::format::generation_config_from(*config);
  return 0;
}
