// base/function_ref.h — a borrowed callable: two words, no allocation. Valid only while the callable lives.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace berth {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  using Thunk = R (*)(void*, Args...);

  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        thunk_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return thunk_(object_, std::forward<Args>(args)...); }

  void* object() const { return object_; }
  Thunk thunk() const { return thunk_; }

 private:
  void* object_;
  Thunk thunk_;
};

}  // namespace berth
