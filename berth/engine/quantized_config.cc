// engine/quantized_config.cc — config.json of a checkpoint that is written. See quantize.h.
#include <algorithm>

#include "berth/base/strings.h"
#include "berth/engine/opened_model.h"
#include "berth/engine/quantize.h"
#include "berth/quant/quant_state.h"

namespace berth::engine {
namespace {

// As Python's json.dumps(indent=2, sort_keys=True) has it.
void write_sorted(JsonWriter& w, JsonView v) {
  if (v.is_object()) {
    auto members = v.members();
    std::ranges::sort(members, {}, [](const auto& m) { return m.first; });
    w.begin_object();
    for (const auto& [key, value] : members) {
      w.key(key);
      write_sorted(w, value);
    }
    w.end_object();
  } else if (v.is_array()) {
    w.begin_array();
    for (const JsonView e : v.elements()) write_sorted(w, e);
    w.end_array();
  } else if (v.type() == JsonType::kDouble) {
    w.raw(quant::python_float(*v.as_double()));
  } else {
    w.raw(v.text());
  }
}

using SkipList = std::optional<std::vector<std::string>>;

void write_quantization(JsonWriter& w, const Options& o, const SkipList& skip) {
  const bool four = o.load_in_4bit, eight = o.load_in_8bit;
  w.begin_object();
  w.member("_load_in_4bit", four).member("_load_in_8bit", eight);
  const auto computes = dtype_from_name(o.bnb_4bit_compute_dtype);  // "half" is saved as "float16"
  w.member("bnb_4bit_compute_dtype", computes ? std::string(dtype_info(*computes).torch) : o.bnb_4bit_compute_dtype);
  w.member("bnb_4bit_quant_storage", o.bnb_4bit_quant_storage);
  // Berth's default is nf4, the library's fp4: what 8 bit does not use stands as the library leaves it.
  w.member("bnb_4bit_quant_type", four ? o.bnb_4bit_quant_type : std::string("fp4"));
  w.member("bnb_4bit_use_double_quant", o.bnb_4bit_use_double_quant);
  w.member("llm_int8_enable_fp32_cpu_offload", o.llm_int8_enable_fp32_cpu_offload);
  w.member("llm_int8_has_fp16_weight", o.llm_int8_has_fp16_weight);
  w.key("llm_int8_skip_modules");
  if (skip) {
    w.begin_array();
    for (const std::string& key : *skip) w.value(key);
    w.end_array();
  } else {
    w.null();
  }
  w.key("llm_int8_threshold").raw(quant::python_float(o.llm_int8_threshold));
  w.member("load_in_4bit", four).member("load_in_8bit", eight);
  w.member("quant_method", "bitsandbytes");
  w.end_object();
}

bool has_dtype(JsonView object) { return object.contains("dtype") || object.contains("torch_dtype"); }

// An object of the config with its dtype set; the root also gets the quantization.
void write_config(JsonWriter& w, JsonView v, const Options& options, const SkipList& skip, std::string_view dtype, bool root) {
  auto members = v.members();
  const bool quantized = options.load_in_4bit || options.load_in_8bit;
  std::erase_if(members, [quantized](const auto& m) {
    return m.first == "dtype" || m.first == "torch_dtype" || (quantized && m.first == "quantization_config");
  });
  if (root || has_dtype(v)) members.emplace_back("dtype", JsonView());
  if (root && quantized) members.emplace_back("quantization_config", JsonView());
  std::ranges::sort(members, {}, [](const auto& m) { return m.first; });
  w.begin_object();
  for (const auto& [key, value] : members) {
    w.key(key);
    if (!value.valid() && key == "dtype") w.value(dtype);
    else if (!value.valid()) write_quantization(w, options, skip);
    else if (value.is_object() && key.ends_with("_config")) write_config(w, value, options, skip, dtype, false);
    else write_sorted(w, value);
  }
  w.end_object();
}

}  // namespace

Result<std::string> quantized_config_json(const std::string& path, const Options& options, DType dtype) {
  TRY(const JsonDocument document, JsonDocument::parse_file(path));
  if (!document.root().is_object())
    return Error(ErrorCode::kCorruptData, "reading " + quoted(path, 400) + ": a JSON object was expected");
  TRY(const SkipList skip, requested_skip_list(options));
  JsonWriter w(2);
  write_config(w, document.root(), options, skip, dtype_info(dtype).torch, true);
  return w.take() + "\n";
}

}  // namespace berth::engine
