// quant/gguf_grids.h — private to quant: the tables that define GGUF's IQ1, IQ2 and IQ3 types.
//
// An entry has a digit per element, lowest first: 2 bits (8 elements) for IQ1 and IQ2, 4 bits (4 elements) for IQ3. The
// digit is an index into the values below. Part of the file format as ggml defines it.
#pragma once

#include <cstdint>

namespace berth::quant {

extern const uint16_t kIQ1Grid[2048];
extern const uint16_t kIQ2XXSGrid[256];
extern const uint16_t kIQ2XSGrid[512];
extern const uint16_t kIQ2SGrid[1024];
extern const uint16_t kIQ3XXSGrid[256];
extern const uint16_t kIQ3SGrid[512];

inline constexpr float kIQ1Values[4] = {-1, 0, 1, 0};
inline constexpr float kIQ2Values[4] = {8, 25, 43, 0};
inline constexpr float kIQ3XXSValues[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr float kIQ3SValues[8] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace berth::quant
