// kernel/double_math.h — pow, log, sin and cos in double for the rotary tables: the same bits on every machine.
//
// Made of + - * / and fma on doubles only, no libm. Errors are below 2^-51 of the result (pow, sin and cos for
// |x| <= 1e7), so that rounding to fp32 gives the correctly rounded value except about once in 10^7 times. Host only:
// tables are made once and copied to devices.
#pragma once

namespace berth::kernel {

// Natural logarithm of x > 0. 0: -infinity; x < 0 or NaN: NaN.
double log_f64(double x);
// x^y for x > 0; NaN where x < 0 or an argument is NaN; 0^y is 0 for y > 0, 1 for y = 0, infinity for y < 0.
double pow_f64(double x, double y);
// Radians. Up to 2^30 with full accuracy; beyond, the angle is first reduced by 2*pi rounded to double (a wrong angle,
// but a defined one). Infinity and NaN: NaN.
double sin_f64(double x);
double cos_f64(double x);

}  // namespace berth::kernel
