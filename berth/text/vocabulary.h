// text/vocabulary.h — pieces and their ids, both ways.
//
// Ids need not be dense; they stay below kMaxTokenId so that a hostile file cannot ask for more memory than it holds.
// Start reading at: Vocabulary::add.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth::text {

inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

class Vocabulary {
 public:
  void reserve(size_t pieces, size_t bytes);

  // Errors: kCorruptData where the id is out of range, taken, or the piece exists; messages name the piece.
  Status add(std::string_view piece, int64_t id);
  // The same for a piece that may exist already (Unigram files repeat pieces): the last id is found by its text.
  Status add_or_replace(std::string_view piece, int64_t id);

  std::optional<int32_t> find(std::string_view piece) const;
  // ids[i] = the id of pieces[i], -1 where there is none. Quicker than one by one for thousands: memory is asked for
  // ahead. Both spans are of one length.
  void find_all(std::span<const std::string_view> pieces, std::span<int32_t> ids) const;
  // The piece of `id`, or nothing.
  std::optional<std::string_view> piece(int32_t id) const;

  size_t size() const { return entries_.size(); }                           // pieces
  int64_t id_limit() const { return static_cast<int64_t>(by_id_.size()); }  // greatest id + 1

  template <typename F>
  void for_each(F&& f) const {
    for (const Entry& e : entries_) f(text_of(e), e.id);
  }

 private:
  struct Entry {
    uint32_t offset = 0, size = 0;
    int32_t id = 0;
  };
  std::string_view text_of(const Entry& e) const { return std::string_view(bytes_).substr(e.offset, e.size); }
  static uint64_t hash_of(std::string_view piece);
  size_t slot_of(std::string_view piece, uint64_t hash) const;
  void rehash(size_t slots);
  Status insert(std::string_view piece, int64_t id, bool replace);

  std::string bytes_;
  std::vector<Entry> entries_;
  // Hash (high half) and index into entries_ plus 1 (low half; 0: free); a power of two of them.
  std::vector<uint64_t> slots_;
  std::vector<uint32_t> by_id_;  // index into entries_ plus 1
};

}  // namespace berth::text
