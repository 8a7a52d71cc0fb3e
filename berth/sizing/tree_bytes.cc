// sizing/tree_bytes.cc — see tree_bytes.h.
#include "berth/sizing/tree_bytes.h"

#include <set>

#include "berth/base/bytes.h"
#include "berth/tensor/dtype.h"
#include "berth/tensor/shape.h"

namespace berth::sizing {
namespace {

constexpr uint64_t kNestedBlock = 256;  // scales under one scale of their own

// Packed 4-bit weights of `elements`, with what dequantizing them needs.
uint64_t four_bit_bytes(uint64_t elements, const FourBit& format) {
  const uint64_t blocks = ceil_div<uint64_t>(elements, static_cast<uint64_t>(format.blocksize));
  const uint64_t codes = ceil_div<uint64_t>(elements, 2);
  if (!format.nested) return codes + 4 * blocks;
  const uint64_t map_and_offset = 4 * 256 + 4;
  return codes + blocks + 4 * ceil_div<uint64_t>(blocks, kNestedBlock) + map_and_offset;
}

}  // namespace

TreeBytes::TreeBytes(const arch::ModuleTree& tree, const FourBit& four_bit) {
  std::set<std::string> targets;
  for (const auto& [target, source] : tree.ties) targets.insert(target);
  arch::for_each_module(tree, [&](const std::string& path, const arch::Module& m) {
    if (!m.same_as.empty()) return;
    const auto add = [&](const std::string& name, const Shape& shape, DType dtype, bool weight) -> uint64_t {
      uint64_t elements = element_count(shape).value_or(0);
      uint64_t bytes = dtype == DType::kBool ? elements : dtype_bytes(dtype, elements).value_or(0);
      if (weight && m.class_name == "Linear4bit") {
        if (dtype == DType::kU8) elements *= 2;
        bytes = four_bit_bytes(elements, four_bit);
      } else if (weight && m.class_name == "Linear8bitLt") {
        bytes = elements + 4 * static_cast<uint64_t>(shape.empty() ? 1 : shape[0]);
      }
      const std::string full = arch::join_path(path, name);
      bytes_[full] = bytes;
      if (targets.contains(full)) return 0;
      total_ += bytes;
      return elements;
    };
    for (const auto& p : m.parameters) parameters_ += add(p.name, p.shape, p.dtype, p.name == "weight");
    for (const auto& b : m.buffers) add(b.name, b.shape, b.dtype, false);
  });
}

uint64_t TreeBytes::operator()(const std::string& path) const {
  const auto it = bytes_.find(path);
  return it == bytes_.end() ? 0 : it->second;
}

}  // namespace berth::sizing
