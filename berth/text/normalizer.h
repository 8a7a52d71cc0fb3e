// text/normalizer.h — what a tokenizer does to text before it is split: normal forms, case, replacements.
//
// One class per "type" of a tokenizer.json, made by make_normalizer(). Thread-safe once made.
// Start reading at: normalizer.cc, whose classes are in the order of that table.
#pragma once

#include <memory>
#include <string>

#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::text {

// Text on its way, and whether its first character stood at the very start of what the caller gave (Metaspace's
// "first" asks for that).
struct Fragment {
  std::string text;
  bool at_start = false;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Errors: kCorruptData where an expression runs into its limits.
  virtual Status apply(Fragment& fragment) const = 0;
};

// Null for null. Errors: kUnsupported for an unknown type, kCorruptData for malformed members.
Result<std::unique_ptr<Normalizer>> make_normalizer(const JsonView& json);

}  // namespace berth::text
