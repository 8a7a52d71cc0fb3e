// fuzz/generation_config_fuzz.cc — any text as generation_config.json: no crash, and what is accepted is in range.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/format/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto g =
      berth::format::parse_generation_config({reinterpret_cast<const char*>(data), size}, "generation_config.json");
  if (!g) {
    CHECK(!g.error().message.empty());
    return 0;
  }
  if (g->temperature) CHECK(*g->temperature >= 0);
  if (g->top_p) CHECK(*g->top_p >= 0 && *g->top_p <= 1);
  for (const int64_t id : g->eos_token_id) CHECK(id >= 0);
  for (const auto& s : g->stop_strings) CHECK(!s.empty());
  return 0;
}
