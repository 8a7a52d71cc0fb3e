// plan/strategies/compat_memory.cc — parsing budgets and lowering them, with the libraries' own rounding.
#include "berth/plan/strategies/compat_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_set>

#include "berth/base/strings.h"

namespace berth::plan::compat {
namespace {

// Python's float(text): blanks around, digits with single underscores between them, inf and nan in any case.
std::optional<double> python_float(std::string_view text) {
  std::string s(trimmed(text));
  std::string low;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto digit = [&](size_t k) { return k < s.size() && s[k] >= '0' && s[k] <= '9'; };
    if (s[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
      continue;
    }
    low += static_cast<char>(s[i] >= 'A' && s[i] <= 'Z' ? s[i] | 0x20 : s[i]);
  }
  std::string_view unsigned_part = low;
  if (!low.empty() && (low[0] == '+' || low[0] == '-')) unsigned_part.remove_prefix(1);
  if (unsigned_part == "inf" || unsigned_part == "infinity") return low[0] == '-' ? -HUGE_VAL : HUGE_VAL;
  if (unsigned_part == "nan") return std::nan("");
  // What is left must be a decimal number; strtod would also take hexadecimal ones.
  if (unsigned_part.empty() || unsigned_part.find_first_not_of("0123456789.e+-") != std::string_view::npos)
    return std::nullopt;
  if (unsigned_part[0] == '+' || unsigned_part[0] == '-') return std::nullopt;
  char* end = nullptr;
  const double d = std::strtod(low.c_str(), &end);
  if (end != low.c_str() + low.size()) return std::nullopt;
  return d;
}

struct Unit {
  std::string_view suffix;  // upper case
  double factor;
  bool decimal;
};
constexpr Unit kUnits[] = {{"GIB", 1073741824.0, false},
                           {"MIB", 1048576.0, false},
                           {"KIB", 1024.0, false},
                           {"GB", 1e9, true},
                           {"MB", 1e6, true},
                           {"KB", 1e3, true}};

const Number* at_index(const Budgets& b, int64_t index) { return b.find(DeviceName::accelerator(index)); }

Raised key_error(int64_t index) {
  return {"KeyError",
          fmt::format("balanced_low_0 looks up accelerators by position and finds no accelerator {}", index)};
}

// accelerate's "block": per no-split class the first module of that class in the size table (3.2).
Number first_block_of_each_class(const Model& model) {
  if (model.no_split().empty()) return {};
  const std::unordered_set<std::string> wanted(model.no_split().begin(), model.no_split().end());
  std::unordered_set<int32_t> seen;
  std::optional<Number> most;
  for (const int32_t i : model.sized_order()) {
    const Item& item = model.item(i);
    if (i == 0 || !item.is_module() || !item.is_block || !seen.insert(item.class_id).second) continue;
    most = most ? max_of(*most, item.size) : item.size;
    if (seen.size() == wanted.size()) break;
  }
  return most.value_or(Number());
}

// accelerate's layer statistic: int(mean) over modules with sized tensors and no sized child module.
Number mean_of_final_modules(const Model& model) {
  Number sum;
  int64_t count = 0;
  for (const int32_t i : model.sized_order()) {
    const Item& item = model.item(i);
    if (i == 0 || !item.is_module()) continue;
    if (std::any_of(item.modules.begin(), item.modules.end(), [&](int32_t c) { return model.item(c).sized; })) continue;
    sum += item.size;
    ++count;
  }
  return Number::real(sum.as_double() / static_cast<double>(std::max<int64_t>(count, 1))).truncated();
}

// Transformers' block: every module that must stay whole counts.
Outcome<Number> largest_block(const Model& model) {
  std::optional<Number> most;
  if (model.no_split().empty()) return Number();
  for (const int32_t m : model.named_modules())
    if (model.item(m).is_block) most = most ? max_of(*most, model.item(m).size) : model.item(m).size;
  if (most) return *most;
  return Raised{"ValueError", fmt::format("no module of the classes that must stay whole ({}) exists in the model",
                                          fmt::join(model.no_split(), ", "))};
}

// Transformers' layer statistic: over the bytes each module owns directly, the largest or, before #47211, int(mean).
Number own_bytes(const Model& model, bool largest) {
  Number most, sum;
  int64_t count = 0;
  for (const Item& item : model.items()) {
    if (!item.is_module() || !item.owns_sized) continue;
    most = max_of(most, item.own);
    sum += item.own;
    ++count;
  }
  if (largest) return most;
  return Number::real(sum.as_double() / static_cast<double>(std::max<int64_t>(count, 1))).truncated();
}

}  // namespace

Number* Budgets::find(const DeviceName& device) {
  for (auto& [name, bytes] : entries)
    if (name == device) return &bytes;
  return nullptr;
}
const Number* Budgets::find(const DeviceName& device) const { return const_cast<Budgets*>(this)->find(device); }

std::optional<Mode> mode_from_name(std::string_view name) {
  if (name == "auto" || name == "balanced") return Mode::kBalanced;
  if (name == "balanced_low_0") return Mode::kBalancedLow0;
  if (name == "sequential") return Mode::kSequential;
  return std::nullopt;
}

Outcome<Number> parse_memory_text(std::string_view text) {
  const Raised refused{
      "ValueError",
      fmt::format("memory size {} is not in a form the library takes: 18GiB, 512MiB, 10GB, 100KB", quoted(text))};
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c & ~0x20);
  for (const Unit& unit : kUnits) {
    if (!upper.ends_with(unit.suffix)) continue;
    const auto number = python_float(text.substr(0, text.size() - unit.suffix.size()));
    if (!number) return refused;
    const double bytes = *number * unit.factor;
    if (std::isnan(bytes)) return refused;
    if (std::isinf(bytes)) return Raised{"OverflowError", fmt::format("memory size {} is infinite", quoted(text))};
    // Beyond 10^30 bytes nothing changes any more; the limit keeps sums inside 128 bits.
    Number whole = Number::real(std::clamp(bytes, -1e30, 1e30)).truncated();
    if (unit.decimal && text.ends_with('b')) whole = whole.floor_divided_by(8);  // "gb": gigabits
    if (whole < Number()) return refused;
    return whole;
  }
  return refused;
}

Result<std::vector<MemoryEntry>> memory_entries_from_json(JsonView object) {
  if (!object.is_object())
    return Error(
        ErrorCode::kInvalidArgument,
        fmt::format("max_memory must be an object from devices to bytes, found {}", json_type_name(object.type())));
  std::vector<MemoryEntry> out;
  for (JsonView::Cursor c(object); c.next();) {
    const JsonView v = c.value();
    MemoryEntry e;
    e.key = std::string(c.key());
    if (const auto n = v.as_int64())
      e.value = Number::whole(*n);
    else if (const auto u = v.as_uint64())
      e.value = Number::whole(static_cast<Wide>(*u));
    else if (const auto d = v.as_double())
      e.value = Number::real(*d);
    else if (const auto b = v.as_bool())
      e.value = Number::whole(*b ? 1 : 0);
    else if (const auto s = v.as_string())
      e.value = std::string(*s);
    else
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("max_memory of {} must be bytes or a text like \"18GiB\", found {}", quoted(e.key),
                               json_type_name(v.type())));
    out.push_back(std::move(e));
  }
  return out;
}

std::vector<std::string> max_memory_notes(const std::vector<MemoryEntry>& entries) {
  std::vector<std::string> out;
  for (const MemoryEntry& e : entries) {
    const auto* text = std::get_if<std::string>(&e.value);
    if (text == nullptr || !text->ends_with("b")) continue;
    const auto parsed = parse_memory_text(*text);
    const auto as_bytes = parse_memory_text(text->substr(0, text->size() - 1) + "B");
    if (raised(parsed) || raised(as_bytes) || std::get<Number>(parsed) == std::get<Number>(as_bytes)) continue;
    out.push_back(fmt::format("max_memory of {}: the library reads {} as bits, {} bytes; write {} for bytes.", e.key,
                              quoted(*text), std::get<Number>(parsed).text(),
                              quoted(text->substr(0, text->size() - 1) + "B")));
  }
  return out;
}

Outcome<Budgets> read_max_memory(const std::vector<MemoryEntry>& entries) {
  Budgets out;
  for (const MemoryEntry& e : entries) {
    Number bytes;
    if (const auto* text = std::get_if<std::string>(&e.value)) {
      auto parsed = parse_memory_text(*text);
      if (raised(parsed)) return std::get<Raised>(parsed);
      bytes = std::get<Number>(parsed);
    } else {
      bytes = std::get<Number>(e.value);
    }
    const DeviceName device = DeviceName::from_key(e.key);
    if (!device.index() && device != DeviceName::mps() && !device.is_cpu() && !device.is_disk())
      return Raised{"ValueError",
                    fmt::format("device {} in max_memory is not recognized: numbers, \"mps\", \"cpu\" and \"disk\" are",
                                quoted(e.key))};
    if (Number* old = out.find(device))
      *old = bytes;  // "1" and "01"
    else
      out.entries.emplace_back(device, bytes);
  }
  std::sort(out.entries.begin(), out.entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

Budgets default_max_memory(Library library, const std::vector<uint64_t>& free_bytes, uint64_t available_ram) {
  Budgets out;
  for (size_t i = 0; i < free_bytes.size(); ++i)
    out.entries.emplace_back(DeviceName::accelerator(static_cast<int64_t>(i)),
                             Number::whole(static_cast<Wide>(free_bytes[i])));
  const Number ram = Number::whole(static_cast<Wide>(available_ram));
  out.entries.emplace_back(DeviceName::cpu(), library == Library::kTransformers ? ram * Number::real(0.90) : ram);
  return out;
}

Outcome<Budgets> balanced_memory(const Model& model, const Budgets& budgets, bool low_zero, bool unset,
                                 Revision revision) {
  const bool hf = model.library() == Library::kTransformers;
  Budgets out = budgets;
  int64_t devices = 0;
  for (const auto& [name, bytes] : out.entries) {
    if (!hf && name.is_disk())
      return Raised{
          "RuntimeError",
          "accelerate asks torch for a device called \"disk\"; it cannot balance with \"disk\" in max_memory"};
    const bool counts = hf ? name.is_accelerator() : name.index().has_value();
    devices += counts && bytes > Number();
  }
  if (devices == 0) return out;
  if (devices == 1) {
    low_zero = false;
    if (unset)
      for (auto& [name, bytes] : out.entries)
        if (name.index()) {
          bytes = bytes * Number::real(0.9);
          break;
        }
  }
  const Number total = model.root().size;
  Number per = total.floor_divided_by(low_zero ? devices - 1 : devices);
  Number block, layer;
  if (hf && revision != Revision::kBefore47203) {
    auto largest = largest_block(model);
    if (raised(largest)) return std::get<Raised>(std::move(largest));
    block = std::get<Number>(largest);
  } else {
    block = first_block_of_each_class(model);
  }
  layer = !hf ? mean_of_final_modules(model) : own_bytes(model, revision == Revision::kCurrent);
  per += (Number::real(1.25) * max_of(block, layer)).truncated();
  std::vector<int64_t> ids;
  for (const auto& [name, bytes] : out.entries)
    if (name.index() && bytes > Number()) ids.push_back(*name.index());
  std::sort(ids.begin(), ids.end());
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    Number& bytes = *out.find(DeviceName::accelerator(ids[i]));
    bytes = min_of(low_zero && ids[i] == 0 ? bytes : per, bytes);
  }
  if (low_zero) {
    Number others;  // by position, not by id, as in the libraries
    for (int64_t j = 1; j < devices; ++j) {
      const Number* bytes = at_index(out, j);
      if (bytes == nullptr) return key_error(j);
      others += *bytes;
    }
    Number* first = out.find(DeviceName::accelerator(0));
    if (first == nullptr) return key_error(0);
    *first = min_of(max_of(Number(), total - others), *first);
  }
  return out;
}

}  // namespace berth::plan::compat
