// text/trie.h — byte strings with values, walked one byte at a time: pieces for Unigram and WordPiece, added tokens.
//
// Private to text/.
#pragma once

#include <cstdint>
#include <string_view>

#include "berth/text/flat_map.h"

namespace berth::text {

class Trie {
 public:
  struct Node {
    uint32_t number = 0;  // to continue from; the root is 0
    int32_t value = -1;   // of the string that ends here; -1: none does
  };

  // The last value given to a string stays. The empty string has none.
  void add(std::string_view text, int32_t value) {
    uint32_t at = 0;
    Node* node = nullptr;
    for (const char c : text) {
      node = &nodes_[key(at, c)];
      if (node->number == 0) node->number = ++count_;
      at = node->number;
    }
    if (node) node->value = value;
  }

  // The node below `number` by `c`, or null.
  const Node* step(uint32_t number, char c) const { return nodes_.find(key(number, c)); }

 private:
  static uint64_t key(uint32_t number, char c) { return (uint64_t{number} << 8) | static_cast<uint8_t>(c); }
  FlatMap<Node> nodes_;
  uint32_t count_ = 0;
};

}  // namespace berth::text
