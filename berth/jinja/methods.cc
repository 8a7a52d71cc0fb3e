// jinja/methods.cc — the methods of strings, lists, tuples, dicts and numbers that templates may call.
//
// What would change a list or dict is named so that it can be refused, as Transformers' immutable sandbox does.
#include <algorithm>
#include <array>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/case.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

using MethodFunction = Result<Value> (*)(Interpreter&, const Value& self, Arguments arguments);

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, std::string name, MethodFunction function)
      : self_(std::move(self)), name_(std::move(name)), function_(function) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr() const override {
    return "<built-in method " + name_ + " of " + self_.type_name() + " object at 0x0>";
  }
  Result<Value> call(Interpreter& in, Arguments a) override {
    TRY_STATUS(in.work(self_.weight()));
    return function_(in, self_, std::move(a));
  }

 private:
  Value self_;
  std::string name_;
  MethodFunction function_;
};

Result<const std::string*> text_argument(const std::optional<Value>& v, const char* what) {
  if (v && v->is_text()) return &v->as_text();
  return type_error(std::string(what) + " must be str, not " + (v ? v->type_name() : "nothing"));
}

Result<Integer> integer_argument(const std::optional<Value>& v, Integer otherwise) {
  if (!v || v->is_none()) return otherwise;
  if (const auto n = v->integer()) return *n;
  return type_error("'" + v->type_name() + "' object cannot be interpreted as an integer");
}

// --- str ---

template <std::string (*map)(std::string_view)>
Result<Value> mapped(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("str method", a, {}));
  TRY_STATUS(in.charge(self.as_text().size()));
  return Value(map(self.as_text()));
}

template <bool left, bool right>
Result<Value> strip(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("strip", a, {"chars"}));
  const std::string* characters = nullptr;
  if (b[0] && !b[0]->is_none()) {
    TRY(characters, text_argument(b[0], "strip arg"));
    TRY_STATUS(in.work(b[0]->weight()));
  }
  TRY_STATUS(in.charge(self.as_text().size()));
  return Value(std::string(stripped(self.as_text(), left, right, characters)));
}

Values split_text(const std::string& text, const std::string* separator, Integer most, bool from_right) {
  std::vector<std::string_view> parts;
  std::string_view rest = text;
  if (separator) {
    while (most != 0) {
      const size_t at = from_right ? rest.rfind(*separator) : rest.find(*separator);
      if (at == std::string_view::npos) break;
      parts.push_back(from_right ? rest.substr(at + separator->size()) : rest.substr(0, at));
      rest = from_right ? rest.substr(0, at) : rest.substr(at + separator->size());
      --most;
    }
    parts.push_back(rest);
  } else {
    while (true) {
      rest = stripped(rest, !from_right, from_right);
      if (rest.empty()) break;
      if (most == 0) {
        parts.push_back(stripped(rest, from_right, !from_right));
        break;
      }
      size_t cut = from_right ? rest.size() : 0;
      while (from_right ? cut > 0 : cut < rest.size()) {
        size_t next = from_right ? previous_utf8(rest, cut) : cut;
        const size_t begin = next;
        if (is_space(decode_utf8(rest, next))) break;
        cut = from_right ? begin : next;
      }
      parts.push_back(from_right ? rest.substr(cut) : rest.substr(0, cut));
      rest = from_right ? rest.substr(0, cut) : rest.substr(cut);
      --most;
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  Values out;
  for (const std::string_view p : parts) out.emplace_back(std::string(p));
  return out;
}

template <bool from_right>
Result<Value> split(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("split", a, {"sep", "maxsplit"}));
  const std::string* separator = nullptr;
  if (b[0] && !b[0]->is_none()) {
    TRY(separator, text_argument(b[0], "sep"));
    if (separator->empty()) return Error(ErrorCode::kInvalidArgument, "empty separator");
  }
  TRY(const Integer most, integer_argument(b[1], -1));
  TRY_STATUS(in.charge(self.as_text().size() * 8));
  return Sequence::list(split_text(self.as_text(), separator, most, from_right));
}

Result<Value> split_lines(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("splitlines", a, {"keepends"}));
  const bool keep = b[0] && b[0]->truthy();
  const std::string& text = self.as_text();
  TRY_STATUS(in.charge(text.size() * 8));
  Values lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    lines.emplace_back(text.substr(start, (keep ? i : begin) - start));
    start = i;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return Sequence::list(std::move(lines));
}

// The part of a text that [start:end] of find, count and the like name, and where it starts in characters.
struct Window {
  std::string_view text;
  size_t first = 0;
};
Result<Window> window_of(const std::string& text, const std::optional<Value>& start, const std::optional<Value>& end) {
  if (!start && !end) return Window{text, 0};
  const auto as_bound = [](const std::optional<Value>& v) { return v ? *v : Value(None{}); };
  for (const auto* v : {&start, &end})
    if (*v && !(*v)->is_none() && !(*v)->integer()) return type_error("slice indices must be integers or None");
  TRY(const auto indices, slice_indices(count_code_points(text), as_bound(start), as_bound(end), None{}));
  if (indices.empty()) return Window{std::string_view(), 0};
  size_t begin = 0;
  for (size_t i = 0; i < indices.front(); ++i) decode_utf8(text, begin);
  size_t stop = begin;
  for (size_t i = 0; i < indices.size(); ++i) decode_utf8(text, stop);
  return Window{std::string_view(text).substr(begin, stop - begin), indices.front()};
}

template <bool suffix>
Result<Value> starts_or_ends(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind(suffix ? "endswith" : "startswith", a, {"prefix", "start", "end"}, 1));
  TRY(const Window w, window_of(self.as_text(), b[1], b[2]));
  const auto one = [&](const Value& v) {
    return suffix ? w.text.ends_with(v.as_text()) : w.text.starts_with(v.as_text());
  };
  if (b[0]->is_text()) return Value(one(*b[0]));
  if (b[0]->is_sequence() && b[0]->as_sequence().kind == SequenceKind::kTuple) {
    for (const Value& v : b[0]->as_sequence().items) {
      if (!v.is_text()) return type_error("tuple for startswith must only contain str");
      if (one(v)) return Value(true);
    }
    return Value(false);
  }
  return type_error(std::string(suffix ? "endswith" : "startswith") + " first arg must be str or a tuple of str, not " +
                    b[0]->type_name());
}

template <bool from_right, bool must>
Result<Value> find(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind("find", a, {"sub", "start", "end"}, 1));
  TRY(const std::string* sub, text_argument(b[0], "sub"));
  TRY(const Window w, window_of(self.as_text(), b[1], b[2]));
  const size_t at = from_right ? w.text.rfind(*sub) : w.text.find(*sub);
  if (at != std::string_view::npos) return Value(w.first + count_code_points(w.text.substr(0, at)));
  if (must) return Error(ErrorCode::kInvalidArgument, "substring not found");
  return Value(-1);
}

Result<Value> count_text(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind("count", a, {"sub", "start", "end"}, 1));
  TRY(const std::string* sub, text_argument(b[0], "sub"));
  TRY(const Window w, window_of(self.as_text(), b[1], b[2]));
  if (sub->empty()) return Value(count_code_points(w.text) + 1);
  size_t n = 0;
  for (size_t at = w.text.find(*sub); at != std::string_view::npos; at = w.text.find(*sub, at + sub->size())) ++n;
  return Value(n);
}

template <bool (*holds)(char32_t)>
Result<Value> all_are(Interpreter&, const Value& self, Arguments) {
  const std::string& text = self.as_text();
  for (size_t i = 0; i < text.size();)
    if (!holds(decode_utf8(text, i))) return Value(false);
  return Value(!text.empty());
}
bool alnum(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Result<Value> cased_as(Interpreter&, const Value& self, Arguments) {
  bool any = false;
  const std::string& text = self.as_text();
  for (size_t i = 0; i < text.size();) {
    const char32_t c = decode_utf8(text, i);
    if (other(c)) return Value(false);
    any |= wanted(c);
  }
  return Value(any);
}

Result<Value> is_title(Interpreter&, const Value& self, Arguments) {
  return Value(title(self.as_text()) == self.as_text() && lower(self.as_text()) != upper(self.as_text()));
}

Result<Value> join(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("join", a, {"iterable"}, 1));
  TRY(const Values items, in.iterate(*b[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_text())
      return type_error("sequence item " + std::to_string(i) + ": expected str instance, " + items[i].type_name() +
                        " found");
    TRY_STATUS(in.charge(items[i].as_text().size() + self.as_text().size()));
    if (i > 0) out += self.as_text();
    out += items[i].as_text();
  }
  return Value(std::move(out));
}

Result<Value> replace(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("replace", a, {"old", "new", "count"}, 2));
  TRY(const std::string* from, text_argument(b[0], "replace() argument 1"));
  TRY(const std::string* to, text_argument(b[1], "replace() argument 2"));
  TRY(Integer most, integer_argument(b[2], -1));
  std::string out;
  const std::string& text = self.as_text();
  size_t at = 0;
  if (from->empty()) {  // between all characters
    for (; most != 0; --most) {
      TRY_STATUS(in.charge(to->size() + 4));
      out += *to;
      if (at >= text.size()) break;
      const size_t begin = at;
      decode_utf8(text, at);
      out += text.substr(begin, at - begin);
    }
  } else {
    for (size_t found = text.find(*from); found != std::string::npos && most != 0;
         found = text.find(*from, at), --most) {
      TRY_STATUS(in.charge(found - at + to->size()));
      out += text.substr(at, found - at);
      out += *to;
      at = found + from->size();
    }
  }
  if (at < text.size()) out += text.substr(at);
  return Value(std::move(out));
}

template <bool from_right>
Result<Value> partition(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("partition", a, {"sep"}, 1));
  TRY(const std::string* separator, text_argument(b[0], "sep"));
  if (separator->empty()) return Error(ErrorCode::kInvalidArgument, "empty separator");
  const std::string& text = self.as_text();
  TRY_STATUS(in.charge(text.size()));
  const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
  if (at == std::string::npos) return Sequence::tuple(from_right ? Values{"", "", self} : Values{self, "", ""});
  return Sequence::tuple({text.substr(0, at), *separator, text.substr(at + separator->size())});
}

template <char align>
Result<Value> justify(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("center", a, {"width", "fillchar"}, 1));
  TRY(const Integer width, integer_argument(b[0], 0));
  std::string fill = " ";
  if (b[1]) {
    TRY(const std::string* f, text_argument(b[1], "fill character"));
    if (count_code_points(*f) != 1) return type_error("The fill character must be exactly one character long");
    fill = *f;
  }
  const auto n = static_cast<Integer>(count_code_points(self.as_text()));
  if (width <= n) return self;
  const Integer missing = width - n;
  if (missing > (Integer{1} << 30)) return Error(ErrorCode::kUnsupported, "a width of over 2^30 is not supported");
  TRY_STATUS(in.charge(static_cast<size_t>(missing) * fill.size()));
  const auto filled = [&](Integer times) {
    std::string out;
    for (Integer i = 0; i < times; ++i) out += fill;
    return out;
  };
  // Python's center puts the odd one on the left where the width is odd.
  const Integer left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  return Value(filled(left) + self.as_text() + filled(missing - left));
}

Result<Value> zero_fill(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("zfill", a, {"width"}, 1));
  TRY(const Integer width, integer_argument(b[0], 0));
  const std::string& text = self.as_text();
  const auto n = static_cast<Integer>(count_code_points(text));
  if (width <= n) return self;
  if (width - n > (Integer{1} << 30)) return Error(ErrorCode::kUnsupported, "a width of over 2^30 is not supported");
  TRY_STATUS(in.charge(static_cast<size_t>(width - n)));
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return Value(text.substr(0, sign) + std::string(static_cast<size_t>(width - n), '0') + text.substr(sign));
}

template <bool suffix>
Result<Value> remove_affix(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind("removeprefix", a, {"prefix"}, 1));
  TRY(const std::string* affix, text_argument(b[0], "prefix"));
  const std::string& text = self.as_text();
  if (suffix) return text.ends_with(*affix) ? Value(text.substr(0, text.size() - affix->size())) : self;
  return text.starts_with(*affix) ? Value(text.substr(affix->size())) : self;
}

Result<Value> expand_tabs(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("expandtabs", a, {"tabsize"}));
  TRY(const Integer size, integer_argument(b[0], 8));
  if (size < 0 || size > 1000) return Error(ErrorCode::kUnsupported, "expandtabs() takes 0 to 1000 here");
  std::string out;
  Integer column = 0;
  const std::string& text = self.as_text();
  for (size_t i = 0; i < text.size();) {
    const char32_t c = decode_utf8(text, i);
    if (c == '\t') {
      const Integer n = size > 0 ? size - column % size : 0;
      TRY_STATUS(in.charge(static_cast<size_t>(n)));
      out.append(static_cast<size_t>(n), ' ');
      column += n;
    } else {
      append_utf8(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return Value(std::move(out));
}

Result<Value> format(Interpreter& in, const Value& self, Arguments a) {
  TRY(std::string text, brace_format(in, self.as_text(), a));
  return Value(std::move(text));
}

Result<Value> encode(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind("encode", a, {"encoding", "errors"}));
  if (b[0] && b[0]->is_text()) {
    const std::string name = lower(b[0]->as_text());
    if (name != "utf-8" && name != "utf8") return Error(ErrorCode::kUnsupported, "only UTF-8 can be encoded to");
  }
  return Value(Bytes{std::make_shared<const std::string>(self.as_text())});
}

Result<Value> decode(Interpreter&, const Value& self, Arguments a) {
  TRY(const Bound b, bind("decode", a, {"encoding", "errors"}));
  return Value(repaired_utf8(self.as_bytes()));
}

// --- list, tuple, dict ---

Result<Value> index_of(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("index", a, {"value"}, 1));
  const Values& items = self.as_sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    TRY(const bool same, in.equal(items[i], *b[0]));
    if (same) return Value(i);
  }
  return Error(ErrorCode::kInvalidArgument, b[0]->repr() + " is not in " + self.type_name());
}

Result<Value> count_of(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("count", a, {"value"}, 1));
  size_t n = 0;
  for (const Value& v : self.as_sequence().items) {
    TRY(const bool same, in.equal(v, *b[0]));
    n += same;
  }
  return Value(n);
}

Result<Value> itself(Interpreter&, const Value& self, Arguments) { return self; }

Result<Value> get(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("get", a, {"key", "default"}, 1));
  if (!hashable(*b[0])) return type_error("unhashable type: '" + b[0]->type_name() + "'");
  if (!b[0]->is_text()) TRY_STATUS(in.work(self.as_dict().items.size()));
  const Value* found = self.as_dict().find(*b[0]);
  return found ? *found : b[1] ? *b[1] : Value(None{});
}

template <SequenceKind kind>
Result<Value> view(Interpreter& in, const Value& self, Arguments a) {
  TRY(const Bound b, bind("dict view", a, {}));
  TRY_STATUS(in.charge(self.as_dict().items.size() * 2 * sizeof(Value)));
  Values items;
  for (const auto& [key, value] : self.as_dict().items)
    items.push_back(kind == SequenceKind::kDictKeys     ? key
                    : kind == SequenceKind::kDictValues ? value
                                                        : Sequence::tuple({key, value}));
  return Sequence::make(kind, std::move(items));
}

Result<Value> is_whole(Interpreter&, const Value& self, Arguments) {
  return Value(self.as_float() == static_cast<double>(static_cast<Integer>(self.as_float())));
}

struct Row {
  std::string_view name;
  MethodFunction function;
};
constexpr std::array<Row, 42> kTextMethods{{
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count_text},
    {"upper", mapped<upper>},
    {"lower", mapped<lower>},
    {"title", mapped<title>},
    {"capitalize", mapped<capitalize>},
    {"swapcase", mapped<swap_case>},
    {"casefold", mapped<case_fold>},
    {"isalpha", all_are<is_alpha>},
    {"isdigit", all_are<is_digit>},
    {"isdecimal", all_are<is_decimal>},
    {"isnumeric", all_are<is_numeric>},
    {"isalnum", all_are<alnum>},
    {"isspace", all_are<is_space>},
    {"isprintable", all_are<is_printable>},
    {"isupper", cased_as<is_upper, is_lower>},
    {"islower", cased_as<is_lower, is_upper>},
    {"istitle", is_title},
    {"join", join},
    {"replace", replace},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"center", justify<'^'>},
    {"ljust", justify<'<'>},
    {"rjust", justify<'>'>},
    {"zfill", zero_fill},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"expandtabs", expand_tabs},
    {"format", format},
    {"encode", encode},
}};
constexpr std::array<Row, 3> kSequenceMethods{{{"index", index_of}, {"count", count_of}, {"copy", itself}}};
constexpr std::array<Row, 5> kDictMethods{{{"get", get},
                                           {"items", view<SequenceKind::kDictItems>},
                                           {"keys", view<SequenceKind::kDictKeys>},
                                           {"values", view<SequenceKind::kDictValues>},
                                           {"copy", itself}}};
constexpr std::array<std::string_view, 9> kListChangers{"append", "clear",  "pop",    "reverse",    "insert",
                                                        "sort",   "extend", "remove", "__setitem__"};
constexpr std::array<std::string_view, 6> kDictChangers{"clear",      "pop",    "popitem",
                                                        "setdefault", "update", "__setitem__"};

template <size_t n>
MethodFunction method_in(const std::array<Row, n>& rows, std::string_view name) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
  return row == rows.end() ? nullptr : row->function;
}

template <size_t n>
bool one_of(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Numbers have a few attributes that are values.
std::optional<Value> number_attribute(const Value& self, std::string_view name) {
  if (name == "real") return self.is_bool() ? Value(*self.integer()) : self;
  if (name == "imag") return self.is_float() ? Value(0.0) : Value(0);
  if (!self.is_float() && name == "numerator") return Value(*self.integer());
  if (!self.is_float() && name == "denominator") return Value(1);
  return std::nullopt;
}

}  // namespace

Result<std::optional<Value>> find_method(Interpreter& in, const Value& self, const std::string& name) {
  const auto unsafe = [&] {
    return std::optional(Value::undefined("access to attribute " + text_repr(name) + " of '" + self.type_name() +
                                          "' object is unsafe."));
  };
  if (name.starts_with("__")) return unsafe();
  MethodFunction function = nullptr;
  if (self.is_text()) {
    function = method_in(kTextMethods, name);
  } else if (self.is_dict()) {
    if (one_of(kDictChangers, name)) return unsafe();
    function = method_in(kDictMethods, name);
  } else if (self.is_sequence()) {
    const SequenceKind kind = self.as_sequence().kind;
    if (kind == SequenceKind::kList && one_of(kListChangers, name)) return unsafe();
    if (self.as_sequence().indexable() && !(kind != SequenceKind::kList && name == "copy"))
      function = method_in(kSequenceMethods, name);
  } else if (self.is_number()) {
    if (auto value = number_attribute(self, name)) return std::optional(*std::move(value));
    if (self.is_float() && name == "is_integer") function = is_whole;
  } else if (self.is_bytes() && name == "decode") {
    function = decode;
  }
  if (!function) return std::optional<Value>();
  TRY(Value bound, in.make<BoundMethod>(self, name, function));
  return std::optional(std::move(bound));
}

}  // namespace berth::jinja
