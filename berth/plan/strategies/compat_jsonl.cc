// plan/strategies/compat_jsonl.cc — reads a case, plans it with one of the compat strategies, writes the result.
#include "berth/plan/strategies/compat_jsonl.h"

#include <fmt/format.h>

#include "berth/arch/tree_json.h"
#include "berth/base/strings.h"
#include "berth/plan/strategies/compat_accelerate.h"
#include "berth/plan/strategies/compat_transformers.h"
#include "berth/tensor/dtype.h"

namespace berth::plan::compat {
namespace {

Error bad_key(const char* key, std::string expected, JsonView found) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("\"{}\" must be {}, found {}", key, expected,
                           found.valid() ? found.text().substr(0, 80) : std::string("nothing")));
}

Result<bool> flag(JsonView line, const char* key) {
  const JsonView v = line[key];
  if (!v.valid() || v.is_null()) return false;
  if (const auto b = v.as_bool()) return *b;
  return bad_key(key, "true or false", v);
}

Result<Quantizer> quantizer_of(JsonView line) {
  const JsonView v = line["quant"];
  if (!v.valid() || v.is_null()) return Quantizer::kNone;
  const auto text = v.as_string();
  if (text == "none") return Quantizer::kNone;
  if (text == "nf4" || text == "fp4" || text == "int8") return Quantizer::kBitsandbytes;
  return bad_key("quant", "\"none\", \"nf4\", \"fp4\" or \"int8\"", v);
}

Result<CompatResult> plan_line(JsonView line) {
  const auto library = line["library"].as_string();
  if (library != "transformers" && library != "accelerate")
    return bad_key("library", "\"transformers\" or \"accelerate\"", line["library"]);
  const auto mode_text = line["mode"].as_string();
  const auto mode = mode_text ? mode_from_name(*mode_text) : std::nullopt;
  if (!mode) return bad_key("mode", "\"auto\", \"balanced\", \"balanced_low_0\" or \"sequential\"", line["mode"]);
  if (!line.contains("max_memory")) return bad_key("max_memory", "an object from devices to bytes", {});
  TRY(const auto memory, memory_entries_from_json(line["max_memory"]));
  TRY(const arch::ModuleTree tree, arch::read_tree_json(line, {.require_format = false}));
  TRY(const bool offload_buffers, flag(line, "offload_buffers"));
  TRY(const bool fallback, flag(line, "fallback_allocation"));
  TRY(const Quantizer quantizer, quantizer_of(line));
  if (library == "transformers") {
    TransformersRequest request;
    request.mode = *mode;
    request.max_memory = memory;
    request.quantizer = quantizer;
    request.offload_buffers = offload_buffers;
    return plan_as_transformers(tree, request);
  }
  AccelerateRequest request;
  request.mode = *mode;
  request.max_memory = memory;
  request.fallback_allocation = fallback;
  request.offload_buffers = offload_buffers;
  if (const JsonView v = line["dtype"]; v.valid() && !v.is_null()) {
    const auto name = v.as_string();
    request.dtype = name ? dtype_from_name(*name) : std::nullopt;
    if (!request.dtype) return bad_key("dtype", "a type's name, such as \"float16\"", v);
  }
  return plan_as_accelerate(tree, request);
}

}  // namespace

std::string unreadable_line(const Error& error, JsonView id) {
  JsonWriter w;
  w.begin_object().key("id").raw(id.valid() ? id.text() : "null").key("error").begin_object();
  w.member("stage", "read").member("type", error_code_name(error.code)).end_object();
  w.member("message", error.message).end_object();
  return w.take();
}

std::string answer_line(const CompatResult& result, JsonView id) {
  JsonWriter w;
  w.begin_object();
  if (id.valid()) w.key("id").raw(id.text());
  write_result(result, w);
  if (result.error) w.member("message", result.error->raised.message);
  w.end_object();
  return w.take();
}

std::string plan_compat_line(std::string_view line, bool* readable) {
  if (readable != nullptr) *readable = false;
  const auto document = JsonDocument::parse(line);
  if (!document) return unreadable_line(document.error(), {});
  const JsonView root = document->root();
  const auto result = plan_line(root);
  if (!result) return unreadable_line(result.error(), root["id"]);
  if (readable != nullptr) *readable = true;
  return answer_line(*result, root["id"]);
}

}  // namespace berth::plan::compat
