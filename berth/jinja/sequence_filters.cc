// jinja/sequence_filters.cc — the filters over lists, dicts and generators.
#include <algorithm>
#include <charconv>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/jinja/case.h"
#include "berth/jinja/filter_table.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

using Filtered = Result<Value>;

Result<size_t> count_argument(const Value& v, const char* what) {
  const auto n = v.integer();
  if (!n || *n < 1 || *n > 1000000) return type_error(std::string(what) + ": expected a number from 1 to 1000000");
  return static_cast<size_t>(*n);
}

// "a.b.0" of an element: item after item.
Result<Value> path_of(Interpreter& in, const Value& element, const Value& path, const std::optional<Value>& otherwise) {
  Value v = element;
  if (path.integer()) {
    TRY(v, in.item(v, path));
  } else {
    for (const std::string& part : split(path.text(), '.')) {
      int index = 0;
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
      const bool is_index = error == std::errc() && end == part.data() + part.size() && part[0] != '-';
      TRY(v, in.item(v, is_index ? Value(index) : Value(part)));
      if (v.is_undefined() && otherwise) v = *otherwise;
    }
  }
  return v;
}

Value folded(const Value& v, bool case_sensitive) {
  return !case_sensitive && v.is_text() ? Value(lower(v.as_text())) : v;
}

struct Keyed {
  Values keys;
  Value value;
};

// Orders by keys, stably; the first comparison that fails ends up in `failed`.
class KeyOrder {
 public:
  // `single`: the key itself is compared, not a list of keys, whose equal members (undefined ones too) are passed over.
  KeyOrder(Interpreter& in, bool reverse, bool single, Status& failed)
      : in_(in), reverse_(reverse), single_(single), failed_(failed) {}
  bool operator()(const Keyed& a, const Keyed& b) const {
    if (!failed_) return false;
    for (size_t i = 0; i < a.keys.size(); ++i) {
      const Value &x = reverse_ ? b.keys[i] : a.keys[i], &y = reverse_ ? a.keys[i] : b.keys[i];
      if (auto status = in_.work(std::min(x.weight(), y.weight())); !status) {
        failed_ = status;
        return false;
      }
      if (!(single_ && x.is_undefined()) && x.equals(y)) continue;
      const auto order = compare(x, y, "<");
      if (!order) {
        failed_ = order.error();
        return false;
      }
      return *order == -1;
    }
    return false;
  }

 private:
  Interpreter& in_;
  bool reverse_, single_;
  Status& failed_;
};

Result<std::vector<Keyed>> keyed(Interpreter& in, const Values& items, const std::optional<Value>& attribute,
                                 bool case_sensitive, const std::optional<Value>& otherwise = std::nullopt) {
  std::vector<Keyed> out;
  std::vector<Value> paths;
  if (attribute && !attribute->is_none()) {
    if (attribute->is_text())
      for (const std::string& p : split(attribute->as_text(), ',')) paths.emplace_back(p);
    else
      paths.push_back(*attribute);
  }
  for (const Value& v : items) {
    Keyed k;
    k.value = v;
    for (const Value& p : paths) {
      TRY(const Value key, path_of(in, v, p, otherwise));
      k.keys.push_back(folded(key, case_sensitive));
    }
    if (paths.empty()) k.keys.push_back(folded(v, case_sensitive));
    out.push_back(std::move(k));
  }
  return out;
}

Result<std::vector<Keyed>> in_order(Interpreter& in, std::vector<Keyed> items, bool reverse, bool single) {
  TRY_STATUS(in.charge(items.size() * sizeof(Keyed)));
  Status failed;
  std::stable_sort(items.begin(), items.end(), KeyOrder(in, reverse, single, failed));
  TRY_STATUS(failed);
  return items;
}

Filtered length(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("length", a, {}));
  if (v.is_undefined()) return Value(0);
  if (v.is_text()) return Value(count_code_points(v.as_text()));
  if (v.is_bytes()) return Value(v.as_bytes().size());
  if (v.is_dict()) return Value(v.as_dict().items.size());
  if (v.is_sequence() && v.as_sequence().kind != SequenceKind::kGenerator) return Value(v.as_sequence().items.size());
  return type_error("object of type '" + v.type_name() + "' has no len()");
}

Filtered list(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("list", a, {}));
  TRY(Values items, in.iterate(v));
  return Sequence::list(std::move(items));
}

Filtered items_filter(Interpreter& in, const Value& v, Arguments) {
  if (v.is_undefined()) return Sequence::generator({});
  if (!v.is_dict()) return type_error("Can only get item pairs from a mapping.");
  TRY_STATUS(in.charge(v.as_dict().items.size() * 3 * sizeof(Value)));
  Values pairs;
  for (const auto& [key, value] : v.as_dict().items) pairs.push_back(Sequence::tuple({key, value}));
  return Sequence::generator(std::move(pairs));
}

Filtered first(Interpreter& in, const Value& v, Arguments) {
  TRY(Values items, in.iterate(v));
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}
Filtered last(Interpreter& in, const Value& v, Arguments) {
  if (v.is_sequence() && v.as_sequence().kind == SequenceKind::kGenerator)
    return type_error("'generator' object is not reversible");
  TRY(Values items, in.iterate(v));
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}
Filtered random_filter(Interpreter& in, const Value& v, Arguments) {
  TRY(Values items, in.iterate(v));  // the same choice every time: rendering has no chance in it
  return items.empty() ? Value::undefined("No random item, sequence was empty.") : items.front();
}

Filtered join(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("join", a, {"d", "attribute"}));
  TRY(const Values items, in.iterate(v));
  const std::string separator = b[0] ? b[0]->text() : "";
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (b[1] && !b[1]->is_none()) {
      TRY(item, path_of(in, item, *b[1], std::nullopt));
    }
    TRY_STATUS(in.work(item.weight()));
    std::string text = item.text();
    if (in.autoescape() && !item.is_safe()) text = html_escaped(text);
    TRY_STATUS(in.charge(text.size() + separator.size()));
    if (i > 0) out += in.autoescape() && b[0] && !b[0]->is_safe() ? html_escaped(separator) : separator;
    out += text;
  }
  return in.autoescape() ? Value::markup(std::move(out)) : Value(std::move(out));
}

Filtered reverse(Interpreter& in, const Value& v, Arguments) {
  TRY(Values items, in.iterate(v));
  std::reverse(items.begin(), items.end());
  if (!v.is_text()) return Sequence::generator(std::move(items));
  std::string out;
  for (const Value& c : items) out += c.as_text();
  return Value(std::move(out));
}

Filtered sort(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("sort", a, {"reverse", "case_sensitive", "attribute"}));
  TRY(const Values items, in.iterate(v));
  TRY(auto keys, keyed(in, items, b[2], b[1] && b[1]->truthy()));
  TRY(const auto sorted, in_order(in, std::move(keys), b[0] && b[0]->truthy(), false));
  Values out;
  for (const Keyed& k : sorted) out.push_back(k.value);
  return Sequence::list(std::move(out));
}

Filtered dict_sort(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("dictsort", a, {"case_sensitive", "by", "reverse"}));
  const std::string by = b[1] ? b[1]->text() : "key";
  if (by != "key" && by != "value")
    return Error(ErrorCode::kInvalidArgument, "You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) return Error(ErrorCode::kInvalidArgument, v.undefined_message());
  if (!v.is_dict()) return type_error("dictsort takes a mapping, not " + v.type_name());
  Values pairs;
  for (const auto& [key, value] : v.as_dict().items) pairs.push_back(Sequence::tuple({key, value}));
  TRY(auto keys, keyed(in, pairs, Value(by == "key" ? 0 : 1), b[0] && b[0]->truthy()));
  TRY(const auto sorted, in_order(in, std::move(keys), b[2] && b[2]->truthy(), true));
  Values out;
  for (const Keyed& k : sorted) out.push_back(k.value);
  return Sequence::list(std::move(out));
}

template <bool greatest>
Filtered extreme(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind(greatest ? "max" : "min", a, {"case_sensitive", "attribute"}));
  TRY(const Values items, in.iterate(v));
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  TRY(const auto keys, keyed(in, items, b[1], b[0] && b[0]->truthy()));
  size_t best = 0;
  Status failed;
  const KeyOrder less(in, false, true, failed);
  for (size_t i = 1; i < keys.size(); ++i)
    if (greatest ? less(keys[best], keys[i]) : less(keys[i], keys[best])) best = i;
  TRY_STATUS(failed);
  return keys[best].value;
}

Filtered sum(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("sum", a, {"attribute", "start"}));
  TRY(const Values items, in.iterate(v));
  Value total = b[1] ? *b[1] : Value(0);
  for (Value item : items) {
    if (b[0] && !b[0]->is_none()) {
      TRY(item, path_of(in, item, *b[0], std::nullopt));
    }
    TRY(total, binary_operator(in, "+", total, item));
  }
  return total;
}

Filtered unique(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("unique", a, {"case_sensitive", "attribute"}));
  TRY(const Values items, in.iterate(v));
  TRY(const auto keys, keyed(in, items, b[1], b[0] && b[0]->truthy()));
  Dict seen;
  Values out;
  for (const Keyed& k : keys) {
    const Value key = k.keys.size() == 1 ? k.keys[0] : Sequence::tuple(k.keys);
    if (!hashable(key)) return type_error("unhashable type: '" + key.type_name() + "'");
    if (!key.is_text()) TRY_STATUS(in.work(seen.items.size()));
    if (seen.find(key)) continue;
    seen.set(key, true);
    out.push_back(k.value);
  }
  return Sequence::generator(std::move(out));
}

Filtered group_by(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("groupby", a, {"attribute", "default", "case_sensitive"}, 1));
  TRY(const Values items, in.iterate(v));
  const bool case_sensitive = b[2] && b[2]->truthy();
  TRY(auto keys, keyed(in, items, b[0], case_sensitive, b[1]));
  TRY(const auto sorted, in_order(in, std::move(keys), false, true));
  Values groups;
  for (size_t i = 0; i < sorted.size();) {
    Values members;
    const size_t start = i;
    for (; i < sorted.size() && sorted[i].keys[0].equals(sorted[start].keys[0]); ++i)
      members.push_back(sorted[i].value);
    // The group is named by its first member's own spelling.
    TRY(const Value name, path_of(in, sorted[start].value, *b[0], b[1]));
    groups.push_back(Sequence::tuple({name, Sequence::list(std::move(members))}));
  }
  return Sequence::list(std::move(groups));
}

Filtered batch(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("batch", a, {"linecount", "fill_with"}, 1));
  TRY(const size_t n, count_argument(*b[0], "batch"));
  TRY(const Values items, in.iterate(v));
  Values out, line;
  for (const Value& item : items) {
    line.push_back(item);
    if (line.size() == n) out.push_back(Sequence::list(std::exchange(line, {})));
  }
  if (!line.empty()) {
    if (b[1] && !b[1]->is_none()) {
      TRY_STATUS(in.charge(n * sizeof(Value)));
      line.resize(n, *b[1]);
    }
    out.push_back(Sequence::list(std::move(line)));
  }
  return Sequence::generator(std::move(out));
}

Filtered slice(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("slice", a, {"slices", "fill_with"}, 1));
  TRY(const size_t n, count_argument(*b[0], "slice"));
  TRY(const Values items, in.iterate(v));
  TRY_STATUS(in.charge(n * sizeof(Value)));
  const size_t each = items.size() / n, extra = items.size() % n;
  Values out;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t end = at + each + (i < extra ? 1 : 0);
    Values part(items.begin() + static_cast<ptrdiff_t>(at), items.begin() + static_cast<ptrdiff_t>(end));
    if (b[1] && !b[1]->is_none() && i >= extra) part.push_back(*b[1]);
    out.push_back(Sequence::list(std::move(part)));
    at = end;
  }
  return Sequence::generator(std::move(out));
}

// The first positional argument, taken out.
std::optional<Value> taken_first(Arguments& a) {
  if (a.positional.empty()) return std::nullopt;
  Value v = a.positional.front();
  a.positional.erase(a.positional.begin());
  return v;
}

Filtered map(Interpreter& in, const Value& v, Arguments a) {
  if (!v.truthy()) return Sequence::generator({});
  std::optional<Value> attribute, otherwise;
  if (a.positional.empty()) {
    for (const auto& [name, value] : a.named) {
      if (name == "attribute")
        attribute = value;
      else if (name == "default")
        otherwise = value;
      else
        return type_error("Unexpected keyword argument '" + name + "'");
    }
    if (!attribute) return type_error("map requires a filter argument");
  }
  const auto filter = attribute ? std::nullopt : taken_first(a);
  TRY(const Values items, in.iterate(v));
  Values out;
  for (const Value& item : items) {
    auto mapped = attribute ? path_of(in, item, *attribute, otherwise) : in.filter(filter->text(), item, a);
    if (!mapped) return mapped.error();
    out.push_back(*std::move(mapped));
  }
  return Sequence::generator(std::move(out));
}

// select, reject and, with an attribute's name first, selectattr and rejectattr.
template <bool wanted, bool by_attribute>
Filtered choose(Interpreter& in, const Value& v, Arguments a) {
  if (!v.truthy()) return Sequence::generator({});
  std::optional<Value> attribute;
  if (by_attribute) {
    attribute = taken_first(a);
    if (!attribute) return type_error("Missing parameter for attribute name");
  }
  const auto test = taken_first(a);
  TRY(const Values items, in.iterate(v));
  Values out;
  for (const Value& item : items) {
    Value tested = item;
    if (attribute) {
      TRY(tested, path_of(in, item, *attribute, std::nullopt));
    }
    bool holds = tested.truthy();
    if (test) {
      TRY(holds, in.test(test->text(), tested, a));
    }
    if (holds == wanted) out.push_back(item);
  }
  return Sequence::generator(std::move(out));
}

}  // namespace

const std::vector<FilterRow>& sequence_filters() {
  static const std::vector<FilterRow> kRows{
      {"batch", batch},
      {"count", length},
      {"dictsort", dict_sort},
      {"first", first},
      {"groupby", group_by},
      {"items", items_filter},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"random", random_filter},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"reverse", reverse},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return kRows;
}

}  // namespace berth::jinja
