// tensor/shape.h — dimensions of a tensor, outermost first, row-major; and what one tensor in a file is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/tensor/dtype.h"

namespace berth {

using Shape = std::vector<int64_t>;  // every extent >= 0; {} is a scalar

// Product of the extents; nothing where it overflows. A zero anywhere gives 0 whatever the order.
inline std::optional<uint64_t> element_count(const Shape& shape) {
  for (const int64_t d : shape)
    if (d == 0) return 0;
  uint64_t n = 1;
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    const auto m = checked_mul(n, static_cast<uint64_t>(d));
    if (!m) return std::nullopt;
    n = *m;
  }
  return n;
}

inline std::string shape_text(const Shape& shape) {  // "[2, 3]"
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

// Name, type and shape of a tensor, wherever its bytes are.
struct TensorDesc {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t size_bytes = 0;
};

}  // namespace berth
