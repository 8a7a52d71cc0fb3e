// base/hash.h — 128-bit xxHash3 over a stream of bytes: logits hashes, checkpoint fingerprints.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace berth {

class Hasher128 {
 public:
  Hasher128();
  Hasher128(Hasher128&&) noexcept;
  Hasher128& operator=(Hasher128&&) noexcept;
  ~Hasher128();
  void add(const void* data, size_t size);
  // 32 hex digits of everything added so far; more may be added after.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace berth
