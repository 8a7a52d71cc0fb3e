// quant/code_books.cc — the tables.
#include "berth/quant/code_books.h"

namespace berth::quant {
namespace {
constexpr float bits(uint32_t u) { return std::bit_cast<float>(u); }
}  // namespace

const float kNF4Book[16] = {bits(0xbf800000), bits(0xbf3239b1), bits(0xbf066b30), bits(0xbeca32a0),
                            bits(0xbe91a24d), bits(0xbe3d353f), bits(0xbdba7871), bits(0x00000000),
                            bits(0x3da2faff), bits(0x3e24cae3), bits(0x3e7c04dd), bits(0x3ead033a),
                            bits(0x3ee1a4b8), bits(0x3f1007ab), bits(0x3f3913b3), bits(0x3f800000)};
const float kFP4Book[16] = {bits(0x00000000), bits(0x3baaaaab), bits(0x3f2aaaab), bits(0x3f800000),
                            bits(0x3eaaaaab), bits(0x3f000000), bits(0x3e2aaaab), bits(0x3e800000),
                            bits(0x80000000), bits(0xbbaaaaab), bits(0xbf2aaaab), bits(0xbf800000),
                            bits(0xbeaaaaab), bits(0xbf000000), bits(0xbe2aaaab), bits(0xbe800000)};
const float kE2M1Book[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
const float kIQ4NLBook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

const int8_t kNF4Integers[16] = {-124, -86, -65, -49, -35, -23, -11, 0, 10, 20, 31, 42, 55, 70, 90, 124};
const int8_t kFP4Integers[16] = {0, 1, 80, 120, 40, 60, 20, 30, 0, -1, -80, -120, -40, -60, -20, -30};
const int8_t kE2M1Integers[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
const int8_t kIQ4NLIntegers[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace berth::quant
