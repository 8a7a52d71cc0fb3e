#include "berth/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <functional>

#include "berth/base/strings.h"

namespace berth::text {

void Vocabulary::reserve(size_t pieces, size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(pieces);
  by_id_.reserve(pieces);
  size_t slots = 16;
  while (slots < pieces * 2) slots *= 2;
  if (slots > slots_.size()) rehash(slots);
}

uint64_t Vocabulary::hash_of(std::string_view piece) {
  uint64_t h = std::hash<std::string_view>{}(piece);
  return h ^ (h >> 32);
}

size_t Vocabulary::slot_of(std::string_view piece, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t tag = hash >> 32 << 32;
  size_t i = hash & mask;
  // The hash in the slot spares the way to the piece's bytes nearly always.
  for (; slots_[i] != 0; i = (i + 1) & mask)
    if ((slots_[i] & ~uint64_t{UINT32_MAX}) == tag && text_of(entries_[static_cast<uint32_t>(slots_[i]) - 1]) == piece)
      break;
  return i;
}

void Vocabulary::rehash(size_t slots) {
  slots_.assign(slots, 0);
  for (uint32_t e = 0; e < entries_.size(); ++e) {
    const uint64_t hash = hash_of(text_of(entries_[e]));
    slots_[slot_of(text_of(entries_[e]), hash)] = (hash >> 32 << 32) | (e + 1);
  }
}

Status Vocabulary::insert(std::string_view piece, int64_t id, bool replace) {
  const auto failed = [&](const std::string& why) {
    return Error(ErrorCode::kCorruptData, "while reading the vocabulary: piece " + quoted(piece) + ": " + why);
  };
  if (id < 0 || id > kMaxTokenId)
    return failed("expected an id from 0 to " + std::to_string(kMaxTokenId) + ", found " + std::to_string(id));
  if (piece.size() > UINT32_MAX - bytes_.size()) return failed("the pieces together are over 4 GiB");
  const auto at = static_cast<size_t>(id);
  if (at < by_id_.size() && by_id_[at] != 0)
    return failed("id " + std::to_string(id) + " belongs to " + quoted(text_of(entries_[by_id_[at] - 1])) + " already");
  if ((entries_.size() + 1) * 2 > slots_.size()) rehash(slots_.empty() ? 16 : slots_.size() * 2);
  const uint64_t hash = hash_of(piece);
  const size_t slot = slot_of(piece, hash);
  if (slots_[slot] != 0 && !replace)
    return failed("expected it once, found it with ids " +
                  std::to_string(entries_[static_cast<uint32_t>(slots_[slot]) - 1].id) + " and " + std::to_string(id));
  entries_.push_back(
      {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(piece.size()), static_cast<int32_t>(id)});
  bytes_ += piece;
  const auto entry = static_cast<uint32_t>(entries_.size());
  slots_[slot] = (hash >> 32 << 32) | entry;
  if (at >= by_id_.size()) by_id_.resize(at + 1, 0);
  by_id_[at] = entry;
  return {};
}

Status Vocabulary::add(std::string_view piece, int64_t id) { return insert(piece, id, false); }
Status Vocabulary::add_or_replace(std::string_view piece, int64_t id) { return insert(piece, id, true); }

std::optional<int32_t> Vocabulary::find(std::string_view piece) const {
  if (slots_.empty()) return std::nullopt;
  const auto entry = static_cast<uint32_t>(slots_[slot_of(piece, hash_of(piece))]);
  if (entry == 0) return std::nullopt;
  return entries_[entry - 1].id;
}

void Vocabulary::find_all(std::span<const std::string_view> pieces, std::span<int32_t> ids) const {
  constexpr size_t kBatch = 16;
  if (slots_.empty()) {
    std::fill(ids.begin(), ids.end(), -1);
    return;
  }
  const size_t mask = slots_.size() - 1;
  std::array<uint64_t, kBatch> hashes;
  for (size_t first = 0; first < pieces.size(); first += kBatch) {
    const size_t n = std::min(kBatch, pieces.size() - first);
    for (size_t i = 0; i < n; ++i) {
      hashes[i] = hash_of(pieces[first + i]);
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    for (size_t i = 0; i < n; ++i)
      if (const auto entry = static_cast<uint32_t>(slots_[hashes[i] & mask])) __builtin_prefetch(&entries_[entry - 1]);
    for (size_t i = 0; i < n; ++i)
      if (const auto entry = static_cast<uint32_t>(slots_[hashes[i] & mask]))
        __builtin_prefetch(bytes_.data() + entries_[entry - 1].offset);
    for (size_t i = 0; i < n; ++i) {
      const auto entry = static_cast<uint32_t>(slots_[slot_of(pieces[first + i], hashes[i])]);
      ids[first + i] = entry == 0 ? -1 : entries_[entry - 1].id;
    }
  }
}

std::optional<std::string_view> Vocabulary::piece(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= by_id_.size() || by_id_[static_cast<size_t>(id)] == 0) return std::nullopt;
  return text_of(entries_[by_id_[static_cast<size_t>(id)] - 1]);
}

}  // namespace berth::text
