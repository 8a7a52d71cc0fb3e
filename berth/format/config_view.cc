// format/config_view.cc — see config_view.h.
#include "berth/format/config_view.h"

#include <fmt/format.h>

#include "berth/base/strings.h"

namespace berth::format {
namespace {

std::string found(const JsonView& value) {
  if (!value.valid()) return "nothing was found";
  return fmt::format("{} was found: {}", json_type_name(value.type()), escaped(value.text().substr(0, 60)));
}

}  // namespace

std::optional<ConfigView::Member> ConfigView::member(const ConfigKey& key) const {
  for (const std::string_view name : key.names)
    if (const JsonView v = object_[name]; v.valid() && !v.is_null()) return Member{name, v};
  return std::nullopt;
}

JsonView ConfigView::find(const ConfigKey& key) const {
  const auto m = member(key);
  return m ? m->value : JsonView();
}
bool ConfigView::has(const ConfigKey& key) const { return member(key).has_value(); }
bool ConfigView::is_null(const ConfigKey& key) const {
  for (const std::string_view name : key.names)
    if (const JsonView v = object_[name]; v.valid()) return v.is_null();
  return false;
}

std::string ConfigView::full_name(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Error ConfigView::broken(std::string message) const {
  return Error(ErrorCode::kCorruptData, fmt::format("reading {}: {}", quoted(file_, 400), std::move(message)),
               {"The file is damaged or was edited: fetch it again."});
}

Error ConfigView::wrong(const ConfigKey& key, std::string_view expected) const {
  const auto m = member(key);
  return broken(fmt::format("key {}: {} was expected, {}", quoted(full_name(m ? m->name : key.names.front())), expected,
                            found(m ? m->value : JsonView())));
}

Result<std::optional<int64_t>> ConfigView::find_int(const ConfigKey& key, IntRange range) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<int64_t>();
  const auto n = v.as_int64();
  if (!n || !range.contains(*n)) return wrong(key, range.text());
  return n;
}

Result<std::optional<double>> ConfigView::find_double(const ConfigKey& key, DoubleRange range) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<double>();
  const auto d = v.as_double();
  if (!d || !range.contains(*d)) return wrong(key, range.text());
  return d;
}

Result<std::optional<bool>> ConfigView::find_bool(const ConfigKey& key) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<bool>();
  const auto b = v.as_bool();
  if (!b) return wrong(key, "true or false");
  return b;
}

Result<std::optional<std::string>> ConfigView::find_string(const ConfigKey& key) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<std::string>();
  const auto s = v.as_string();
  if (!s) return wrong(key, "a text");
  return std::optional(std::string(*s));
}

Result<std::optional<std::vector<int64_t>>> ConfigView::find_ints(const ConfigKey& key, IntRange range) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<std::vector<int64_t>>();
  const std::string expected = "a list, each element " + range.text();
  if (!v.is_array()) return wrong(key, expected);
  std::vector<int64_t> out;
  for (JsonView::Cursor c(v); c.next();) {
    const auto n = c.value().as_int64();
    if (!n || !range.contains(*n)) return wrong(key, fmt::format("{} (element {} is not)", expected, out.size()));
    out.push_back(*n);
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<double>>> ConfigView::find_doubles(const ConfigKey& key, DoubleRange range) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<std::vector<double>>();
  const std::string expected = "a list, each element " + range.text();
  if (!v.is_array()) return wrong(key, expected);
  std::vector<double> out;
  for (JsonView::Cursor c(v); c.next();) {
    const auto d = c.value().as_double();
    if (!d || !range.contains(*d)) return wrong(key, fmt::format("{} (element {} is not)", expected, out.size()));
    out.push_back(*d);
  }
  return std::optional(std::move(out));
}

Result<std::optional<std::vector<std::string>>> ConfigView::find_strings(const ConfigKey& key) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<std::vector<std::string>>();
  if (!v.is_array()) return wrong(key, "a list of texts");
  std::vector<std::string> out;
  for (JsonView::Cursor c(v); c.next();) {
    const auto s = c.value().as_string();
    if (!s) return wrong(key, fmt::format("a list of texts (element {} is none)", out.size()));
    out.emplace_back(*s);
  }
  return std::optional(std::move(out));
}

Result<std::optional<ConfigView>> ConfigView::find_object(const ConfigKey& key) const {
  const auto m = member(key);
  if (!m) return std::optional<ConfigView>();
  if (!m->value.is_object()) return wrong(key, "an object");
  return std::optional(ConfigView(m->value, file_, full_name(m->name)));
}

Result<std::optional<std::vector<int64_t>>> ConfigView::find_int_or_ints(const ConfigKey& key, IntRange range) const {
  const JsonView v = find(key);
  if (!v.valid()) return std::optional<std::vector<int64_t>>();
  if (v.is_array()) return find_ints(key, range);
  const auto n = v.as_int64();
  if (!n || !range.contains(*n)) return wrong(key, range.text() + ", or a list of such");
  return std::optional(std::vector<int64_t>{*n});
}

Result<int64_t> ConfigView::int_or(const ConfigKey& key, int64_t otherwise, IntRange range) const {
  TRY(const auto v, find_int(key, range));
  return v.value_or(otherwise);
}
Result<double> ConfigView::double_or(const ConfigKey& key, double otherwise, DoubleRange range) const {
  TRY(const auto v, find_double(key, range));
  return v.value_or(otherwise);
}
Result<bool> ConfigView::bool_or(const ConfigKey& key, bool otherwise) const {
  TRY(const auto v, find_bool(key));
  return v.value_or(otherwise);
}
Result<std::string> ConfigView::string_or(const ConfigKey& key, std::string otherwise) const {
  TRY(auto v, find_string(key));
  return v ? std::move(*v) : std::move(otherwise);
}
Result<int64_t> ConfigView::require_int(const ConfigKey& key, IntRange range) const {
  TRY(const auto v, find_int(key, range));
  if (!v) return wrong(key, range.text());
  return *v;
}
Result<double> ConfigView::require_double(const ConfigKey& key, DoubleRange range) const {
  TRY(const auto v, find_double(key, range));
  if (!v) return wrong(key, range.text());
  return *v;
}

}  // namespace berth::format
