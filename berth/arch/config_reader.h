// arch/config_reader.h — look-ups in a model's config that keep the first failure instead of returning each.
//
// A family asks for what it needs, with the default its class has, and status() is checked once at the end: the first
// thing that was wrong is kept (file, key, expected, found); later look-ups answer with defaults in range, so that
// nothing divides by zero meanwhile.
//
// Non-goals: knowing any key's meaning; parsing (format/config_view.h). Start reading at: integer().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"
#include "berth/format/config_view.h"

namespace berth::arch {

// What no published model comes near; beyond it a number is a broken file, and products of two stay in 64 bits.
inline constexpr format::IntRange kLayerRange{1, 4096};
inline constexpr format::IntRange kHeadRange{1, 65'536};
inline constexpr format::IntRange kWidthRange{1, 1 << 24};
inline constexpr format::IntRange kVocabRange{1, 1 << 28};
inline constexpr format::IntRange kPositionRange{1, INT32_MAX};
inline constexpr format::IntRange kExpertRange{1, 4096};

class ConfigReader {
 public:
  explicit ConfigReader(format::ConfigView view) : view_(std::move(view)) {}

  const format::ConfigView& view() const { return view_; }
  bool has(const format::ConfigKey& key) const { return view_.has(key); }
  bool is_null(const format::ConfigKey& key) const { return view_.is_null(key); }

  // The first spelling that is present; `fallback` where none is (nothing: that is an error).
  int64_t integer(const format::ConfigKey& key, std::optional<int64_t> fallback, format::IntRange range);
  double number(const format::ConfigKey& key, std::optional<double> fallback,
                format::DoubleRange range = format::kPositive);
  bool boolean(const format::ConfigKey& key, bool fallback);
  std::string text(const format::ConfigKey& key, std::string_view fallback);
  // Absent: empty.
  std::vector<int64_t> integers(const format::ConfigKey& key, format::IntRange range);
  std::vector<double> numbers(const format::ConfigKey& key, format::DoubleRange range);
  std::vector<std::string> texts(const format::ConfigKey& key);
  // A nested object; without keys where it is absent.
  ConfigReader nested(const format::ConfigKey& key) const;

  // Keeps the first failure.
  void fail(const format::ConfigKey& key, std::string_view expected) { fail(view_.wrong(key, expected)); }
  void fail(Error error);
  void fail_if(const Status& status);
  bool ok() const { return !error_.has_value(); }
  Status status() const;

 private:
  // The value of a Result, or `otherwise` and the failure kept.
  template <typename T, typename R>
  T take(R&& result, T otherwise) {
    if (result) return T(*std::forward<R>(result));
    fail(result.error());
    return otherwise;
  }

  format::ConfigView view_;
  std::optional<Error> error_;
};

}  // namespace berth::arch
