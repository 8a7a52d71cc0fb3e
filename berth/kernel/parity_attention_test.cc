// kernel/parity_attention_test.cc — the parity rows of kv_write and attention: every cache dtype, ring buffers,
// windows, chunks, softcap, alibi, sinks, several sequences in one call, one position over a long context.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>

#include "berth/kernel/attention.h"
#include "berth/kernel/math.h"
#include "berth/kernel/parity.h"
#include "berth/quant/scratch.h"
#include "berth/tensor/float16.h"

namespace berth::kernel::parity {
namespace {

constexpr float kGap = -12345.678f;

struct Case {
  std::string name;
  int32_t heads, kv_heads, head_dim, v_head_dim;
  int64_t capacity;
  // Of each sequence: positions already in the cache, rows computed now.
  std::vector<std::pair<int64_t, int64_t>> jobs;
  int64_t window = 0, chunk = 0;
  float softcap = 0;
  bool alibi = false, alibi_bf16 = false, sinks = false;
  Inputs inputs = Inputs::kPlain;
};

std::vector<Case> cases() {
  return {
      {"one position", 4, 2, 64, 64, 128, {{0, 1}}},
      {"decode, one head per kv head", 3, 3, 64, 64, 512, {{300, 1}}},
      {"decode, groups of 3", 9, 3, 64, 64, 512, {{511, 1}}},
      {"decode, groups of 7", 14, 2, 64, 64, 1024, {{900, 1}}},
      {"decode, groups of 8", 16, 2, 128, 128, 512, {{383, 1}}},
      {"decode, groups of 12", 12, 1, 32, 32, 256, {{200, 1}}},
      {"decode, head_dim 256", 4, 1, 256, 256, 512, {{129, 1}}},
      {"decode over 70 blocks", 2, 1, 16, 16, 9216, {{8999, 1}}},
      {"prefill", 4, 2, 64, 64, 384, {{0, 300}}},
      {"prefill, groups of 7", 7, 1, 32, 32, 256, {{100, 70}}},
      {"prefill chunk after a prefix", 4, 4, 16, 16, 384, {{127, 130}}},
      {"odd head_dim", 3, 1, 7, 5, 256, {{3, 150}}},
      {"head_dim 4", 4, 2, 4, 4, 128, {{0, 17}}},
      {"head_dim 24, values 40", 2, 2, 24, 40, 256, {{0, 140}}},
      {"head_dim 192, values 128", 2, 1, 192, 128, 256, {{130, 3}}},
      {"softcap", 4, 2, 32, 32, 256, {{100, 60}}, 0, 0, 50.0f},
      {"window, ring", 4, 2, 32, 32, 256, {{1000, 1}}, 100},
      {"window, ring, prefill", 4, 2, 32, 32, 384, {{700, 130}}, 200},
      {"window of one", 2, 2, 16, 16, 256, {{256, 20}}, 1},
      {"window of 128 from a block's start", 2, 1, 16, 16, 256, {{255, 3}}, 128},
      {"chunk", 4, 2, 32, 32, 384, {{250, 100}}, 0, 96},
      {"chunk of 128", 2, 1, 16, 16, 512, {{300, 1}}, 0, 128},
      {"alibi", 4, 4, 32, 32, 384, {{260, 5}}, 0, 0, 0, true},
      {"alibi, prefill", 4, 4, 16, 16, 384, {{0, 150}}, 0, 0, 0, true},
      {"alibi as Falcon", 4, 1, 16, 16, 512, {{300, 9}}, 0, 0, 0, true, true},
      {"sinks", 8, 2, 64, 64, 256, {{140, 1}}, 0, 0, 0, false, false, true},
      {"sinks and window", 8, 1, 64, 64, 512, {{390, 40}}, 128, 0, 0, false, false, true},
      {"softcap, alibi, sinks", 2, 1, 16, 16, 256, {{120, 20}}, 64, 0, 20.0f, true, false, true},
      {"batch", 6, 2, 32, 32, 384, {{200, 1}, {0, 1}, {127, 1}, {300, 2}}},
      {"batch of decode and prefill", 4, 2, 32, 32, 384, {{200, 1}, {0, 150}, {128, 40}}},
      {"an empty job", 4, 2, 32, 32, 256, {{20, 1}, {30, 0}, {128, 1}}},
      {"hard inputs", 4, 2, 32, 32, 256, {{100, 50}}, 0, 0, 0, false, false, false, Inputs::kHard},
      {"hard inputs, decode", 4, 2, 64, 64, 512, {{400, 1}}, 0, 0, 0, false, false, false, Inputs::kHard},
      {"eight rows over 20 blocks", 16, 2, 32, 32, 2560, {{2500, 8}}},
  };
}

int64_t bytes_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

struct Cache {
  Cache(const Case& c, DType dtype)
      : k(static_cast<size_t>(c.kv_heads * c.capacity * c.head_dim * bytes_of(dtype))),
        v(static_cast<size_t>(c.kv_heads * c.capacity * c.v_head_dim * bytes_of(dtype))) {
    // Slots never written hold NaN: whoever reads them shows it.
    std::memset(k.data(), 0xFF, k.span().size());
    std::memset(v.data(), 0xFF, v.span().size());
    view = {k.data(), v.data(), dtype, c.capacity, c.kv_heads, c.head_dim, c.v_head_dim};
  }
  Aligned k, v;
  KvView view;
};

// Inputs of one sequence: all keys and values from position 0, the queries of the rows computed now.
struct Sequence {
  std::vector<float> k, v, q;
};

struct AllInputs {
  const Case* c;
  std::vector<Sequence> sequences;
  std::vector<float> slopes, sinks;
};

AllInputs make(const Case& c, Random& random) {
  AllInputs s{&c, {}, values(random, c.heads, Inputs::kPlain), values(random, c.heads, Inputs::kPlain)};
  for (const auto& [before, rows] : c.jobs) {
    const int64_t all = before + rows;
    s.sequences.push_back({values(random, all * c.kv_heads * c.head_dim, c.inputs),
                           values(random, all * c.kv_heads * c.v_head_dim, c.inputs),
                           values(random, rows * (c.heads * c.head_dim + 2), c.inputs)});
  }
  return s;
}

// Writes the prefix in pieces of 100 rows, then this call's rows; attends; returns outputs and the caches' contents.
std::vector<float> run(const AllInputs& s, DType dtype, const Context& context) {
  const Case& c = *s.c;
  std::deque<Cache> caches;
  std::vector<AttentionJob> jobs;
  std::vector<std::vector<float>> outputs;
  const int64_t q_stride = c.heads * c.head_dim + 2, out_stride = c.heads * c.v_head_dim + 3;
  int64_t rows = 0, longest = 0;
  for (size_t i = 0; i < c.jobs.size(); ++i) {
    const auto [before, now] = c.jobs[i];
    const Cache& cache = caches.emplace_back(c, dtype);
    const int64_t k_stride = c.kv_heads * c.head_dim, v_stride = c.kv_heads * c.v_head_dim;
    for (int64_t at = 0; at < before + now;) {
      const int64_t n = std::min<int64_t>({100, c.capacity, at < before ? before - at : before + now - at});
      kv_write(context, cache.view, at, n, s.sequences[i].k.data() + at * k_stride, k_stride,
               s.sequences[i].v.data() + at * v_stride, v_stride);
      at += n;
    }
    outputs.emplace_back(static_cast<size_t>(now * out_stride), kGap);
    rows += now;
    longest = std::max(longest, before + now);
  }
  for (size_t i = 0; i < c.jobs.size(); ++i)
    jobs.push_back({caches[i].view, c.jobs[i].first, c.jobs[i].second, s.sequences[i].q.data(), q_stride,
                    outputs[i].data(), out_stride});
  AttentionOptions options;
  options.heads = c.heads;
  options.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  options.softcap = c.softcap;
  options.window = c.window;
  options.chunk = c.chunk;
  options.alibi_slopes = c.alibi ? s.slopes.data() : nullptr;
  options.alibi_bf16_before_scale = c.alibi_bf16;
  options.sinks = c.sinks ? s.sinks.data() : nullptr;
  const int threads = context.pool == nullptr ? 1 : context.pool->size();
  const Aligned scratch(quant::attention_scratch_bytes(c.heads, c.head_dim, c.v_head_dim, rows, longest, threads));
  attention(context, options, jobs, scratch.span());

  std::vector<float> all;
  for (const std::vector<float>& o : outputs) all.insert(all.end(), o.begin(), o.end());
  for (const Cache& cache : caches) {  // as raw 32 bit, so that every stored bit counts
    for (const Aligned* plane : {&cache.k, &cache.v}) {
      uint64_t hash = 0xCBF29CE484222325u;
      for (const std::byte b : plane->span()) hash = (hash ^ static_cast<uint8_t>(b)) * 0x100000001B3u;
      all.push_back(static_cast<float>(hash >> 40));
      all.push_back(static_cast<float>((hash >> 16) & 0xFFFFFFu));
    }
  }
  return all;
}

TEST(AttentionParity, EqualsTheReferenceOnEveryInstructionSet) {
  Parity parity("attention");
  for (const Case& c : cases()) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Row row;
      row.name = "attention/" + c.name + "/" + std::string(dtype_name(dtype));
      Random random(seed_of(row.name));
      const AllInputs setup = make(c, random);
      row.run = [&](const Context& context) { return run(setup, dtype, context); };
      parity.check(row, c.name);
    }
  }
  testing::Test::RecordProperty("rows", parity.rows_run());
}

// The reference against float64: a chain of head_dim, an exp of the score, sums of up to the context's length.
TEST(AttentionParity, ReferenceIsNearFloat64) {
  const Case c{"near", 4, 2, 64, 64, 512, {{400, 3}}};
  Random random(21);
  const AllInputs s = make(c, random);
  const std::vector<float> out = run(s, DType::kF32, {});
  double largest_error = 0, largest = 0;
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t keys = 400 + r + 1, kv = h / 2;
      std::vector<double> p;
      double sum = 0;
      for (int64_t i = 0; i < keys; ++i) {
        double dot = 0;
        for (int64_t d = 0; d < 64; ++d)
          dot += static_cast<double>(s.sequences[0].q[static_cast<size_t>(r * (4 * 64 + 2) + h * 64 + d)]) *
                 s.sequences[0].k[static_cast<size_t>(i * 128 + kv * 64 + d)];
        p.push_back(std::exp(dot / 8));
        sum += p.back();
      }
      for (int64_t d = 0; d < 64; ++d) {
        double o = 0;
        for (int64_t i = 0; i < keys; ++i)
          o += p[static_cast<size_t>(i)] * s.sequences[0].v[static_cast<size_t>(i * 128 + kv * 64 + d)];
        o /= sum;
        largest = std::max(largest, std::fabs(o));
        largest_error = std::max(largest_error, std::fabs(o - out[static_cast<size_t>(r * (4 * 64 + 3) + h * 64 + d)]));
      }
    }
  }
  EXPECT_LE(largest_error, largest * 128 * 0x1p-24);
  EXPECT_GT(largest, 0);
}

TEST(AttentionParity, ChunkingThePromptDoesNotChangeABit) {
  const Case whole{"w", 4, 2, 32, 32, 384, {{0, 300}}};
  Random random(22);
  const AllInputs s = make(whole, random);
  for (const Isa isa : available_isas()) {
    const Context context{isa, Numerics::kExact, nullptr};
    const std::vector<float> expected = run(s, DType::kBF16, context);
    const int64_t q_stride = 4 * 32 + 2, out_stride = 4 * 32 + 3;
    for (const int64_t piece : {1, 7, 128}) {
      const Cache cache(whole, DType::kBF16);
      std::vector<float> out(static_cast<size_t>(300 * out_stride), kGap);
      for (int64_t at = 0; at < 300; at += piece) {
        const int64_t n = std::min<int64_t>(piece, 300 - at);
        kv_write(context, cache.view, at, n, s.sequences[0].k.data() + at * 64, 64, s.sequences[0].v.data() + at * 64,
                 64);
        const AttentionJob job{
            cache.view, at, n, s.sequences[0].q.data() + at * q_stride, q_stride, out.data() + at * out_stride,
            out_stride};
        AttentionOptions options;
        options.heads = 4;
        options.scale = 1.0f / std::sqrt(32.0f);
        const Aligned scratch(quant::attention_scratch_bytes(4, 32, 32, n, 300, 1));
        attention(context, options, std::span(&job, 1), scratch.span());
      }
      size_t at = 0;
      EXPECT_TRUE(same_bits(std::span(expected).first(out.size()), out, &at))
          << isa_name(isa) << ", pieces of " << piece << ", at " << at;
    }
  }
}

}  // namespace
}  // namespace berth::kernel::parity
