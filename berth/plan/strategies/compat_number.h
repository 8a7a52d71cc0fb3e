// plan/strategies/compat_number.h — numbers as Python has them: whole or floating, and which of the two is remembered.
//
// The libraries' sizes and budgets are ints until a quantizer (0.5 bytes an element), a bool buffer (1/8) or a discount
// (x 0.9) makes them floats; `//`, int() and comparisons then follow Python's rules, and so do maps and messages.
// Whole numbers have 128 bits here: budgets come as 64-bit numbers and sums of over-counted sizes stay far below.
//
// Start reading at: Number.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace berth::plan::compat {

__extension__ using Wide = __int128;

class Number {
 public:
  constexpr Number() = default;  // the int 0
  static constexpr Number whole(Wide n) { return Number(n, 0, false); }
  static constexpr Number real(double d) { return Number(0, d, true); }

  bool is_float() const { return is_float_; }
  double as_double() const { return is_float_ ? real_ : static_cast<double>(whole_); }
  // As a byte count for people and for comparisons with real sizes: truncated, clamped to 0..2^64-1.
  uint64_t as_bytes() const;

  friend Number operator+(const Number& a, const Number& b);
  friend Number operator-(const Number& a, const Number& b);
  friend Number operator*(const Number& a, const Number& b);
  Number& operator+=(const Number& b) { return *this = *this + b; }

  // Exact, also between an int and a float. NaN does not occur: budgets that are NaN are refused when read.
  friend std::strong_ordering operator<=>(const Number& a, const Number& b);
  friend bool operator==(const Number& a, const Number& b) { return (a <=> b) == 0; }

  Number floor_divided_by(int64_t n) const;  // a // n, n > 0
  Number truncated() const;                  // int(a)
  std::string text() const;                  // repr(a): "448", "448.0"

 private:
  constexpr Number(Wide w, double d, bool f) : whole_(w), real_(d), is_float_(f) {}
  Wide whole_ = 0;
  double real_ = 0;
  bool is_float_ = false;
};

// Python's max(a, b) and min(a, b): the first one where they are equal.
inline Number max_of(const Number& a, const Number& b) { return b > a ? b : a; }
inline Number min_of(const Number& a, const Number& b) { return b < a ? b : a; }

}  // namespace berth::plan::compat
