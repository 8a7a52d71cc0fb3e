// text/json_fields.h — typed members of a tokenizer file's objects, with errors that name the key. Private to text/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::text {

// The member, which must be there. Errors: kCorruptData "missing" or of another type than expected.
Result<std::string_view> string_field(const JsonView& object, std::string_view key);
Result<bool> bool_field(const JsonView& object, std::string_view key);
Result<int64_t> integer_field(const JsonView& object, std::string_view key);
Result<JsonView> array_field(const JsonView& object, std::string_view key);

// The same where the member may be absent or null.
Result<std::string_view> string_field_or(const JsonView& object, std::string_view key, std::string_view otherwise);
Result<bool> bool_field_or(const JsonView& object, std::string_view key, bool otherwise);
Result<std::optional<std::string>> optional_string_field(const JsonView& object, std::string_view key);

// A string of exactly one character. Errors: kCorruptData.
Result<char32_t> character_field(const JsonView& object, std::string_view key);

Error field_error(std::string_view key, std::string_view expected, const JsonView& found);

}  // namespace berth::text
