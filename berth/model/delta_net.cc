// model/delta_net.cc — the gated delta net of Qwen3-Next and Qwen3.5: projections, a short convolution, the recurrent
// rule, and a gated norm (docs/numerics.md 2). Its memory of a sequence is a state; position 0 begins with zeros.
#include "berth/kernel/delta_net.h"

#include <cmath>

#include "berth/kernel/elementwise.h"
#include "berth/kernel/norm.h"
#include "berth/model/attention.h"

namespace berth::model {
namespace {

using arch::Role;

struct Widths {
  int64_t keys, values, channels;
  explicit Widths(const arch::AttentionSpec& a)
      : keys(int64_t{a.linear_key_heads} * a.linear_key_dim),
        values(int64_t{a.linear_value_heads} * a.linear_value_dim),
        channels(2 * keys + values) {}
};

// Raw q | k | v, z, b and a. Fused files hold them by key head: [q | k | its v | its z], and [its b | its a].
void project(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const Widths w(a);
  const int64_t heads = a.linear_value_heads;
  float* mixed = on.at(layout.mixed);
  float* z = on.at(layout.z);
  float* b = on.at(layout.delta_b);
  float* decay = on.at(layout.delta_a);
  Linears linears(pass);
  if (a.linear_fused) {
    const load::HeldTensor& qkvz = pass.need(Role::kDeltaQkvz, layer);
    const load::HeldTensor& ba = pass.need(Role::kDeltaBa, layer);
    const int64_t key = a.linear_key_dim, each = heads / a.linear_key_heads, value = each * a.linear_value_dim;
    for (int64_t g = 0; g < a.linear_key_heads; ++g) {
      const int64_t begin = g * 2 * (key + value);
      linears.add_rows(qkvz, nullptr, begin, key, mixed + g * key, w.channels);
      linears.add_rows(qkvz, nullptr, begin + key, key, mixed + w.keys + g * key, w.channels);
      linears.add_rows(qkvz, nullptr, begin + 2 * key, value, mixed + 2 * w.keys + g * value, w.channels);
      linears.add_rows(qkvz, nullptr, begin + 2 * key + value, value, z + g * value, w.values);
      linears.add_rows(ba, nullptr, g * 2 * each, each, b + g * each, heads);
      linears.add_rows(ba, nullptr, g * 2 * each + each, each, decay + g * each, heads);
    }
  } else {
    linears.add(pass.need(Role::kDeltaQkv, layer), nullptr, mixed, w.channels);
    linears.add(pass.need(Role::kDeltaZ, layer), nullptr, z, w.values);
    linears.add(pass.need(Role::kDeltaB, layer), nullptr, b, heads);
    linears.add(pass.need(Role::kDeltaA, layer), nullptr, decay, heads);
  }
  linears.run(on, layout, on.at(layout.normed), pass.rows, pass.spec.hidden);
}

// x / sqrt(sum of squares + 1e-6) of every head of q and k; q then times key_dim^-0.5. As a root mean square norm:
// x * r with eps / n, times n^-0.5.
void unit_lengths(const ForwardState& pass, DeviceState& on, const arch::AttentionSpec& a, float* convolved) {
  const Widths w(a);
  const int64_t n = a.linear_key_dim;
  const auto eps = static_cast<float>(1e-6 / static_cast<double>(n));
  const auto of_k = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  const auto of_q = static_cast<float>(1 / static_cast<double>(n));
  for (int64_t r = 0; r < pass.rows; ++r) {
    float* row = convolved + r * w.channels;
    kernel::rms_norm(on.context, row, n, nullptr, eps, 2 * int64_t{a.linear_key_heads}, n, row, n);
  }
  kernel::scale(on.context, convolved, w.channels, of_q, pass.rows, w.keys);
  kernel::scale(on.context, convolved + w.keys, w.channels, of_k, pass.rows, w.keys);
}

}  // namespace

void attend_delta_net(const ForwardState& pass, DeviceState& on, const sizing::WorkspaceLayout& layout, int32_t layer) {
  const arch::AttentionSpec& a = pass.layer(layer).attention;
  const Widths w(a);
  project(pass, on, layout, layer);
  const float* mixed = on.at(layout.mixed);
  float* convolved = on.at(layout.convolved);
  float* beta = on.at(layout.beta);
  float* decay = on.at(layout.decay);
  float* attended = on.at(layout.attended);
  const int64_t heads = a.linear_value_heads;
  for (const RowRange& range : pass.ranges) {
    const DeltaState state = pass.kv.delta_state(layer, range.sequence);
    if (range.position == 0) {
      std::memset(state.state, 0, static_cast<size_t>(heads * a.linear_key_dim * a.linear_value_dim) * sizeof(float));
      std::memset(state.convolution, 0, static_cast<size_t>(a.conv_kernel * w.channels) * sizeof(float));
    }
    kernel::short_convolution(on.context, mixed + range.first_row * w.channels, range.rows, w.channels, a.conv_kernel,
                              pass.vector(Role::kDeltaConv, layer), state.convolution,
                              convolved + range.first_row * w.channels);
  }
  kernel::apply(on.context, kernel::Function::kSilu, convolved, convolved, pass.rows * w.channels);
  unit_lengths(pass, on, a, convolved);
  kernel::delta_gates(on.context, on.at(layout.delta_b), on.at(layout.delta_a), pass.vector(Role::kDeltaALog, layer),
                      pass.vector(Role::kDeltaDtBias, layer), pass.rows, heads, beta, decay);
  const kernel::DeltaShape shape{a.linear_key_heads, a.linear_value_heads, a.linear_key_dim, a.linear_value_dim};
  for (const RowRange& range : pass.ranges) {
    const float* q = convolved + range.first_row * w.channels;
    kernel::gated_delta_rule(on.context, shape, pass.kv.delta_state(layer, range.sequence).state, q, q + w.keys,
                             q + 2 * w.keys, w.channels, beta + range.first_row * heads,
                             decay + range.first_row * heads, range.rows, attended + range.first_row * w.values);
  }
  kernel::rms_norm(on.context, attended, a.linear_value_dim, pass.vector(Role::kDeltaNorm, layer),
                   static_cast<float>(a.linear_norm_eps), pass.rows * heads, a.linear_value_dim, attended,
                   a.linear_value_dim);
  kernel::activate(on.context, kernel::Activation::kSilu, on.at(layout.z), w.values, attended, w.values, pass.rows,
                   w.values, attended, w.values);
}

}  // namespace berth::model
