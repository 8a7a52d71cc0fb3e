// plan/strategies/compat_memory.h — max_memory as the libraries read it, and get_balanced_memory.
//
// Part of the compat strategies; section numbers are those of docs/device_maps.md. Anything the libraries raise comes
// back as a Raised value: it is a result here, not a failure of Berth.
//
// Start reading at: read_max_memory, then balanced_memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "berth/base/json.h"
#include "berth/plan/device_map.h"
#include "berth/plan/strategies/compat_model.h"
#include "berth/plan/strategies/compat_number.h"

namespace berth::plan::compat {

// An exception of the library: its Python type and what it was about, in words.
struct Raised {
  std::string type;  // "ValueError", "KeyError", "IndexError", "RuntimeError", "AttributeError", "OverflowError"
  std::string message;
};

template <typename T>
using Outcome = std::variant<T, Raised>;
template <typename T>
bool raised(const Outcome<T>& o) {
  return std::holds_alternative<Raised>(o);
}

// Devices and bytes in the order in which they are filled: numbers ascending, mps, cpu, disk.
struct Budgets {
  std::vector<std::pair<DeviceName, Number>> entries;

  Number* find(const DeviceName& device);
  const Number* find(const DeviceName& device) const;
};

enum class Mode {
  kBalanced,  // "auto" and "balanced"
  kBalancedLow0,
  kSequential,
};
std::optional<Mode> mode_from_name(std::string_view name);

// One max_memory value given as text: "18GiB", "10 GB", "1e3MB"; "10gb" is gigabits. ValueError for what the libraries
// do not take ("1TB", "10G", "10"), OverflowError for infinity.
Outcome<Number> parse_memory_text(std::string_view text);

// One entry as a user gives it: a device key, and bytes or a text.
struct MemoryEntry {
  std::string key;
  std::variant<Number, std::string> value;
};
// The entries of a JSON object; numbers stay ints or floats. Errors: kInvalidArgument for other value types.
Result<std::vector<MemoryEntry>> memory_entries_from_json(JsonView object);

// What the libraries understand otherwise than people mean, a sentence each: "24gb" is 3 GB, because they take a
// lower-case b for bits.
std::vector<std::string> max_memory_notes(const std::vector<MemoryEntry>& entries);

// max_memory as the libraries parse and order it. ValueError for a key that is no number, "mps", "cpu" or "disk".
Outcome<Budgets> read_max_memory(const std::vector<MemoryEntry>& entries);

// What the libraries take where max_memory is None: every accelerator's free bytes and the RAM that is available. No
// disk. Transformers takes 90 % of the RAM.
Budgets default_max_memory(Library library, const std::vector<uint64_t>& free_bytes, uint64_t available_ram);

// Transformers' planner as it was, for showing what its repairs changed; accelerate still is as kBefore47203.
enum class Revision {
  kBefore47203,  // spring 2026: the first block of each class, the mean layer
  kBefore47211,  // summer 2026: the largest block, the mean layer; splits whatever does not fit; ties counted once
  kCurrent,      // 5.18 to 5.24: the largest block, the largest layer
};

// get_balanced_memory (3). `unset`: the user gave no max_memory, so that a single accelerator is cut to 90 %.
Outcome<Budgets> balanced_memory(const Model& model, const Budgets& budgets, bool low_zero, bool unset,
                                 Revision revision = Revision::kCurrent);

}  // namespace berth::plan::compat
