// jinja/expressions.cc — the interpreter's way through an expression.
#include <algorithm>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/objects.h"

namespace berth::jinja {
namespace {

bool is_constant(const Expression& e) {
  if (e.kind == ExpressionKind::kName || e.kind == ExpressionKind::kCall || e.kind == ExpressionKind::kFilter)
    return false;
  return std::all_of(e.items.begin(), e.items.end(), [](const auto& i) { return !i || is_constant(*i); });
}

}  // namespace

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
    return Error(ErrorCode::kUnsupported, "expected at most 500 nested evaluations, found more (endless recursion?)");
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

Result<Value> Interpreter::evaluate_items(const Expression& e) {
  Values items;
  for (const auto& i : e.items) {
    TRY(Value v, evaluate(*i));
    items.push_back(std::move(v));
  }
  TRY_STATUS(charge(items.size() * sizeof(Value)));
  return Sequence::make(e.kind == ExpressionKind::kList ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
}

Result<Value> Interpreter::evaluate_dict(const Expression& e) {
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

Result<Value> Interpreter::evaluate_item(const Expression& e) {
  TRY(const Value object, evaluate(*e.items[0]));
  if (e.kind == ExpressionKind::kAttribute) return attribute(object, e.name);
  if (e.items[1]->kind == ExpressionKind::kSlice) return evaluate_slice_of(object, *e.items[0], *e.items[1]);
  TRY(const Value key, evaluate(*e.items[1]));
  return item(object, key);
}

Result<Value> Interpreter::evaluate_call(const Expression& e) {
  TRY(const Value callee, evaluate(*e.items[0]));
  TRY(Arguments arguments, evaluate_arguments(e));
  return call(callee, std::move(arguments));
}

Result<Value> Interpreter::evaluate_test(const Expression& e) {
  TRY(const Value value, evaluate(*e.items[0]));
  TRY(Arguments arguments, evaluate_arguments(e));
  TRY(const bool holds, test(e.name, value, std::move(arguments)));
  return Value(holds);
}

Result<Value> Interpreter::evaluate_unary(const Expression& e) {
  TRY(const Value v, evaluate(*e.items[0]));
  if (e.kind == ExpressionKind::kNot) return Value(!v.truthy());
  return binary_operator(*this, e.kind == ExpressionKind::kNegative ? "neg" : "pos", v, Value());
}

Result<Value> Interpreter::evaluate_logical(const Expression& e) {
  TRY(Value left, evaluate(*e.items[0]));
  if (left.truthy() == (e.kind == ExpressionKind::kOr)) return left;
  return evaluate(*e.items[1]);
}

Result<Value> Interpreter::evaluate_binary(const Expression& e) {
  TRY(const Value left, evaluate(*e.items[0]));
  TRY(const Value right, evaluate(*e.items[1]));
  return binary_operator(*this, e.name, left, right);
}

Result<Value> Interpreter::evaluate_concat(const Expression& e) {
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

Result<Value> Interpreter::evaluate_conditional(const Expression& e) {
  TRY(const Value condition, evaluate(*e.items[1]));
  if (condition.truthy()) return evaluate(*e.items[0]);
  if (e.items[2]) return evaluate(*e.items[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

// Only the dispatch: each kind has a function of its own, so that deep recursion needs little stack.
Result<Value> Interpreter::evaluate_kind(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.value;
    case ExpressionKind::kName:
      return look_up(e.name);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple:
      return evaluate_items(e);
    case ExpressionKind::kDict:
      return evaluate_dict(e);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem:
      return evaluate_item(e);
    case ExpressionKind::kSlice:
      return type_error("a slice stands outside of a subscript");
    case ExpressionKind::kCall:
      return evaluate_call(e);
    case ExpressionKind::kFilter:
      return evaluate_filter(e, std::nullopt);
    case ExpressionKind::kTest:
      return evaluate_test(e);
    case ExpressionKind::kNot:
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive:
      return evaluate_unary(e);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logical(e);
    case ExpressionKind::kBinary:
      return evaluate_binary(e);
    case ExpressionKind::kConcat:
      return evaluate_concat(e);
    case ExpressionKind::kCompare:
      return evaluate_compare(e);
    case ExpressionKind::kConditional:
      return evaluate_conditional(e);
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

}  // namespace berth::jinja
