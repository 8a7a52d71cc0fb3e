// plan/strategies/compat_number.cc — Python's arithmetic on ints and floats.
#include "berth/plan/strategies/compat_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace berth::plan::compat {
namespace {

constexpr double kTwo126 = 8.507059173023462e37;  // beyond it a double cannot become a Wide safely

std::string whole_text(Wide n) {
  if (n == 0) return "0";
  const bool negative = n < 0;
  std::string digits;
  for (; n != 0; n /= 10) digits += static_cast<char>('0' + static_cast<int>(n % 10 < 0 ? -(n % 10) : n % 10));
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::strong_ordering order(double a, double b) {
  return a < b ? std::strong_ordering::less : a > b ? std::strong_ordering::greater : std::strong_ordering::equal;
}

// Exact comparison of an int with a float.
std::strong_ordering order(Wide a, double b) {
  if (b >= kTwo126) return std::strong_ordering::less;
  if (b <= -kTwo126) return std::strong_ordering::greater;
  const double whole = std::trunc(b);
  const auto by_whole = a <=> static_cast<Wide>(whole);
  if (by_whole != 0) return by_whole;
  return order(0.0, b - whole);
}

}  // namespace

Number operator+(const Number& a, const Number& b) {
  if (a.is_float_ || b.is_float_) return Number::real(a.as_double() + b.as_double());
  return Number::whole(a.whole_ + b.whole_);
}
Number operator-(const Number& a, const Number& b) {
  if (a.is_float_ || b.is_float_) return Number::real(a.as_double() - b.as_double());
  return Number::whole(a.whole_ - b.whole_);
}
Number operator*(const Number& a, const Number& b) {
  if (a.is_float_ || b.is_float_) return Number::real(a.as_double() * b.as_double());
  return Number::whole(a.whole_ * b.whole_);
}

std::strong_ordering operator<=>(const Number& a, const Number& b) {
  if (a.is_float_ && b.is_float_) return order(a.real_, b.real_);
  if (a.is_float_) return 0 <=> order(b.whole_, a.real_);
  if (b.is_float_) return order(a.whole_, b.real_);
  return a.whole_ <=> b.whole_;
}

uint64_t Number::as_bytes() const {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  if (!is_float_) return whole_ < 0 ? 0 : whole_ > static_cast<Wide>(kMost) ? kMost : static_cast<uint64_t>(whole_);
  if (!(real_ > 0)) return 0;
  return real_ >= 18446744073709551615.0 ? kMost : static_cast<uint64_t>(real_);
}

Number Number::floor_divided_by(int64_t n) const {
  if (!is_float_) {
    Wide q = whole_ / n;
    if (whole_ % n != 0 && whole_ < 0) --q;
    return whole(q);
  }
  // CPython's float_floor_div: by the remainder, then one correction.
  const double w = static_cast<double>(n);
  double mod = std::fmod(real_, w);
  double div = (real_ - mod) / w;
  if (mod != 0 && mod < 0) div -= 1.0;
  if (div == 0) return real(std::copysign(0.0, real_ / w));
  double floor_div = std::floor(div);
  if (div - floor_div > 0.5) floor_div += 1.0;
  return real(floor_div);
}

Number Number::truncated() const {
  if (!is_float_) return *this;
  const double t = std::trunc(real_);
  if (t >= kTwo126) return whole(static_cast<Wide>(kTwo126));
  if (t <= -kTwo126) return whole(-static_cast<Wide>(kTwo126));
  return whole(static_cast<Wide>(t));
}

std::string Number::text() const {
  if (!is_float_) return whole_text(whole_);
  std::string s = fmt::format("{}", real_);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";  // "inf" and "nan" have an n
  return s;
}

}  // namespace berth::plan::compat
