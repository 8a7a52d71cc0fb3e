// text/post_processor.h — the special tokens a tokenizer puts around one text: begin, end, or a template.
//
// Only single texts: whatever a tokenizer.json says about one text comes down to ids in front and ids behind.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::text {

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

// The frame of a tokenizer.json's "post_processor" (none for null). `known` says whether an id exists. Errors:
// kCorruptData where a template names tokens it does not list, ids that do not exist, or does not hold the text once.
Result<SpecialFrame> make_special_frame(const JsonView& json, const std::function<bool(int64_t)>& known);

}  // namespace berth::text
