// jinja/objects.h — the interpreter's own objects: macros, namespaces, and `loop`. Private to jinja/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "berth/jinja/builtins.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {

class Macro final : public Object {
 public:
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro '" + definition_.name + "'>"; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override {
    return interpreter.call_macro(definition_, scope_, std::move(arguments));
  }
  std::optional<Value> attribute(std::string_view name) const override {
    if (name == "name") return Value(definition_.name);
    return std::nullopt;
  }

 private:
  const MacroDefinition& definition_;
  std::shared_ptr<Scope> scope_;
};

// namespace(): the one thing that templates may change.
class Namespace final : public Object {
 public:
  explicit Namespace(Dict values) : values_(std::move(values)) {}
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override {
    std::string out = "<Namespace {";
    for (const auto& [key, value] : values_.items) {
      if (out.back() != '{') out += ", ";
      out += key.repr() + ": " + (value.is_object() ? "<" + value.type_name() + ">" : value.repr());
    }
    return out + "}>";
  }
  bool callable() const override { return false; }
  Result<Value> call(Interpreter&, Arguments) override { return type_error("'Namespace' object is not callable"); }
  std::optional<Value> attribute(std::string_view name) const override {
    const Value* v = values_.find(name);
    return v ? std::optional(*v) : std::nullopt;
  }
  void set(const std::string& name, Value value) { values_.set(name, std::move(value)); }

 private:
  Dict values_;
};

// The variable `loop` of one run of a for statement.
class LoopObject final : public Object {
 public:
  LoopObject(const Statement& statement, std::shared_ptr<Scope> scope, Values items, size_t depth)
      : statement_(statement), scope_(std::move(scope)), items_(std::move(items)), depth_(depth) {}
  std::string type_name() const override { return "LoopContext"; }
  std::string repr() const override {
    return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
  }
  bool callable() const override { return statement_.recursive; }
  // loop(items) in a recursive loop: the loop again, over other items.
  Result<Value> call(Interpreter& in, Arguments arguments) override {
    if (!statement_.recursive) return type_error("The loop must have the 'recursive' marker to be called recursively.");
    TRY(const Bound a, bind("loop", arguments, {"iterable"}, 1));
    std::string text;
    std::string* const out = std::exchange(in.out_, &text);
    const auto scope = std::exchange(in.scope_, scope_);
    auto flow = in.execute_for(statement_, *a[0], depth_ + 1);
    in.out_ = out;
    in.scope_ = scope;
    if (!flow) return flow.error();
    return Value(std::move(text));
  }
  std::optional<Value> attribute(std::string_view name) const override;

  const Values& items() const { return items_; }
  void move_to(size_t index) { index_ = index; }
  std::optional<Value>& last_changed() { return last_changed_; }
  size_t index() const { return index_; }

  // Bound functions, made by the interpreter once per loop.
  Value cycle, changed;

 private:
  const Statement& statement_;
  std::shared_ptr<Scope> scope_;
  Values items_;
  size_t depth_, index_ = 0;
  std::optional<Value> last_changed_;
};

inline std::optional<Value> LoopObject::attribute(std::string_view name) const {
  const size_t n = items_.size();
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "revindex") return Value(n - index_);
  if (name == "revindex0") return Value(n - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == n);
  if (name == "length") return Value(n);
  if (name == "depth") return Value(depth_);
  if (name == "depth0") return Value(depth_ - 1);
  if (name == "previtem") return index_ > 0 ? items_[index_ - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem") return index_ + 1 < n ? items_[index_ + 1] : Value::undefined("there is no next item");
  if (name == "cycle") return cycle;
  if (name == "changed") return changed;
  return std::nullopt;
}

class LoopCycle final : public Object {
 public:
  explicit LoopCycle(const LoopObject* loop) : loop_(loop) {}
  std::string type_name() const override { return "method"; }
  Result<Value> call(Interpreter&, Arguments a) override {
    if (a.positional.empty()) return type_error("no items for cycling given");
    return a.positional[loop_->index() % a.positional.size()];
  }

 private:
  const LoopObject* loop_;
};

class LoopChanged final : public Object {
 public:
  explicit LoopChanged(LoopObject* loop) : loop_(loop) {}
  std::string type_name() const override { return "method"; }
  Result<Value> call(Interpreter& interpreter, Arguments a) override {
    Value now = Sequence::tuple(std::move(a.positional));
    if (loop_->last_changed()) {
      TRY(const bool same, interpreter.equal(*loop_->last_changed(), now));
      if (same) return Value(false);
    }
    loop_->last_changed() = std::move(now);
    return Value(true);
  }

 private:
  LoopObject* loop_;
};

}  // namespace berth::jinja
