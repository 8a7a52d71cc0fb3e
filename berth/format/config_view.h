// format/config_view.h — typed access to one object of a JSON config file, with errors that name file, key, expected
// and found.
//
// A key that is null counts as absent (Python's None); is_null() tells the two apart where a class default is not None.
// A getter given several names takes the first that is present. Integers are exact: 2.5, "32" and 1e9 are errors where
// an integer is asked for.
//
// Borrows the JsonDocument behind the object. Non-goals: what keys mean (hf_config.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"
#include "berth/format/number_range.h"

namespace berth::format {

// One key, or several spellings of it in order of preference.
struct ConfigKey {
  std::vector<std::string_view> names;
  ConfigKey(const char* name) : names{name} {}                                        // NOLINT: implicit by design
  ConfigKey(std::string_view name) : names{name} {}                                   // NOLINT
  ConfigKey(const std::string& name) : names{name} {}                                 // NOLINT
  ConfigKey(std::initializer_list<std::string_view> spellings) : names(spellings) {}  // NOLINT
};

class ConfigView {
 public:
  ConfigView() = default;  // an object without keys
  // `path` is where the object is in the file: "" for the root, else "text_config".
  ConfigView(JsonView object, std::string file, std::string path)
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  const JsonView& json() const { return object_; }
  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }

  bool has(const ConfigKey& key) const;       // present and not null
  bool is_null(const ConfigKey& key) const;   // the first spelling that is present is null
  JsonView find(const ConfigKey& key) const;  // the value that is present and not null, else an invalid view

  Result<std::optional<int64_t>> find_int(const ConfigKey& key, IntRange range = {}) const;
  Result<std::optional<double>> find_double(const ConfigKey& key, DoubleRange range = {}) const;
  Result<std::optional<bool>> find_bool(const ConfigKey& key) const;
  Result<std::optional<std::string>> find_string(const ConfigKey& key) const;
  Result<std::optional<std::vector<int64_t>>> find_ints(const ConfigKey& key, IntRange range = {}) const;
  Result<std::optional<std::vector<double>>> find_doubles(const ConfigKey& key, DoubleRange range = {}) const;
  Result<std::optional<std::vector<std::string>>> find_strings(const ConfigKey& key) const;
  Result<std::optional<ConfigView>> find_object(const ConfigKey& key) const;
  // An integer or a list of them (eos_token_id, intermediate_size).
  Result<std::optional<std::vector<int64_t>>> find_int_or_ints(const ConfigKey& key, IntRange range = {}) const;

  // The same with a default, or required to be there.
  Result<int64_t> int_or(const ConfigKey& key, int64_t otherwise, IntRange range = {}) const;
  Result<double> double_or(const ConfigKey& key, double otherwise, DoubleRange range = {}) const;
  Result<bool> bool_or(const ConfigKey& key, bool otherwise) const;
  Result<std::string> string_or(const ConfigKey& key, std::string otherwise) const;
  Result<int64_t> require_int(const ConfigKey& key, IntRange range = {}) const;
  Result<double> require_double(const ConfigKey& key, DoubleRange range = {}) const;

  // The error for a key whose value is not what was expected; for rules of the caller's own.
  Error wrong(const ConfigKey& key, std::string_view expected) const;
  // The error for a rule between several keys: "reading FILE: MESSAGE".
  Error broken(std::string message) const;
  std::string full_name(std::string_view key) const;  // "text_config.hidden_size"

 private:
  struct Member {
    std::string_view name;
    JsonView value;
  };
  std::optional<Member> member(const ConfigKey& key) const;  // first spelling present and not null

  JsonView object_;
  std::string file_, path_;
};

}  // namespace berth::format
