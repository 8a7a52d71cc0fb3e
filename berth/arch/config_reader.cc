// arch/config_reader.cc — see config_reader.h.
#include "berth/arch/config_reader.h"

#include <algorithm>
#include <utility>

namespace berth::arch {

using format::ConfigKey;

void ConfigReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

void ConfigReader::fail_if(const Status& status) {
  if (!status) fail(status.error());
}

Status ConfigReader::status() const {
  if (error_) return *error_;
  return {};
}

int64_t ConfigReader::integer(const ConfigKey& key, std::optional<int64_t> fallback, format::IntRange range) {
  const int64_t safe = std::clamp(fallback.value_or(range.min), range.min, range.max);
  if (!fallback) return take(view_.require_int(key, range), safe);
  return take(view_.int_or(key, *fallback, range), safe);
}

double ConfigReader::number(const ConfigKey& key, std::optional<double> fallback, format::DoubleRange range) {
  if (!fallback) return take(view_.require_double(key, range), 1.0);
  return take(view_.double_or(key, *fallback, range), *fallback);
}

bool ConfigReader::boolean(const ConfigKey& key, bool fallback) { return take(view_.bool_or(key, fallback), fallback); }

std::string ConfigReader::text(const ConfigKey& key, std::string_view fallback) {
  return take(view_.string_or(key, std::string(fallback)), std::string(fallback));
}

std::vector<int64_t> ConfigReader::integers(const ConfigKey& key, format::IntRange range) {
  return take(view_.find_ints(key, range), std::optional<std::vector<int64_t>>()).value_or(std::vector<int64_t>());
}

std::vector<double> ConfigReader::numbers(const ConfigKey& key, format::DoubleRange range) {
  return take(view_.find_doubles(key, range), std::optional<std::vector<double>>()).value_or(std::vector<double>());
}

std::vector<std::string> ConfigReader::texts(const ConfigKey& key) {
  return take(view_.find_strings(key), std::optional<std::vector<std::string>>()).value_or(std::vector<std::string>());
}

ConfigReader ConfigReader::nested(const ConfigKey& key) const {
  auto object = view_.find_object(key);
  ConfigReader reader(object && *object ? **object : format::ConfigView());
  if (!object) reader.fail(object.error());
  return reader;
}

}  // namespace berth::arch
