// format/number_range.cc — the words.
#include "berth/format/number_range.h"

#include <fmt/format.h>

namespace berth::format {

std::string IntRange::text() const {
  const bool low = min != std::numeric_limits<int64_t>::min();
  const bool high = max != std::numeric_limits<int64_t>::max();
  if (low && high) return fmt::format("an integer of {} to {}", min, max);
  if (low) return fmt::format("an integer of at least {}", min);
  if (high) return fmt::format("an integer of at most {}", max);
  return "an integer";
}

std::string DoubleRange::text() const {
  std::string text = "a number";
  const bool low = std::isfinite(min);
  if (low) text += fmt::format(" {} {}", min_open ? "above" : "of at least", min);
  if (std::isfinite(max)) text += fmt::format(" {}of at most {}", low ? "and " : "", max);
  return text;
}

}  // namespace berth::format
