// format/name_index.h — finds foreign names in expected constant time, also names crafted to collide.
//
// Maps each name to the order in which it was added. Borrows the names: the strings must outlive the index. The hash
// is seeded once per process, so no file can be made to collide; no order that anybody sees depends on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace berth::format {

class NameIndex {
 public:
  void reserve(size_t names);
  // The position of `name` (0, 1, 2.. in order of adding), and whether it is new.
  struct Added {
    uint32_t position;
    bool is_new;
  };
  Added add(std::string_view name);
  std::optional<uint32_t> find(std::string_view name) const;
  size_t size() const { return names_.size(); }

 private:
  size_t slot_of(std::string_view name, uint64_t hash) const;  // of the name, or the empty slot where it belongs
  void grow(size_t slots);

  static constexpr uint32_t kEmpty = 0xFFFFFFFFu;
  struct Slot {
    uint32_t hash_high = 0;
    uint32_t position = kEmpty;
  };
  std::vector<Slot> slots_;
  std::vector<std::string_view> names_;
};

}  // namespace berth::format
