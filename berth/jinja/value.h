// jinja/value.h — the values a template works with: Python's, as far as chat templates meet them.
//
// Values are immutable but for namespaces, so that lists and dicts can be shared; nesting is bounded (kMaxNesting), so
// that a hostile template cannot build what only deep recursion could take apart. Objects (macros, namespaces, loops)
// belong to the interpreter's arena and live until rendering ends.
//
// Non-goals: user classes, sets, slices as values. Start reading at: class Value.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "berth/base/json.h"
#include "berth/base/result.h"

namespace berth::jinja {

__extension__ typedef __int128 Integer;  // Python's integers up to 127 bits; beyond that is an error

inline constexpr size_t kMaxNesting = 200;
// Elements that a value may hold when written out in full; shared parts count every time, since repr() and == walk
// them.
inline constexpr size_t kMaxWeight = size_t{1} << 22;

class Value;
class Object;
struct Sequence;
struct Dict;

struct Undefined {
  std::shared_ptr<const std::string> message;  // why, as UndefinedError would say it; or null
};
struct None {
  bool operator==(const None&) const { return true; }
};
struct Text {
  std::shared_ptr<const std::string> utf8;
  bool safe = false;  // Markup: not escaped again
};
struct Bytes {
  std::shared_ptr<const std::string> data;
};

class Value {
 public:
  Value() = default;                                   // undefined
  Value(None n) : data_(n) {}                          // NOLINT: implicit by design, as the rest
  Value(bool b) : data_(b) {}                          // NOLINT
  Value(Integer n) : data_(n) {}                       // NOLINT
  Value(int n) : data_(static_cast<Integer>(n)) {}     // NOLINT
  Value(size_t n) : data_(static_cast<Integer>(n)) {}  // NOLINT
  Value(double d) : data_(d) {}                        // NOLINT
  Value(std::string text) : data_(Text{std::make_shared<const std::string>(std::move(text)), false}) {}  // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}                                             // NOLINT
  Value(const char* text) : Value(std::string(text)) {}                                                  // NOLINT
  Value(Undefined u) : data_(std::move(u)) {}                                                            // NOLINT
  Value(Text t) : data_(std::move(t)) {}                                                                 // NOLINT
  Value(Bytes b) : data_(std::move(b)) {}                                                                // NOLINT
  Value(std::shared_ptr<const Sequence> s) : data_(std::move(s)) {}                                      // NOLINT
  Value(std::shared_ptr<const Dict> d) : data_(std::move(d)) {}                                          // NOLINT
  Value(Object* o) : data_(o) {}                                                                         // NOLINT

  static Value undefined(std::string message) {
    return Undefined{std::make_shared<const std::string>(std::move(message))};
  }
  static Value markup(std::string text) { return Text{std::make_shared<const std::string>(std::move(text)), true}; }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  bool is_bytes() const { return std::holds_alternative<Bytes>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_integer() const { return std::holds_alternative<Integer>(data_); }  // bools are not
  bool is_number() const { return is_integer() || is_float() || is_bool(); }
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<Object*>(data_); }

  bool as_bool() const { return std::get<bool>(data_); }
  const std::string& as_text() const { return *std::get<Text>(data_).utf8; }
  bool is_safe() const { return is_text() && std::get<Text>(data_).safe; }
  const std::string& as_bytes() const { return *std::get<Bytes>(data_).data; }
  double as_float() const { return std::get<double>(data_); }
  const Sequence& as_sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Object* as_object() const { return std::get<Object*>(data_); }
  // Of an undefined value; "" where nothing is known.
  std::string undefined_message() const;

  // An integer or bool as an integer; nothing for other values.
  std::optional<Integer> integer() const;
  // Any number as a double; nothing for other values.
  std::optional<double> number() const;

  bool truthy() const;
  size_t nesting() const;                    // 0 for what holds nothing
  size_t weight() const;                     // elements and, for texts, bytes / 16; at least 1
  std::string type_name() const;             // Python's: "int", "str", "NoneType"...
  std::string text(size_t depth = 0) const;  // str(value)
  std::string repr(size_t depth = 0) const;

  // Python's ==; numbers of different types compare by value.
  bool equals(const Value& other) const;
  bool same_object(const Value& other) const;  // Python's `is`

 private:
  std::variant<Undefined, None, bool, Integer, double, Text, Bytes, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, Object*>
      data_;
};

using Values = std::vector<Value>;

enum class SequenceKind { kList, kTuple, kGenerator, kDictKeys, kDictValues, kDictItems, kRange };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  Values items;
  size_t nesting = 1, weight = 1;
  Integer start = 0, stop = 0, step = 1;  // of a range, for its repr
  mutable bool consumed = false;          // a generator gives its items once

  static Value make(SequenceKind kind, Values items);
  static Value list(Values items) { return make(SequenceKind::kList, std::move(items)); }
  static Value tuple(Values items) { return make(SequenceKind::kTuple, std::move(items)); }
  static Value generator(Values items) { return make(SequenceKind::kGenerator, std::move(items)); }
  bool indexable() const {
    return kind == SequenceKind::kList || kind == SequenceKind::kTuple || kind == SequenceKind::kRange;
  }
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  size_t nesting = 1, weight = 1;

  // Adds or replaces; the key keeps its place. The key is hashable (see hashable()).
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  static Value make(Dict dict) { return std::make_shared<const Dict>(std::move(dict)); }

 private:
  std::unordered_map<std::string, size_t> by_text_;
};

// What may be a dict's key: text, numbers, none, and tuples of them.
bool hashable(const Value& value);

// Positional and keyword arguments of a call.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

// Something with behaviour: a function, macro, method, namespace, loop.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::string repr() const { return "<" + type_name() + " object>"; }
  virtual bool callable() const { return true; }
  virtual Result<Value> call(Interpreter& interpreter, Arguments arguments) = 0;
  virtual std::optional<Value> attribute(std::string_view name) const {
    (void)name;
    return std::nullopt;
  }
};

// Python's order. Errors: kInvalidArgument (TypeError) where the types have none.
Result<int> compare(const Value& a, const Value& b, std::string_view op);

// repr() of a float: the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
std::string float_text(double d);
std::string integer_text(Integer n);
// repr() of a string: quoted, with what cannot be printed escaped.
std::string text_repr(std::string_view utf8);

// A JSON value as Python's json.loads would give it.
Value from_json(const JsonView& json);

Error type_error(std::string message);

}  // namespace berth::jinja
