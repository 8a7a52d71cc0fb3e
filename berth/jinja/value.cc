#include "berth/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "berth/base/utf8.h"
#include "berth/jinja/case.h"

namespace berth::jinja {
namespace {

constexpr size_t kMaxReprDepth = kMaxNesting + 8;

std::string joined_repr(const Values& items, size_t depth) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    out += items[i].repr(depth);
  }
  return out;
}

std::string sequence_repr(const Sequence& s, size_t depth) {
  switch (s.kind) {
    case SequenceKind::kList:
      return "[" + joined_repr(s.items, depth) + "]";
    case SequenceKind::kTuple:
      return "(" + joined_repr(s.items, depth) + (s.items.size() == 1 ? ",)" : ")");
    case SequenceKind::kGenerator:
      return "<generator object>";
    case SequenceKind::kDictKeys:
      return "dict_keys([" + joined_repr(s.items, depth) + "])";
    case SequenceKind::kDictValues:
      return "dict_values([" + joined_repr(s.items, depth) + "])";
    case SequenceKind::kDictItems:
      return "dict_items([" + joined_repr(s.items, depth) + "])";
    case SequenceKind::kRange:
      return "range(" + integer_text(s.start) + ", " + integer_text(s.stop) +
             (s.step == 1 ? "" : ", " + integer_text(s.step)) + ")";
  }
  return "";
}

int sign_of(int n) { return n < 0 ? -1 : n > 0; }

}  // namespace

Error type_error(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

std::string Value::undefined_message() const {
  const auto& u = std::get<Undefined>(data_);
  return u.message ? *u.message : std::string();
}

std::optional<Integer> Value::integer() const {
  if (const auto* n = std::get_if<Integer>(&data_)) return *n;
  if (const auto* b = std::get_if<bool>(&data_)) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* d = std::get_if<double>(&data_)) return *d;
  if (const auto n = integer()) return static_cast<double>(*n);
  return std::nullopt;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_float()) return as_float() != 0;
  if (const auto n = integer()) return *n != 0;
  if (is_text()) return !as_text().empty();
  if (is_bytes()) return !as_bytes().empty();
  if (is_sequence()) return as_sequence().kind == SequenceKind::kGenerator || !as_sequence().items.empty();
  if (is_dict()) return !as_dict().items.empty();
  return true;
}

size_t Value::nesting() const {
  if (is_sequence()) return as_sequence().nesting;
  if (is_dict()) return as_dict().nesting;
  return 0;
}

size_t Value::weight() const {
  if (is_text()) return 1 + as_text().size() / 16;
  if (is_sequence()) return as_sequence().weight;
  if (is_dict()) return as_dict().weight;
  return 1;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_text()) return is_safe() ? "Markup" : "str";
  if (is_bytes()) return "bytes";
  if (is_dict()) return "dict";
  if (is_object()) return as_object()->type_name();
  constexpr const char* kNames[] = {"list", "tuple", "generator", "dict_keys", "dict_values", "dict_items", "range"};
  return kNames[static_cast<size_t>(as_sequence().kind)];
}

std::string Value::text(size_t depth) const {
  if (is_undefined()) return "";
  if (is_text()) return as_text();
  return repr(depth);
}

std::string Value::repr(size_t depth) const {
  if (depth > kMaxReprDepth) return "...";
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return as_bool() ? "True" : "False";
  if (is_integer()) return integer_text(*integer());
  if (is_float()) return float_text(as_float());
  if (is_text()) return is_safe() ? "Markup(" + text_repr(as_text()) + ")" : text_repr(as_text());
  if (is_bytes()) return "b'...'";
  if (is_object()) return as_object()->repr();
  if (is_sequence()) return sequence_repr(as_sequence(), depth + 1);
  std::string out = "{";
  for (const auto& [key, value] : as_dict().items) {
    if (out.size() > 1) out += ", ";
    out += key.repr(depth + 1) + ": " + value.repr(depth + 1);
  }
  return out + "}";
}

bool Value::equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return *number() == *other.number();
    return *integer() == *other.integer();
  }
  if (is_text() && other.is_text()) return as_text() == other.as_text();
  if (is_bytes() && other.is_bytes()) return as_bytes() == other.as_bytes();
  if (is_none() && other.is_none()) return true;
  if (is_undefined() && other.is_undefined()) return true;
  if (is_object() && other.is_object()) return as_object() == other.as_object();
  if (is_sequence() && other.is_sequence()) {
    const Sequence &a = as_sequence(), &b = other.as_sequence();
    if (&a == &b) return true;
    if (a.kind != b.kind || a.kind == SequenceKind::kGenerator || a.items.size() != b.items.size()) return false;
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                      [](const Value& x, const Value& y) { return x.equals(y); });
  }
  if (is_dict() && other.is_dict()) {
    const Dict &a = as_dict(), &b = other.as_dict();
    if (a.items.size() != b.items.size()) return false;
    return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
      const Value* found = b.find(item.first);
      return found && found->equals(item.second);
    });
  }
  return false;
}

bool Value::same_object(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_text()) return as_text() == other.as_text();
  if (is_sequence()) return &as_sequence() == &other.as_sequence();
  if (is_dict()) return &as_dict() == &other.as_dict();
  return equals(other);
}

Value Sequence::make(SequenceKind kind, Values items) {
  auto s = std::make_shared<Sequence>();
  s->kind = kind;
  for (const Value& v : items) {
    s->nesting = std::max(s->nesting, v.nesting() + 1);
    s->weight = std::min(s->weight + v.weight(), kMaxWeight + 1);
  }
  s->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(s));
}

void Dict::set(Value key, Value value) {
  nesting = std::max({nesting, value.nesting() + 1, key.nesting() + 1});
  weight = std::min(weight + value.weight() + key.weight(), kMaxWeight + 1);
  if (key.is_text()) {
    const auto [it, fresh] = by_text_.emplace(key.as_text(), items.size());
    if (!fresh) {
      items[it->second].second = std::move(value);
      return;
    }
  } else {
    for (auto& [k, v] : items)
      if (k.equals(key)) {
        v = std::move(value);
        return;
      }
  }
  items.emplace_back(std::move(key), std::move(value));
}

const Value* Dict::find(const Value& key) const {
  if (key.is_text()) return find(std::string_view(key.as_text()));
  for (const auto& [k, v] : items)
    if (k.equals(key)) return &v;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto it = by_text_.find(std::string(key));
  return it == by_text_.end() ? nullptr : &items[it->second].second;
}

bool hashable(const Value& value) {
  if (value.is_number() || value.is_text() || value.is_none() || value.is_bytes() || value.is_object() ||
      value.is_undefined())
    return true;
  if (!value.is_sequence() || value.as_sequence().kind != SequenceKind::kTuple) return false;
  const Values& items = value.as_sequence().items;
  return std::all_of(items.begin(), items.end(), hashable);
}

Result<int> compare(const Value& a, const Value& b, std::string_view op) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) {
      const double x = *a.number(), y = *b.number();
      if (std::isnan(x) || std::isnan(y)) return 2;  // unordered: every comparison is false
      return x < y ? -1 : x > y;
    }
    const Integer x = *a.integer(), y = *b.integer();
    return x < y ? -1 : x > y;
  }
  if (a.is_text() && b.is_text()) return sign_of(a.as_text().compare(b.as_text()));
  if (a.is_sequence() && b.is_sequence() && a.as_sequence().kind == b.as_sequence().kind &&
      a.as_sequence().kind <= SequenceKind::kTuple) {
    const Values &x = a.as_sequence().items, &y = b.as_sequence().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!x[i].equals(y[i])) return compare(x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    const std::string message = (a.is_undefined() ? a : b).undefined_message();
    return Error(ErrorCode::kInvalidArgument, message.empty() ? "an undefined value cannot be compared" : message);
  }
  return type_error("'" + std::string(op) + "' not supported between instances of '" + a.type_name() + "' and '" +
                    b.type_name() + "'");
}

std::string integer_text(Integer n) {
  if (n == 0) return "0";
  const bool negative = n < 0;
  std::string digits;
  while (n != 0) {
    const int digit = static_cast<int>(n % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    n /= 10;
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::abs(d), std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 1) digits += text.substr(2, e - 2);
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string out = std::signbit(d) ? "-" : "";
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

std::string text_repr(std::string_view utf8) {
  const bool has_single = utf8.find('\'') != std::string_view::npos;
  const bool has_double = utf8.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  constexpr char kHex[] = "0123456789abcdef";
  std::string out(1, quote);
  for (size_t i = 0; i < utf8.size();) {
    const char32_t c = decode_utf8(utf8, i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
    }
  }
  return out + quote;
}

Value from_json(const JsonView& json) {
  switch (json.type()) {
    case JsonType::kNull:
      return None{};
    case JsonType::kBool:
      return *json.as_bool();
    case JsonType::kInt:
      return static_cast<Integer>(*json.as_int64());
    case JsonType::kUint:
      return static_cast<Integer>(*json.as_uint64());
    case JsonType::kDouble:
      return *json.as_double();
    case JsonType::kString:
      return std::string(*json.as_string());
    case JsonType::kArray: {
      Values items;
      json.for_each_element([&](const JsonView& v) {
        items.push_back(from_json(v));
        return true;
      });
      return Sequence::list(std::move(items));
    }
    case JsonType::kObject: {
      Dict dict;
      json.for_each_member([&](std::string_view key, const JsonView& v) {
        dict.set(std::string(key), from_json(v));
        return true;
      });
      return Dict::make(std::move(dict));
    }
  }
  return None{};
}

}  // namespace berth::jinja
