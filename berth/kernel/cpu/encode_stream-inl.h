// kernel/cpu/encode_stream-inl.h — how the encoders read weights and write codes: once each, in order, through memory.
// For files compiled for AVX2 or more.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace berth::kernel::cpu {
namespace {

// Bytes ahead that are asked for, into the second-level cache and then into the first: the first alone has too few
// requests under way (docs/loading.md). Always inlined: g++ drops calls of a function that does nothing but ask.
constexpr int64_t kFar = 8192, kNear = 1024;
inline __attribute__((always_inline)) void fetch_128(const void* x) {
  const char* const at = static_cast<const char*>(x);
  _mm_prefetch(at + kFar, _MM_HINT_T1);
  _mm_prefetch(at + kFar + 64, _MM_HINT_T1);
  _mm_prefetch(at + kNear, _MM_HINT_T0);
  _mm_prefetch(at + kNear + 64, _MM_HINT_T0);
}

inline void store_32(void* codes, __m256i bytes) { _mm256_storeu_si256(static_cast<__m256i*>(codes), bytes); }

// A line: one store where the instruction set has such.
inline __attribute__((always_inline)) void stream_64(uint8_t* line, __m256i first, __m256i second) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(line), _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
#else
  _mm256_stream_si256(reinterpret_cast<__m256i*>(line), first);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(line + 32), second);
#endif
}

// Stores codes past the cache where that can be done: lines that are written whole need not be read first, and nobody
// reads the codes of a load soon. Two halves of a line at once: a line whose second half comes later is written twice
// where its buffer is needed in between. Whoever calls orders the stores before later ones (order_encoded).
class CodeStore {
 public:
  explicit CodeStore(const uint8_t* codes) : past_cache_(reinterpret_cast<uintptr_t>(codes) % 32 == 0) {}
  CodeStore(const CodeStore&) = delete;
  CodeStore& operator=(const CodeStore&) = delete;
  // The next 32 bytes, at `codes`.
  void put(uint8_t* codes, __m256i bytes) {
    if (!past_cache_) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), bytes);
    } else if (reinterpret_cast<uintptr_t>(codes) % 64 == 0) {
      held_ = bytes;
      holder_ = codes;
    } else if (holder_ != nullptr) {
      stream_64(holder_, held_, bytes);
      holder_ = nullptr;
    } else {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(codes), bytes);
    }
  }
  ~CodeStore() {
    if (holder_ != nullptr) _mm256_stream_si256(reinterpret_cast<__m256i*>(holder_), held_);
  }

 private:
  bool past_cache_;
  uint8_t* holder_ = nullptr;  // of a line's first half that is not stored yet
  __m256i held_ = _mm256_setzero_si256();
};

// Blocks in groups of up to kLargestGroup: the largest of all in a group are found before its weights are encoded.
// Finding one takes some 40 cycles, and what waits for it would keep the processor from going on with the next block.
// Returns how many were encoded: up to the first of which `start` says no.
constexpr int64_t kLargestGroup = 8, kLargestGroupElements = 4096;
template <typename Start, typename Encode>
inline __attribute__((always_inline)) int64_t in_groups(int64_t blocksize, int64_t blocks, const Start& start,
                                                        const Encode& encode) {
  const int64_t group = blocksize <= 128 ? kLargestGroup : blocksize <= 1024 ? 1024 / blocksize : 1;
  int64_t block = 0;
  while (block < blocks) {
    const int64_t end = blocks - block < group ? blocks : block + group;
    const int64_t begin = block;
    int64_t ready = begin;
    while (ready < end && start(ready, ready - begin)) ++ready;
    for (; block < ready; ++block) encode(block, block - begin);
    if (ready < end) break;
  }
  return block;
}

}  // namespace
}  // namespace berth::kernel::cpu
