// kernel/cpu/attention-inl.h — the KV cache and attention over packs; ref/attention.cc is the definition.
//
// A *group* is the query heads that read one kv head; a *tile* is up to 32 queries (row x head of the group) of one job
// and kv head, which read each block of 128 keys together. For every block:
//
//   scores   keys in the vector lanes (32 side by side in the cache), a few queries in registers, one chain over
//            head_dim per key and query; then scale, softcap, alibi, hidden keys become -inf
//   weights  m_B, e = exp(s - m_B) (0 for hidden keys, which adds nothing to the lanes), l_B
//   values   channels in the vector lanes, a chain over the keys that a query sees; hidden keys are not read
//   merge    into m, l, o, in block order
//
// Two plans. *By tile*: a task is a tile and walks its blocks. *By block* (few rows, long context, so few tiles): a
// task is one block of one tile, its m_B, l_B, o_B go to scratch and are merged in order when all are there.
//
// Start reading at: attention() at the end, then block_of_tile().
#include <algorithm>
#include <bit>
#include <cmath>

#include "berth/kernel/attention.h"
#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/quant/scratch.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

constexpr int64_t kTile = quant::kAttentionTileQueries;
constexpr int kPacksPer32 = 32 / F::kLanes;
constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kNothingSeen = -1;  // no sum of weights is negative

// Queries that share registers: 8 (6) x 2 packs of sums leave room for the operands in 32 (16) registers.
constexpr int kQueries = F::kRegisters >= 32 ? 8 : 6;

template <DType kType>
BERTH_MATH F load_kv(const std::byte* plane, int64_t index) {
  if constexpr (kType == DType::kF32) return F::load(reinterpret_cast<const float*>(plane) + index);
  if constexpr (kType == DType::kF16) return F::load_f16(reinterpret_cast<const uint16_t*>(plane) + index);
  if constexpr (kType == DType::kBF16) return F::load_bf16(reinterpret_cast<const uint16_t*>(plane) + index);
}

template <DType kType>
BERTH_MATH float load_kv_one(const std::byte* plane, int64_t index) {
  if constexpr (kType == DType::kF32) return reinterpret_cast<const float*>(plane)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(plane)[index];
  return kType == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Memory comes in all the time, while something else is worked on: the scores' loop asks for the block's values (and
// for its own keys a little ahead, into the first level), the weights and the values' loop for the keys of the block
// that comes next.
constexpr int64_t kKeysAhead = 8;  // channels of 32 keys
BERTH_MATH void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
BERTH_MATH void prefetch_near(const std::byte* p) { __builtin_prefetch(p, 0, 3); }

// Memory that will be read soon, asked for line by line in four streams, a quarter of it each: one stream does not keep
// memory busy. Up to four lines at the end are left to whoever reads them. Two instructions a line: more showed.
class Ahead {
 public:
  Ahead(const std::byte* begin, int64_t bytes) : at_(begin), quarter_(bytes / 256 * 64), left_(bytes / 256) {}
  // The next line of each stream, `times`.
  BERTH_MATH void ask(int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      if (left_ <= 0) return;
      for (int64_t j = 0; j < 4; ++j) prefetch(at_ + j * quarter_);
      at_ += 64;
      --left_;
    }
  }
  int64_t left() const { return left_; }

 private:
  const std::byte* at_;
  int64_t quarter_, left_;
};

// Whether the scores' loop asks for values at channel d. Where there are many queries the weights take long too: a
// quarter of the values is left to ask for then.
template <int kN>
BERTH_MATH bool asks_now(int64_t d) {
  return kN < 4 || d % 16 != 12;
}

template <DType kType>
constexpr int64_t kElementBytes = kType == DType::kF32 ? 4 : 2;

struct Range {
  int64_t begin, end;
};

// The keys that the query at `position` sees.
Range visible(const AttentionOptions& options, int64_t position) {
  int64_t begin = 0;
  if (options.window > 0) begin = std::max(begin, position - options.window + 1);
  if (options.chunk > 0) begin = std::max(begin, position / options.chunk * options.chunk);
  return {begin, position + 1};
}

// Queries [first, first + count) of one job and kv head: query i is row i / group, head i % group of the group.
struct Tile {
  const AttentionJob* job;
  int64_t kv_head, first, count, group;
  int64_t row(int64_t i) const { return (first + i) / group; }
  int64_t head(int64_t i) const { return kv_head * group + (first + i) % group; }
  int64_t position(int64_t i) const { return job->position + row(i); }
  const float* q(int64_t i) const { return job->q + row(i) * job->q_stride + head(i) * job->cache.head_dim; }
  float* out(int64_t i) const { return job->out + row(i) * job->out_stride + head(i) * job->cache.v_head_dim; }
};

// One thread's scratch.
struct Workspace {
  float* q;        // [kTile / kQueries][head_dim][queries of the batch]
  float* scores;   // [kTile][128]
  float* o_block;  // [kTile][v_padded]
  float* o;        // [kTile][v_padded]
  float* m_block;  // [kTile] each
  float* l_block;
  float* m;
  float* l;
};

struct Shape {
  int64_t head_dim, v_head_dim, v_padded;
  explicit Shape(const KvView& cache)
      : head_dim(cache.head_dim), v_head_dim(cache.v_head_dim), v_padded((cache.v_head_dim + 15) / 16 * 16) {}
  int64_t workspace_floats() const { return (kTile * (head_dim + 128 + 2 * v_padded + 4) + 63) / 16 * 16; }
};

Workspace workspace(float* scratch, const Shape& shape, int thread) {
  float* at = scratch + thread * shape.workspace_floats();
  Workspace w;
  w.scores = at;
  w.o_block = w.scores + kTile * 128;
  w.o = w.o_block + kTile * shape.v_padded;
  w.m_block = w.o + kTile * shape.v_padded;
  w.l_block = w.m_block + kTile;
  w.m = w.l_block + kTile;
  w.l = w.m + kTile;
  w.q = w.l + kTile;
  return w;
}

// Lays the queries of a tile out as [batch][head_dim][queries of the batch].
void pack_queries(const Tile& tile, const Shape& shape, float* packed) {
  for (int64_t begin = 0; begin < tile.count; begin += kQueries) {
    const int64_t n = std::min<int64_t>(kQueries, tile.count - begin);
    float* batch = packed + begin * shape.head_dim;
    for (int64_t i = 0; i < n; ++i) {
      const float* q = tile.q(begin + i);
      for (int64_t d = 0; d < shape.head_dim; ++d) batch[d * n + i] = q[d];
    }
  }
}

// Raw scores of kN queries against kKeyTiles times 32 keys. k: index of the first key tile's first element.
template <DType kType, int kN, int kKeyTiles>
BERTH_MATH void score_keys(const std::byte* plane, int64_t k, int64_t head_dim, const float* q, float* scores,
                           Ahead& values) {
  constexpr int kPacks = kKeyTiles * kPacksPer32;
  F s[kN][kPacks];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) s[i][j] = F::of(0.0f);
  const auto channel = [&](int64_t d) __attribute__((always_inline)) {
    F keys[kPacks];
    for (int t = 0; t < kKeyTiles; ++t)
      for (int j = 0; j < kPacksPer32; ++j)
        keys[t * kPacksPer32 + j] = load_kv<kType>(plane, k + (t * head_dim + d) * 32 + j * F::kLanes);
    for (int i = 0; i < kN; ++i) {
      const F query = F::of(q[d * kN + i]);
      for (int j = 0; j < kPacks; ++j) s[i][j] = fma(query, keys[j], s[i][j]);
    }
  };
  Ahead ahead = values;  // in registers
  int64_t d = 0;
  for (; d + 4 <= head_dim; d += 4) {
    for (int t = 0; t < kKeyTiles; ++t)
      for (int i = 0; i < 4; ++i)
        prefetch_near(plane + (k + (t * head_dim + d + i + kKeysAhead) * 32) * kElementBytes<kType>);
    if (asks_now<kN>(d)) ahead.ask(kKeyTiles * kElementBytes<kType> / 2);
    channel(d);
    channel(d + 1);
    channel(d + 2);
    channel(d + 3);
  }
  for (; d < head_dim; ++d) channel(d);
  values = ahead;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) s[i][j].store(scores + i * 128 + j * F::kLanes);
}

// Half of the 32 keys at a time where the registers do not hold all for kN queries.
template <DType kType, int kN>
BERTH_MATH void score_keys_halves(const std::byte* plane, int64_t k, int64_t head_dim, const float* q, float* scores,
                                  Ahead& values) {
  constexpr int kPacks = kPacksPer32 / 2;
  for (int half = 0; half < 2; ++half) {
    F s[kN][kPacks];
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kPacks; ++j) s[i][j] = F::of(0.0f);
    const auto channel = [&](int64_t d) __attribute__((always_inline)) {
      F keys[kPacks];
      for (int j = 0; j < kPacks; ++j) keys[j] = load_kv<kType>(plane, k + d * 32 + half * 16 + j * F::kLanes);
      for (int i = 0; i < kN; ++i) {
        const F query = F::of(q[d * kN + i]);
        for (int j = 0; j < kPacks; ++j) s[i][j] = fma(query, keys[j], s[i][j]);
      }
    };
    Ahead ahead = values;  // in registers
    int64_t d = 0;
    for (; d + 4 <= head_dim; d += 4) {
      if (half == 0)
        for (int i = 0; i < 4; ++i) prefetch_near(plane + (k + (d + i + kKeysAhead) * 32) * kElementBytes<kType>);
      if (half == 0 && asks_now<kN>(d)) ahead.ask(kElementBytes<kType> / 2);
      channel(d);
      channel(d + 1);
      channel(d + 2);
      channel(d + 3);
    }
    for (; d < head_dim; ++d) channel(d);
    values = ahead;
    for (int i = 0; i < kN; ++i)
      for (int j = 0; j < kPacks; ++j) s[i][j].store(scores + i * 128 + half * 16 + j * F::kLanes);
  }
}

// Scores of kN queries against the key tiles [first, last) of a block.
template <DType kType, int kN>
void score_block(const KvView& cache, int64_t k, int64_t first, int64_t last, const float* q, float* scores,
                 Ahead& values) {
  const int64_t head_dim = cache.head_dim;
  int64_t t = first;
  // One or two queries alone would wait for their own chains: more keys at once.
  if constexpr (kN * kPacksPer32 <= 4) {
    constexpr int kMany = F::kRegisters >= 32 ? 4 : 2;
    for (; t + kMany <= last; t += kMany)
      score_keys<kType, kN, kMany>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
  }
  for (; t < last; ++t) {
    if constexpr (kN * kPacksPer32 + kPacksPer32 + 1 > F::kRegisters) {
      score_keys_halves<kType, kN>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
    } else {
      score_keys<kType, kN, 1>(cache.k, k + t * head_dim * 32, head_dim, q, scores + t * 32, values);
    }
  }
}

// o_B[i][channels] += e[i][p] * v[p][channels] for kN queries over the keys [begin, end) of a block and kPacks packs.
// `next`: what to ask for meanwhile.
template <DType kType, int kN, int kPacks>
BERTH_MATH void add_values(const std::byte* plane, int64_t v, int64_t v_head_dim, Range keys, const float* e, float* o,
                           int64_t o_stride, Ahead& next) {
  // As many bytes as a position has here.
  constexpr int64_t kLines = (kPacks * F::kLanes * kElementBytes<kType> + 63) / 64;
  F sum[kN][kPacks];
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) sum[i][j] = F::load(o + i * o_stride + j * F::kLanes);
  const auto position = [&](int64_t p) __attribute__((always_inline)) {
    F value[kPacks];
    for (int j = 0; j < kPacks; ++j) value[j] = load_kv<kType>(plane, v + p * v_head_dim + j * F::kLanes);
    for (int i = 0; i < kN; ++i) {
      const F weight = F::of(e[i * 128 + p]);
      for (int j = 0; j < kPacks; ++j) sum[i][j] = fma(weight, value[j], sum[i][j]);
    }
  };
  Ahead ahead = next;  // in registers
  int64_t p = keys.begin;
  for (; p + 4 <= keys.end; p += 4) {
    ahead.ask(kLines);
    position(p);
    position(p + 1);
    position(p + 2);
    position(p + 3);
  }
  for (; p < keys.end; ++p) position(p);
  next = ahead;
  for (int i = 0; i < kN; ++i)
    for (int j = 0; j < kPacks; ++j) sum[i][j].store(o + i * o_stride + j * F::kLanes);
}

template <DType kType, int kN>
void add_values_of(const KvView& cache, int64_t v, Range keys, const float* e, float* o, int64_t o_stride,
                   Ahead& next) {
  if (keys.begin >= keys.end) return;
  // Packs of channels at once: enough sums to hide the chains' latency, few enough for the registers.
  constexpr bool kMany = F::kRegisters >= 32;
  constexpr int kWide = kN == 1 ? (kMany ? 4 : 8) : kN == 2 || (kN == 3 && kMany) ? 4 : 2;
  const int64_t n = cache.v_head_dim;
  int64_t d = 0;
  for (; d + kWide * F::kLanes <= n; d += kWide * F::kLanes)
    add_values<kType, kN, kWide>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  if constexpr (kWide > 2)
    for (; d + 2 * F::kLanes <= n; d += 2 * F::kLanes)
      add_values<kType, kN, 2>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  for (; d + F::kLanes <= n; d += F::kLanes)
    add_values<kType, kN, 1>(cache.v, v + d, n, keys, e, o + d, o_stride, next);
  for (; d < n; ++d)
    for (int i = 0; i < kN; ++i)
      for (int64_t p = keys.begin; p < keys.end; ++p)
        o[i * o_stride + d] = std::fma(e[i * 128 + p], load_kv_one<kType>(cache.v, v + p * n + d), o[i * o_stride + d]);
}

// Raw scores of one query, scaled; hidden keys become -inf. `seen`: the visible keys within the block. Returns the
// largest.
float scale_scores(const AttentionOptions& options, int64_t head, int64_t block_begin, Range seen, float* s) {
  const float slope = options.alibi_slopes == nullptr ? 0.0f : options.alibi_slopes[head];
  const auto to_bf16 = [](float x) { return bf16_to_f32(f32_to_bf16(x)); };
  if (options.alibi_slopes != nullptr && options.alibi_bf16_before_scale)
    for (int64_t p = seen.begin; p < seen.end; ++p)
      s[p] = s[p] + to_bf16(to_bf16(slope) * to_bf16(static_cast<float>(block_begin + p)));
  const F scale = F::of(options.scale), cap = F::of(options.softcap);
  F m[4] = {F::of(kMinusInfinity), F::of(kMinusInfinity), F::of(kMinusInfinity), F::of(kMinusInfinity)};
  if (seen.begin == 0 && seen.end == kAttentionBlock && options.softcap == 0 && options.alibi_slopes == nullptr) {
    for (int64_t p = 0; p < kAttentionBlock; p += 4 * F::kLanes) {
      for (int j = 0; j < 4; ++j) {
        const F v = F::load(s + p + j * F::kLanes) * scale;
        v.store(s + p + j * F::kLanes);
        m[j] = max(m[j], v);
      }
    }
    return largest(max(max(m[0], m[1]), max(m[2], m[3])));
  }
  const int64_t first = seen.begin / F::kLanes * F::kLanes;
  for (int64_t p = first; p < seen.end; p += F::kLanes) {
    F v = F::load(s + p) * scale;
    if (options.softcap != 0) v = cap * math::tanh(v / cap);
    v.store(s + p);
  }
  if (options.alibi_slopes != nullptr && !options.alibi_bf16_before_scale)
    for (int64_t p = seen.begin; p < seen.end; ++p) s[p] = s[p] + slope * static_cast<float>(block_begin + p);
  for (int64_t p = 0; p < seen.begin; ++p) s[p] = kMinusInfinity;
  for (int64_t p = seen.end; p < kAttentionBlock; ++p) s[p] = kMinusInfinity;
  for (int64_t p = 0; p < kAttentionBlock; p += 4 * F::kLanes)
    for (int j = 0; j < 4; ++j) m[j] = max(m[j], F::load(s + p + j * F::kLanes));
  return largest(max(max(m[0], m[1]), max(m[2], m[3])));
}

// Packs that go through a chain of operations side by side: one chain alone would wait for itself.
template <typename T>
struct Two {
  static constexpr int kLanes = 2 * T::kLanes;
  T a, b;
  static BERTH_MATH Two of(float value) { return {T::of(value), T::of(value)}; }
  static BERTH_MATH Two load(const float* p) { return {T::load(p), T::load(p + T::kLanes)}; }
  BERTH_MATH void store(float* p) const {
    a.store(p);
    b.store(p + T::kLanes);
  }
  friend BERTH_MATH Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
  friend BERTH_MATH Two operator-(Two x, Two y) { return {x.a - y.a, x.b - y.b}; }
  friend BERTH_MATH Two operator*(Two x, Two y) { return {x.a * y.a, x.b * y.b}; }
  friend BERTH_MATH Two fma(Two x, Two y, Two z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)}; }
  friend BERTH_MATH Two at_least(Two x, float low) { return {at_least(x.a, low), at_least(x.b, low)}; }
  friend BERTH_MATH Two scale_by_power_of_two(Two p, Two n) {
    return {scale_by_power_of_two(p.a, n.a), scale_by_power_of_two(p.b, n.b)};
  }
};

// Scaled scores less their largest become weights. Returns l_B, to which hidden keys would add 0: packs of them are
// left out, and those within a pack get their 0 afterwards, since exp of -infinity passes through the denormals, which
// takes a processor a hundred times as long.
float weigh(float m, Range seen, float* s) {
  F sum[kAccumulators];
  for (F& a : sum) a = F::of(0.0f);
  if (seen.begin == 0 && seen.end == kAttentionBlock) {
    using Packs = Two<Two<F>>;
    for (int64_t p = 0; p < kAttentionBlock; p += Packs::kLanes) {
      const Packs e = math::exp<true>(Packs::load(s + p) - Packs::of(m));
      e.store(s + p);
      if constexpr (kAccumulators == 2) {
        sum[0] = (sum[0] + e.a.a) + e.b.a;
        sum[1] = (sum[1] + e.a.b) + e.b.b;
      } else {
        sum[0] = sum[0] + e.a.a;
        sum[1] = sum[1] + e.a.b;
        sum[2] = sum[2] + e.b.a;
        sum[3] = sum[3] + e.b.b;
      }
    }
    return finish(sum);
  }
  for (int64_t p = seen.begin / kLanes * kLanes; p < seen.end; p += kLanes) {
    for (int j = 0; j < kAccumulators; ++j) {
      const int64_t begin = p + j * F::kLanes, end = begin + F::kLanes;
      if (end <= seen.begin || begin >= seen.end) continue;
      if (begin >= seen.begin && end <= seen.end) {
        const F e = math::exp<true>(F::load(s + begin) - F::of(m));
        e.store(s + begin);
        sum[j] = sum[j] + e;
        continue;
      }
      const auto fill_hidden = [&](float value) {
        for (int64_t i = begin; i < seen.begin; ++i) s[i] = value;
        for (int64_t i = std::max(begin, seen.end); i < end; ++i) s[i] = value;
      };
      fill_hidden(m);
      math::exp<true>(F::load(s + begin) - F::of(m)).store(s + begin);
      fill_hidden(0);
      sum[j] = sum[j] + F::load(s + begin);
    }
  }
  return finish(sum);
}

// Calls f.operator()<kN>() for n = kN in 1..kQueries.
template <int kN = kQueries, typename Callable>
BERTH_MATH void with_count(int64_t n, Callable&& f) {
  if constexpr (kN > 1) {
    if (n < kN) return with_count<kN - 1>(n, f);
  }
  f.template operator()<kN>();
}

// The keys of the block of the tile that begins at position `begin`.
Ahead keys_of(const Tile& tile, int64_t begin) {
  const KvView& cache = tile.job->cache;
  const int64_t bytes = cache.head_dim * (cache.dtype == DType::kF32 ? 4 : 2);  // of a key
  const int64_t seen = std::min(tile.position(tile.count - 1) + 1 - begin, kAttentionBlock);
  return {cache.k + (tile.kv_head * cache.capacity + begin % cache.capacity) * bytes, (seen + 31) / 32 * 32 * bytes};
}

// m_B, l_B and o_B of every query of the tile for the block that begins at position `begin`. Where a query sees nothing
// of the block, its l_block is kNothingSeen and the rest undefined. `next`: keys to ask for.
template <DType kType>
void block_of_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t begin, Ahead next,
                   const Workspace& w) {
  const KvView& cache = tile.job->cache;
  const int64_t slot = begin % cache.capacity;
  const int64_t k = (tile.kv_head * cache.capacity + slot) * cache.head_dim;
  const int64_t v = (tile.kv_head * cache.capacity + slot) * cache.v_head_dim;
  const auto seen_by = [&](int64_t i) {
    const Range all = visible(options, tile.position(i));
    return Range{std::clamp<int64_t>(all.begin - begin, 0, kAttentionBlock),
                 std::clamp<int64_t>(all.end - begin, 0, kAttentionBlock)};
  };
  const int64_t v_end = std::clamp<int64_t>(tile.position(tile.count - 1) + 1 - begin, 0, kAttentionBlock);
  // Every query sees all of it: so it is for most blocks, and most of what follows is spared.
  const bool whole = seen_by(0).begin == 0 && seen_by(0).end == kAttentionBlock && seen_by(tile.count - 1).begin == 0;
  Ahead values(cache.v + v * kElementBytes<kType>, v_end * cache.v_head_dim * kElementBytes<kType>);
  for (int64_t first = 0; first < tile.count; first += kQueries) {
    const int64_t n = std::min<int64_t>(kQueries, tile.count - first);
    Range seen[kQueries];
    Range any{kAttentionBlock, 0}, all{0, kAttentionBlock};
    for (int64_t i = 0; i < n; ++i) {
      seen[i] = whole ? Range{0, kAttentionBlock} : seen_by(first + i);
      w.l_block[first + i] = kNothingSeen;
      if (seen[i].begin >= seen[i].end) seen[i] = {kAttentionBlock, kAttentionBlock};
      if (seen[i].begin < seen[i].end) any = {std::min(any.begin, seen[i].begin), std::max(any.end, seen[i].end)};
      all = {std::max(all.begin, seen[i].begin), std::min(all.end, seen[i].end)};
    }
    if (any.begin >= any.end) continue;
    float* scores = w.scores + first * 128;
    float* o = w.o_block + first * shape.v_padded;
    with_count(n, [&]<int kN>() {
      score_block<kType, kN>(cache, k, any.begin / 32, (any.end + 31) / 32, w.q + first * shape.head_dim, scores,
                             values);
    });
    for (int64_t i = 0; i < n; ++i)
      if (seen[i].begin < seen[i].end)
        w.m_block[first + i] = scale_scores(options, tile.head(first + i), begin, seen[i], scores + i * 128);
    const int64_t rest = (values.left() + n - 1) / n;  // of the values, asked for meanwhile
    for (int64_t i = 0; i < n; ++i) {
      if (seen[i].begin < seen[i].end) w.l_block[first + i] = weigh(w.m_block[first + i], seen[i], scores + i * 128);
      values.ask(rest);
      for (int64_t d = 0; d < shape.v_padded; d += F::kLanes) F::of(0.0f).store(o + i * shape.v_padded + d);
    }
    // Keys that all of them see together; what lies before and after, for each alone.
    if (all.begin >= all.end) all = {kAttentionBlock, kAttentionBlock};
    for (int64_t i = 0; i < n; ++i)
      add_values_of<kType, 1>(cache, v, {seen[i].begin, std::min(all.begin, seen[i].end)}, scores + i * 128,
                              o + i * shape.v_padded, shape.v_padded, next);
    with_count(n, [&]<int kN>() { add_values_of<kType, kN>(cache, v, all, scores, o, shape.v_padded, next); });
    for (int64_t i = 0; i < n; ++i)
      add_values_of<kType, 1>(cache, v, {std::max(all.end, seen[i].begin), seen[i].end}, scores + i * 128,
                              o + i * shape.v_padded, shape.v_padded, next);
  }
}

void block_of_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t begin, Ahead next,
                   const Workspace& w) {
  switch (tile.job->cache.dtype) {
    case DType::kF16:
      return block_of_tile<DType::kF16>(options, tile, shape, begin, next, w);
    case DType::kBF16:
      return block_of_tile<DType::kBF16>(options, tile, shape, begin, next, w);
    default:
      return block_of_tile<DType::kF32>(options, tile, shape, begin, next, w);
  }
}

// Adds a block's (m_B, l_B, o_B) to (m, l, o), whose new m is `m`, with al and be of numerics.md 2; o_B null: all +0.
BERTH_MATH void merge(float al, float be, float l_block, const float* o_block, int64_t n, float* l, float* o) {
  *l = std::fma(*l, al, l_block * be);
  for (int64_t d = 0; d < n; d += F::kLanes) {
    const F block = o_block == nullptr ? F::of(0.0f) : F::load(o_block + d);
    fma(F::load(o + d), F::of(al), block * F::of(be)).store(o + d);
  }
}

// exp(old_m[i] - new_m[i]) and exp(m_block[i] - new_m[i]); places up to a multiple of 16 may be written.
BERTH_MATH void merge_weights(int64_t n, const float* old_m, const float* m_block, const float* new_m, float* al,
                              float* be) {
  for (int64_t i = 0; i < n; i += F::kLanes) {
    const F m = F::load(new_m + i);
    math::exp(F::load(old_m + i) - m).store(al + i);
    math::exp(F::load(m_block + i) - m).store(be + i);
  }
}

// Merges `n` blocks' partial results, each m, l and from 16 on o, into `to`.
void merge_partials(const float* from, int64_t n, int64_t record, int64_t v_padded, float* to) {
  constexpr int64_t kMost = quant::kAttentionPartialBlocks;
  // Blocks of which the query sees something, and m before and after each.
  alignas(64) float old_m[kMost], m_block[kMost], new_m[kMost], al[kMost], be[kMost];
  const float* o[kMost];
  int64_t seen = 0;
  float m = to[0], l = to[1];
  for (int64_t i = 0; i < n; ++i) {
    const float* block = from + i * record;
    if (block[1] == kNothingSeen) continue;
    old_m[seen] = m;
    m_block[seen] = block[0];
    new_m[seen] = m = std::max(m, block[0]);
    o[seen++] = block + 16;
  }
  for (int64_t i = seen; i % F::kLanes != 0; ++i) old_m[i] = m_block[i] = new_m[i] = 0;
  merge_weights(seen, old_m, m_block, new_m, al, be);
  for (int64_t i = 0; i < seen; ++i) l = std::fma(l, al[i], o[i][1 - 16] * be[i]);
  const auto add = [&]<int kPacks>(int64_t d) {
    F sum[kPacks];
    for (int j = 0; j < kPacks; ++j) sum[j] = F::load(to + 16 + d + j * F::kLanes);
    for (int64_t i = 0; i < seen; ++i)
      for (int j = 0; j < kPacks; ++j)
        sum[j] = fma(sum[j], F::of(al[i]), F::load(o[i] + d + j * F::kLanes) * F::of(be[i]));
    for (int j = 0; j < kPacks; ++j) sum[j].store(to + 16 + d + j * F::kLanes);
  };
  int64_t d = 0;
  for (; d + 4 * F::kLanes <= v_padded; d += 4 * F::kLanes) add.template operator()<4>(d);
  for (; d < v_padded; d += F::kLanes) add.template operator()<1>(d);
  to[0] = m;
  to[1] = l;
}

void begin_query(int64_t n, float* m, float* l, float* o) {
  *m = kMinusInfinity;
  *l = 0;
  for (int64_t d = 0; d < n; ++d) o[d] = 0;
}

void end_query(const AttentionOptions& options, const Tile& tile, const Shape& shape, int64_t i, float* m, float* l,
               float* o) {
  if (options.sinks != nullptr) {
    const float sink = options.sinks[tile.head(i)], new_m = std::max(*m, sink);
    merge(math::exp(F32x1{*m - new_m}).v, math::exp(F32x1{sink - new_m}).v, 1.0f, nullptr, shape.v_padded, l, o);
  }
  map(shape.v_head_dim, o, tile.out(i), [&](F a, int64_t) { return a / F::of(*l); });
}

// First block of the first query and end of the last one's.
Range blocks_of(const AttentionOptions& options, const Tile& tile) {
  const int64_t first = visible(options, tile.position(0)).begin / kAttentionBlock;
  return {first, tile.position(tile.count - 1) / kAttentionBlock + 1};
}

void run_tile(const AttentionOptions& options, const Tile& tile, const Shape& shape, const Workspace& w) {
  pack_queries(tile, shape, w.q);
  for (int64_t i = 0; i < tile.count; ++i) begin_query(shape.v_padded, &w.m[i], &w.l[i], w.o + i * shape.v_padded);
  const Range blocks = blocks_of(options, tile);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const Ahead next = b + 1 < blocks.end ? keys_of(tile, (b + 1) * kAttentionBlock) : Ahead(nullptr, 0);
    block_of_tile(options, tile, shape, b * kAttentionBlock, next, w);
    alignas(64) float new_m[kTile], al[kTile], be[kTile];
    for (int64_t i = 0; i < kTile; i += F::kLanes) max(F::load(w.m + i), F::load(w.m_block + i)).store(new_m + i);
    merge_weights(tile.count, w.m, w.m_block, new_m, al, be);
    for (int64_t i = 0; i < tile.count; ++i) {
      if (w.l_block[i] == kNothingSeen) continue;
      merge(al[i], be[i], w.l_block[i], w.o_block + i * shape.v_padded, shape.v_padded, &w.l[i],
            w.o + i * shape.v_padded);
      w.m[i] = new_m[i];
    }
  }
  for (int64_t i = 0; i < tile.count; ++i)
    end_query(options, tile, shape, i, &w.m[i], &w.l[i], w.o + i * shape.v_padded);
}

// Tiles of all jobs, numbered.
struct Tiles {
  std::span<const AttentionJob> jobs;
  int64_t heads;
  static int64_t per_head(const AttentionJob& job, int64_t heads) {
    return (job.rows * (heads / job.cache.kv_heads) + kTile - 1) / kTile;
  }
  int64_t count() const {
    int64_t n = 0;
    for (const AttentionJob& job : jobs) n += job.cache.kv_heads * per_head(job, heads);
    return n;
  }
  Tile at(int64_t index) const {
    for (const AttentionJob& job : jobs) {
      const int64_t per = per_head(job, heads), n = job.cache.kv_heads * per;
      if (index < n) {
        const int64_t group = heads / job.cache.kv_heads;
        const int64_t first = index / job.cache.kv_heads * kTile;
        return {&job, index % job.cache.kv_heads, first, std::min(kTile, job.rows * group - first), group};
      }
      index -= n;
    }
    return {};
  }
};

// A rough time of one block of one tile, to decide whether to fork.
double block_ns(const Shape& shape, int64_t queries) {
  return 128.0 * static_cast<double>(shape.head_dim + shape.v_head_dim) * (0.06 + 0.02 * static_cast<double>(queries)) +
         150.0 * static_cast<double>(queries);
}

// One tile by blocks: partial results of up to kAttentionPartialBlocks blocks at a time, then merged in order.
void run_by_blocks(const Context& context, const AttentionOptions& options, const Tiles& tiles, const Shape& shape,
                   float* scratch, float* partials) {
  const int64_t record = shape.v_padded + 16;  // m, l at 0, 1; o from 16
  for (int64_t t = 0; t < tiles.count();) {
    // As many tiles of this job as it has: all kv heads of one group of queries go together.
    const Tile first = tiles.at(t);
    const int64_t together = first.job->cache.kv_heads;
    const Range blocks = blocks_of(options, first);
    const int64_t queries = first.count * together;
    const int64_t wave_blocks = std::min(quant::kAttentionPartialBlocks, blocks.end - blocks.begin);
    float* merged = partials + queries * wave_blocks * record;
    for (int64_t i = 0; i < queries; ++i)
      begin_query(shape.v_padded, merged + i * record, merged + i * record + 1, merged + i * record + 16);
    for (int64_t wave = blocks.begin; wave < blocks.end; wave += wave_blocks) {
      const int64_t n = std::min(wave_blocks, blocks.end - wave);
      split_in_stretches(context, n * together, block_ns(shape, first.count), [&](auto&& claim, int thread) {
        Workspace w = workspace(scratch, shape, thread);
        int64_t packed = -1;
        for (int64_t item = claim(); item >= 0; item = claim()) {
          const int64_t head = item / n, block = item % n, after = item + 1;
          const Tile tile = tiles.at(t + head);
          if (packed != head) pack_queries(tile, shape, w.q);
          packed = head;
          block_of_tile(options, tile, shape, (wave + block) * kAttentionBlock,
                        after < n * together ? keys_of(tiles.at(t + after / n), (wave + after % n) * kAttentionBlock)
                                             : Ahead(nullptr, 0),
                        w);
          for (int64_t i = 0; i < tile.count; ++i) {
            float* to = partials + ((head * first.count + i) * n + block) * record;
            to[0] = w.m_block[i];
            to[1] = w.l_block[i];
            for (int64_t d = 0; d < shape.v_padded; d += F::kLanes)
              F::load(w.o_block + i * shape.v_padded + d).store(to + 16 + d);
          }
        }
      });
      // The partial results come from beyond the second-level cache or from that of another core.
      const double merge_ns = static_cast<double>(n) * (5.0 + 0.25 * static_cast<double>(shape.v_padded));
      const bool last = wave + n == blocks.end;
      split(context, queries, merge_ns, [&](int64_t begin, int64_t end, int) {
        for (int64_t q = begin; q < end; ++q) {
          float* to = merged + q * record;
          merge_partials(partials + q * n * record, n, record, shape.v_padded, to);
          if (last) end_query(options, tiles.at(t + q / first.count), shape, q % first.count, to, to + 1, to + 16);
        }
      });
    }
    t += together;
  }
}

}  // namespace

void attention(const Context& context, const AttentionOptions& options, std::span<const AttentionJob> jobs,
               std::span<std::byte> scratch) {
  const Shape shape(jobs[0].cache);
  const Tiles tiles{jobs, options.heads};
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  float* floats = reinterpret_cast<float*>(scratch.data());
  const int64_t count = tiles.count();
  if (count == 0) return;

  int64_t rows = 0, blocks = 0;
  for (const AttentionJob& job : jobs) {
    rows += job.rows;
    blocks = std::max(blocks, (job.position + job.rows + kAttentionBlock - 1) / kAttentionBlock);
  }
  if (threads > 1 && rows <= quant::kAttentionPartialRows && count < 8 * threads && blocks > 1) {
    run_by_blocks(context, options, tiles, shape, floats, floats + threads * shape.workspace_floats());
    return;
  }
  const Tile largest = tiles.at(count - 1);
  const Range longest = blocks_of(options, largest);
  const double tile_ns = block_ns(shape, largest.count) * static_cast<double>(longest.end - longest.begin);
  split(context, count, tile_ns, [&](int64_t begin, int64_t end, int thread) {
    const Workspace w = workspace(floats, shape, thread);
    // Later tiles see more keys: the long ones first.
    for (int64_t i = begin; i < end; ++i) run_tile(options, tiles.at(count - 1 - i), shape, w);
  });
}

namespace {

void to_halves(DType dtype, const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + F::kLanes <= n; i += F::kLanes) {
    if (dtype == DType::kF16) F::load(x + i).store_f16(out + i);
    if (dtype == DType::kBF16) F::load(x + i).store_bf16(out + i);
  }
  for (; i < n; ++i) out[i] = dtype == DType::kF16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
}

constexpr int64_t kChannels = 256;  // converted at a time

// One row of one head into column `lane` of its key tile.
template <typename T>
void scatter(const T* x, int64_t n, T* tile) {
  for (int64_t i = 0; i < n; ++i) tile[i * 32] = x[i];
}

}  // namespace

void kv_write(const Context& context, const KvView& cache, int64_t position, int64_t rows, const float* k,
              int64_t k_stride, const float* v, int64_t v_stride) {
  const int64_t head_dim = cache.head_dim, v_head_dim = cache.v_head_dim;
  const bool wide = cache.dtype == DType::kF32;
  // Heads are disjoint; within a head the rows of a key tile share cache lines and stay with one thread.
  const double head_ns = static_cast<double>(rows * (head_dim + v_head_dim)) * 0.8;
  split(context, cache.kv_heads, head_ns, [&](int64_t begin, int64_t end, int) {
    uint16_t halves[kChannels];
    for (int64_t h = begin; h < end; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t slot = (position + r) % cache.capacity;
        const int64_t tile = (h * (cache.capacity / 32) + slot / 32) * head_dim * 32 + slot % 32;
        const int64_t value = (h * cache.capacity + slot) * v_head_dim;
        const float* key_row = k + r * k_stride + h * head_dim;
        const float* value_row = v + r * v_stride + h * v_head_dim;
        if (wide) {
          scatter(key_row, head_dim, reinterpret_cast<float*>(cache.k) + tile);
          float* to = reinterpret_cast<float*>(cache.v) + value;
          for (int64_t i = 0; i < v_head_dim; ++i) to[i] = value_row[i];
          continue;
        }
        for (int64_t i = 0; i < head_dim; i += kChannels) {
          const int64_t n = std::min(kChannels, head_dim - i);
          to_halves(cache.dtype, key_row + i, n, halves);
          scatter(halves, n, reinterpret_cast<uint16_t*>(cache.k) + tile + i * 32);
        }
        to_halves(cache.dtype, value_row, v_head_dim, reinterpret_cast<uint16_t*>(cache.v) + value);
      }
    }
  });
}

}  // namespace berth::kernel::BERTH_TARGET
