// jinja/builtins.h — what templates find ready: filters, tests, methods of values, global functions. Private to jinja/.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"
#include "berth/jinja/template.h"
#include "berth/jinja/value.h"

namespace berth::jinja {

class Interpreter;

using FilterFunction = Result<Value> (*)(Interpreter&, const Value& input, Arguments arguments);
using TestFunction = Result<bool> (*)(Interpreter&, const Value& input, Arguments arguments);

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
FilterFunction find_filter(std::string_view name);  // or null; all of filters*.cc
TestFunction find_test(std::string_view name);      // or null

// The method `name` of a value's type, bound to it; nothing where the type has none. A method that would change the
// value, and any name with two leading underscores, is an undefined value that says it is unsafe.
Result<std::optional<Value>> find_method(Interpreter& interpreter, const Value& self, const std::string& name);

// range, dict, namespace, cycler, joiner, lipsum, raise_exception, strftime_now.
Result<std::vector<std::pair<std::string, Value>>> make_globals(Interpreter& interpreter);

// Arguments matched to parameter names, Python's way; absent ones are nothing. Errors: kInvalidArgument (TypeError).
using Bound = std::vector<std::optional<Value>>;
Result<Bound> bind(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names,
                   size_t required = 0);

// '%' formatting and str.format(). Errors: kInvalidArgument.
Result<std::string> percent_format(Interpreter& interpreter, const std::string& format, const Value& arguments);
Result<std::string> brace_format(Interpreter& interpreter, const std::string& format, const Arguments& arguments);

struct JsonStyle {
  std::optional<std::string> indent;  // one level's indent; absent: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ensure_ascii = false, sort_keys = false;
};
// json.dumps(). Errors: kInvalidArgument for what JSON cannot hold.
Result<std::string> to_json(Interpreter& interpreter, const Value& value, const JsonStyle& style);

std::string html_escaped(std::string_view text);
// Python's strftime in the C locale.
std::string strftime_text(std::string_view format, const DateTime& time);
DateTime clock_now();

// Characters of a text, each as a text.
Values characters_of(std::string_view text);
// Python's x[start:stop:step] over n elements: the indices. Errors: kInvalidArgument for step 0.
Result<std::vector<size_t>> slice_indices(size_t n, const Value& start, const Value& stop, const Value& step);

// The binary operators of Python but for "and" and "or".
Result<Value> binary_operator(Interpreter& interpreter, std::string_view op, const Value& a, const Value& b);

}  // namespace berth::jinja
