#include "berth/text/json_fields.h"

#include "berth/base/strings.h"
#include "berth/base/utf8.h"

namespace berth::text {

Error field_error(std::string_view key, std::string_view expected, const JsonView& found) {
  return {ErrorCode::kCorruptData, "at key " + quoted(key) + ": expected " + std::string(expected) + ", found " +
                                       (found.valid() ? std::string(json_type_name(found.type())) : "nothing")};
}

Result<std::string_view> string_field(const JsonView& object, std::string_view key) {
  const JsonView v = object[key];
  if (const auto s = v.as_string()) return *s;
  return field_error(key, "a string", v);
}

Result<bool> bool_field(const JsonView& object, std::string_view key) {
  const JsonView v = object[key];
  if (const auto b = v.as_bool()) return *b;
  return field_error(key, "true or false", v);
}

Result<int64_t> integer_field(const JsonView& object, std::string_view key) {
  const JsonView v = object[key];
  if (v.is_integer())
    if (const auto n = v.as_int64()) return *n;
  return field_error(key, "an integer", v);
}

Result<JsonView> array_field(const JsonView& object, std::string_view key) {
  const JsonView v = object[key];
  if (v.is_array()) return v;
  return field_error(key, "an array", v);
}

Result<std::string_view> string_field_or(const JsonView& object, std::string_view key, std::string_view otherwise) {
  const JsonView v = object[key];
  if (!v.valid() || v.is_null()) return otherwise;
  return string_field(object, key);
}

Result<bool> bool_field_or(const JsonView& object, std::string_view key, bool otherwise) {
  const JsonView v = object[key];
  if (!v.valid() || v.is_null()) return otherwise;
  return bool_field(object, key);
}

Result<std::optional<std::string>> optional_string_field(const JsonView& object, std::string_view key) {
  const JsonView v = object[key];
  if (!v.valid() || v.is_null()) return std::optional<std::string>();
  TRY(const auto s, string_field(object, key));
  return std::optional<std::string>(std::string(s));
}

Result<char32_t> character_field(const JsonView& object, std::string_view key) {
  TRY(const auto s, string_field(object, key));
  if (count_code_points(s) != 1)
    return Error(ErrorCode::kCorruptData, "at key " + quoted(key) + ": expected one character, found " + quoted(s, 40));
  size_t at = 0;
  return decode_utf8(s, at);
}

}  // namespace berth::text
