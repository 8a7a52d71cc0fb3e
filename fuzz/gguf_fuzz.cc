// fuzz/gguf_fuzz.cc — any bytes as a GGUF file: no crash, no tensor outside, every getter on every key.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/format/generation_config.h"
#include "berth/format/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto read = berth::format::read_gguf(berth::format::MemorySource("x.gguf", bytes));
  if (!read) {
    CHECK(!read.error().message.empty());
    return 0;
  }
  const berth::format::GgufFile file = std::move(read).value();  // views must survive the move
  const auto& m = file.metadata;
  for (const auto& t : file.tensors) CHECK(t.offset <= size && t.size_bytes <= size - t.offset);
  for (size_t i = 0; i < m.size(); ++i) {
    const std::string_view key = m.key(i);
    CHECK(m.has(key) && !m.describe(key).empty());
    (void)m.find_int(key);
    (void)m.find_double(key);
    (void)m.find_bool(key);
    (void)m.find_string(key);
    (void)m.find_ints(key);
    (void)m.find_doubles(key);
    (void)m.find_bools(key);
    (void)m.find_ints_per_layer(key, 2);
    (void)m.find_bools_per_layer(key, 2);
    const auto texts = m.find_strings(key);
    if (texts && *texts) {
      size_t total = 0;
      for (size_t k = 0; k < (*texts)->size(); ++k) total += (**texts)[k].size();
      CHECK(total <= size);
    }
  }
  (void)berth::format::check_gguf_model(m, file.tensors);
  (void)berth::format::generation_config_from(m);
  return 0;
}
