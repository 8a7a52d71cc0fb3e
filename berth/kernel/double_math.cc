// kernel/double_math.cc — see the header. Start reading at: pow_f64, which is log_dd, a product, exp_dd.
#include "berth/kernel/double_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace berth::kernel {
namespace {

// hi + lo, |lo| <= ulp(hi) / 2: about 106 bits.
struct Dd {
  double hi, lo;
};

Dd two_sum(double a, double b) {
  const double s = a + b;
  const double bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}
Dd two_product(double a, double b) {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}
Dd add(Dd a, Dd b) {
  const Dd s = two_sum(a.hi, b.hi);
  return two_sum(s.hi, s.lo + (a.lo + b.lo));
}
Dd multiply(Dd a, double b) {
  const Dd p = two_product(a.hi, b);
  return two_sum(p.hi, std::fma(a.lo, b, p.lo));
}

constexpr Dd kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// log of a finite x > 0: x = 2^e * m, sqrt(1/2) <= m < sqrt(2); log m = 2 s (1 + z/3 + z^2/5 + ...), s = (m-1)/(m+1),
// z = s^2 <= 0.0295. The leading term carries the accuracy and is in double-double; the series adds at most 1 % of it.
Dd log_dd(double x) {
  int64_t e = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    e = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x) - 0x3FE6A09E667F3BCDu;  // sqrt(1/2)
  e += static_cast<int64_t>(bits) >> 52;
  const double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
  const double numerator = m - 1.0;  // exact
  const Dd denominator = two_sum(m, 1.0);
  const double s = numerator / denominator.hi;
  // what s misses, by one step of division
  const double rest = std::fma(-s, denominator.hi, numerator) - s * denominator.lo;
  const double s_lo = rest / denominator.hi;
  const double z = s * s;
  double series = 0;
  for (int k = 31; k >= 3; k -= 2) series = series * z + 1.0 / k;
  const Dd leading = two_sum(2.0 * s, 2.0 * s_lo);
  const Dd log_m = add(leading, {2.0 * s * (z * series), 0.0});
  return add(multiply(kLn2, static_cast<double>(e)), log_m);
}

// exp(t), t in double-double.
double exp_dd(Dd t) {
  if (t.hi > 709.7) return kInfinity;
  if (t.hi < -745.2) return 0.0;
  const double n = std::nearbyint(t.hi * 1.4426950408889634);
  const Dd r = add(t, multiply(kLn2, -n));
  double series = 0;  // (exp(r) - 1 - r) / r^2 for |r| <= 0.35
  for (int k = 18; k >= 2; --k) {
    series = series * r.hi + 1.0;
    series /= k;
  }
  const double p = 1.0 + (r.hi + (r.hi * (r.hi * series) + r.lo));
  const auto i = static_cast<int64_t>(n);
  const int64_t half = i >> 1;
  const double first = std::bit_cast<double>(static_cast<uint64_t>(half + 1023) << 52);
  const double second = std::bit_cast<double>(static_cast<uint64_t>(i - half + 1023) << 52);
  return (p * first) * second;
}

// x = quadrant * pi/2 + r, |r| <= pi/4 and a little.
struct Reduced {
  int64_t quadrant;
  double r, r_lo;
};
Reduced reduce(double x) {
  if (std::fabs(x) > 0x1p30) x = std::remainder(x, 6.283185307179586);  // exact, hence the same everywhere
  const double n = std::nearbyint(x * 0.6366197723675814);
  // pi/2 in two doubles, the products and differences in double-double.
  const Dd a = two_product(n, 0x1.921fb54442d18p0);
  const Dd b = two_product(n, 0x1.1a62633145c07p-54);
  Dd r = two_sum(x, -a.hi);
  r = add(r, {-a.lo, 0.0});
  r = add(r, {-b.hi, -b.lo});
  return {static_cast<int64_t>(n), r.hi, r.lo};
}

// sin and cos of r + r_lo, |r| <= 0.79: Taylor series, error below 2^-56 before rounding.
double sin_reduced(double r, double r_lo) {
  const double z = r * r;
  double series = 0;
  for (int k = 21; k >= 3; k -= 2) series = (series * z + 1.0) / (-static_cast<double>(k) * (k - 1));
  return r + (r * (z * series) + r_lo * (1.0 - 0.5 * z));
}
double cos_reduced(double r, double r_lo) {
  const double z = r * r;
  double series = 0;
  for (int k = 20; k >= 4; k -= 2) series = (series * z + 1.0) / (-static_cast<double>(k) * (k - 1));
  // 1 - z/2 + z * (z/24 ...), the rounding of 1 - z/2 kept
  const Dd head = two_sum(1.0, -0.5 * z);
  return head.hi + (head.lo - 0.5 * std::fma(r, r, -z) - 0.5 * z * (z * series) - r * r_lo);
}

double sin_of_quadrant(int64_t quadrant, const Reduced& x) {
  const double v = (quadrant & 1) == 0 ? sin_reduced(x.r, x.r_lo) : cos_reduced(x.r, x.r_lo);
  return (quadrant & 2) == 0 ? v : -v;
}

}  // namespace

double log_f64(double x) {
  if (!(x >= 0)) return kNan;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  const Dd l = log_dd(x);
  return l.hi + l.lo;
}

double pow_f64(double x, double y) {
  if (!(x >= 0) || y != y) return kNan;
  if (y == 0 || x == 1) return 1.0;
  if (x == 0) return y > 0 ? 0.0 : kInfinity;
  if (x == kInfinity) return y > 0 ? kInfinity : 0.0;
  if (std::fabs(y) == kInfinity) return (x > 1) == (y > 0) ? kInfinity : 0.0;
  return exp_dd(multiply(log_dd(x), y));
}

double sin_f64(double x) {
  if (!(std::fabs(x) < kInfinity)) return kNan;
  const Reduced reduced = reduce(x);
  return sin_of_quadrant(reduced.quadrant, reduced);
}

double cos_f64(double x) {
  if (!(std::fabs(x) < kInfinity)) return kNan;
  const Reduced reduced = reduce(x);
  return sin_of_quadrant(reduced.quadrant + 1, reduced);
}

}  // namespace berth::kernel
