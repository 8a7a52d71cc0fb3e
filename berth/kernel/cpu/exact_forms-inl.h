// kernel/cpu/exact_forms-inl.h — what the loops of `exact` mode distinguish in a format: how many elements a word has
// (numerics.md 1), how its codes are stored, whether they are scaled. For linear_exact_* and gemm_exact_*.
#pragma once

#include <cstdint>

#include "berth/kernel/cpu/linear_kernels.h"

namespace berth::kernel::cpu {
namespace {

using quant::Codec;

// Codes: floats of 32 and 16 bits; bytes of a row with one scale, of blocks whose scales lie elsewhere (kQ8) or before
// their codes (kQ8Block, few inputs only); e4m3; 4 bits by a table; 5 and 6 bits, the high ones in planes of their own.
enum class Kind { kF32, kBF16, kF16, kInt8, kQ8, kQ8Block, kFP8, kBook, kFive, kSix };

constexpr int word_elements(Kind kind) {
  switch (kind) {
    case Kind::kF32:
      return 1;
    case Kind::kBF16:
    case Kind::kF16:
      return 2;
    case Kind::kInt8:
    case Kind::kQ8:
    case Kind::kQ8Block:
    case Kind::kFP8:
      return 4;
    default:
      return 8;
  }
}
constexpr bool is_scaled(Kind kind) { return word_elements(kind) >= 4 && kind != Kind::kInt8; }
constexpr int high_planes(Kind kind) { return kind == Kind::kSix ? 2 : kind == Kind::kFive ? 1 : 0; }

// `Loop::rows<Kind, has minima>` for a codec.
template <typename Loop>
constexpr auto exact_form(Codec codec) -> decltype(&Loop::template rows<Kind::kF32, false>) {
  switch (codec) {
    case Codec::kF32:
      return Loop::template rows<Kind::kF32, false>;
    case Codec::kBF16:
      return Loop::template rows<Kind::kBF16, false>;
    case Codec::kF16:
      return Loop::template rows<Kind::kF16, false>;
    case Codec::kInt8Row:
      return Loop::template rows<Kind::kInt8, false>;
    case Codec::kQ8_0:
      return Loop::template rows<Kind::kQ8, false>;
    case Codec::kFP8Block:
      return Loop::template rows<Kind::kFP8, false>;
    case Codec::kNF4:
    case Codec::kFP4:
    case Codec::kMXFP4:
    case Codec::kQ4_0:
    case Codec::kIQ4_NL:
      return Loop::template rows<Kind::kBook, false>;
    case Codec::kQ4_1:
    case Codec::kQ4_K:
      return Loop::template rows<Kind::kBook, true>;
    case Codec::kQ5_0:
      return Loop::template rows<Kind::kFive, false>;
    case Codec::kQ5_1:
    case Codec::kQ5_K:
      return Loop::template rows<Kind::kFive, true>;
    case Codec::kQ6_K:
      return Loop::template rows<Kind::kSix, false>;
  }
  return nullptr;
}

}  // namespace
}  // namespace berth::kernel::cpu
