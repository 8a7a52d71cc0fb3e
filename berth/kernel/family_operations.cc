// kernel/family_operations.cc — the public functions of gated.h, mixture.h, delta_net.h, streams.h and
// sparse_attention.h: arguments checked once, work cut over the pool where it is large, then the row's function.
#include "berth/kernel/family_operations.h"

#include <algorithm>

#include "berth/base/check.h"
#include "berth/base/float_environment.h"

namespace berth::kernel {
namespace {

#define BERTH_FAMILY_ROW(NAMESPACE)                                                                                 \
  {                                                                                                                 \
    .clamped_swiglu = NAMESPACE::clamped_swiglu, .multiply = NAMESPACE::multiply,                                   \
    .scale_rows = NAMESPACE::scale_rows, .sparsify = NAMESPACE::sparsify, .store_rows = NAMESPACE::store_rows,      \
    .load_rows = NAMESPACE::load_rows, .route = NAMESPACE::route, .accumulate_rows = NAMESPACE::accumulate_rows,    \
    .short_convolution = NAMESPACE::short_convolution, .delta_gates = NAMESPACE::delta_gates,                       \
    .delta_rule_heads = NAMESPACE::delta_rule_heads, .index_write = NAMESPACE::index_write,                         \
    .select_blocks = NAMESPACE::select_blocks, .sparse_attention = NAMESPACE::sparse_attention,                     \
    .predict_streams = NAMESPACE::predict_streams, .correct_streams = NAMESPACE::correct_streams,                   \
    .match_magnitude = NAMESPACE::match_magnitude                                                                   \
  }

constexpr FamilyOperations kReference = BERTH_FAMILY_ROW(ref);
constexpr FamilyOperations kReferenceFma = BERTH_FAMILY_ROW(ref_fma);

bool cpu_has_fma() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("fma");
  return has;
#else
  return true;
#endif
}

// f(begin, end) over [0, count), cut over the pool where `element_ops` times count is worth it.
template <typename F>
void split(const Context& context, int64_t count, int64_t element_ops, F&& f) {
  constexpr int64_t kWorthIt = 1 << 16;
  if (context.pool == nullptr || context.pool->size() == 1 || count < 2 || count * element_ops < kWorthIt)
    return f(int64_t{0}, count);
  const int64_t grain = std::max<int64_t>(1, kWorthIt / 4 / std::max<int64_t>(element_ops, 1));
  context.pool->parallel_for(count, grain, [&](int64_t begin, int64_t end, int) { f(begin, end); });
}

}  // namespace

const FamilyOperations& reference_family_operations(bool fma_instruction) {
  return fma_instruction && cpu_has_fma() ? kReferenceFma : kReference;
}
const FamilyOperations& family_operations(Isa) { return reference_family_operations(true); }

void clamped_swiglu(const Context& context, const float* gate, int64_t gate_stride, const float* up, int64_t up_stride,
                    float limit, float alpha, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  const FloatEnvironmentScope exact_floats;
  split(context, rows, n * 16, [&](int64_t begin, int64_t end) {
    family_operations(context.isa)
        .clamped_swiglu(gate + begin * gate_stride, gate_stride, up + begin * up_stride, up_stride, limit, alpha,
                        end - begin, n, y + begin * y_stride, y_stride);
  });
}

void multiply(const Context& context, float* y, int64_t y_stride, const float* x, int64_t x_stride, int64_t rows,
              int64_t n) {
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).multiply(y, y_stride, x, x_stride, rows, n);
}

void scale_rows(const Context& context, const float* x, int64_t x_stride, const float* factors, int64_t rows, int64_t n,
                float* y, int64_t y_stride) {
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).scale_rows(x, x_stride, factors, rows, n, y, y_stride);
}

void sparsify(const Context& context, float* x, int64_t stride, float cutoff, int64_t rows, int64_t n) {
  if (n == 0) return;
  const FloatEnvironmentScope exact_floats;
  split(context, rows, n * 4, [&](int64_t begin, int64_t end) {
    family_operations(context.isa).sparsify(x + begin * stride, stride, cutoff, end - begin, n);
  });
}

void store_rows(const Context& context, DType dtype, const float* x, int64_t x_stride, int64_t rows, int64_t n,
                std::byte* to) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  family_operations(context.isa).store_rows(dtype, x, x_stride, rows, n, to);
}

void load_rows(const Context& context, DType dtype, const std::byte* from, int64_t rows, int64_t n, float* y,
               int64_t y_stride) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  const int64_t bytes = n * static_cast<int64_t>(dtype_info(dtype).block_bytes);
  split(context, rows, n, [&](int64_t begin, int64_t end) {
    family_operations(context.isa)
        .load_rows(dtype, from + begin * bytes, end - begin, n, y + begin * y_stride, y_stride);
  });
}

void route(const Context& context, const RouterOptions& options, float* logits, int64_t rows, int32_t* ids,
           float* weights) {
  CHECK(options.chosen > 0 && options.chosen <= options.experts && options.chosen <= kMaxChosenExperts);
  CHECK(options.groups == 0 || options.experts % options.groups == 0);
  const FloatEnvironmentScope exact_floats;
  split(context, rows, int64_t{options.experts} * 16, [&](int64_t begin, int64_t end) {
    family_operations(context.isa)
        .route(options, logits + begin * options.experts, end - begin, ids + begin * options.chosen,
               weights + begin * options.chosen);
  });
}

void accumulate_rows(const Context& context, const float* y, int64_t y_stride, const int32_t* row_of,
                     const float* weights, int64_t count, int64_t n, float* o, int64_t o_stride) {
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).accumulate_rows(y, y_stride, row_of, weights, count, n, o, o_stride);
}

void short_convolution(const Context& context, const float* x, int64_t rows, int64_t channels, int32_t taps,
                       const float* w, float* state, float* y) {
  CHECK(taps > 0);
  const FloatEnvironmentScope exact_floats;
  split(context, channels, rows * taps * 2, [&](int64_t begin, int64_t end) {
    family_operations(context.isa).short_convolution(x, rows, channels, begin, end, taps, w, state, y);
  });
}

void delta_gates(const Context& context, const float* b, const float* a, const float* a_log, const float* dt_bias,
                 int64_t rows, int64_t heads, float* beta, float* decay) {
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).delta_gates(b, a, a_log, dt_bias, rows, heads, beta, decay);
}

void gated_delta_rule(const Context& context, const DeltaShape& shape, float* state, const float* q, const float* k,
                      const float* v, int64_t stride, const float* beta, const float* decay, int64_t rows, float* out) {
  CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  CHECK(shape.value_dim > 0 && shape.value_dim <= kMaxDeltaValueDim);
  const FloatEnvironmentScope exact_floats;
  split(context, shape.value_heads, rows * shape.key_dim * shape.value_dim, [&](int64_t begin, int64_t end) {
    family_operations(context.isa)
        .delta_rule_heads(shape, static_cast<int32_t>(begin), static_cast<int32_t>(end), state, q, k, v, stride, beta,
                          decay, rows, out);
  });
}

void index_write(const Context& context, const IndexView& index, int64_t position, int64_t rows, const float* k,
                 int64_t k_stride) {
  CHECK(index.keys != nullptr && index.capacity > 0 && index.capacity % 32 == 0);
  family_operations(context.isa).index_write(index, position, rows, k, k_stride);
}

void select_blocks(const Context& context, const IndexView& index, const BlockChoice& choice, int64_t position,
                   int64_t rows, const float* q, int64_t q_stride, float* pooled, int32_t* chosen) {
  CHECK(choice.block > 0 && choice.top_k > 0 && position + rows <= index.capacity);
  const int64_t blocks = (position + rows - 1) / choice.block + 1;
  const FloatEnvironmentScope exact_floats;
  split(context, rows, (position + rows) * index.dim * choice.heads, [&](int64_t begin, int64_t end) {
    family_operations(context.isa)
        .select_blocks(index, choice, position + begin, end - begin, q + begin * q_stride, q_stride,
                       pooled + begin * blocks, blocks, chosen + begin * choice.heads * choice.top_k);
  });
}

void sparse_attention(const Context& context, const AttentionOptions& options, const AttentionJob& job,
                      const BlockChoice& choice, const int32_t* chosen, float* scratch) {
  CHECK(job.position + job.rows <= job.cache.capacity);
  CHECK(options.heads % choice.heads == 0 && options.heads % job.cache.kv_heads == 0);
  const FloatEnvironmentScope exact_floats;
  split(context, job.rows, int64_t{choice.top_k} * choice.block * job.cache.head_dim * options.heads,
        [&](int64_t begin, int64_t end) {
          AttentionJob part = job;
          part.position += begin;
          part.rows = end - begin;
          part.q += begin * job.q_stride;
          part.out += begin * job.out_stride;
          family_operations(context.isa)
              .sparse_attention(options, part, choice, chosen + begin * choice.heads * choice.top_k,
                                scratch + begin * job.cache.v_head_dim);
        });
}

void predict_streams(const Context& context, float* x, int32_t inputs, int64_t rows, int64_t n, const float* coefs) {
  CHECK(inputs > 0 && inputs <= kMaxStreams);
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).predict_streams(x, inputs, rows, n, coefs);
}

void correct_streams(const Context& context, float* x, int32_t inputs, int32_t active, int64_t rows, int64_t n,
                     const float* f, const float* coefs) {
  CHECK(active >= 0 && active < inputs);
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).correct_streams(x, inputs, active, rows, n, f, coefs);
}

void match_magnitude(const Context& context, float* y, int64_t y_stride, const float* model, int64_t model_stride,
                     int64_t rows, int64_t n) {
  if (n == 0) return;
  const FloatEnvironmentScope exact_floats;
  family_operations(context.isa).match_magnitude(y, y_stride, model, model_stride, rows, n);
}

}  // namespace berth::kernel
