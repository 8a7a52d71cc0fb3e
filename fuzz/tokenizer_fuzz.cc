// fuzz/tokenizer_fuzz.cc — any text as tokenizer.json: no crash, bounded time, and what loads gives ids that exist and
// text that is UTF-8. Input: tokenizer.json, a zero byte, a text to encode (without one, a fixed text).
#include <cstdint>
#include <string>
#include <string_view>

#include "berth/base/check.h"
#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/tokenizer.h"

namespace {

using berth::text::StreamDecoder;
using berth::text::Tokenizer;

void exercise(const Tokenizer& t, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = t.encode(text, special);
    if (!ids) {
      CHECK(!ids.error().message.empty());
      continue;
    }
    for (const int32_t id : *ids) CHECK(id >= 0 && id < t.vocab_size() && t.piece(id).has_value());
    const auto back = t.decode(*ids, !special);
    if (back) CHECK(berth::is_valid_utf8(*back));
    StreamDecoder stream(t, false);
    for (const int32_t id : *ids) {
      const auto part = stream.step(id);
      if (!part) break;
      CHECK(berth::is_valid_utf8(*part));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view json(reinterpret_cast<const char*>(data), size);
  std::string text = "Hello, <s> w\u00f6rld 123\n\n  \U0001F600 aab</s>";
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos) {
    text = berth::repaired_utf8(json.substr(zero + 1));
    json = json.substr(0, zero);
  }
  const auto t = Tokenizer::create({"fuzz", json, {}, {}, nullptr});
  if (!t) {
    CHECK(!t.error().message.empty());
    return 0;
  }
  exercise(*t, text);
  return 0;
}
