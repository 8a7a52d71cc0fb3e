// base/json.cc — JsonDocument over simdjson's DOM, and the writer.
//
// A JsonView is a simdjson tape_ref (document pointer, tape index) without its header: the tape layout used here is
// simdjson 3's documented one (doc/tape.md there), and json_test.cc walks every node type so that a change shows.
#include "berth/base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <random>
#include <unordered_set>

#include <fmt/format.h>
#include <simdjson.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "berth/base/check.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"

namespace berth {
namespace {

namespace dom = simdjson::dom;

const dom::document& doc_of(const void* p) { return *static_cast<const dom::document*>(p); }
uint64_t tape_at(const void* p, size_t i) { return doc_of(p).tape[i]; }
char tag_at(const void* p, size_t i) { return static_cast<char>(tape_at(p, i) >> 56); }
uint64_t payload_at(const void* p, size_t i) { return tape_at(p, i) & 0x00FFFFFFFFFFFFFFull; }

std::string_view string_at(const void* p, size_t i) {
  const uint8_t* s = doc_of(p).string_buf.get() + payload_at(p, i);
  uint32_t n;
  std::memcpy(&n, s, sizeof n);
  return {reinterpret_cast<const char*>(s + sizeof n), n};
}

// Index of the node after the one at i.
size_t after(const void* p, size_t i) {
  switch (tag_at(p, i)) {
    case '{':
    case '[':
      return static_cast<size_t>(payload_at(p, i) & 0xFFFFFFFFu);
    case 'l':
    case 'u':
    case 'd':
      return i + 2;
    default:
      return i + 1;
  }
}

struct Position {
  size_t line = 1, column = 1;
};
Position position_of(std::string_view text, size_t byte) {
  Position at;
  for (size_t i = 0; i < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++at.line;
      at.column = 1;
    } else {
      ++at.column;
    }
  }
  return at;
}

constexpr std::string_view kLargeInteger = "an integer does not fit 64 bits";
constexpr int kMaxLargeIntegers = 64;  // each costs a scan of the text

// Where a strict scan of `text` first meets something that cannot be JSON. simdjson's DOM does not say where it
// stopped, so this runs only after it has refused the text.
class FaultFinder {
 public:
  explicit FaultFinder(std::string_view text) : text_(text) {}
  // Byte of the fault and what was wrong.
  std::pair<size_t, std::string> find() {
    skip_space();
    if (!value(0)) return {at_, why_};
    skip_space();
    if (at_ != text_.size()) return {at_, "more text follows the value"};
    return {0, "the text is not valid JSON"};
  }

 private:
  bool fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
    return false;
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }
  bool literal(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return fail("a value was expected");
    at_ += word.size();
    return true;
  }
  bool string() {
    const size_t start = at_++;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        const std::string_view body = text_.substr(start + 1, at_ - start - 1);
        ++at_;
        if (!is_valid_utf8(body)) {
          at_ = start;
          return fail("this text is not valid UTF-8");
        }
        return true;
      }
      if (c < 0x20) return fail("a control character stands inside a text");
      if (c == '\\') {
        ++at_;
        if (at_ >= text_.size()) break;
        if (text_[at_] == 'u') {
          unsigned unit = 0;
          if (!hex4(at_ + 1, unit)) return fail("an escape is malformed");
          at_ += 4;
          if (unit >= 0xDC00 && unit <= 0xDFFF) return fail("a lone surrogate was escaped");
          if (unit >= 0xD800 && unit <= 0xDBFF) {
            unsigned low = 0;
            if (text_.substr(at_ + 1, 2) != "\\u" || !hex4(at_ + 3, low) || low < 0xDC00 || low > 0xDFFF)
              return fail("a lone surrogate was escaped");
            at_ += 6;
          }
        } else if (std::string_view("\"\\/bfnrt").find(text_[at_]) == std::string_view::npos) {
          return fail("an escape is malformed");
        }
      }
      ++at_;
    }
    return fail("the text ends inside a string");
  }
  bool hex4(size_t i, unsigned& out) const {
    if (i + 4 > text_.size()) return false;
    const auto [end, err] = std::from_chars(text_.data() + i, text_.data() + i + 4, out, 16);
    return err == std::errc() && end == text_.data() + i + 4;
  }
  bool number() {
    const size_t start = at_;
    if (text_[at_] == '-') ++at_;
    const auto digits = [&] {
      const size_t b = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ - b;
    };
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    const size_t n = digits();
    if (n == 0 || (zero && n > 1)) return fail("a number is malformed");
    bool integer = true;
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      integer = false;
      if (digits() == 0) return fail("a number is malformed");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      integer = false;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (digits() == 0) return fail("a number is malformed");
    }
    const std::string_view word = text_.substr(start, at_ - start);
    if (integer) {
      int64_t i;
      uint64_t u;
      if (std::from_chars(word.data(), word.data() + word.size(), i).ec != std::errc() &&
          std::from_chars(word.data(), word.data() + word.size(), u).ec != std::errc()) {
        at_ = start;
        return fail(std::string(kLargeInteger));
      }
    } else {
      double d;
      if (std::from_chars(word.data(), word.data() + word.size(), d).ec != std::errc()) {
        at_ = start;
        return fail("a number is out of range");
      }
    }
    return true;
  }
  bool value(size_t depth) {
    if (depth > kMaxJsonDepth) return fail(fmt::format("values are nested more than {} deep", kMaxJsonDepth));
    if (at_ >= text_.size()) return fail("the text ends where a value was expected");
    const char c = text_[at_];
    if (c == '{' || c == '[') {
      const char close = c == '{' ? '}' : ']';
      ++at_;
      skip_space();
      if (at_ < text_.size() && text_[at_] == close) return ++at_, true;
      for (;;) {
        skip_space();
        if (c == '{') {
          if (at_ >= text_.size() || text_[at_] != '"') return fail("a key in double quotes was expected");
          if (!string()) return false;
          skip_space();
          if (at_ >= text_.size() || text_[at_] != ':') return fail("':' was expected");
          ++at_;
          skip_space();
        }
        if (!value(depth + 1)) return false;
        skip_space();
        if (at_ < text_.size() && text_[at_] == ',') {
          ++at_;
          continue;
        }
        if (at_ < text_.size() && text_[at_] == close) return ++at_, true;
        return fail(at_ >= text_.size() ? "the text ends too early" : fmt::format("',' or '{}' was expected", close));
      }
    }
    if (c == '"') return string();
    if (c == 't') return literal("true");
    if (c == 'f') return literal("false");
    if (c == 'n') return literal("null");
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    return fail("a value was expected");
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string why_;
};

// Seeded once per process, so that no file can hold keys that all collide.
struct SeededHash {
  size_t operator()(std::string_view key) const {
    static const uint64_t seed = [] {
      std::random_device device;
      return (static_cast<uint64_t>(device()) << 32) ^ device();
    }();
    return XXH3_64bits_withSeed(key.data(), key.size(), seed);
  }
};

// First key that occurs twice in one object, if any.
std::optional<std::string_view> duplicate_key(const JsonView& view) {
  std::vector<JsonView> open{view};
  std::vector<std::string_view> keys;
  while (!open.empty()) {
    const JsonView v = open.back();
    open.pop_back();
    if (!v.is_object() && !v.is_array()) continue;
    keys.clear();
    for (JsonView::Cursor c(v); c.next();) {
      if (v.is_object()) keys.push_back(c.key());
      const JsonType t = c.value().type();
      if (t == JsonType::kObject || t == JsonType::kArray) open.push_back(c.value());
    }
    if (keys.size() < 2) continue;
    if (keys.size() <= 12) {
      for (size_t i = 1; i < keys.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (keys[i] == keys[j]) return keys[i];
    } else {
      std::unordered_set<std::string_view, SeededHash> seen;
      seen.reserve(keys.size() * 2);
      for (const auto k : keys)
        if (!seen.insert(k).second) return k;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view json_type_name(JsonType type) {
  switch (type) {
    case JsonType::kNull: return "null";
    case JsonType::kBool: return "true or false";
    case JsonType::kInt:
    case JsonType::kUint: return "an integer";
    case JsonType::kDouble: return "a number";
    case JsonType::kString: return "a text";
    case JsonType::kArray: return "a list";
    case JsonType::kObject: return "an object";
  }
  return "nothing";
}

JsonType JsonView::type() const {
  if (!valid()) return JsonType::kNull;
  switch (tag_at(document_, index_)) {
    case '{': return JsonType::kObject;
    case '[': return JsonType::kArray;
    case '"': return JsonType::kString;
    case 'l': return JsonType::kInt;
    case 'u': return JsonType::kUint;
    case 'd': return JsonType::kDouble;
    case 't':
    case 'f': return JsonType::kBool;
    default: return JsonType::kNull;
  }
}

std::optional<bool> JsonView::as_bool() const {
  if (!is_bool()) return std::nullopt;
  return tag_at(document_, index_) == 't';
}
std::optional<int64_t> JsonView::as_int64() const {
  if (!valid() || type() != JsonType::kInt) return std::nullopt;
  return static_cast<int64_t>(tape_at(document_, index_ + 1));
}
std::optional<uint64_t> JsonView::as_uint64() const {
  if (!is_integer()) return std::nullopt;
  const uint64_t raw = tape_at(document_, index_ + 1);
  if (type() == JsonType::kInt && static_cast<int64_t>(raw) < 0) return std::nullopt;
  return raw;
}
std::optional<double> JsonView::as_double() const {
  if (!is_number()) return std::nullopt;
  const uint64_t raw = tape_at(document_, index_ + 1);
  if (type() == JsonType::kInt) return static_cast<double>(static_cast<int64_t>(raw));
  if (type() == JsonType::kUint) return static_cast<double>(raw);
  double d;
  std::memcpy(&d, &raw, sizeof d);
  return d;
}
std::optional<std::string_view> JsonView::as_string() const {
  if (!is_string()) return std::nullopt;
  return string_at(document_, index_);
}

JsonView::Cursor::Cursor(const JsonView& v)
    : document_(v.document_), index_(v.index_ + 1), end_(v.index_ + 1), object_(v.is_object()) {
  if (v.is_object() || v.is_array()) end_ = after(document_, v.index_) - 1;
}
bool JsonView::Cursor::next() {
  if (index_ >= end_) return false;
  if (object_) key_ = string_at(document_, index_++);
  value_ = index_;
  index_ = after(document_, index_);
  return true;
}
JsonView JsonView::Cursor::value() const { return JsonView(document_, value_); }

size_t JsonView::size() const {
  if (!is_object() && !is_array()) return 0;
  size_t n = 0;
  for (Cursor c(*this); c.next();) ++n;
  return n;
}
JsonView JsonView::operator[](std::string_view name) const {
  if (!is_object()) return {};
  for (Cursor c(*this); c.next();)
    if (c.key() == name) return c.value();
  return {};
}
std::vector<JsonView> JsonView::elements() const {
  std::vector<JsonView> out;
  if (is_array())
    for (Cursor c(*this); c.next();) out.push_back(c.value());
  return out;
}
std::vector<std::pair<std::string_view, JsonView>> JsonView::members() const {
  std::vector<std::pair<std::string_view, JsonView>> out;
  if (is_object())
    for (Cursor c(*this); c.next();) out.emplace_back(c.key(), c.value());
  return out;
}
std::string JsonView::text() const {
  switch (type()) {
    case JsonType::kNull: return "null";
    case JsonType::kBool: return *as_bool() ? "true" : "false";
    case JsonType::kInt: return std::to_string(*as_int64());
    case JsonType::kUint: return std::to_string(*as_uint64());
    case JsonType::kDouble: return json_number(*as_double());
    case JsonType::kString: return json_quoted(*as_string());
    case JsonType::kArray:
    case JsonType::kObject: break;
  }
  std::string out(1, is_object() ? '{' : '[');
  bool first = true;
  for (Cursor c(*this); c.next();) {
    if (!first) out += ',';
    first = false;
    if (is_object()) out += json_quoted(c.key()) + ":";
    out += c.value().text();
  }
  out += is_object() ? '}' : ']';
  return out;
}

struct JsonDocument::Impl {
  dom::parser parser{kMaxJsonBytes};
  static constexpr size_t kMaxJsonBytes = size_t{0xFFFFFFFF};
};

JsonDocument::JsonDocument(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

Result<JsonDocument> JsonDocument::parse(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return Error(ErrorCode::kCorruptData,
                 fmt::format("the JSON text has {} bytes, more than the limit of {}", text.size(), limits.max_bytes));
  if (text.substr(0, 3) == "\xEF\xBB\xBF")
    return Error(ErrorCode::kCorruptData, "the JSON text begins with a byte-order mark (line 1, column 1)",
                 {"Save the file as UTF-8 without a byte-order mark."});
  auto impl = std::make_unique<Impl>();
  // Room for the tape is taken by length, so a hostile depth cannot grow it; depth has its own limit.
  if (impl->parser.allocate(std::max<size_t>(text.size(), 64), kMaxJsonDepth) != simdjson::SUCCESS)
    return Error(ErrorCode::kCorruptData, fmt::format("no memory to parse {} bytes of JSON", text.size()));
  std::string rewritten;
  for (int large_integers = 0; impl->parser.parse(text.data(), text.size()).error() != simdjson::SUCCESS; ++large_integers) {
    const auto [byte, why] = FaultFinder(text).find();
    if (limits.large_integers_as_text && why == kLargeInteger && large_integers < kMaxLargeIntegers) {
      const size_t end = text.find_first_not_of("-0123456789", byte);
      const std::string digits(text.substr(byte, end - byte));
      rewritten = std::string(text.substr(0, byte)) + '"' + digits + '"' + std::string(text.substr(byte + digits.size()));
      text = rewritten;
      if (impl->parser.allocate(std::max<size_t>(text.size(), 64), kMaxJsonDepth) != simdjson::SUCCESS)
        return Error(ErrorCode::kCorruptData, fmt::format("no memory to parse {} bytes of JSON", text.size()));
      continue;
    }
    const Position p = position_of(text, byte);
    return Error(ErrorCode::kCorruptData,
                 fmt::format("not valid JSON at byte {} (line {}, column {}): {}", byte, p.line, p.column, why));
  }
  JsonDocument document(std::move(impl));
  if (limits.reject_duplicate_keys)
    if (const auto key = duplicate_key(document.root()))
      return Error(ErrorCode::kCorruptData, fmt::format("key {} occurs twice in one JSON object", quoted(*key)));
  return document;
}

Result<JsonDocument> JsonDocument::parse_file(const std::string& path, const JsonLimits& limits) {
  TRY(const std::string text, read_file(path, limits.max_bytes));
  auto document = parse(text, limits);
  if (!document) return document.error().with_context("while reading " + quoted(path, 400));
  return document;
}

JsonView JsonDocument::root() const { return JsonView(&impl_->parser.doc, 1); }

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (c < 0x20 || c == 0x7F) out += fmt::format("\\u{:04x}", c);
        else out += ch;
    }
  }
  out += '"';
  return out;
}

// Like Python's json: integers keep ".0", exponents are written 1e-05.
std::string json_number(double d) {
  if (!std::isfinite(d)) return "null";
  if (d == 0) return std::signbit(d) ? "-0.0" : "0.0";
  const double a = std::fabs(d);
  if (a >= 1e16 || a < 1e-4) {
    std::string s = fmt::format("{:e}", d);
    char buffer[40];
    const auto [end, err] = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
    CHECK(err == std::errc());
    s.assign(buffer, end);
    return s;
  }
  char buffer[64];
  const auto [end, err] = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
  CHECK(err == std::errc());
  std::string s(buffer, end);
  if (s.find('.') == std::string::npos) s += ".0";
  return s;
}

void JsonWriter::newline() {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(has_items_.size() * static_cast<size_t>(indent_), ' ');
}
void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (has_items_.empty()) return;
  if (has_items_.back()) out_ += ',';
  has_items_.back() = true;
  newline();
}
JsonWriter& JsonWriter::begin_object() {
  separate();
  out_ += '{';
  has_items_.push_back(false);
  return *this;
}
JsonWriter& JsonWriter::begin_array() {
  separate();
  out_ += '[';
  has_items_.push_back(false);
  return *this;
}
JsonWriter& JsonWriter::end_object() {
  const bool any = has_items_.back();
  has_items_.pop_back();
  if (any) newline();
  out_ += '}';
  return *this;
}
JsonWriter& JsonWriter::end_array() {
  const bool any = has_items_.back();
  has_items_.pop_back();
  if (any) newline();
  out_ += ']';
  return *this;
}
JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_ += json_quoted(name);
  out_ += indent_ == 0 ? ":" : ": ";
  after_key_ = true;
  return *this;
}
JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}
JsonWriter& JsonWriter::value(std::string_view text) { return raw(json_quoted(text)); }
JsonWriter& JsonWriter::value(bool b) { return raw(b ? "true" : "false"); }
JsonWriter& JsonWriter::value(int64_t n) { return raw(std::to_string(n)); }
JsonWriter& JsonWriter::value(uint64_t n) { return raw(std::to_string(n)); }
JsonWriter& JsonWriter::value(double d) { return raw(json_number(d)); }
JsonWriter& JsonWriter::null() { return raw("null"); }

}  // namespace berth
