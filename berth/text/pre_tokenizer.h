// text/pre_tokenizer.h — how a tokenizer cuts normalized text into words before its model sees them.
//
// One class per "type" of a tokenizer.json, made by make_pre_tokenizer(); each turns a list of fragments into a list of
// smaller ones (and may rewrite them: ByteLevel, Metaspace). Thread-safe once made. Start reading at: split_fragment.
#pragma once

#include <memory>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/text/normalizer.h"
#include "berth/text/regex.h"

namespace berth::text {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends what `fragment` becomes to `out`; empty pieces are left out.
  virtual Status apply(Fragment fragment, std::vector<Fragment>& out) const = 0;
};

// Null for null. Errors: kUnsupported for an unknown type, kCorruptData for malformed members.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const JsonView& json);

// What becomes of the matches of a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts `fragment` at `matches` (sorted, disjoint). With `invert`, what lies between them counts as matched.
void split_fragment(const Fragment& fragment, const std::vector<Span>& matches, SplitBehavior behavior, bool invert,
                    std::vector<Fragment>& out);

}  // namespace berth::text
