// plan/strategies/compat_model.h — a module tree as the libraries' planners walk it: objects, names, counted sizes.
//
// Module and tensor *objects* may have several names (a module under two paths; for accelerate also tied parameters);
// the libraries visit each object once, at its first name, and other names count 0. Transformers plans before tying:
// there a tie's target is skipped by name. Section numbers are those of docs/device_maps.md.
//
// Start reading at: Model::build, then Item.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/module.h"
#include "berth/base/result.h"
#include "berth/plan/strategies/compat_number.h"

namespace berth::plan::compat {

enum class Library { kTransformers, kAccelerate };
std::string_view library_name(Library library);  // "transformers", "accelerate"

enum class Quantizer {
  kNone,
  kBitsandbytes,  // 4 or 8 bit: Linear4bit counts 0.5 and Linear8bitLt 1 byte an element, their bias its own
  kOther,         // fp8, mxfp4...: SizeRules::counted_width says what it counts
};

// What an element of each tensor counts.
struct SizeRules {
  Library library = Library::kTransformers;
  bool built_as_f32 = false;               // take the types the tree has when built in float32
  Quantizer quantizer = Quantizer::kNone;  // Transformers only
  std::function<std::optional<Number>(std::string_view)> counted_width;  // Transformers; by tensor path; may be empty
  std::optional<DType> dtype;                                            // accelerate's `dtype`
  std::map<std::string, DType, std::less<>> special_dtypes;              // accelerate's, by full tensor name
};

// One name: of a module, a parameter or a buffer.
struct Item {
  enum class Kind : uint8_t { kModule, kParameter, kBuffer };
  std::string path;
  Kind kind = Kind::kModule;
  bool repeated = false;     // the same object stands earlier in the same parent: named_children() leaves it out
  bool is_block = false;     // a module whose class is in the no-split list
  bool sized = false;        // the library's size table has this name
  bool any_buffers = false;  // modules: some buffer stands in the subtree
  bool owns_sized = false;   // modules but the root: some tensor directly in it was counted here
  int32_t object = 0;        // module or tensor object
  int32_t class_id = -1;     // modules: index into Model::classes()
  Number size;               // bytes counted under this name; 0 where not sized
  Number own;                // modules: bytes of the tensors directly in it that were counted here
  std::vector<int32_t> parameters, buffers, modules;  // items, in definition order

  bool is_module() const { return kind == Kind::kModule; }
};

class Model {
 public:
  // `no_split` overrides the tree's list. Errors: kUnsupported where second names multiply to over two million paths
  // or the tree is over 1000 deep or holds over 2^50 bytes (up to there every count is an exact double).
  static Result<Model> build(const arch::ModuleTree& tree, const SizeRules& rules,
                             const std::vector<std::string>& no_split);

  const std::vector<Item>& items() const { return items_; }
  const Item& item(int32_t i) const { return items_[static_cast<size_t>(i)]; }
  const Item& root() const { return items_[0]; }
  const std::vector<std::string>& classes() const { return classes_; }
  const std::vector<std::string>& no_split() const { return no_split_; }
  Library library() const { return library_; }

  // Names in the order in which they first got bytes (2.1): parameters depth first, then buffers.
  const std::vector<int32_t>& sized_order() const { return sized_order_; }
  // Groups of parameter names that share one tensor, each sorted (2.4).
  const std::vector<std::vector<std::string>>& tied_groups() const { return tied_groups_; }

  // named_children() of a module, and its direct tensors, each object once.
  std::vector<int32_t> children(int32_t module) const { return first_of(item(module).modules); }
  std::vector<int32_t> direct_parameters(int32_t module) const { return first_of(item(module).parameters); }
  std::vector<int32_t> direct_buffers(int32_t module) const { return first_of(item(module).buffers); }
  bool has_children(int32_t module) const { return !item(module).modules.empty(); }
  // All parameters (or buffers) of a subtree, each module and tensor object once, in traversal order.
  std::vector<int32_t> all_tensors(int32_t module, Item::Kind kind) const;
  // Bytes of all buffers under a module (2.1: compute_module_total_buffer_size).
  Number buffer_bytes(int32_t module) const;
  // Every module name of the tree, each object once (named_modules).
  std::vector<int32_t> named_modules() const;

 private:
  friend class ModelBuilder;
  std::vector<int32_t> first_of(const std::vector<int32_t>& all) const;

  Library library_ = Library::kTransformers;
  std::vector<Item> items_;
  std::vector<Number> tensor_bytes_;  // by item: what this name's tensor counts (0 for modules)
  std::vector<std::string> classes_, no_split_;
  std::vector<int32_t> sized_order_;
  std::vector<std::vector<std::string>> tied_groups_;
  int32_t objects_ = 0;
};

}  // namespace berth::plan::compat
