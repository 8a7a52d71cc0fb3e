// base/json.h — JSON in (JsonDocument, JsonView: untrusted, by simdjson) and out (JsonWriter).
//
// Reading never copies: a JsonView is two words into its JsonDocument, which owns the parsed tape and must outlive it.
// Parsing is strict (no comments, no NaN, no duplicate keys, valid UTF-8, depth <= kMaxJsonDepth) and says where it
// failed. Integers that do not fit 64 bits are refused, never rounded.
//
// Writing keeps the order of calls; doubles are printed as the shortest text that reads back, so equal values give
// equal bytes on every machine.
//
// Non-goals: editing a document in place. Start reading at: JsonDocument::parse.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "berth/base/result.h"

namespace berth {

inline constexpr size_t kMaxJsonDepth = 256;

enum class JsonType { kNull, kBool, kInt, kUint, kDouble, kString, kArray, kObject };
std::string_view json_type_name(JsonType type);  // "an object", "a number"...

class JsonView {
 public:
  JsonView() = default;  // refers to nothing: valid() is false, type() is kNull

  bool valid() const { return document_ != nullptr; }
  JsonType type() const;
  bool is_null() const { return type() == JsonType::kNull; }
  bool is_object() const { return valid() && type() == JsonType::kObject; }
  bool is_array() const { return valid() && type() == JsonType::kArray; }
  bool is_string() const { return valid() && type() == JsonType::kString; }
  bool is_integer() const { return valid() && (type() == JsonType::kInt || type() == JsonType::kUint); }
  bool is_number() const { return is_integer() || (valid() && type() == JsonType::kDouble); }
  bool is_bool() const { return valid() && type() == JsonType::kBool; }

  // The value where the type fits, else nothing. as_int64 also takes doubles without a fraction only if `exact_double`.
  std::optional<bool> as_bool() const;
  std::optional<int64_t> as_int64() const;
  std::optional<uint64_t> as_uint64() const;
  std::optional<double> as_double() const;  // any number
  std::optional<std::string_view> as_string() const;

  size_t size() const;  // elements of an array or members of an object; 0 otherwise
  JsonView operator[](std::string_view key) const;  // member by exact key, or an invalid view; linear time
  bool contains(std::string_view key) const { return (*this)[key].valid(); }
  std::vector<JsonView> elements() const;                                // of an array
  std::vector<std::pair<std::string_view, JsonView>> members() const;    // of an object, in file order

  // The value as compact JSON text.
  std::string text() const;

  // Calls f(JsonView) / f(string_view, JsonView) without building a vector; f returns false to stop.
  template <typename F>
  void for_each_element(F&& f) const;
  template <typename F>
  void for_each_member(F&& f) const;

  // Iteration in place: begin index, then next() until it returns false.
  class Cursor {
   public:
    explicit Cursor(const JsonView& container);
    bool next();
    std::string_view key() const { return key_; }  // members of objects only
    JsonView value() const;

   private:
    const void* document_;
    size_t index_, end_, value_ = 0;
    bool object_;
    std::string_view key_;
  };

 private:
  friend class JsonDocument;
  friend class Cursor;
  JsonView(const void* document, size_t index) : document_(document), index_(index) {}
  const void* document_ = nullptr;  // simdjson::dom::document
  size_t index_ = 0;                // tape index
};

template <typename F>
void JsonView::for_each_element(F&& f) const {
  for (Cursor c(*this); c.next();)
    if (!f(c.value())) return;
}
template <typename F>
void JsonView::for_each_member(F&& f) const {
  for (Cursor c(*this); c.next();)
    if (!f(c.key(), c.value())) return;
}

struct JsonLimits {
  size_t max_bytes = size_t{1} << 30;
  bool reject_duplicate_keys = true;
  // Integers beyond 64 bits become texts of their digits instead of an error: never rounded, and an error only for who
  // reads them. For files in which they are usual: Transformers writes "model_max_length": 10^30 where there is none.
  bool large_integers_as_text = false;
};

class JsonDocument {
 public:
  // Parses all of `text`. Errors: kCorruptData saying what is wrong and, where known, at which byte, line and column.
  static Result<JsonDocument> parse(std::string_view text, const JsonLimits& limits = {});
  // Reads a regular file, then parses it; errors name the path.
  static Result<JsonDocument> parse_file(const std::string& path, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonView root() const;

 private:
  struct Impl;
  explicit JsonDocument(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Appends JSON to a string. `indent` 0 writes one line with ", " and ": " left out; otherwise pretty.
class JsonWriter {
 public:
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool b);
  JsonWriter& value(int64_t n);
  JsonWriter& value(uint64_t n);
  JsonWriter& value(int n) { return value(static_cast<int64_t>(n)); }
  JsonWriter& value(double d);  // NaN and infinities become null
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // already JSON text
  template <typename T>
  JsonWriter& member(std::string_view name, T&& v) {
    key(name);
    return value(std::forward<T>(v));
  }

  const std::string& str() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void separate();
  void newline();
  std::string out_;
  std::vector<bool> has_items_;
  bool after_key_ = false;
  int indent_;
};

// JSON string literal with quotes; non-ASCII UTF-8 is kept, control characters are escaped.
std::string json_quoted(std::string_view text);
// Shortest text of `d` that reads back as the same double ("1.0", "1e-05" style is not used: see json.cc).
std::string json_number(double d);

}  // namespace berth
