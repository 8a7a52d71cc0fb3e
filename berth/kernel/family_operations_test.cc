// kernel/family_operations_test.cc — the operations that only some families use: the two compilations of the reference
// agree bit for bit, splitting over threads changes nothing, and results are near float64.
#include "berth/kernel/family_operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "berth/base/thread_pool.h"
#include "berth/quant/scratch.h"

namespace berth::kernel {
namespace {

// Repeatable values of about -2 .. 2.
std::vector<float> values(int64_t n, uint32_t seed, float scale = 2) {
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) {
    seed = seed * 1664525u + 1013904223u;
    v = scale * (static_cast<float>(seed >> 8) / 8388608.0f - 1.0f);
  }
  return out;
}

// Runs f with both compilations of the reference; the buffers it returns must be equal.
template <typename F>
void expect_same_bits(F&& f) {
  const std::vector<float> a = f(reference_family_operations(false)), b = f(reference_family_operations(true));
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(FamilyOperations, AreTheSameBitsWithAndWithoutTheFmaInstruction) {
  const int64_t rows = 5, n = 67;
  const std::vector<float> x = values(rows * n, 1), y = values(rows * n, 2);
  expect_same_bits([&](const FamilyOperations& o) {
    std::vector<float> out(x.size());
    o.clamped_swiglu(x.data(), n, y.data(), n, 1.5f, 1.702f, rows, n, out.data(), n);
    return out;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    std::vector<float> out = x;
    o.sparsify(out.data(), n, 0.5f, rows, n);
    return out;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    std::vector<float> out = x;
    o.match_magnitude(out.data(), n, y.data(), n, rows, n);
    return out;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    std::vector<float> out = values(3 * rows * n, 3);
    const std::vector<float> coefs = values(rows * 9, 4), f = values(rows * n, 5);
    o.predict_streams(out.data(), 3, rows, n, coefs.data());
    o.correct_streams(out.data(), 3, 1, rows, n, f.data(), coefs.data());
    return out;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    RouterOptions options;
    options.experts = 12;
    options.chosen = 5;
    options.kind = RouterKind::kSigmoid;
    options.groups = 4;
    options.groups_chosen = 2;
    options.renormalize = true;
    std::vector<float> logits = values(rows * 12, 6), weights(static_cast<size_t>(rows) * 5);
    std::vector<int32_t> ids(weights.size());
    o.route(options, logits.data(), rows, ids.data(), weights.data());
    for (const int32_t id : ids) weights.push_back(static_cast<float>(id));
    return weights;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    const DeltaShape shape{2, 4, 8, 24};
    const int64_t stride = 2 * 16 + 96;
    const std::vector<float> qkv = values(rows * stride, 7, 0.5f), beta = values(rows * 4, 8), decay = values(rows * 4, 9);
    std::vector<float> state = values(4 * 8 * 24, 10), out(static_cast<size_t>(rows) * 96);
    o.delta_rule_heads(shape, 0, 4, state.data(), qkv.data(), qkv.data() + 16, qkv.data() + 32, stride, beta.data(),
                       decay.data(), rows, out.data());
    out.insert(out.end(), state.begin(), state.end());
    return out;
  });
  expect_same_bits([&](const FamilyOperations& o) {
    const std::vector<float> w = values(n * 4, 11);
    std::vector<float> state = values(4 * n, 12), out(x.size());
    o.short_convolution(x.data(), rows, n, 0, n, 4, w.data(), state.data(), out.data());
    out.insert(out.end(), state.begin(), state.end());
    return out;
  });
}

TEST(Route, TakesTheLargestAndTheLowerIndexWhereEqual) {
  RouterOptions options;
  options.experts = 6;
  options.chosen = 3;
  options.kind = RouterKind::kTopKThenSoftmax;
  std::vector<float> logits = {1, 3, 3, 0, 3, 2}, weights(3);
  std::vector<int32_t> ids(3);
  route({}, options, logits.data(), 1, ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_FLOAT_EQ(weights[0], 1.0f / 3);
}

TEST(Route, SelectionBiasChoosesButDoesNotWeigh) {
  RouterOptions options;
  options.experts = 4;
  options.chosen = 2;
  options.kind = RouterKind::kSigmoid;
  const float bias[] = {0, 0, 5, 0};
  options.selection_bias = bias;
  std::vector<float> logits = {2, 1, -3, 0}, weights(2);
  std::vector<int32_t> ids(2);
  route({}, options, logits.data(), 1, ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(weights[1], 1 / (1 + std::exp(3.0)), 1e-6);
}

TEST(Route, LimitsTheChoiceToTheBestGroups) {
  RouterOptions options;
  options.experts = 6;
  options.chosen = 2;
  options.kind = RouterKind::kSigmoid;
  options.groups = 3;
  options.groups_chosen = 1;
  // Group sums of the two best: 4, 4.5, 3; the best single expert (3, in group 0) is out of reach.
  std::vector<float> logits = {3, -9, 1, 0.9f, 1, 0.1f}, weights(2);
  std::vector<int32_t> ids(2);
  route({}, options, logits.data(), 1, ids.data(), weights.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3}));
}

TEST(GatedDeltaRule, IsTheSameTokenByTokenAndOverThreadsAndNearFloat64) {
  const DeltaShape shape{2, 4, 32, 32};
  const int64_t rows = 40, keys = 64, stride = 2 * keys + 128;
  const std::vector<float> qkv = values(rows * stride, 21, 0.2f);
  std::vector<float> beta = values(rows * 4, 22, 0.5f), decay = values(rows * 4, 23, 0.5f);
  for (float& v : beta) v += 0.5f;
  for (float& v : decay) v += 0.5f;
  ThreadPool pool(3);
  Context threads;
  threads.pool = &pool;
  const auto run = [&](const Context& context, int64_t chunk) {
    std::vector<float> state(4 * 32 * 32), out(static_cast<size_t>(rows) * 128);
    for (int64_t at = 0; at < rows; at += chunk) {
      const float* q = qkv.data() + at * stride;
      gated_delta_rule(context, shape, state.data(), q, q + keys, q + 2 * keys, stride, beta.data() + at * 4,
                       decay.data() + at * 4, std::min(chunk, rows - at), out.data() + at * 128);
    }
    return out;
  };
  const std::vector<float> whole = run({}, rows);
  EXPECT_EQ(whole, run({}, 1));
  EXPECT_EQ(whole, run(threads, 7));
  EXPECT_EQ(whole, run(threads, rows));
  // Head 3 in float64.
  std::vector<double> s(32 * 32);
  double worst = 0;
  for (int64_t t = 0; t < rows; ++t) {
    const float* q = qkv.data() + t * stride + 32;
    const float* k = q + keys;
    const float* v = qkv.data() + t * stride + 2 * keys + 96;
    for (int j = 0; j < 32; ++j) {
      double u = 0, o = 0;
      for (int i = 0; i < 32; ++i) u += (s[static_cast<size_t>(i * 32 + j)] *= static_cast<double>(decay[static_cast<size_t>(t * 4 + 3)])) * static_cast<double>(k[i]);
      const double e = (static_cast<double>(v[j]) - u) * static_cast<double>(beta[static_cast<size_t>(t * 4 + 3)]);
      for (int i = 0; i < 32; ++i) {
        s[static_cast<size_t>(i * 32 + j)] += static_cast<double>(k[i]) * e;
        o += s[static_cast<size_t>(i * 32 + j)] * static_cast<double>(q[i]);
      }
      worst = std::max(worst, std::fabs(o - static_cast<double>(whole[static_cast<size_t>(t * 128 + 96 + j)])));
    }
  }
  EXPECT_LT(worst, 1e-6);
}

TEST(ShortConvolution, DoesNotDependOnChunks) {
  const int64_t rows = 9, channels = 5;
  const std::vector<float> x = values(rows * channels, 31), w = values(channels * 4, 32);
  std::vector<float> a(x.size()), b(x.size()), state_a(4 * channels), state_b(4 * channels);
  short_convolution({}, x.data(), rows, channels, 4, w.data(), state_a.data(), a.data());
  for (int64_t t = 0; t < rows; ++t)
    short_convolution({}, x.data() + t * channels, 1, channels, 4, w.data(), state_b.data(), b.data() + t * channels);
  EXPECT_EQ(a, b);
  EXPECT_EQ(state_a, state_b);
  EXPECT_FLOAT_EQ(a[0], w[3] * x[0]);
}

// Where every block is chosen, sparse attention is attention.
TEST(SparseAttention, EqualsAttentionWhereEveryBlockIsChosen) {
  const int32_t heads = 4, kv_heads = 2, dim = 16, index_dim = 8;
  const int64_t positions = 300, rows = 7, capacity = 384;
  const std::vector<float> k = values(positions * kv_heads * dim, 41), v = values(positions * kv_heads * dim, 42);
  const std::vector<float> q = values(rows * heads * dim, 43), index_k = values(positions * index_dim, 44);
  const std::vector<float> index_q = values(rows * 2 * index_dim, 45);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::byte> cache_k(static_cast<size_t>(capacity) * kv_heads * dim * 4), cache_v = cache_k;
    std::vector<std::byte> index(static_cast<size_t>(capacity) * index_dim * 4);
    AttentionJob job;
    job.cache = {cache_k.data(), cache_v.data(), dtype, capacity, kv_heads, dim, dim};
    kv_write({}, job.cache, 0, positions, k.data(), kv_heads * dim, v.data(), kv_heads * dim);
    const IndexView view{index.data(), dtype, capacity, index_dim};
    index_write({}, view, 0, positions, index_k.data(), index_dim);
    AttentionOptions options;
    options.heads = heads;
    options.scale = 0.25f;
    job.position = positions - rows;
    job.rows = rows;
    job.q = q.data();
    job.q_stride = heads * dim;
    job.out_stride = heads * dim;
    std::vector<float> dense(static_cast<size_t>(rows) * heads * dim), sparse = dense, few = dense;
    alignas(64) static std::byte scratch[1 << 22];
    job.out = dense.data();
    attention({}, options, std::span(&job, 1), scratch);
    BlockChoice choice{2, 32, 10, 1};
    std::vector<float> pooled(static_cast<size_t>(rows) * 10), room(static_cast<size_t>(rows) * dim);
    std::vector<int32_t> chosen(static_cast<size_t>(rows) * 2 * 10);
    select_blocks({}, view, choice, job.position, rows, index_q.data(), 2 * index_dim, pooled.data(), chosen.data());
    job.out = sparse.data();
    sparse_attention({}, options, job, choice, chosen.data(), room.data());
    EXPECT_EQ(dense, sparse);
    choice.top_k = 3;
    select_blocks({}, view, choice, job.position, rows, index_q.data(), 2 * index_dim, pooled.data(), chosen.data());
    for (int64_t r = 0; r < rows * 2; ++r) {
      const int32_t* c = chosen.data() + r * 3;
      EXPECT_TRUE(0 <= c[0] && c[0] < c[1] && c[1] < c[2]);
      EXPECT_EQ(c[2], (job.position + r / 2) / 32);  // its own
    }
    job.out = few.data();
    sparse_attention({}, options, job, choice, chosen.data(), room.data());
    EXPECT_NE(dense, few);
  }
}

}  // namespace
}  // namespace berth::kernel
