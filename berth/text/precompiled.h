// text/precompiled.h — SentencePiece's compiled character map (T5, ALBERT, XLM-R): a double-array trie of texts and
// what they become.
//
//   u32 bytes of the trie | trie: u32 units | replacements, each ended by a zero byte
//
// A unit: bit 31 leaf, bits 0-7 label, bit 8 "a value hangs below", bits 10-30 offset (times 256 with bit 9 set).
// Every step is checked against the array; nothing in the file can lead outside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "berth/text/normalizer.h"

namespace berth::text {

class Precompiled final : public Normalizer {
 public:
  // `charsmap`: the bytes (not base64). Errors: kCorruptData.
  static Result<std::unique_ptr<Normalizer>> create(std::string_view charsmap);
  Status apply(Fragment& fragment) const override;

 private:
  Precompiled() = default;
  // What the shortest mapped prefix of `text` becomes; false where none is mapped.
  bool mapped(std::string_view text, std::string_view& replacement) const;
  std::vector<uint32_t> trie_;
  std::string replacements_;
};

// Errors: kCorruptData where `text` is not base64.
Result<std::string> decoded_base64(std::string_view text);

}  // namespace berth::text
