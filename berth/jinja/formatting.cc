// jinja/formatting.cc — '%' formatting and str.format(), as far as templates use them.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

constexpr int kMaxWidth = 10000;
constexpr int kMaxPrecision = 300;

Error value_error(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

// The parts of a format specification that both forms share.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // + - or space
  bool alternate = false, zero = false, comma = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

std::string aligned(std::string text, const Spec& s, char default_align) {
  const auto n = static_cast<int>(count_code_points(text));
  if (n >= s.width) return text;
  const int missing = s.width - n;
  const char align = s.align ? s.align : default_align;
  const auto fill = [&](int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += s.fill;
    return out;
  };
  if (align == '<') return text + fill(missing);
  if (align == '^') return fill(missing / 2) + text + fill(missing - missing / 2);
  if (align == '=') {
    const size_t at = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    return text.substr(0, at) + fill(missing) + text.substr(at);
  }
  return fill(missing) + text;
}

std::string in_base(Integer n, unsigned base, bool upper) {
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  const bool negative = n < 0;
  std::string out;
  do {
    const int d = static_cast<int>(n % static_cast<Integer>(base));
    out += digits[d < 0 ? -d : d];
    n /= static_cast<Integer>(base);
  } while (n != 0);
  if (negative) out += '-';
  std::reverse(out.begin(), out.end());
  return out;
}

std::string with_commas(std::string text) {
  const size_t start = !text.empty() && text[0] == '-' ? 1 : 0;
  size_t end = text.find_first_not_of("0123456789", start);
  if (end == std::string::npos) end = text.size();
  for (size_t i = end; i > start + 3;) {
    i -= 3;
    text.insert(i, ",");
  }
  return text;
}

std::string float_formatted(double d, char type, int precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  std::string out;
  if (std::isnan(d) || std::isinf(d)) {
    out = std::isnan(d) ? "nan" : d < 0 ? "-inf" : "inf";
  } else {
    char buffer[800];
    const char lower_type = static_cast<char>(type | 32);
    if (lower_type == 'g' && precision == 0) precision = 1;
    const auto format = lower_type == 'e'   ? std::chars_format::scientific
                        : lower_type == 'g' ? std::chars_format::general
                                            : std::chars_format::fixed;
    out.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, d, format, precision).ptr);
    if (alternate && out.find('.') == std::string::npos) out += '.';
  }
  if (upper)
    for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

std::string signed_text(std::string text, char sign) {
  if (!text.empty() && text[0] != '-' && sign != '-') text.insert(text.begin(), sign);
  return text;
}

// A number by its type letter; nothing where the letter is not one for numbers.
Result<std::string> number_text(const Value& v, const Spec& s) {
  std::string text;
  switch (s.type) {
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'b': {
      auto n = v.integer();
      if (!n && v.is_float() && (s.type == 'd' || s.type == 'i' || s.type == 'u') && std::abs(v.as_float()) < 1e30)
        n = static_cast<Integer>(v.as_float());
      if (!n) return type_error(std::string("%") + s.type + " format: a real number is required, not " + v.type_name());
      if (s.type == 'x' || s.type == 'X' || s.type == 'o' || s.type == 'b') {
        text = in_base(*n, s.type == 'o' ? 8 : s.type == 'b' ? 2 : 16, s.type == 'X');
        if (s.alternate) text.insert(text[0] == '-' ? 1 : 0, std::string("0") + s.type);
      } else {
        text = integer_text(*n);
        if (s.comma) text = with_commas(text);
      }
      return signed_text(text, s.sign);
    }
    default: {
      const auto d = v.number();
      if (!d) return type_error("must be real number, not " + v.type_name());
      const bool percent = s.type == '%';
      text = float_formatted(percent ? *d * 100 : *d, percent ? 'f' : s.type, s.precision < 0 ? 6 : s.precision,
                             s.alternate);
      if (s.comma) text = with_commas(text);
      if (percent) text += '%';
      return signed_text(text, s.sign);
    }
  }
}

std::string cut_to(const std::string& text, int precision) {
  if (precision < 0) return text;
  size_t at = 0;
  for (int i = 0; i < precision && at < text.size(); ++i) decode_utf8(text, at);
  return text.substr(0, at);
}

// digits at text[at], at most `most`.
Result<int> digits(std::string_view text, size_t& at, int most) {
  int n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > most) return value_error("a width or precision in a format is too large");
  }
  return n;
}

// format(value, spec): "[[fill]align][sign][#][0][width][,][.precision][type]".
Result<std::string> formatted(const Value& v, std::string_view spec) {
  Spec s;
  size_t at = 0;
  if (!spec.empty()) {
    size_t behind = 0;
    decode_utf8(spec, behind);
    constexpr std::string_view kAligns = "<>^=";
    if (behind < spec.size() && kAligns.find(spec[behind]) != std::string_view::npos) {
      s.fill = std::string(spec.substr(0, behind));
      s.align = spec[behind];
      at = behind + 1;
    } else if (kAligns.find(spec[0]) != std::string_view::npos) {
      s.align = spec[0];
      at = 1;
    }
  }
  const auto take = [&](char c) { return at < spec.size() && spec[at] == c && ++at; };
  if (at < spec.size() && std::string_view("+- ").find(spec[at]) != std::string_view::npos) s.sign = spec[at++];
  s.alternate = take('#');
  if (take('0') && !s.align) {
    s.fill = "0";
    s.align = '=';
  }
  TRY(s.width, digits(spec, at, kMaxWidth));
  s.comma = take(',');
  if (take('.')) {
    TRY(s.precision, digits(spec, at, kMaxPrecision));
  }
  if (at < spec.size()) s.type = spec[at++];
  if (at != spec.size()) return value_error("Invalid format specifier");
  if (v.is_number() && !(v.is_bool() && s.type == '\0')) {
    if (s.type == 's') return value_error("Unknown format code 's' for object of type '" + v.type_name() + "'");
    if (s.type == '\0') {
      if (v.is_integer()) {
        s.type = 'd';
      } else if (s.precision >= 0) {
        s.type = 'g';
      } else {
        std::string text = v.text();
        if (s.comma) text = with_commas(text);
        return aligned(signed_text(text, s.sign), s, '>');
      }
    }
    if (std::string_view("dixXobeEfFgG%").find(s.type) == std::string_view::npos)
      return value_error(std::string("Unknown format code '") + s.type + "'");
    TRY(std::string text, number_text(v, s));
    return aligned(std::move(text), s, '>');
  }
  if (s.type != '\0' && s.type != 's')
    return value_error(std::string("Unknown format code '") + s.type + "' for object of type '" + v.type_name() + "'");
  if (!v.is_text() && !v.is_bool() && !spec.empty())
    return type_error("unsupported format string passed to " + v.type_name() + ".__format__");
  if (s.align == '=') return value_error("'=' alignment not allowed in string format specifier");
  return aligned(cut_to(v.text(), s.precision), s, '<');
}

// str.format: walks a template's {fields}.
class BraceFormat {
 public:
  BraceFormat(Interpreter& in, const Arguments& arguments) : in_(in), arguments_(arguments) {}

  Result<std::string> run(std::string_view format, int depth) {
    if (depth > 2) return value_error("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
      const char c = format[i];
      const bool doubled = i + 1 < format.size() && format[i + 1] == c;
      if (c == '}' || c == '{') {
        if (doubled) {
          out += c;
          ++i;
          continue;
        }
        if (c == '}') return value_error("Single '}' encountered in format string");
        size_t end = i + 1;
        for (int open = 1; end < format.size(); ++end) {
          open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
          if (open == 0) break;
        }
        if (end >= format.size()) return value_error("Single '{' encountered in format string");
        TRY(const std::string text, field(format.substr(i + 1, end - i - 1), depth));
        TRY_STATUS(in_.charge(text.size()));
        out += text;
        i = end;
        continue;
      }
      out += c;
    }
    return out;
  }

 private:
  Result<std::string> field(std::string_view f, int depth) {
    std::string_view spec;
    char conversion = '\0';
    size_t stop = 0;
    for (int brackets = 0; stop < f.size(); ++stop) {
      brackets += f[stop] == '[' ? 1 : f[stop] == ']' ? -1 : 0;
      if (brackets == 0 && (f[stop] == '!' || f[stop] == ':')) break;
    }
    const std::string_view name = f.substr(0, stop);
    if (stop < f.size() && f[stop] == '!') {
      if (stop + 1 >= f.size()) return value_error("end of string while looking for conversion specifier");
      conversion = f[stop + 1];
      stop += 2;
      if (stop < f.size() && f[stop] != ':') return value_error("expected ':' after conversion specifier");
    }
    if (stop < f.size()) spec = f.substr(stop + 1);
    TRY(Value v, value_of(name));
    if (conversion == 'r' || conversion == 'a')
      v = Value(v.repr());
    else if (conversion == 's')
      v = Value(v.text());
    else if (conversion != '\0')
      return value_error("Unknown conversion specifier");
    TRY(const std::string expanded, run(spec, depth + 1));
    return formatted(v, expanded);
  }

  Result<Value> value_of(std::string_view name) {
    size_t end = name.find_first_of(".[");
    if (end == std::string_view::npos) end = name.size();
    const std::string_view first = name.substr(0, end);
    Value v;
    const bool number =
        !first.empty() && std::all_of(first.begin(), first.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (first.empty() || number) {
      size_t index = next_++;
      if (number) {
        size_t at = 0;
        TRY(const int n, digits(first, at, 100000));
        index = static_cast<size_t>(n);
      }
      if (index >= arguments_.positional.size())
        return value_error("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
      v = arguments_.positional[index];
    } else {
      const auto it = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                   [&](const auto& a) { return a.first == first; });
      if (it == arguments_.named.end()) return value_error("KeyError: " + text_repr(first));
      v = it->second;
    }
    while (end < name.size()) {
      const bool dot = name[end] == '.';
      size_t stop = dot ? name.find_first_of(".[", end + 1) : name.find(']', end);
      if (stop == std::string_view::npos) {
        if (!dot) return value_error("Missing ']' in format string");
        stop = name.size();
      }
      const std::string key(name.substr(end + 1, stop - end - 1));
      if (dot) {
        TRY(v, in_.attribute(v, key));
      } else {
        int index = 0;
        const auto [rest, error] = std::from_chars(key.data(), key.data() + key.size(), index);
        const bool is_index = error == std::errc() && rest == key.data() + key.size() && !key.empty();
        TRY(v, in_.item(v, is_index ? Value(index) : Value(key)));
        ++stop;
      }
      end = stop;
    }
    return v;
  }

  Interpreter& in_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

Result<std::string> brace_format(Interpreter& in, const std::string& format, const Arguments& arguments) {
  return BraceFormat(in, arguments).run(format, 0);
}

Result<std::string> percent_format(Interpreter& in, const std::string& format, const Value& arguments) {
  const bool is_tuple = arguments.is_sequence() && arguments.as_sequence().kind == SequenceKind::kTuple;
  const Values single{arguments};
  const Values& values = is_tuple ? arguments.as_sequence().items : single;
  size_t next = 0;
  bool by_name = false;
  std::string out;
  const auto take = [&]() -> Result<Value> {
    if (next >= values.size()) return type_error("not enough arguments for format string");
    return values[next++];
  };
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i >= format.size()) return value_error("incomplete format");
    Spec s;
    std::optional<Value> value;
    if (format[i] == '(') {
      const size_t close = format.find(')', i);
      if (close == std::string::npos) return value_error("incomplete format key");
      if (!arguments.is_dict()) return type_error("format requires a mapping");
      const std::string key = format.substr(i + 1, close - i - 1);
      const Value* found = arguments.as_dict().find(std::string_view(key));
      if (!found) return value_error("KeyError: " + text_repr(key));
      value = *found;
      by_name = true;
      i = close + 1;
    }
    bool left = false;
    for (; i < format.size(); ++i) {
      if (format[i] == '-')
        left = true;
      else if (format[i] == '0')
        s.zero = true;
      else if (format[i] == '+' || (format[i] == ' ' && s.sign != '+'))
        s.sign = format[i];
      else if (format[i] == '#')
        s.alternate = true;
      else if (format[i] != ' ')
        break;
    }
    TRY(s.width, digits(format, i, kMaxWidth));
    if (i < format.size() && format[i] == '.') {
      ++i;
      TRY(s.precision, digits(format, i, kMaxPrecision));
    }
    while (i < format.size() && (format[i] == 'l' || format[i] == 'h' || format[i] == 'L')) ++i;
    if (i >= format.size()) return value_error("incomplete format");
    s.type = format[i];
    if (s.type == '%') {
      out += '%';
      continue;
    }
    if (!value) {
      TRY(value, take());
    }
    std::string text;
    if (s.type == 's' || s.type == 'r' || s.type == 'a') {
      text = cut_to(s.type == 's' ? value->text() : value->repr(), s.precision);
    } else if (s.type == 'c') {
      if (value->is_text())
        text = value->as_text();
      else if (const auto n = value->integer(); n && *n >= 0 && *n < 0x110000 && !(*n >= 0xD800 && *n < 0xE000))
        append_utf8(text, static_cast<char32_t>(*n));
      else
        return type_error("%c requires int or char");
    } else if (std::string_view("diuxXoeEfFgG").find(s.type) != std::string_view::npos) {
      TRY(text, number_text(*value, s));
      if (s.zero && !left) {
        s.fill = "0";
        s.align = '=';
      }
    } else {
      return value_error(std::string("unsupported format character '") + s.type + "'");
    }
    if (left) s.align = '<';
    text = aligned(std::move(text), s, '>');
    TRY_STATUS(in.charge(text.size()));
    out += text;
  }
  // What can be subscripted counts as a mapping and may go unused.
  const bool maps = arguments.is_dict() || by_name || arguments.is_undefined() ||
                    (arguments.is_sequence() && arguments.as_sequence().indexable() && !is_tuple);
  if (next < values.size() && !maps && (is_tuple || next == 0))
    return type_error("not all arguments converted during string formatting");
  return out;
}

}  // namespace berth::jinja
