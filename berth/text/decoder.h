// text/decoder.h — how pieces become text again. One function per "type" of a tokenizer.json, made by make_decoder().
//
// Thread-safe once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites `pieces`; their concatenation after the last decoder is the text.
  virtual Status apply(std::vector<std::string>& pieces) const = 0;
};

// Null for null. Errors: kUnsupported for an unknown type, kCorruptData for malformed members.
Result<std::unique_ptr<Decoder>> make_decoder(const JsonView& json);

}  // namespace berth::text
