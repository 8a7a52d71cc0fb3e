// text/flat_map.h — a hash map from 64-bit keys to small values for vocabularies, merges and tries: one array, no
// erase.
//
// Private to text/. Built once, then read by many threads. The key ~0 cannot be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::text {

template <typename Value>
class FlatMap {
 public:
  static constexpr uint64_t kNoKey = ~uint64_t{0};

  // Makes room for `n` keys.
  void reserve(size_t n) {
    size_t slots = 16;
    while (slots < n * 2) slots *= 2;
    if (slots > slots_.size()) rehash(slots);
  }

  // The value of `key`, made by Value() where it was absent.
  Value& operator[](uint64_t key) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.empty() ? 16 : slots_.size() * 2);
    Slot& s = slot(slots_, key);
    if (s.key == kNoKey) {
      s.key = key;
      ++size_;
    }
    return s.value;
  }

  // The value of `key`, or null.
  const Value* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const size_t mask = slots_.size() - 1;
    for (size_t i = hash(key) & mask;; i = (i + 1) & mask) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kNoKey) return nullptr;
    }
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kNoKey;
    Value value{};
  };
  static size_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key ^ (key >> 29));
  }
  static Slot& slot(std::vector<Slot>& slots, uint64_t key) {
    const size_t mask = slots.size() - 1;
    size_t i = hash(key) & mask;
    while (slots[i].key != kNoKey && slots[i].key != key) i = (i + 1) & mask;
    return slots[i];
  }
  void rehash(size_t slots) {
    std::vector<Slot> wider(slots);
    for (const Slot& s : slots_)
      if (s.key != kNoKey) slot(wider, s.key) = s;
    slots_ = std::move(wider);
  }
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace berth::text
