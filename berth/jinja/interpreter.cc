#include "berth/jinja/interpreter.h"

#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/objects.h"

namespace berth::jinja {

// namespace(): used by globals.cc.
Result<Value> make_namespace(Interpreter& interpreter, Dict values) {
  return interpreter.make<Namespace>(std::move(values));
}

std::string Interpreter::object_type(const Value& v) { return v.is_none() ? "None" : v.type_name() + " object"; }

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

}  // namespace berth::jinja
