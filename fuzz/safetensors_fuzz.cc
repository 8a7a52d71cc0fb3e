// fuzz/safetensors_fuzz.cc — any bytes as a safetensors file: no crash, and the quick scan agrees with the full parser.
#include <cstdint>
#include <string_view>

#include "berth/base/check.h"
#include "berth/format/safetensors.h"

namespace {

using berth::Result;
using berth::format::SafetensorsHeader;

void compare(const Result<SafetensorsHeader>& a, const Result<SafetensorsHeader>& b) {
  CHECK(a.has_value() == b.has_value());
  if (!a) {
    CHECK(a.error().message == b.error().message);
    return;
  }
  CHECK(a->metadata == b->metadata && a->tensors.size() == b->tensors.size() && a->data_offset == b->data_offset);
  for (size_t i = 0; i < a->tensors.size(); ++i) {
    const auto &x = a->tensors[i], &y = b->tensors[i];
    CHECK(x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.offset == y.offset &&
          x.size_bytes == y.size_bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto header = berth::format::read_safetensors_header(berth::format::MemorySource("x.safetensors", bytes));
  if (header)
    for (const auto& t : header->tensors) CHECK(t.offset <= size && t.size_bytes <= size - t.offset);
  if (size < 8) return 0;
  // The header alone, whatever its length field says.
  const std::string_view text = bytes.substr(8);
  for (const uint64_t data_bytes : {uint64_t{0}, uint64_t{8}, uint64_t{1} << 40})
    compare(berth::format::parse_safetensors_header(text, data_bytes, "x.safetensors", true),
            berth::format::parse_safetensors_header(text, data_bytes, "x.safetensors", false));
  return 0;
}
