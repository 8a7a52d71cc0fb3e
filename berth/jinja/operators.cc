// jinja/operators.cc — Python's arithmetic, slices and argument binding.
#include <cmath>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

Error unsupported_operands(std::string_view op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b})
    if (v->is_undefined()) return {ErrorCode::kInvalidArgument, v->undefined_message()};
  return type_error("unsupported operand type(s) for " + std::string(op) + ": '" + a.type_name() + "' and '" +
                    b.type_name() + "'");
}

Error zero_division() { return {ErrorCode::kInvalidArgument, "division by zero"}; }
Error too_large() { return {ErrorCode::kUnsupported, "integers of over 127 bits are not supported"}; }

Integer floor_divided(Integer a, Integer b) {
  const Integer q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

double float_modulo(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m;
}

Result<Value> integer_power(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) return zero_division();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Integer result = 1;
  while (exponent > 0) {
    if (exponent & 1)
      if (__builtin_mul_overflow(result, base, &result)) return too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large();
  }
  return Value(result);
}

Result<Value> integer_operator(std::string_view op, Integer a, Integer b) {
  Integer r = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &r) ? Result<Value>(too_large()) : Value(r);
  if (op == "-") return __builtin_sub_overflow(a, b, &r) ? Result<Value>(too_large()) : Value(r);
  if (op == "*") return __builtin_mul_overflow(a, b, &r) ? Result<Value>(too_large()) : Value(r);
  if (op == "**") return integer_power(a, b);
  if (b == 0) return zero_division();
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  const Integer lowest = static_cast<Integer>(1) << 126;
  if (b == -1 && a < -lowest) return too_large();
  const Integer q = floor_divided(a, b);
  return op == "//" ? Value(q) : Value(a - q * b);
}

Result<Value> float_operator(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") {
    if (a == 0 && b < 0) return zero_division();
    const double power = std::pow(a, b);
    if (std::isinf(power) && !std::isinf(a) && !std::isinf(b))
      return Error(ErrorCode::kInvalidArgument, "the result of ** is too large");
    return Value(power);
  }
  if (b == 0) return zero_division();
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor((a - float_modulo(a, b)) / b + 0.5));
  return Value(float_modulo(a, b));
}

Result<Value> repeated(Interpreter& in, const Value& v, Integer n) {
  if (n < 0) n = 0;
  if (n > (Integer{1} << 30)) n = Integer{1} << 30;
  const auto times = static_cast<size_t>(n);
  if (v.is_text()) {
    if (v.as_text().empty()) return v;
    TRY_STATUS(in.charge(v.as_text().size() * times));
    std::string out;
    out.reserve(v.as_text().size() * times);
    for (size_t i = 0; i < times; ++i) out += v.as_text();
    return Value(std::move(out));
  }
  const Sequence& s = v.as_sequence();
  if (s.items.empty()) return v;
  TRY_STATUS(in.charge(s.items.size() * times * sizeof(Value)));
  TRY_STATUS(in.work(s.items.size() * times));
  Values items;
  for (size_t i = 0; i < times; ++i) items.insert(items.end(), s.items.begin(), s.items.end());
  return Sequence::make(s.kind, std::move(items));
}

bool repeatable(const Value& v) {
  return v.is_text() || (v.is_sequence() && v.as_sequence().kind <= SequenceKind::kTuple);
}

Result<Value> added(Interpreter& in, const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) {
    TRY_STATUS(in.charge(a.as_text().size() + b.as_text().size()));
    if (a.is_safe() || b.is_safe())
      return Value::markup((a.is_safe() ? a.as_text() : html_escaped(a.as_text())) +
                           (b.is_safe() ? b.as_text() : html_escaped(b.as_text())));
    return Value(a.as_text() + b.as_text());
  }
  if (a.is_sequence() && b.is_sequence() && a.as_sequence().kind == b.as_sequence().kind && repeatable(a)) {
    Values items = a.as_sequence().items;
    const Values& more = b.as_sequence().items;
    TRY_STATUS(in.charge((items.size() + more.size()) * sizeof(Value)));
    TRY_STATUS(in.work(items.size() + more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return Sequence::make(a.as_sequence().kind, std::move(items));
  }
  if (a.is_text() && !b.is_undefined())
    return type_error("can only concatenate str (not \"" + b.type_name() + "\") to str");
  if (a.is_sequence() && repeatable(a) && !b.is_undefined())
    return type_error("can only concatenate " + a.type_name() + " (not \"" + b.type_name() + "\") to " + a.type_name());
  return unsupported_operands("+", a, b);
}

}  // namespace

Result<Value> binary_operator(Interpreter& in, std::string_view op, const Value& a, const Value& b) {
  if (op == "neg" || op == "pos") {
    const bool negative = op == "neg";
    if (a.is_float()) return Value(negative ? -a.as_float() : a.as_float());
    if (const auto n = a.integer()) return integer_operator(negative ? "-" : "+", 0, *n);
    if (a.is_undefined()) return Error(ErrorCode::kInvalidArgument, a.undefined_message());
    return type_error(std::string("bad operand type for unary ") + (negative ? "-" : "+") + ": '" + a.type_name() +
                      "'");
  }
  if (op == "%" && a.is_text()) {
    TRY(std::string text, percent_format(in, a.as_text(), b));
    return Value(std::move(text));
  }
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return float_operator(op, *a.number(), *b.number());
    return integer_operator(op, *a.integer(), *b.integer());
  }
  if (op == "+") return added(in, a, b);
  if (op == "*") {
    if (repeatable(a) && b.integer()) return repeated(in, a, *b.integer());
    if (repeatable(b) && a.integer()) return repeated(in, b, *a.integer());
  }
  return unsupported_operands(op, a, b);
}

Result<std::vector<size_t>> slice_indices(size_t size, const Value& start, const Value& stop, const Value& step) {
  const auto n = static_cast<Integer>(size);
  const Integer by = step.is_none() ? 1 : *step.integer();
  if (by == 0) return Error(ErrorCode::kInvalidArgument, "slice step cannot be zero");
  const Integer lowest = by < 0 ? -1 : 0, highest = by < 0 ? n - 1 : n;
  const auto clamped = [&](const Value& v, Integer otherwise) {
    if (v.is_none()) return otherwise;
    Integer i = *v.integer();
    if (i < 0) i = i < -n ? lowest : i + n;
    return i < lowest ? lowest : i > highest ? highest : i;
  };
  const Integer from = clamped(start, by < 0 ? highest : lowest);
  const Integer to = clamped(stop, by < 0 ? lowest : highest);
  std::vector<size_t> indices;
  const Integer stride = by > n + 1 ? n + 1 : by < -n - 1 ? -n - 1 : by;  // keeps the sum below from overflowing
  for (Integer i = from; stride > 0 ? i < to : i > to; i += stride) indices.push_back(static_cast<size_t>(i));
  return indices;
}

Result<Bound> bind(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names,
                   size_t required) {
  Bound bound(names.size());
  const std::string who(function);
  if (arguments.positional.size() > names.size())
    return type_error(who + "() takes at most " + std::to_string(names.size()) + " arguments (" +
                      std::to_string(arguments.positional.size()) + " given)");
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t at = 0;
    for (const char* n : names) {
      if (name == n) break;
      ++at;
    }
    if (at == names.size()) return type_error(who + "() got an unexpected keyword argument '" + name + "'");
    if (bound[at]) return type_error(who + "() got multiple values for argument '" + name + "'");
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!bound[i]) return type_error(who + "() missing a required argument: '" + names.begin()[i] + "'");
  return bound;
}

Values characters_of(std::string_view text) {
  Values out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    decode_utf8(text, i);
    out.emplace_back(std::string(text.substr(begin, i - begin)));
  }
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace berth::jinja
