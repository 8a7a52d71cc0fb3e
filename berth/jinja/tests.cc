// jinja/tests.cc — what may stand behind "is".
#include <algorithm>
#include <array>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/case.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

using Test = Result<bool>;

template <bool (*holds)(const Value&)>
Test plain(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound bound, bind("test", a, {}));
  return holds(v);
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool integer(const Value& v) { return v.is_integer(); }
bool floating(const Value& v) { return v.is_float(); }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.is_text(); }
bool mapping(const Value& v) { return v.is_dict(); }
bool callable(const Value& v) {  // an undefined value can be called: it says what is missing
  return v.is_undefined() || (v.is_object() && v.as_object()->callable());
}
bool escaped(const Value& v) { return v.is_safe(); }
bool iterable(const Value& v) {
  return v.is_text() || v.is_bytes() || v.is_sequence() || v.is_dict() || v.is_undefined();
}
bool sequence(const Value& v) {
  return v.is_text() || v.is_bytes() || v.is_dict() || v.is_undefined() ||
         (v.is_sequence() && v.as_sequence().indexable());
}
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
bool all_cased(const Value& v) {
  const std::string text = v.text();
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = decode_utf8(text, i);
    if (other(c)) return false;
    any |= wanted(c);
  }
  return any;
}

Test parity(Interpreter& in, const Value& v, Integer remainder) {
  TRY(const Value m, binary_operator(in, "%", v, Value(2)));
  return m.equals(Value(remainder));
}
Test odd(Interpreter& in, const Value& v, Arguments) { return parity(in, v, 1); }
Test even(Interpreter& in, const Value& v, Arguments) { return parity(in, v, 0); }

Test divisible_by(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("divisibleby", a, {"num"}, 1));
  TRY(const Value m, binary_operator(in, "%", v, *b[0]));
  return m.equals(Value(0));
}

template <const char* op>
Test comparison(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind(op, a, {"other"}, 1));
  return in.compare_op(op, v, *b[0]);
}
constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">", kGe[] = ">=";

Test is_in(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("in", a, {"seq"}, 1));
  return in.contains(*b[0], v);
}
Test same_as(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("sameas", a, {"other"}, 1));
  return v.same_object(*b[0]);
}
Test filter_exists(Interpreter&, const Value& v, Arguments) { return v.is_text() && is_filter(v.as_text()); }
Test test_exists(Interpreter&, const Value& v, Arguments) { return v.is_text() && is_test(v.as_text()); }

struct Row {
  std::string_view name;
  TestFunction function;
};
constexpr std::array<Row, 39> kTests{{
    {"defined", plain<defined>},
    {"undefined", plain<undefined>},
    {"none", plain<none>},
    {"boolean", plain<boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<integer>},
    {"float", plain<floating>},
    {"number", plain<number>},
    {"string", plain<string>},
    {"mapping", plain<mapping>},
    {"callable", plain<callable>},
    {"escaped", plain<escaped>},
    {"iterable", plain<iterable>},
    {"sequence", plain<sequence>},
    {"lower", plain<all_cased<is_lower, is_upper>>},
    {"upper", plain<all_cased<is_upper, is_lower>>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"in", is_in},
    {"sameas", same_as},
    {"filter", filter_exists},
    {"test", test_exists},
    {"==", comparison<kEq>},
    {"eq", comparison<kEq>},
    {"equalto", comparison<kEq>},
    {"!=", comparison<kNe>},
    {"ne", comparison<kNe>},
    {"<", comparison<kLt>},
    {"lt", comparison<kLt>},
    {"lessthan", comparison<kLt>},
    {"<=", comparison<kLe>},
    {"le", comparison<kLe>},
    {">", comparison<kGt>},
    {"gt", comparison<kGt>},
    {"greaterthan", comparison<kGt>},
    {">=", comparison<kGe>},
    {"ge", comparison<kGe>},
}};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto row = std::find_if(kTests.begin(), kTests.end(), [&](const Row& r) { return r.name == name; });
  return row == kTests.end() ? nullptr : row->function;
}

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

}  // namespace berth::jinja
