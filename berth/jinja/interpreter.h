// jinja/interpreter.h — walks a parsed template and writes its text, within fixed limits.
//
// The sandbox: values only (value.h), no files, no imports, no attribute that starts with an underscore, no method that
// changes a list or dict. Every node, loop round and byte made is counted; a template that loops, recurses or repeats
// too much ends in an error, in bounded time and memory.
//
// Private to jinja/; callers use template.h. Start reading at: Interpreter::render.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"
#include "berth/jinja/ast.h"
#include "berth/jinja/template.h"
#include "berth/jinja/value.h"

namespace berth::jinja {

// Nested evaluations and statements, as Python has a recursion limit; it bounds the stack.
inline constexpr size_t kMaxDepth = 500;

// Variables of one block; looked up through its parents. Macros keep the scope they were defined in alive.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, Value>> values_;
};

class Interpreter {
 public:
  Interpreter(const Dict& variables, const RenderOptions& options);

  Result<std::string> render(const Body& body);

  // --- for filters, tests, methods and functions ---

  // Counts `bytes` about to be made. Errors: kUnsupported where the template has made too much.
  Status charge(size_t bytes);
  // Counts work that makes nothing: comparing or searching `units` elements.
  Status work(size_t units);
  // The elements of what can be iterated: texts give characters, dicts keys, undefined values nothing.
  Result<Values> iterate(const Value& value);
  Result<Value> attribute(const Value& object, const std::string& name);
  Result<Value> item(const Value& object, const Value& key);
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> filter(const std::string& name, const Value& input, Arguments arguments);
  Result<bool> test(const std::string& name, const Value& input, Arguments arguments);
  Result<bool> contains(const Value& container, const Value& element);
  Result<bool> equal(const Value& a, const Value& b);
  Result<bool> compare_op(const std::string& op, const Value& a, const Value& b);
  // Renders a macro's body with its parameters bound.
  Result<Value> call_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope, Arguments arguments);

  // An object that lives until rendering ends.
  template <typename T, typename... A>
  Result<Value> make(A&&... arguments) {
    if (auto status = charge(256); !status) return status.error();
    objects_.push_back(std::make_unique<T>(std::forward<A>(arguments)...));
    return Value(objects_.back().get());
  }
  // An error whose text the template wrote itself; it reaches the caller word for word.
  Error raised(std::string message);
  const RenderOptions& options() const { return options_; }
  bool autoescape() const { return autoescape_; }

 private:
  friend class LoopObject;
  enum class Flow { kNext, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  static std::string object_type(const Value& v);  // "dict object", for messages
  Result<Value> evaluate(const Expression& e);
  Result<Value> evaluate_kind(const Expression& e);
  Result<Value> evaluate_items(const Expression& e);
  Result<Value> evaluate_dict(const Expression& e);
  Result<Value> evaluate_item(const Expression& e);
  Result<Value> evaluate_call(const Expression& e);
  Result<Value> evaluate_test(const Expression& e);
  Result<Value> evaluate_unary(const Expression& e);
  Result<Value> evaluate_logical(const Expression& e);
  Result<Value> evaluate_binary(const Expression& e);
  Result<Value> evaluate_concat(const Expression& e);
  Result<Value> evaluate_conditional(const Expression& e);
  Result<Value> evaluate_compare(const Expression& e);
  Result<Value> evaluate_slice_of(const Value& object, const Expression& sliced, const Expression& slice);
  Result<Value> evaluate_filter(const Expression& e, std::optional<Value> input);
  Result<Arguments> evaluate_arguments(const Expression& e);
  Result<Value> look_up(const std::string& name);

  Result<Flow> execute(const Body& body);
  Result<Flow> execute(const Statement& s);
  Status execute_output(const Statement& s);
  Result<Flow> execute_if(const Statement& s);
  Status execute_set(const Statement& s);
  Status execute_call_block(const Statement& s);
  Status execute_filter_block(const Statement& s);
  Result<Flow> execute_with(const Statement& s);
  Result<Flow> execute_scope(const Statement& s);
  Result<Flow> execute_for(const Statement& s, const Value& iterated, size_t depth);
  Status write(const Value& value);
  Status write_text(std::string_view text);
  // Runs `body` in a scope of its own and returns what it wrote.
  Result<std::string> captured(const Body& body);
  Status assign(const Expression& target, Value value);

  // Sets where an error happened, once.
  void locate(uint32_t line) {
    if (error_line_ == 0) error_line_ = line;
  }

  const Dict& variables_;
  const RenderOptions& options_;
  std::vector<std::unique_ptr<Object>> objects_;
  std::vector<std::pair<std::string, Value>> globals_;
  ScopePtr scope_;
  std::string* out_ = nullptr;
  size_t steps_ = 0, bytes_ = 0, depth_ = 0;
  uint32_t error_line_ = 0;
  bool raised_ = false, autoescape_ = false;
};

}  // namespace berth::jinja
