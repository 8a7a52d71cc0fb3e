// text/pattern.h — {"String": ..} or {"Regex": ..} of a tokenizer.json as one searchable thing. Private to text/.
#pragma once

#include "berth/base/json.h"
#include "berth/text/regex.h"

namespace berth::text {

// Errors: those of Regex; kCorruptData where `json` is neither form.
Result<Regex> make_pattern(const JsonView& json);

// `text` with every match replaced by `content`. `first_replaced` says whether a match stood at the start.
Result<std::string> replaced(const Regex& pattern, std::string_view text, std::string_view content,
                             bool* first_replaced = nullptr);

}  // namespace berth::text
