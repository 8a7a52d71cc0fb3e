// jinja/filters.cc — the filters over single values: texts, numbers, JSON. Those over sequences: sequence_filters.cc.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/case.h"
#include "berth/jinja/filter_table.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

using Filtered = Result<Value>;

Result<Integer> integer_of(const std::optional<Value>& v, Integer otherwise) {
  if (!v || v->is_none()) return otherwise;
  if (const auto n = v->integer()) return *n;
  return type_error("expected an integer, found " + v->type_name());
}

// A method of str as a filter, over the value's text.
template <const char* method>
Filtered text_method(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Value bound, in.attribute(Value(v.text()), method));
  return in.call(bound, std::move(a));
}
constexpr char kUpper[] = "upper", kLower[] = "lower", kCapitalize[] = "capitalize", kStrip[] = "strip",
               kReplace[] = "replace";

Filtered title_filter(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("title", a, {}));
  const std::string text = v.text();
  TRY_STATUS(in.charge(text.size() * 2));
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    decode_utf8(word, first);
    out += upper(word.substr(0, first)) + lower(word.substr(first));
    word.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const char32_t c = decode_utf8(text, i);
    const bool separates =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    if (separates) {
      flush();
      out += text.substr(begin, i - begin);
    } else {
      word += text.substr(begin, i - begin);
    }
  }
  flush();
  return Value(std::move(out));
}

Filtered center(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("center", a, {"width"}));
  TRY(const Value method, in.attribute(Value(v.text()), "center"));
  return in.call(method, {{b[0] ? *b[0] : Value(80)}, {}});
}

Filtered default_filter(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("default", a, {"default_value", "boolean"}));
  const bool falsy_too = b[1] && b[1]->truthy();
  if (v.is_undefined() || (falsy_too && !v.truthy())) return b[0] ? *b[0] : Value("");
  return v;
}

Filtered escape(Interpreter& in, const Value& v, Arguments) {
  if (v.is_safe()) return v;
  const std::string text = v.text();
  TRY_STATUS(in.charge(text.size() * 5));
  return Value::markup(html_escaped(text));
}
Filtered force_escape(Interpreter& in, const Value& v, Arguments) {
  TRY_STATUS(in.charge(v.text().size() * 5));
  return Value::markup(html_escaped(v.text()));
}
Filtered safe(Interpreter&, const Value& v, Arguments) { return Value::markup(v.text()); }
Filtered string_filter(Interpreter& in, const Value& v, Arguments) {
  if (v.is_text()) return v;
  TRY_STATUS(in.charge(v.weight()));
  return Value(v.text());
}

Filtered abs_filter(Interpreter&, const Value& v, Arguments) {
  if (v.is_float()) return Value(std::abs(v.as_float()));
  if (const auto n = v.integer()) return Value(*n < 0 ? -*n : *n);
  if (v.is_undefined()) return Error(ErrorCode::kInvalidArgument, v.undefined_message());
  return type_error("bad operand type for abs(): '" + v.type_name() + "'");
}

Filtered attr(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("attr", a, {"name"}, 1));
  const std::string name = b[0]->text();
  if (v.is_dict()) {  // attributes only, not keys
    TRY(auto method, find_method(in, v, name));
    return method ? *method : Value::undefined("'dict object' has no attribute " + text_repr(name));
  }
  return in.attribute(v, name);
}

// Python's float(text): surrounding space, underscores between digits, inf and nan.
std::optional<double> parsed_float(std::string_view text) {
  text = stripped(text, true, true);
  std::string digits(text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  std::string_view d = digits;
  if (d.starts_with('+')) d.remove_prefix(1);
  if (d.empty() || d.starts_with('+') || d.find_first_of("xX") != std::string_view::npos) return std::nullopt;
  double out = 0;
  const auto [end, error] = std::from_chars(d.data(), d.data() + d.size(), out);
  if (end != d.data() + d.size() || error == std::errc::invalid_argument) return std::nullopt;
  return out;
}

std::optional<Integer> parsed_integer(std::string_view text, Integer base) {
  text = stripped(text, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 32) == letter; };
  if ((base == 16 || base == 0) && prefixed('x')) {
    text.remove_prefix(2);
    base = 16;
  } else if ((base == 8 || base == 0) && prefixed('o')) {
    text.remove_prefix(2);
    base = 8;
  } else if ((base == 2 || base == 0) && prefixed('b')) {
    text.remove_prefix(2);
    base = 2;
  } else if (base == 0) {
    base = 10;
  }
  if (text.empty() || text.starts_with('_') || text.ends_with('_')) return std::nullopt;
  Integer n = 0;
  for (const char c : text) {
    if (c == '_') continue;
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
    if (digit >= base || __builtin_mul_overflow(n, base, &n) ||
        __builtin_add_overflow(n, static_cast<Integer>(digit), &n))
      return std::nullopt;
  }
  return negative ? -n : n;
}

std::optional<Integer> truncated(double d) {
  if (std::isnan(d) || std::abs(d) > 1e38) return std::nullopt;
  return static_cast<Integer>(d);
}

Filtered int_filter(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("int", a, {"default", "base"}));
  TRY(const Integer base, integer_of(b[1], 10));
  if (v.is_undefined()) return Error(ErrorCode::kInvalidArgument, v.undefined_message());
  std::optional<Integer> n = v.integer();
  if (v.is_float()) n = truncated(v.as_float());
  if (v.is_text()) {
    n = parsed_integer(v.as_text(), base);
    if (!n)
      if (const auto d = parsed_float(v.as_text())) n = truncated(*d);
  }
  if (n) return Value(*n);
  return b[0] ? *b[0] : Value(0);
}

Filtered float_filter(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("float", a, {"default"}));
  if (v.is_undefined()) return Error(ErrorCode::kInvalidArgument, v.undefined_message());
  if (const auto d = v.number()) return Value(*d);
  if (v.is_text())
    if (const auto d = parsed_float(v.as_text())) return Value(*d);
  return b[0] ? *b[0] : Value(0.0);
}

Filtered round_filter(Interpreter&, const Value& v, Arguments a) {
  TRY(const Bound b, bind("round", a, {"precision", "method"}));
  TRY(const Integer precision, integer_of(b[0], 0));
  const std::string method = b[1] ? b[1]->text() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    return Error(ErrorCode::kInvalidArgument, "method must be common, ceil or floor");
  const auto d = v.number();
  if (!d) return type_error("type " + v.type_name() + " doesn't define __round__ method");
  if (precision < -300 || precision > 300)
    return Error(ErrorCode::kUnsupported, "a precision of over 300 is not supported");
  const auto digits = static_cast<int>(precision);
  if (method != "common") {
    const double scale = std::pow(10.0, digits);
    return Value((method == "ceil" ? std::ceil(*d * scale) : std::floor(*d * scale)) / scale);
  }
  if (!v.is_float() && digits >= 0) return v.is_bool() ? Value(*v.integer()) : v;
  if (std::isnan(*d) || std::isinf(*d)) return v;
  if (digits < 0) {
    const double scale = std::pow(10.0, -digits);
    const double rounded = std::nearbyint(*d / scale) * scale;
    if (v.is_float()) return Value(rounded);
    return Value(truncated(rounded).value_or(0));
  }
  char buffer[800];  // rounds the exact binary value, ties to even, as Python does
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, *d, std::chars_format::fixed, digits).ptr;
  double out = 0;
  std::from_chars(buffer, end, out);
  return Value(out);
}

Filtered format_filter(Interpreter& in, const Value& v, Arguments a) {
  if (!a.positional.empty() && !a.named.empty())
    return Error(ErrorCode::kInvalidArgument, "can't handle positional and keyword arguments at the same time");
  Value arguments = Sequence::tuple(a.positional);
  if (!a.named.empty()) {
    Dict d;
    for (auto& [name, value] : a.named) d.set(name, std::move(value));
    arguments = Dict::make(std::move(d));
  }
  TRY(std::string text, percent_format(in, v.text(), arguments));
  return Value(std::move(text));
}

Filtered file_size(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("filesizeformat", a, {"binary"}));
  TRY(const Value number, float_filter(in, v, {{Value(None{})}, {}}));
  if (!number.is_float()) return type_error("filesizeformat takes a number, not " + v.type_name());
  const bool binary = b[0] && b[0]->truthy();
  const double bytes = number.as_float(), base = binary ? 1024 : 1000;
  if (bytes == 1) return Value("1 Byte");
  if (bytes < base) return Value(integer_text(truncated(bytes).value_or(0)) + " Bytes");
  constexpr const char* kPrefixes = "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (; i < 8; ++i) {
    unit *= base;
    if (bytes < unit || i == 7) break;
  }
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, base * bytes / unit, std::chars_format::fixed, 1).ptr;
  std::string prefix(1, kPrefixes[i]);
  if (binary) prefix = std::string(1, prefix == "k" ? 'K' : prefix[0]) + "i";
  return Value(std::string(buffer, end) + " " + prefix + "B");
}

Status require_text(const Value& v, const char* filter) {
  if (v.is_text()) return {};
  if (v.is_undefined()) return Error(ErrorCode::kInvalidArgument, v.undefined_message());
  return type_error(std::string(filter) + ": expected a string, found " + v.type_name());
}

Filtered indent(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("indent", a, {"width", "first", "blank"}));
  std::string by(4, ' ');
  if (b[0] && b[0]->is_text()) {
    by = b[0]->as_text();
  } else if (b[0]) {
    TRY(const Integer n, integer_of(b[0], 4));
    if (n > 10000) return Error(ErrorCode::kUnsupported, "an indent of over 10000 is not supported");
    by.assign(static_cast<size_t>(std::max<Integer>(n, 0)), ' ');
  }
  TRY_STATUS(require_text(v, "indent"));
  const bool first = b[1] && b[1]->truthy(), blank = b[2] && b[2]->truthy();
  TRY(const Value method, in.attribute(Value(v.text() + "\n"), "splitlines"));
  TRY(const Value lines, in.call(method, {}));
  std::string out;
  const Values& items = lines.as_sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& line = items[i].as_text();
    TRY_STATUS(in.charge(line.size() + by.size() + 1));
    if (i > 0) out += "\n";
    if (i == 0 ? first : (blank || !line.empty())) out += by;
    out += line;
  }
  return Value(std::move(out));
}

Filtered truncate(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("truncate", a, {"length", "killwords", "end", "leeway"}));
  TRY(const Integer length, integer_of(b[0], 255));
  TRY(const Integer leeway, integer_of(b[3], 5));
  const std::string end = b[2] ? b[2]->text() : "...";
  const bool short_list = v.is_undefined() ||
                          (v.is_dict() && static_cast<Integer>(v.as_dict().items.size()) <= length + leeway) ||
                          (v.is_sequence() && v.as_sequence().kind != SequenceKind::kGenerator &&
                           static_cast<Integer>(v.as_sequence().items.size()) <= length + leeway);
  if (short_list) return v;  // what has a length below is given back, whatever it is
  TRY_STATUS(require_text(v, "truncate"));
  const std::string text = v.text();
  const auto end_size = static_cast<Integer>(count_code_points(end));
  if (length < end_size || leeway < 0)
    return Error(ErrorCode::kInvalidArgument, "truncate: length or leeway is too small");
  if (static_cast<Integer>(count_code_points(text)) <= length + leeway) return Value(text);
  TRY_STATUS(in.charge(text.size()));
  size_t cut = 0;
  for (Integer i = 0; i < length - end_size; ++i) decode_utf8(text, cut);
  std::string kept = text.substr(0, cut);
  if (!(b[1] && b[1]->truthy())) kept = kept.substr(0, kept.rfind(' '));
  return Value(kept + end);
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

Filtered word_count(Interpreter&, const Value& v, Arguments) {
  const std::string text = v.text();
  size_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const bool word = is_word(decode_utf8(text, i));
    n += word && !inside;
    inside = word;
  }
  return Value(n);
}

// The pieces that textwrap breaks lines between: words, the white space between them, and words behind hyphens.
std::vector<std::string> wrap_chunks(const std::string& line, bool hyphens) {
  std::vector<std::string> chunks;
  const std::vector<size_t> starts = [&] {
    std::vector<size_t> s;
    for (size_t i = 0; i < line.size(); decode_utf8(line, i)) s.push_back(i);
    s.push_back(line.size());
    return s;
  }();
  const auto at = [&](size_t i) {
    size_t b = starts[i];
    return decode_utf8(line, b);
  };
  const size_t n = starts.size() - 1;
  const auto letter = [&](size_t i) { return is_word(at(i)) && !is_decimal(at(i)); };
  size_t begin = 0;
  for (size_t i = 0; i < n; ++i) {
    bool cut = i + 1 == n || is_space(at(i)) != is_space(at(i + 1));
    // A hyphen with a letter before it (and a word character before that) and a word with a letter behind it.
    if (!cut && hyphens && at(i) == '-' && i >= 2 && letter(i - 1) && is_word(at(i - 2)) && i + 2 < n &&
        is_word(at(i + 1))) {
      for (size_t k = i + 2; k < n && is_word(at(k)) && !cut; ++k) cut = letter(k);
    }
    if (!cut) continue;
    chunks.push_back(line.substr(starts[begin], starts[i + 1] - starts[begin]));
    begin = i + 1;
  }
  return chunks;
}

// textwrap.wrap() of one line, as Jinja calls it.
std::vector<std::string> wrapped(const std::string& text, size_t width, bool cut_long, bool hyphens) {
  std::vector<std::string> chunks = wrap_chunks(text, hyphens);
  std::reverse(chunks.begin(), chunks.end());
  const auto blank = [](const std::string& s) { return stripped(s, true, false).empty(); };
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<std::string> line;
    size_t used = 0;
    if (blank(chunks.back()) && !lines.empty()) chunks.pop_back();
    while (!chunks.empty() && used + count_code_points(chunks.back()) <= width) {
      used += count_code_points(chunks.back());
      line.push_back(std::move(chunks.back()));
      chunks.pop_back();
    }
    if (!chunks.empty() && count_code_points(chunks.back()) > width) {
      std::string& chunk = chunks.back();
      if (cut_long) {
        size_t cut = 0;
        for (size_t i = used; i < width; ++i) decode_utf8(chunk, cut);
        const size_t hyphen = hyphens && cut > 0 ? chunk.rfind('-', cut - 1) : std::string::npos;
        if (hyphen != std::string::npos && chunk.find_first_not_of('-') < hyphen) cut = hyphen + 1;
        line.push_back(chunk.substr(0, cut));
        chunk = chunk.substr(cut);
      } else if (line.empty()) {
        line.push_back(std::move(chunk));
        chunks.pop_back();
      }
    }
    if (!line.empty() && blank(line.back())) line.pop_back();
    if (line.empty()) continue;
    lines.emplace_back();
    for (const std::string& part : line) lines.back() += part;
  }
  return lines;
}

Filtered word_wrap(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("wordwrap", a, {"width", "break_long_words", "wrapstring", "break_on_hyphens"}));
  TRY(const Integer width, integer_of(b[0], 79));
  TRY_STATUS(require_text(v, "wordwrap"));
  if (width < 1 || width > 1000000)
    return Error(ErrorCode::kInvalidArgument, "wordwrap: expected a width from 1 to 1000000");
  const std::string separator = b[2] && b[2]->is_text() ? b[2]->as_text() : "\n";
  TRY(const Value method, in.attribute(v, "splitlines"));
  TRY(const Value lines, in.call(method, {}));
  std::string out;
  bool first = true;
  for (const Value& l : lines.as_sequence().items) {
    TRY_STATUS(in.work(l.as_text().size()));
    TRY_STATUS(in.charge(l.as_text().size() * 40));
    const auto parts =
        wrapped(l.as_text(), static_cast<size_t>(width), !b[1] || b[1]->truthy(), !b[3] || b[3]->truthy());
    for (size_t i = 0; i < std::max<size_t>(parts.size(), 1); ++i) {
      TRY_STATUS(in.charge(separator.size()));
      if (!first) out += separator;
      first = false;
      if (i < parts.size()) out += parts[i];
    }
  }
  return Value(std::move(out));
}

std::string percent_encoded(std::string_view text, std::string_view keep, bool plus) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       keep.find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else if (c == ' ' && plus)
      out += '+';
    else
      out += {'%', kHex[static_cast<uint8_t>(c) >> 4], kHex[static_cast<uint8_t>(c) & 15]};
  }
  return out;
}

Filtered url_encode(Interpreter& in, const Value& v, Arguments) {
  if (!v.is_dict() && !v.is_sequence()) {
    TRY_STATUS(in.charge(v.text().size() * 3));
    return Value(percent_encoded(v.text(), "/", false));
  }
  Values pairs;
  if (v.is_dict()) {
    for (const auto& [key, value] : v.as_dict().items) pairs.push_back(Sequence::tuple({key, value}));
  } else {
    TRY(pairs, in.iterate(v));
  }
  std::string out;
  for (const Value& p : pairs) {
    TRY(const Values pair, in.iterate(p));
    if (pair.size() != 2) return Error(ErrorCode::kInvalidArgument, "urlencode takes a text, a mapping or pairs");
    TRY_STATUS(in.charge((pair[0].text().size() + pair[1].text().size()) * 3));
    if (!out.empty()) out += '&';
    out += percent_encoded(pair[0].text(), "", true) + "=" + percent_encoded(pair[1].text(), "", true);
  }
  return Value(std::move(out));
}

Filtered strip_tags(Interpreter& in, const Value& v, Arguments) {
  const std::string text = v.text();
  TRY_STATUS(in.charge(text.size()));
  std::string kept;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool comment = text.compare(i, 4, "<!--") == 0;
    if (text[i] == '<') {
      const size_t close = text.find(comment ? "-->" : ">", i);
      if (close != std::string::npos) {
        i = close + (comment ? 2 : 0);
        continue;
      }
    }
    kept += text[i];
  }
  // Runs of white space become one space; the common entities their characters.
  std::string out;
  bool space = false;
  for (size_t i = 0; i < kept.size();) {
    const size_t begin = i;
    if (is_space(decode_utf8(kept, i))) {
      space = true;
      continue;
    }
    if (space && !out.empty()) out += ' ';
    space = false;
    constexpr std::array<std::pair<std::string_view, char>, 7> kEntities{{{"&amp;", '&'},
                                                                          {"&lt;", '<'},
                                                                          {"&gt;", '>'},
                                                                          {"&quot;", '"'},
                                                                          {"&#34;", '"'},
                                                                          {"&#39;", '\''},
                                                                          {"&apos;", '\''}}};
    const auto entity = std::find_if(kEntities.begin(), kEntities.end(), [&](const auto& e) {
      return std::string_view(kept).substr(begin, e.first.size()) == e.first;
    });
    if (entity != kEntities.end()) {
      out += entity->second;
      i = begin + entity->first.size();
    } else {
      out += kept.substr(begin, i - begin);
    }
  }
  return Value(std::move(out));
}

Filtered xml_attributes(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("xmlattr", a, {"autospace"}));
  if (!v.is_dict()) return type_error("xmlattr takes a mapping");
  std::string out;
  for (const auto& [key, value] : v.as_dict().items) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string name = key.text();
    if (name.find_first_of(" \t\n\r\f/>=") != std::string::npos)
      return Error(ErrorCode::kInvalidArgument, "Invalid character in attribute name: " + text_repr(name));
    TRY_STATUS(in.charge(name.size() + value.text().size() * 5 + 4));
    if (!out.empty()) out += ' ';
    out += html_escaped(name) + "=\"" + (value.is_safe() ? value.as_text() : html_escaped(value.text())) + "\"";
  }
  if (!out.empty() && (!b[0] || b[0]->truthy())) out.insert(0, " ");
  return in.autoescape() ? Value::markup(std::move(out)) : Value(std::move(out));
}

Filtered to_json_filter(Interpreter& in, const Value& v, Arguments a) {
  TRY(const Bound b, bind("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = b[0] && b[0]->truthy();
  if (b[1] && !b[1]->is_none()) {
    if (b[1]->is_text()) {
      style.indent = b[1]->as_text();
    } else {
      TRY(const Integer n, integer_of(b[1], 0));
      if (n > 1000) return Error(ErrorCode::kUnsupported, "an indent of over 1000 is not supported");
      style.indent = std::string(static_cast<size_t>(std::max<Integer>(n, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (b[2] && !b[2]->is_none()) {
    TRY(const Values pair, in.iterate(*b[2]));
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text())
      return type_error("separators must be two strings");
    style.item_separator = pair[0].as_text();
    style.key_separator = pair[1].as_text();
  }
  style.sort_keys = b[3] && b[3]->truthy();
  TRY(std::string text, to_json(in, v, style));
  return Value(std::move(text));
}

// pprint.pformat(): dicts sorted by key, what does not fit in 80 columns on lines of its own.
class PrettyText {
 public:
  explicit PrettyText(Interpreter& in) : in_(in) {}
  Status write(const Value& v, size_t indent, size_t allowance) {
    const std::string line = one_line(v);
    TRY_STATUS(in_.charge(line.size()));
    TRY_STATUS(in_.work(v.weight()));
    if (count_code_points(line) + indent + allowance <= kWidth) {
      out_ += line;
      return {};
    }
    if (v.is_dict()) return dict(sorted(v.as_dict()), indent, allowance);
    if (v.is_sequence() && v.as_sequence().kind <= SequenceKind::kTuple)
      return items(v.as_sequence(), indent, allowance);
    if (v.is_text()) return Error(ErrorCode::kUnsupported, "pprint of a string wider than its line is not supported");
    out_ += line;
    return {};
  }
  std::string take() { return std::move(out_); }

 private:
  static constexpr size_t kWidth = 80;
  using Pairs = std::vector<std::pair<Value, Value>>;

  static Pairs sorted(const Dict& d) {
    Pairs pairs = d.items;
    std::stable_sort(pairs.begin(), pairs.end(), [](const auto& x, const auto& y) {
      const auto order = compare(x.first, y.first, "<");
      return order ? *order == -1 : x.first.type_name() < y.first.type_name();
    });
    return pairs;
  }
  static std::string one_line(const Value& v) {
    if (v.is_dict()) {
      std::string out = "{";
      for (const auto& [key, value] : sorted(v.as_dict()))
        out += (out.size() > 1 ? ", " : "") + one_line(key) + ": " + one_line(value);
      return out + "}";
    }
    if (v.is_sequence() && v.as_sequence().kind <= SequenceKind::kTuple) {
      const bool list = v.as_sequence().kind == SequenceKind::kList;
      std::string out = list ? "[" : "(";
      const Values& values = v.as_sequence().items;
      for (size_t i = 0; i < values.size(); ++i) out += (i > 0 ? ", " : "") + one_line(values[i]);
      return out + (list ? "]" : values.size() == 1 ? ",)" : ")");
    }
    return v.repr();
  }
  Status next_line(size_t indent) {
    TRY_STATUS(in_.charge(indent + 2));
    out_ += ",\n" + std::string(indent, ' ');
    return {};
  }
  Status dict(const Pairs& pairs, size_t indent, size_t allowance) {
    out_ += '{';
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0) TRY_STATUS(next_line(indent + 1));
      const std::string key = pairs[i].first.repr();
      out_ += key + ": ";
      TRY_STATUS(
          write(pairs[i].second, indent + count_code_points(key) + 3, i + 1 == pairs.size() ? allowance + 1 : 1));
    }
    out_ += '}';
    return {};
  }
  Status items(const Sequence& s, size_t indent, size_t allowance) {
    const bool list = s.kind == SequenceKind::kList;
    const std::string end = list ? "]" : s.items.size() == 1 ? ",)" : ")";
    out_ += list ? '[' : '(';
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i > 0) TRY_STATUS(next_line(indent + 1));
      TRY_STATUS(write(s.items[i], indent + 1, i + 1 == s.items.size() ? allowance + end.size() : 1));
    }
    out_ += end;
    return {};
  }

  Interpreter& in_;
  std::string out_;
};

Filtered pprint(Interpreter& in, const Value& v, Arguments) {
  PrettyText text(in);
  TRY_STATUS(text.write(v, 0, 0));
  return Value(text.take());
}

}  // namespace

const std::vector<FilterRow>& value_filters() {
  static const std::vector<FilterRow> kRows{
      {"abs", abs_filter},
      {"attr", attr},
      {"capitalize", text_method<kCapitalize>},
      {"center", center},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape},
      {"escape", escape},
      {"filesizeformat", file_size},
      {"float", float_filter},
      {"forceescape", force_escape},
      {"format", format_filter},
      {"indent", indent},
      {"int", int_filter},
      {"lower", text_method<kLower>},
      {"pprint", pprint},
      {"replace", text_method<kReplace>},
      {"round", round_filter},
      {"safe", safe},
      {"string", string_filter},
      {"striptags", strip_tags},
      {"title", title_filter},
      {"tojson", to_json_filter},
      {"trim", text_method<kStrip>},
      {"truncate", truncate},
      {"upper", text_method<kUpper>},
      {"urlencode", url_encode},
      {"wordcount", word_count},
      {"wordwrap", word_wrap},
      {"xmlattr", xml_attributes},
  };
  return kRows;
}

FilterFunction find_filter(std::string_view name) {
  for (const auto* rows : {&value_filters(), &sequence_filters()})
    for (const FilterRow& r : *rows)
      if (r.name == name) return r.function;
  return nullptr;
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

}  // namespace berth::jinja
