// engine/skipped_parts.cc — see skipped_parts.h.
#include "berth/engine/skipped_parts.h"

#include <set>

#include "berth/arch/module.h"
#include "berth/tensor/dtype.h"

namespace berth::engine {
namespace {

class Finder {
 public:
  explicit Finder(const OpenedModel& model) : model_(model) {
    for (const arch::TensorSpec& t : model.spec().tensors) {
      for (std::string path = t.module;; path.resize(path.rfind('.'))) {
        read_.insert(path);
        if (path.find('.') == std::string::npos) break;
      }
      read_.insert("");
    }
    for (const arch::QuantizeDecision& d : model.quantize_rules.decisions)
      if (d.replaced) replaced_.insert(d.path);
  }

  std::vector<SkippedPart> find() {
    visit("", model_.description.tree.root);
    return std::move(parts_);
  }

 private:
  void visit(const std::string& path, const arch::Module& module) {
    if (!module.same_as.empty()) return;
    if (!read_.contains(path)) {
      SkippedPart part;
      part.path = path;
      add(path, module, part);
      if (part.parameters > 0) parts_.push_back(std::move(part));
      return;
    }
    for (const arch::Module& child : module.children) visit(arch::join_path(path, child.name), child);
  }

  void add(const std::string& path, const arch::Module& module, SkippedPart& part) const {
    if (!module.same_as.empty()) return;
    for (const arch::Parameter& p : module.parameters)
      add(part, p.shape, p.dtype, p.name == "weight" && replaced_.contains(path));
    for (const arch::Buffer& b : module.buffers)
      if (b.persistent) add(part, b.shape, b.dtype, false);
    for (const arch::Module& child : module.children) add(arch::join_path(path, child.name), child, part);
  }

  void add(SkippedPart& part, const Shape& shape, DType dtype, bool replaced) const {
    const uint64_t elements = element_count(shape).value_or(0), bytes = dtype_bytes(dtype, elements).value_or(0);
    part.parameters += elements;
    part.built_bytes += bytes;
    uint64_t held = bytes;
    if (replaced && model_.quantize_to && shape.size() == 2)
      if (const auto layout = quant::packed_layout(*model_.quantize_to, shape[0], shape[1])) held = layout->total_bytes;
    part.transformers_bytes += held;
  }

  const OpenedModel& model_;
  std::set<std::string> read_, replaced_;  // modules of the text model and what contains them; 4-bit and 8-bit ones
  std::vector<SkippedPart> parts_;
};

}  // namespace

std::vector<SkippedPart> skipped_parts(const OpenedModel& model) {
  if (model.tree_bytes) return {};  // nothing of a bare tree is read, or all of it
  return Finder(model).find();
}

}  // namespace berth::engine
