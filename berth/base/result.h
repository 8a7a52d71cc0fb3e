// base/result.h — how anything in Berth fails: Result<T>, Error and its codes.
//
// A function that can fail because of a file, a user, the network, memory or a driver returns Result<T>; a bug in our
// own code is a CHECK (check.h). Nothing throws across a library boundary. A message says what was being done, to which
// object, what was expected and what was found; `hints` say what to try. Callers add context on the way up:
//
//   Result<Index> open_index(const std::string& path) {
//     TRY(auto text, read_file(path));
//     auto parsed = parse_index(text);
//     if (!parsed) return parsed.error().with_context("while reading " + path);
//     return parsed;
//   }
//
// Start reading at: Result<T>. Member names follow std::expected so that it can become an alias later.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace berth {

// What the caller can do about it. Names as printed: error_code_name(); exit statuses: exit_status().
enum class ErrorCode {
  kInvalidArgument,  // change the call (exit 2)
  kNotFound,         // another path or name (exit 1)
  kCorruptData,      // fetch the checkpoint again (exit 4)
  kUnsupported,      // another build, device or model (exit 4)
  kNotAvailable,     // a command or option of a later version (exit 2, printed "unsupported")
  kDoesNotFit,       // another plan or budget (exit 3); details say which device and how many bytes
  kIo,               // the disk or file system (exit 1)
  kDevice,           // driver or device (exit 1)
  kNetwork,          // (exit 1)
  kCancelled,        // interrupted (exit 130)
  kInternal,         // report to us (exit 1)
};

std::string_view error_code_name(ErrorCode code);  // "corrupt_data"
int exit_status(ErrorCode code);                   // contract: 1 failed, 2 usage, 3 does not fit, 4 checkpoint, 130

// One failure. Cheap to move; copied only on error paths.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::string> hints;  // each a complete sentence: what to try
  std::string details_json;        // a JSON object's text, or empty; shown as error.details with --json

  Error() = default;
  Error(ErrorCode c, std::string m, std::vector<std::string> h = {})
      : code(c), message(std::move(m)), hints(std::move(h)) {}

  // The same error with "CONTEXT: " in front of its message.
  Error with_context(std::string_view context) const;
  Error with_hint(std::string hint) const;
};

// A T or the Error that kept it from being made.
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  template <typename U>
    requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Error> &&
             !std::is_same_v<std::remove_cvref_t<U>, Result> && !std::is_same_v<std::remove_cvref_t<U>, T>)
  Result(U&& value) : state_(std::in_place_index<0>, T(std::forward<U>(value))) {}  // NOLINT

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }  // by value: a reference would dangle in a range-for
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

#define BERTH_CONCAT_INNER(a, b) a##b
#define BERTH_CONCAT(a, b) BERTH_CONCAT_INNER(a, b)

// TRY(auto x, f()): declares x from f()'s value, or returns f()'s error from the enclosing function.
#define TRY(declaration, expression) BERTH_TRY_IMPL(BERTH_CONCAT(berth_try_, __COUNTER__), declaration, expression)
#define BERTH_TRY_IMPL(name, declaration, expression)  \
  auto name = (expression);                            \
  if (!name) return std::move(name).error();           \
  declaration = *std::move(name)

// TRY_STATUS(f()): returns f()'s error, if any.
#define TRY_STATUS(expression) BERTH_TRY_STATUS_IMPL(BERTH_CONCAT(berth_status_, __COUNTER__), expression)
#define BERTH_TRY_STATUS_IMPL(name, expression)                    \
  do {                                                             \
    if (auto name = (expression); !name) return std::move(name).error(); \
  } while (false)

}  // namespace berth
