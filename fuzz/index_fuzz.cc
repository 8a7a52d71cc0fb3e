// fuzz/index_fuzz.cc — any text as a sharded index: no crash, file names stay inside, and the quick scan agrees with
// the full parser.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/format/sharded_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto a = berth::format::parse_sharded_index(text, "x.index.json", true);
  const auto b = berth::format::parse_sharded_index(text, "x.index.json", false);
  CHECK(a.has_value() == b.has_value());
  if (!a) {
    CHECK(a.error().message == b.error().message);
    return 0;
  }
  CHECK(a->files == b->files && a->items.size() == b->items.size() && a->warnings == b->warnings);
  for (size_t i = 0; i < a->items.size(); ++i) {
    CHECK(a->items[i].tensor == b->items[i].tensor && a->items[i].file == b->items[i].file);
    CHECK(a->positions.find(a->items[i].tensor) == i);
  }
  for (const auto& file : a->files) {
    CHECK(berth::format::clean_relative_path(file) == file);
    berth::format::parse_shard_name(file, ".safetensors");
  }
  return 0;
}
