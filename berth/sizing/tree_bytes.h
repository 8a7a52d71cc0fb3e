// sizing/tree_bytes.h — bytes of every tensor of a module tree as a library holds it: for trees without an
// architecture, and for what Transformers' and accelerate's own maps really take.
//
// A tensor takes its elements times its type, a bool one byte. The weight of a module of class Linear4bit is packed in
// 4 bits with its scales, that of Linear8bitLt in int8 with a scale per row (specs of bitsandbytes; no alignment, no
// padding: those are Berth's own, storage.h). A tree may have such a weight wide ([out, in], as Transformers builds it
// on the meta device) or already packed (U8, two elements a byte; I8).
//
// Start reading at: TreeBytes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "berth/arch/module.h"

namespace berth::sizing {

// How Linear4bit modules are stored.
struct FourBit {
  int32_t blocksize = 64;
  bool nested = false;
};

class TreeBytes {
 public:
  explicit TreeBytes(const arch::ModuleTree& tree, const FourBit& four_bit = {});

  // By the tensor's path in its first spelling; 0 for what the tree does not have. A tie's target has its own bytes.
  uint64_t operator()(const std::string& path) const;
  uint64_t total() const { return total_; }            // each tied tensor once
  uint64_t parameters() const { return parameters_; }  // elements, likewise; packed ones two a byte

 private:
  std::unordered_map<std::string, uint64_t> bytes_;
  uint64_t total_ = 0, parameters_ = 0;
};

}  // namespace berth::sizing
