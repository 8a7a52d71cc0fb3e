// arch/builder.cc — see builder.h.
#include "berth/arch/builder.h"

#include <utility>

#include "berth/base/check.h"

namespace berth::arch {
namespace {

// Whether `part` ("norm", "gate.weight") occurs in `path` between dots.
bool has_part(std::string_view path, std::string_view part) {
  for (size_t at = path.find(part); at != std::string_view::npos; at = path.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
  }
  return false;
}

}  // namespace

Builder::Builder(DType dtype, bool with_tensors) : dtype_(dtype), with_tensors_(with_tensors) {}

Builder::Scope Builder::open(std::string_view name, std::string_view class_name) {
  Module* module = &tree_.root;
  if (!open_.empty()) {
    open_.back()->children.emplace_back();
    module = &open_.back()->children.back();
    path_ = join_path(path_, name);
  }
  module->name = std::string(name);
  module->class_name = std::string(class_name);
  open_.push_back(module);
  return Scope(this);
}

void Builder::close() {
  open_.pop_back();
  const size_t dot = path_.rfind('.');
  path_.resize(dot == std::string::npos || open_.empty() ? 0 : dot);
}

void Builder::leaf(std::string_view name, std::string_view class_name) { const Scope scope = open(name, class_name); }

DType Builder::built_dtype(std::string_view name) const {
  const std::string full = join_path(path_, name);
  if (dtype_ == DType::kF16)
    for (const std::string& part : tree_.keep_in_fp32)
      if (has_part(full, part)) return DType::kF32;
  if (dtype_ == DType::kF16 || dtype_ == DType::kBF16)
    for (const std::string& part : tree_.keep_in_fp32_strict)
      if (has_part(full, part)) return DType::kF32;
  return dtype_;
}

namespace {
DType fixed_dtype(StoredAs as, DType model_dtype) {
  switch (as) {
    case StoredAs::kModelDtype:
      return model_dtype;
    case StoredAs::kF32:
      return DType::kF32;
    case StoredAs::kI64:
      return DType::kI64;
    case StoredAs::kC64:
      return DType::kC64;
  }
  return model_dtype;
}
}  // namespace

void Builder::parameter(std::string_view name, Shape shape, StoredAs as) {
  open_.back()->parameters.push_back(
      {std::string(name), std::move(shape), fixed_dtype(as, built_dtype(name)), fixed_dtype(as, DType::kF32)});
}

void Builder::buffer(std::string_view name, Shape shape, StoredAs as, bool persistent) {
  open_.back()->buffers.push_back({std::string(name), std::move(shape), fixed_dtype(as, built_dtype(name)),
                                   fixed_dtype(as, DType::kF32), persistent});
}

WantedTensor* Builder::want(Role role, TensorKind kind, std::string_view parameter, Dim rows, Dim cols,
                            int32_t experts) {
  if (!with_tensors_) return nullptr;
  WantedTensor& w = wanted_.emplace_back();
  w.spec.role = role;
  w.spec.kind = kind;
  w.spec.layer = layer_;
  w.spec.module = path_;
  w.spec.name = path(parameter);
  w.spec.rows = rows.value;
  w.spec.cols = cols.value;
  w.spec.experts = experts;
  w.rows = std::move(rows);
  w.cols = std::move(cols);
  return &w;
}

void Builder::linear(std::string_view name, const Dim& rows, const Dim& cols, bool bias, Role weight_role,
                     Role bias_role) {
  const Scope scope = open(name, "Linear");
  parameter("weight", {rows.value, cols.value});
  want(weight_role, TensorKind::kMatrix, "weight", rows, cols);
  if (bias) vector("bias", rows, bias_role);
}

void Builder::linear(std::string_view name, const Dim& rows, const Dim& cols, Role weight_role) {
  linear(name, rows, cols, false, weight_role, weight_role);
}

void Builder::linear(std::string_view name, int64_t rows, int64_t cols, bool bias) {
  const Scope scope = open(name, "Linear");
  parameter("weight", {rows, cols});
  if (bias) parameter("bias", {rows});
}

void Builder::norm(std::string_view name, std::string_view class_name, const Dim& size, const NormSpec& norm,
                   Role weight_role, Role bias_role, bool add_one) {
  const Scope scope = open(name, class_name);
  if (!norm.has_weight) return;
  parameter("weight", {size.value});
  WantedTensor* w = want(weight_role, TensorKind::kVector, "weight", {1, ""}, size);
  if (w != nullptr) w->spec.recipe.add_one = add_one;
  if (norm.has_bias) vector("bias", size, bias_role);
}

void Builder::layer_norm(std::string_view name, int64_t size) {
  const Scope scope = open(name, "LayerNorm");
  parameter("weight", {size});
  parameter("bias", {size});
}

void Builder::rms_norm(std::string_view name, std::string_view class_name, int64_t size) {
  const Scope scope = open(name, class_name);
  parameter("weight", {size});
}

void Builder::vector(std::string_view name, const Dim& size, Role role, StoredAs as) {
  parameter(name, {size.value}, as);
  want(role, TensorKind::kVector, name, {1, ""}, size);
}

}  // namespace berth::arch
