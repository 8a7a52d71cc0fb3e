// quant/code_books.h — the 16-entry tables behind 4-bit codes: fp32 for exact mode, integers for int8 mode.
//
// Kernels take them through codec_info(codec).code_book / int8_book; encoders use them by name. Sources: bitsandbytes
// (specs/quantization.md 1.1, exact bits), OCP MX e2m1, ggml's IQ4_NL; integers: numerics.md 5.
#pragma once

#include <bit>
#include <cstdint>

namespace berth::quant {

extern const float kNF4Book[16];
extern const float kFP4Book[16];   // code 8 is -0, as in bitsandbytes' kernels (its stored quant_map has +0 there)
extern const float kE2M1Book[16];  // code 8 is -0
extern const float kIQ4NLBook[16];

extern const int8_t kNF4Integers[16];    // rint(124.12 * c)
extern const int8_t kFP4Integers[16];    // rint(120 * c)
extern const int8_t kE2M1Integers[16];   // 2 * c
extern const int8_t kIQ4NLIntegers[16];  // c

inline constexpr float kNF4Kappa = std::bit_cast<float>(0x3c040054u);  // 1/124.12
inline constexpr float kFP4Kappa = std::bit_cast<float>(0x3c088889u);  // 1/120

}  // namespace berth::quant
