// jinja/json_text.cc — json.dumps() as Transformers' tojson filter calls it.
#include <algorithm>
#include <cmath>

#include "berth/base/utf8.h"
#include "berth/jinja/builtins.h"
#include "berth/jinja/interpreter.h"

namespace berth::jinja {
namespace {

class JsonText {
 public:
  JsonText(Interpreter& in, const JsonStyle& style) : in_(in), style_(style) {}

  Status write(const Value& v, size_t level) {
    TRY_STATUS(in_.work(1));
    if (v.is_none()) return put("null");
    if (v.is_bool()) return put(v.as_bool() ? "true" : "false");
    if (v.is_text()) return put(quoted_text(v.as_text()));
    if (v.is_integer()) return put(integer_text(*v.integer()));
    if (v.is_float()) return put(float_json(v.as_float()));
    if (v.is_dict()) return object(v.as_dict(), level);
    if (v.is_sequence() && v.as_sequence().kind <= SequenceKind::kTuple) return array(v.as_sequence().items, level);
    return type_error("Object of type " + v.type_name() + " is not JSON serializable");
  }
  std::string take() { return std::move(out_); }

 private:
  Status put(const std::string& text) {
    TRY_STATUS(in_.charge(text.size()));
    out_ += text;
    return {};
  }
  static std::string float_json(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_text(d);
  }
  Status line(size_t level) {
    if (!style_.indent) return {};
    std::string text = "\n";
    for (size_t i = 0; i < level; ++i) text += *style_.indent;
    return put(text);
  }
  Status array(const Values& items, size_t level) {
    if (items.empty()) return put("[]");
    TRY_STATUS(put("["));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) TRY_STATUS(put(style_.item_separator));
      TRY_STATUS(line(level + 1));
      TRY_STATUS(write(items[i], level + 1));
    }
    TRY_STATUS(line(level));
    return put("]");
  }
  Result<std::string> key_text(const Value& key) const {
    if (key.is_text()) return key.as_text();
    if (key.is_bool()) return std::string(key.as_bool() ? "true" : "false");
    if (key.is_none()) return std::string("null");
    if (key.is_integer()) return integer_text(*key.integer());
    if (key.is_float()) return float_json(key.as_float());
    return type_error("keys must be str, int, float, bool or None, not " + key.type_name());
  }
  Status object(const Dict& dict, size_t level) {
    if (dict.items.empty()) return put("{}");
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (style_.sort_keys) {
      Status failed;
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        const auto order = compare(a.first, b.first, "<");
        if (!order && failed) failed = order.error();
        return order && *order == -1;
      });
      TRY_STATUS(failed);
    }
    TRY_STATUS(put("{"));
    bool first = true;
    for (const auto& [key, value] : items) {
      if (!first) TRY_STATUS(put(style_.item_separator));
      first = false;
      TRY_STATUS(line(level + 1));
      TRY(const std::string name, key_text(key));
      TRY_STATUS(put(quoted_text(name) + style_.key_separator));
      TRY_STATUS(write(value, level + 1));
    }
    TRY_STATUS(line(level));
    return put("}");
  }
  std::string quoted_text(std::string_view text) const {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out = "\"";
    const auto unit = [&](char32_t u) {
      out += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(u >> shift) & 15];
    };
    for (size_t i = 0; i < text.size();) {
      const char32_t c = decode_utf8(text, i);
      constexpr std::string_view kFrom = "\"\\\n\r\t\f\b", kTo = "\"\\nrtfb";
      const size_t simple = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
      if (simple != std::string_view::npos) {
        out += '\\';
        out += kTo[simple];
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x80 && c < 0x10000)) {
        unit(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        unit(0xD800 + ((c - 0x10000) >> 10));
        unit(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        append_utf8(out, c);
      }
    }
    return out + '"';
  }

  Interpreter& in_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Result<std::string> to_json(Interpreter& interpreter, const Value& value, const JsonStyle& style) {
  JsonText text(interpreter, style);
  TRY_STATUS(text.write(value, 0));
  return text.take();
}

}  // namespace berth::jinja
