// engine/random_weights.h — seeded random numbers by position, as the bytes of weights: normal floats, uniform codes.
//
// Element i of a tensor depends on the tensor's key and i alone, so that pieces may be made in any order and by any
// thread. Start reading at: RandomWeights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "berth/tensor/dtype.h"

namespace berth::engine {

class RandomWeights {
 public:
  // `name`: the tensor's, so that tensors differ.
  RandomWeights(int64_t seed, std::string_view name);

  // Elements [first, first + n) of mean + deviation * (a normal number), n = bytes / the type's size; F32, BF16 or F16.
  // `first` is a multiple of 4.
  void normals(DType dtype, float mean, float deviation, uint64_t first, std::span<std::byte> out) const;
  // Uniform bytes [first, first + n); `first` is a multiple of 8.
  void bytes(uint64_t first, std::span<std::byte> out) const;

 private:
  uint64_t word(uint64_t index) const;
  uint64_t key_;
};

}  // namespace berth::engine
