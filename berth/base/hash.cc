// base/hash.cc — see hash.h.
#include "berth/base/hash.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace berth {

struct Hasher128::State {
  alignas(64) XXH3_state_t xxh;
};

Hasher128::Hasher128() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher128::Hasher128(Hasher128&&) noexcept = default;
Hasher128& Hasher128::operator=(Hasher128&&) noexcept = default;
Hasher128::~Hasher128() = default;

void Hasher128::add(const void* data, size_t size) { XXH3_128bits_update(&state_->xxh, data, size); }

std::string Hasher128::hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace berth
