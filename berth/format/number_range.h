// format/number_range.h — which numbers a config key may have, and how that reads in a message.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

namespace berth::format {

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  bool contains(int64_t n) const { return n >= min && n <= max; }
  std::string text() const;  // "an integer of 1 to 65536", "an integer of at least 1", "an integer"
};

// Sizes of anything that a model has: nothing larger is real, and products of two stay far from overflow.
inline constexpr IntRange kCount{1, (int64_t{1} << 31) - 1};
inline constexpr IntRange kCountOrZero{0, (int64_t{1} << 31) - 1};
inline constexpr IntRange kLayers{1, 65536};
inline constexpr IntRange kHeads{1, 65536};

// Finite numbers only, unless it says otherwise. The lower bound may be excluded.
struct DoubleRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  // min itself is not allowed
  bool infinite_too = false;
  bool contains(double d) const {
    return (infinite_too ? !std::isnan(d) : std::isfinite(d)) && (min_open ? d > min : d >= min) && d <= max;
  }
  std::string text() const;  // "a number above 0 and at most 1"
};

inline constexpr DoubleRange kPositive{0, std::numeric_limits<double>::infinity(), true};
inline constexpr DoubleRange kFraction{0, 1, true};

}  // namespace berth::format
