// arch/builder.h — lays out a module tree and, beside it, the tensors the forward pass reads.
//
// A family walks its model once, in definition order: open() a module, add parameters, let the scope close it. Calls
// that name a Role also record a WantedTensor: which tensor of the engine that parameter is, its shape with the config
// keys behind each extent, and the forms it may have on disk. So names and shapes stand in one place for the tree, the
// loader and the messages. sources.h turns wanted tensors into recipes once a checkpoint is known.
//
// Start reading at: Builder, then decoder_parts.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "berth/arch/model_spec.h"
#include "berth/arch/module.h"

namespace berth::arch {

// One extent of a shape, and the config keys it follows from.
struct Dim {
  int64_t value = 0;
  std::string keys;
};

// One tensor on disk: its recipe source without what only the file can tell (dtype, storage), and its shape there.
struct WantedSource {
  std::string name;  // as the model in memory is called; sources.h knows the prefixes files have instead
  Shape shape;
  bool transposed = false;
  int64_t slice = -1;
  bool mxfp4 = false;   // `name` + "_blocks" and "_scales", [matrices, rows, cols/32(, 16)]
  bool column = false;  // segments pick elements: the source has as many rows, of one element each
};

// One form in which a tensor may lie on disk.
struct WantedForm {
  std::vector<WantedSource> sources;
  std::vector<Segment> segments;
};

struct WantedTensor {
  TensorSpec spec;  // recipe still empty, but for add_one
  Dim rows, cols;
  std::vector<WantedForm> forms;  // the published one first; all are looked for in this order
};

enum class StoredAs { kModelDtype, kF32, kI64, kC64 };  // what a parameter or buffer is built as

class Builder {
 public:
  // `dtype` is what the model is built in. `with_tensors` false: the tree only.
  Builder(DType dtype, bool with_tensors);

  // Closes its module when it goes out of scope.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(Builder* builder) : builder_(builder) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { builder_->close(); }

   private:
    Builder* builder_;
  };

  // Opens the root (first call, name "") or a child of the open module.
  Scope open(std::string_view name, std::string_view class_name);
  void leaf(std::string_view name, std::string_view class_name);  // a module without tensors
  void parameter(std::string_view name, Shape shape, StoredAs as = StoredAs::kModelDtype);
  void buffer(std::string_view name, Shape shape, StoredAs as, bool persistent);

  std::string path() const { return path_; }  // of the open module
  std::string path(std::string_view name) const { return join_path(path_, name); }

  // The open module holds the text model: files may call its prefix something else.
  void mark_base() { base_ = path_; }
  // The open module is the list of decoder layers.
  void mark_layers() { layers_ = path_; }
  void layer(int32_t index) { layer_ = index; }  // of the tensors to come; -1: the model itself
  int32_t layer() const { return layer_; }
  std::string layer_path() const { return join_path(layers_, std::to_string(layer_)); }  // "model.layers.3"

  // Records a tensor of the open module. Without forms it lies on disk as it does in memory.
  WantedTensor* want(Role role, TensorKind kind, std::string_view parameter, Dim rows, Dim cols, int32_t experts = 1);
  bool with_tensors() const { return with_tensors_; }

  // --- the usual modules; a role makes them tensors of the engine
  void linear(std::string_view name, const Dim& rows, const Dim& cols, bool bias, Role weight_role, Role bias_role);
  void linear(std::string_view name, const Dim& rows, const Dim& cols, Role weight_role);
  void linear(std::string_view name, int64_t rows, int64_t cols, bool bias);  // no role: towers
  // `norm.has_weight` false: a module without tensors.
  void norm(std::string_view name, std::string_view class_name, const Dim& size, const NormSpec& norm, Role weight_role,
            Role bias_role, bool add_one = false);
  void layer_norm(std::string_view name, int64_t size);                             // no role: towers
  void rms_norm(std::string_view name, std::string_view class_name, int64_t size);  // no role: towers
  // A vector parameter of the open module.
  void vector(std::string_view name, const Dim& size, Role role, StoredAs as = StoredAs::kModelDtype);

  ModuleTree& tree() { return tree_; }
  std::vector<WantedTensor>& wanted() { return wanted_; }
  const std::string& base() const { return base_; }
  const std::string& layers() const { return layers_; }

 private:
  friend class Scope;
  void close();
  DType built_dtype(std::string_view name) const;

  ModuleTree tree_;
  std::vector<Module*> open_;  // the root first; stable, since only the last one grows
  std::string path_, base_, layers_;
  std::vector<WantedTensor> wanted_;
  DType dtype_;
  bool with_tensors_;
  int32_t layer_ = -1;
};

}  // namespace berth::arch
