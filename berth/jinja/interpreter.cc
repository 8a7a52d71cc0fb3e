#include "berth/jinja/interpreter.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"

namespace berth::jinja {
namespace {

constexpr size_t kMaxDepth = 900;  // nested evaluations and calls, as Python has a recursion limit

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

bool is_constant(const Expression& e) {
  if (e.kind == ExpressionKind::kName || e.kind == ExpressionKind::kCall || e.kind == ExpressionKind::kFilter)
    return false;
  return std::all_of(e.items.begin(), e.items.end(), [](const auto& i) { return !i || is_constant(*i); });
}

std::string object_type(const Value& v) { return v.is_none() ? "None" : v.type_name() + " object"; }

}  // namespace

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

Result<Value> make_namespace(Interpreter& interpreter, Dict values) {
  return interpreter.make<Namespace>(std::move(values));
}

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

std::optional<Value> LoopObject::attribute(std::string_view name) const {
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

namespace {

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

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s; s = s->parent_.get())
    for (const auto& [key, value] : s->values_)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : values_)
    if (key == name) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(std::string(name), std::move(value));
}

Interpreter::Interpreter(const Dict& variables, const RenderOptions& options)
    : variables_(variables), options_(options), scope_(std::make_shared<Scope>(nullptr)) {}

Result<std::string> Interpreter::render(const Body& body) {
  std::string text;
  const auto run = [&]() -> Status {
    TRY(globals_, make_globals(*this));
    out_ = &text;
    TRY_STATUS(execute(body));
    return {};
  };
  if (auto status = run(); !status) {
    Error error = status.error();
    const std::string where = "line " + std::to_string(error_line_) + " of the chat template";
    if (raised_) return error.with_hint("Raised by " + where + ".");
    error.message = "in " + where + ": " + error.message;
    return error;
  }
  return text;
}

Error Interpreter::raised(std::string message) {
  raised_ = true;
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status Interpreter::charge(size_t bytes) {
  if (bytes > options_.max_bytes - std::min(options_.max_bytes, bytes_))
    return Error(ErrorCode::kUnsupported, "expected to make at most " + std::to_string(options_.max_bytes) +
                                              " bytes while rendering, found more");
  bytes_ += bytes;
  return {};
}

Status Interpreter::work(size_t units) {
  steps_ += units;
  if (steps_ > options_.max_steps)
    return Error(ErrorCode::kUnsupported,
                 "expected to end within " + std::to_string(options_.max_steps) + " steps, found no end");
  return {};
}

Result<Values> Interpreter::iterate(const Value& value) {
  if (value.is_undefined()) return Values();
  if (value.is_text()) {
    TRY_STATUS(charge(value.as_text().size() * sizeof(Value)));
    TRY_STATUS(work(value.as_text().size()));
    return characters_of(value.as_text());
  }
  if (value.is_dict()) {
    TRY_STATUS(charge(value.as_dict().items.size() * sizeof(Value)));
    TRY_STATUS(work(value.as_dict().items.size()));
    Values keys;
    for (const auto& [key, v] : value.as_dict().items) keys.push_back(key);
    return keys;
  }
  if (value.is_sequence()) {
    const Sequence& s = value.as_sequence();
    TRY_STATUS(charge(s.items.size() * sizeof(Value)));
    TRY_STATUS(work(s.items.size()));
    if (s.kind == SequenceKind::kGenerator && std::exchange(s.consumed, true)) return Values();
    return s.items;
  }
  return type_error("'" + value.type_name() + "' object is not iterable");
}

Result<bool> Interpreter::equal(const Value& a, const Value& b) {
  TRY_STATUS(work(std::min(a.weight(), b.weight())));
  return a.equals(b);
}

Result<bool> Interpreter::contains(const Value& container, const Value& element) {
  if (container.is_undefined()) return false;
  if (container.is_text()) {
    if (!element.is_text())
      return type_error("'in <string>' requires string as left operand, not " + element.type_name());
    TRY_STATUS(work(container.weight()));
    return container.as_text().find(element.as_text()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!hashable(element)) return type_error("unhashable type: '" + element.type_name() + "'");
    TRY_STATUS(work(element.is_text() ? 1 : container.as_dict().items.size()));
    return container.as_dict().find(element) != nullptr;
  }
  if (container.is_sequence()) {
    TRY(const Values items, iterate(container));
    for (const Value& v : items) {
      TRY(const bool same, equal(v, element));
      if (same) return true;
    }
    return false;
  }
  return type_error("argument of type '" + container.type_name() + "' is not iterable");
}

Result<Value> Interpreter::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) return Error(ErrorCode::kInvalidArgument, object.undefined_message());
  TRY(auto method, find_method(*this, object, name));
  if (method) return *std::move(method);
  if (object.is_object())
    if (auto value = object.as_object()->attribute(name)) return *std::move(value);
  if (object.is_dict())
    if (const Value* value = object.as_dict().find(std::string_view(name))) return *value;
  return Value::undefined("'" + object_type(object) + "' has no attribute " + text_repr(name));
}

Result<Value> Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return Error(ErrorCode::kInvalidArgument, object.undefined_message());
  if (object.is_dict() && hashable(key)) {
    if (!key.is_text()) TRY_STATUS(work(object.as_dict().items.size()));
    if (const Value* value = object.as_dict().find(key)) return *value;
  }
  if (const auto n = key.integer()) {
    const auto at = [&](size_t size) -> std::optional<size_t> {
      const Integer i = *n < 0 ? *n + static_cast<Integer>(size) : *n;
      if (i < 0 || i >= static_cast<Integer>(size)) return std::nullopt;
      return static_cast<size_t>(i);
    };
    if (object.is_sequence() && object.as_sequence().indexable()) {
      const Values& items = object.as_sequence().items;
      if (const auto i = at(items.size())) return items[*i];
    } else if (object.is_text()) {
      const std::string& text = object.as_text();
      TRY_STATUS(work(object.weight()));
      if (const auto i = at(count_code_points(text))) {
        size_t begin = 0;
        for (size_t k = 0; k < *i; ++k) decode_utf8(text, begin);
        size_t end = begin;
        decode_utf8(text, end);
        return Value(text.substr(begin, end - begin));
      }
    }
  }
  if (key.is_text()) {
    TRY(auto method, find_method(*this, object, key.as_text()));
    if (method) return *std::move(method);
    if (object.is_object())
      if (auto value = object.as_object()->attribute(key.as_text())) return *std::move(value);
    return Value::undefined("'" + object_type(object) + "' has no attribute " + text_repr(key.as_text()));
  }
  return Value::undefined("'" + object_type(object) + "' has no element " + key.repr());
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return Error(ErrorCode::kInvalidArgument, callee.undefined_message());
  if (!callee.is_object() || !callee.as_object()->callable())
    return type_error("'" + callee.type_name() + "' object is not callable");
  return callee.as_object()->call(*this, std::move(arguments));
}

Result<Value> Interpreter::filter(const std::string& name, const Value& input, Arguments arguments) {
  const FilterFunction f = find_filter(name);
  if (!f) return Error(ErrorCode::kInvalidArgument, "No filter named " + quoted(name, 60) + ".");
  return f(*this, input, std::move(arguments));
}

Result<bool> Interpreter::test(const std::string& name, const Value& input, Arguments arguments) {
  const TestFunction f = find_test(name);
  if (!f) return Error(ErrorCode::kInvalidArgument, "No test named " + quoted(name, 60) + ".");
  return f(*this, input, std::move(arguments));
}

Result<Value> Interpreter::call_macro(const MacroDefinition& m, const std::shared_ptr<Scope>& defined_in,
                                      Arguments arguments) {
  auto scope = std::make_shared<Scope>(defined_in);
  const size_t n = m.parameters.size();
  std::vector<std::optional<Value>> bound(n);
  for (size_t i = 0; i < n && i < arguments.positional.size(); ++i) bound[i] = arguments.positional[i];
  Dict extra;
  Value caller = Value::undefined("No caller defined");
  for (auto& [name, value] : arguments.named) {
    const auto at =
        static_cast<size_t>(std::find(m.parameters.begin(), m.parameters.end(), name) - m.parameters.begin());
    if (at < n) {
      if (bound[at]) return type_error("macro '" + m.name + "' got multiple values for argument '" + name + "'");
      bound[at] = std::move(value);
    } else if (name == "caller" && m.uses_caller) {
      caller = std::move(value);
    } else if (m.uses_kwargs) {
      extra.set(name, std::move(value));
    } else {
      return type_error("macro '" + m.name + "' takes no keyword argument '" + name + "'");
    }
  }
  Values rest;
  if (arguments.positional.size() > n) {
    if (!m.uses_varargs)
      return type_error("macro '" + m.name + "' takes not more than " + std::to_string(n) + " argument(s)");
    rest.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(n), arguments.positional.end());
  }
  const auto outer_scope = std::exchange(scope_, scope);
  const bool outer_escape = std::exchange(autoescape_, autoescape_);
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const auto run = [&]() -> Status {
    if (m.uses_caller) scope->set("caller", std::move(caller));
    if (m.uses_kwargs) scope->set("kwargs", Dict::make(std::move(extra)));
    if (m.uses_varargs) scope->set("varargs", Sequence::tuple(std::move(rest)));
    for (size_t i = 0; i < n; ++i) {
      if (!bound[i] && i + m.defaults.size() >= n) {
        TRY(bound[i], evaluate(*m.defaults[i + m.defaults.size() - n]));
      }
      scope->set(m.parameters[i], bound[i] ? *std::move(bound[i])
                                           : Value::undefined("parameter '" + m.parameters[i] + "' was not provided"));
    }
    TRY_STATUS(execute(m.body));
    return {};
  };
  auto status = run();
  scope_ = outer_scope;
  autoescape_ = outer_escape;
  out_ = out;
  if (!status) return status.error();
  return autoescape_ ? Value::markup(std::move(text)) : Value(std::move(text));
}

// --- expressions ---

Result<Value> Interpreter::look_up(const std::string& name) {
  if (const Value* v = scope_->find(name)) return *v;
  if (const Value* v = variables_.find(std::string_view(name))) return *v;
  for (const auto& [key, value] : globals_)
    if (key == name) return value;
  return Value::undefined("'" + name + "' is undefined");
}

Result<Value> Interpreter::evaluate(const Expression& e) {
  if (depth_ >= kMaxDepth) {
    locate(e.line);
    return Error(ErrorCode::kUnsupported, "expected at most 900 nested evaluations, found more (endless recursion?)");
  }
  ++depth_;
  auto status = work(1);
  auto value = status ? evaluate_kind(e) : Result<Value>(status.error());
  --depth_;
  if (value && (value->nesting() > kMaxNesting || value->weight() > kMaxWeight))
    value = Error(ErrorCode::kUnsupported, "expected a value of at most 200 levels and 4194304 elements, found more");
  if (!value) locate(e.line);
  return value;
}

Result<Arguments> Interpreter::evaluate_arguments(const Expression& e) {
  Arguments a;
  for (size_t i = 1; i < e.items.size(); ++i) {
    TRY(Value v, evaluate(*e.items[i]));
    a.positional.push_back(std::move(v));
  }
  for (const auto& [name, expression] : e.named) {
    TRY(Value v, evaluate(*expression));
    a.named.emplace_back(name, std::move(v));
  }
  if (e.star) {
    TRY(const Value star, evaluate(*e.star));
    TRY(const Values items, iterate(star));
    a.positional.insert(a.positional.end(), items.begin(), items.end());
  }
  if (e.star_star) {
    TRY(const Value mapping, evaluate(*e.star_star));
    if (!mapping.is_dict()) return type_error("argument after ** must be a mapping, not " + mapping.type_name());
    for (const auto& [key, value] : mapping.as_dict().items) {
      if (!key.is_text()) return type_error("keywords must be strings");
      a.named.emplace_back(key.as_text(), value);
    }
  }
  return a;
}

Result<Value> Interpreter::evaluate_filter(const Expression& e, std::optional<Value> input) {
  // The innermost filter of a filter block takes the block's text.
  Value value;
  if (!e.items[0]) {
    value = *std::move(input);
  } else if (input && e.items[0]->kind == ExpressionKind::kFilter) {
    TRY(value, evaluate_filter(*e.items[0], std::move(input)));
  } else {
    TRY(value, evaluate(*e.items[0]));
  }
  TRY(Arguments arguments, evaluate_arguments(e));
  auto result = filter(e.name, value, std::move(arguments));
  if (!result) locate(e.line);
  return result;
}

Result<Value> Interpreter::evaluate_kind(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.value;
    case ExpressionKind::kName:
      return look_up(e.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      Values items;
      for (const auto& i : e.items) {
        TRY(Value v, evaluate(*i));
        items.push_back(std::move(v));
      }
      TRY_STATUS(charge(items.size() * sizeof(Value)));
      return Sequence::make(e.kind == ExpressionKind::kList ? SequenceKind::kList : SequenceKind::kTuple,
                            std::move(items));
    }
    case ExpressionKind::kDict: {
      Dict dict;
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        TRY(Value key, evaluate(*e.items[i]));
        TRY(Value value, evaluate(*e.items[i + 1]));
        if (!hashable(key)) return type_error("unhashable type: '" + key.type_name() + "'");
        TRY_STATUS(charge(4 * sizeof(Value)));
        dict.set(std::move(key), std::move(value));
      }
      return Dict::make(std::move(dict));
    }
    case ExpressionKind::kAttribute: {
      TRY(const Value object, evaluate(*e.items[0]));
      return attribute(object, e.name);
    }
    case ExpressionKind::kItem: {
      TRY(const Value object, evaluate(*e.items[0]));
      if (e.items[1]->kind == ExpressionKind::kSlice) return evaluate_slice_of(object, *e.items[0], *e.items[1]);
      TRY(const Value key, evaluate(*e.items[1]));
      return item(object, key);
    }
    case ExpressionKind::kSlice:
      return type_error("a slice stands outside of a subscript");
    case ExpressionKind::kCall: {
      TRY(const Value callee, evaluate(*e.items[0]));
      TRY(Arguments arguments, evaluate_arguments(e));
      return call(callee, std::move(arguments));
    }
    case ExpressionKind::kFilter:
      return evaluate_filter(e, std::nullopt);
    case ExpressionKind::kTest: {
      TRY(const Value value, evaluate(*e.items[0]));
      TRY(Arguments arguments, evaluate_arguments(e));
      TRY(const bool holds, test(e.name, value, std::move(arguments)));
      return Value(holds);
    }
    case ExpressionKind::kNot: {
      TRY(const Value v, evaluate(*e.items[0]));
      return Value(!v.truthy());
    }
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: {
      TRY(const Value v, evaluate(*e.items[0]));
      return binary_operator(*this, e.kind == ExpressionKind::kNegative ? "neg" : "pos", v, Value());
    }
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      TRY(Value left, evaluate(*e.items[0]));
      if (left.truthy() == (e.kind == ExpressionKind::kOr)) return left;
      return evaluate(*e.items[1]);
    }
    case ExpressionKind::kBinary: {
      TRY(const Value left, evaluate(*e.items[0]));
      TRY(const Value right, evaluate(*e.items[1]));
      return binary_operator(*this, e.name, left, right);
    }
    case ExpressionKind::kConcat: {
      std::string text;
      for (const auto& i : e.items) {
        TRY(const Value v, evaluate(*i));
        std::string part = v.text();
        if (autoescape_ && !v.is_safe()) part = html_escaped(part);
        TRY_STATUS(charge(part.size()));
        text += part;
      }
      return autoescape_ ? Value::markup(std::move(text)) : Value(std::move(text));
    }
    case ExpressionKind::kCompare:
      return evaluate_compare(e);
    case ExpressionKind::kConditional: {
      TRY(const Value condition, evaluate(*e.items[1]));
      if (condition.truthy()) return evaluate(*e.items[0]);
      if (e.items[2]) return evaluate(*e.items[2]);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
    }
  }
  return Value();
}

Result<bool> Interpreter::compare_op(const std::string& op, const Value& a, const Value& b) {
  if (op == "==" || op == "!=") {
    TRY(const bool same, equal(a, b));
    return same == (op == "==");
  }
  if (op == "in" || op == "not in") {
    TRY(const bool inside, contains(b, a));
    return inside == (op == "in");
  }
  TRY_STATUS(work(std::min(a.weight(), b.weight())));
  TRY(const int order, compare(a, b, op));
  if (order == 2) return false;
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Result<Value> Interpreter::evaluate_compare(const Expression& e) {
  TRY(Value left, evaluate(*e.items[0]));
  for (size_t i = 0; i < e.operators.size(); ++i) {
    TRY(Value right, evaluate(*e.items[i + 1]));
    TRY(const bool holds, compare_op(e.operators[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::evaluate_slice_of(const Value& object, const Expression& sliced, const Expression& slice) {
  Value bounds[3] = {None{}, None{}, None{}};
  for (size_t i = 0; i < 3; ++i)
    if (slice.items[i]) {
      TRY(bounds[i], evaluate(*slice.items[i]));
    }
  if (object.is_undefined()) return Error(ErrorCode::kInvalidArgument, object.undefined_message());
  const auto valid = [](const Value& v) { return v.is_none() || v.integer().has_value(); };
  const bool is_list = object.is_sequence() && object.as_sequence().indexable();
  // Jinja folds constants before it runs, and there what cannot be sliced is undefined.
  if (!object.is_text() && !is_list && is_constant(sliced))
    return Value::undefined("'" + object_type(object) + "' has no slice");
  if (!object.is_text() && !is_list) return type_error("'" + object.type_name() + "' object is not subscriptable");
  if (!valid(bounds[0]) || !valid(bounds[1]) || !valid(bounds[2]))
    return type_error("slice indices must be integers or None");
  if (is_list) {
    const Sequence& s = object.as_sequence();
    TRY(const auto indices, slice_indices(s.items.size(), bounds[0], bounds[1], bounds[2]));
    TRY_STATUS(charge(indices.size() * sizeof(Value)));
    TRY_STATUS(work(indices.size()));
    Values items;
    for (const size_t i : indices) items.push_back(s.items[i]);
    return Sequence::make(s.kind == SequenceKind::kTuple ? SequenceKind::kTuple : SequenceKind::kList,
                          std::move(items));
  }
  const std::string& text = object.as_text();
  TRY_STATUS(work(text.size() / 4));
  std::vector<size_t> starts;  // of the characters, and the end
  for (size_t i = 0; i < text.size(); decode_utf8(text, i)) starts.push_back(i);
  starts.push_back(text.size());
  TRY(const auto indices, slice_indices(starts.size() - 1, bounds[0], bounds[1], bounds[2]));
  std::string out;
  for (const size_t i : indices) out += text.substr(starts[i], starts[i + 1] - starts[i]);
  TRY_STATUS(charge(out.size()));
  return Value(std::move(out));
}

// --- statements ---

Status Interpreter::write_text(std::string_view text) {
  TRY_STATUS(charge(text.size()));
  if (text.size() > options_.max_output_bytes - std::min(options_.max_output_bytes, out_->size()))
    return Error(ErrorCode::kUnsupported,
                 "expected at most " + std::to_string(options_.max_output_bytes) + " bytes of output, found more");
  *out_ += text;
  return {};
}

Status Interpreter::write(const Value& value) {
  if (value.is_text() && (!autoescape_ || value.is_safe())) return write_text(value.as_text());
  TRY_STATUS(work(value.weight()));
  const std::string text = value.text();
  return write_text(autoescape_ && !value.is_safe() ? html_escaped(text) : text);
}

Result<std::string> Interpreter::captured(const Body& body) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const auto scope = std::exchange(scope_, std::make_shared<Scope>(scope_));
  auto flow = execute(body);
  out_ = out;
  scope_ = scope;
  if (!flow) return flow.error();
  return text;
}

Status Interpreter::assign(const Expression& target, Value value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->set(target.name, std::move(value));
    return {};
  }
  if (target.kind == ExpressionKind::kAttribute) {
    TRY(const Value object, look_up(target.items[0]->name));
    auto* ns = object.is_object() ? dynamic_cast<Namespace*>(object.as_object()) : nullptr;
    if (!ns) return type_error("cannot assign attribute on non-namespace object");
    if (target.name.starts_with('_'))
      return type_error("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
                        text_repr(target.name) + ". Please rename the attribute.");
    TRY_STATUS(charge(2 * sizeof(Value)));
    ns->set(target.name, std::move(value));
    return {};
  }
  TRY(const Values items, iterate(value));
  if (items.size() != target.items.size())
    return Error(ErrorCode::kInvalidArgument, (items.size() < target.items.size() ? "not enough" : "too many") +
                                                  std::string(" values to unpack (expected ") +
                                                  std::to_string(target.items.size()) + ", got " +
                                                  std::to_string(items.size()) + ")");
  for (size_t i = 0; i < items.size(); ++i) TRY_STATUS(assign(*target.items[i], items[i]));
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Body& body) {
  for (const auto& s : body) {
    if (depth_ >= kMaxDepth) {
      locate(s->line);
      return Error(ErrorCode::kUnsupported, "expected at most 900 nested calls, found more (endless recursion?)");
    }
    ++depth_;
    auto status = work(1);
    auto flow = status ? execute(*s) : Result<Flow>(status.error());
    --depth_;
    if (!flow) locate(s->line);
    if (!flow || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& s, const Value& iterated, size_t depth) {
  TRY(Values items, iterate(iterated));
  const ScopePtr outer = scope_;
  const auto restore = [&] { scope_ = outer; };
  if (s.expressions[1]) {
    Values kept;
    for (Value& v : items) {
      scope_ = std::make_shared<Scope>(outer);
      auto status = assign(*s.targets[0], v);
      auto condition = status ? evaluate(*s.expressions[1]) : Result<Value>(status.error());
      restore();
      if (!condition) return condition.error();
      if (condition->truthy()) kept.push_back(std::move(v));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scope_ = std::make_shared<Scope>(outer);
    auto flow = execute(s.otherwise);
    restore();
    return flow;
  }
  TRY(const Value loop_value, make<LoopObject>(s, outer, std::move(items), depth));
  auto* loop = static_cast<LoopObject*>(loop_value.as_object());
  TRY(loop->cycle, make<LoopCycle>(loop));
  TRY(loop->changed, make<LoopChanged>(loop));
  for (size_t i = 0; i < loop->items().size(); ++i) {
    TRY_STATUS(work(1));
    loop->move_to(i);
    scope_ = std::make_shared<Scope>(outer);
    scope_->set("loop", loop_value);
    auto status = assign(*s.targets[0], loop->items()[i]);
    auto flow = status ? execute(s.body) : Result<Flow>(status.error());
    restore();
    if (!flow) return flow;
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& s) {
  switch (s.kind) {
    case StatementKind::kText:
      TRY_STATUS(write_text(s.text));
      return Flow::kNext;
    case StatementKind::kOutput: {
      TRY(const Value v, evaluate(*s.expressions[0]));
      TRY_STATUS(write(v));
      return Flow::kNext;
    }
    case StatementKind::kIf: {
      TRY(const Value condition, evaluate(*s.expressions[0]));
      return execute(condition.truthy() ? s.body : s.otherwise);
    }
    case StatementKind::kFor: {
      TRY(const Value iterated, evaluate(*s.expressions[0]));
      return execute_for(s, iterated, 1);
    }
    case StatementKind::kSet: {
      TRY(Value v, evaluate(*s.expressions[0]));
      TRY_STATUS(assign(*s.targets[0], std::move(v)));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock: {
      TRY(std::string text, captured(s.body));
      Value value = autoescape_ ? Value::markup(std::move(text)) : Value(std::move(text));
      if (s.expressions[0]) {
        TRY(value, evaluate_filter(*s.expressions[0], std::move(value)));
      }
      TRY_STATUS(assign(*s.targets[0], std::move(value)));
      return Flow::kNext;
    }
    case StatementKind::kMacro: {
      TRY(const Value macro, make<Macro>(*s.macro, scope_));
      scope_->set(s.macro->name, macro);
      return Flow::kNext;
    }
    case StatementKind::kCallBlock: {
      TRY(const Value caller, make<Macro>(*s.macro, scope_));
      const Expression& e = *s.expressions[0];
      TRY(const Value callee, evaluate(*e.items[0]));
      TRY(Arguments arguments, evaluate_arguments(e));
      arguments.named.emplace_back("caller", caller);
      TRY(const Value v, call(callee, std::move(arguments)));
      TRY_STATUS(write(v));
      return Flow::kNext;
    }
    case StatementKind::kFilterBlock: {
      TRY(std::string text, captured(s.body));
      TRY(const Value v, evaluate_filter(*s.expressions[0], Value(std::move(text))));
      TRY_STATUS(write(v));
      return Flow::kNext;
    }
    case StatementKind::kWith: {
      const ScopePtr outer = scope_;
      auto inner = std::make_shared<Scope>(outer);
      for (size_t i = 0; i < s.targets.size(); ++i) {
        TRY(Value v, evaluate(*s.expressions[i]));
        scope_ = inner;
        auto status = assign(*s.targets[i], std::move(v));
        scope_ = outer;
        TRY_STATUS(status);
      }
      scope_ = inner;
      auto flow = execute(s.body);
      scope_ = outer;
      return flow;
    }
    case StatementKind::kAutoescape: {
      TRY(const Value on, evaluate(*s.expressions[0]));
      const bool before = std::exchange(autoescape_, on.truthy());
      const ScopePtr outer = std::exchange(scope_, std::make_shared<Scope>(scope_));
      auto flow = execute(s.body);
      autoescape_ = before;
      scope_ = outer;
      return flow;
    }
    case StatementKind::kScope: {
      const ScopePtr outer = std::exchange(scope_, std::make_shared<Scope>(scope_));
      auto flow = execute(s.body);
      scope_ = outer;
      return flow;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

}  // namespace berth::jinja
