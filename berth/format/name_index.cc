// format/name_index.cc — open addressing, linear probing, at most half full.
#include "berth/format/name_index.h"

#include <bit>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "berth/base/check.h"

namespace berth::format {
namespace {

uint64_t hash_of(std::string_view name) {
  static const uint64_t seed = [] {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32) ^ device();
  }();
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace

size_t NameIndex::slot_of(std::string_view name, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto high = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.position == kEmpty || (slot.hash_high == high && names_[slot.position] == name)) return i;
  }
}

void NameIndex::grow(size_t slots) {
  slots_.assign(slots, Slot{});
  for (uint32_t i = 0; i < names_.size(); ++i) {
    const uint64_t hash = hash_of(names_[i]);
    slots_[slot_of(names_[i], hash)] = {static_cast<uint32_t>(hash >> 32), i};
  }
}

void NameIndex::reserve(size_t names) {
  names_.reserve(names);
  const size_t slots = std::bit_ceil(names * 2 + 2);
  if (slots > slots_.size()) grow(slots);
}

NameIndex::Added NameIndex::add(std::string_view name) {
  CHECK(names_.size() < kEmpty);
  if (slots_.size() < (names_.size() + 1) * 2) grow(std::bit_ceil((names_.size() + 1) * 4));
  const uint64_t hash = hash_of(name);
  Slot& slot = slots_[slot_of(name, hash)];
  if (slot.position != kEmpty) return {slot.position, false};
  slot = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(names_.size())};
  names_.push_back(name);
  return {slot.position, true};
}

std::optional<uint32_t> NameIndex::find(std::string_view name) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[slot_of(name, hash_of(name))];
  if (slot.position == kEmpty) return std::nullopt;
  return slot.position;
}

}  // namespace berth::format
