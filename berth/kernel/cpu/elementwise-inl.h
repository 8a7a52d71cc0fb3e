// kernel/cpu/elementwise-inl.h — activations, residuals, scaling, softcap, softmax and row lookups over packs;
// ref/elementwise.cc is the definition.
#include <algorithm>

#include "berth/kernel/cpu/lanes-inl.h"
#include "berth/kernel/cpu/split-inl.h"
#include "berth/kernel/cpu/targets.h"
#include "berth/kernel/elementwise.h"
#include "berth/quant/codec.h"
#include "berth/quant/packed.h"

namespace berth::kernel::BERTH_TARGET {
namespace {

// Rows are cut into tiles of so many columns, so that one long row (logits) is split over threads too.
constexpr int64_t kTileColumns = 4096;

// f(row, begin column, end column) over all tiles.
template <typename Tile>
void tiles(const Context& context, int64_t rows, int64_t n, double element_ns, Tile&& f) {
  const int64_t per_row = (n + kTileColumns - 1) / kTileColumns;
  const double tile_ns = element_ns * static_cast<double>(std::min(n, kTileColumns));
  split(context, rows * per_row, tile_ns, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % per_row * kTileColumns;
      f(t / per_row, column, std::min(column + kTileColumns, n));
    }
  });
}

// Calls visit(f) with the function as a callable on packs: one switch per tile, none per element.
template <typename Visit>
BERTH_MATH void with_function(Function f, Visit&& visit) {
  switch (f) {
    case Function::kExp:
      return visit([](F x) { return math::exp(x); });
    case Function::kTanh:
      return visit([](F x) { return math::tanh(x); });
    case Function::kSigmoid:
      return visit([](F x) { return math::sigmoid(x); });
    case Function::kErf:
      return visit([](F x) { return math::erf(x); });
    case Function::kLog:
      return visit([](F x) { return math::log(x); });
    case Function::kSoftplus:
      return visit([](F x) { return math::softplus(x); });
    case Function::kSilu:
      return visit([](F x) { return math::silu(x); });
    case Function::kGeluTanh:
      return visit([](F x) { return math::gelu_tanh(x); });
    case Function::kGeluErf:
      return visit([](F x) { return math::gelu_erf(x); });
    case Function::kRelu:
      return visit([](F x) { return at_least(x, 0.0f); });
  }
}

Function function_of(Activation act) {
  switch (act) {
    case Activation::kSilu:
      return Function::kSilu;
    case Activation::kGeluTanh:
      return Function::kGeluTanh;
    case Activation::kGeluErf:
      return Function::kGeluErf;
    case Activation::kRelu:
      return Function::kRelu;
  }
  return Function::kSilu;
}

}  // namespace

void apply(const Context& context, Function f, const float* x, float* y, int64_t n) {
  tiles(context, 1, n, 1.0, [&](int64_t, int64_t begin, int64_t end) {
    with_function(f, [&](auto&& g) { map(end - begin, x + begin, y + begin, [&](F v, int64_t) { return g(v); }); });
  });
}

void activate(const Context& context, Activation act, const float* gate, int64_t gate_stride, const float* up,
              int64_t up_stride, int64_t rows, int64_t n, float* y, int64_t y_stride) {
  tiles(context, rows, n, 1.0, [&](int64_t row, int64_t begin, int64_t end) {
    const float* g = gate + row * gate_stride + begin;
    const float* u = up == nullptr ? nullptr : up + row * up_stride + begin;
    float* out = y + row * y_stride + begin;
    const int64_t count = end - begin;
    with_function(function_of(act), [&](auto&& f) {
      if (u == nullptr) {
        map(count, g, out, [&](F v, int64_t) { return f(v); });
      } else {
        map(count, g, out, [&](F v, int64_t i) { return f(v) * load_at(u, i, count); });
      }
    });
  });
}

void add_residual(const Context& context, float* h, int64_t h_stride, const float* y, int64_t y_stride,
                  float multiplier, int64_t rows, int64_t n) {
  tiles(context, rows, n, 0.15, [&](int64_t row, int64_t begin, int64_t end) {
    float* out = h + row * h_stride + begin;
    const float* add = y + row * y_stride + begin;
    const int64_t count = end - begin;
    if (multiplier == 1.0f) {
      map(count, out, out, [&](F v, int64_t i) { return v + load_at(add, i, count); });
    } else {
      map(count, out, out, [&](F v, int64_t i) { return v + F::of(multiplier) * load_at(add, i, count); });
    }
  });
}

void scale(const Context& context, float* x, int64_t stride, float factor, int64_t rows, int64_t n) {
  tiles(context, rows, n, 0.1, [&](int64_t row, int64_t begin, int64_t end) {
    float* v = x + row * stride + begin;
    map(end - begin, v, v, [&](F a, int64_t) { return a * F::of(factor); });
  });
}

void divide(const Context& context, float* x, int64_t stride, float divisor, int64_t rows, int64_t n) {
  tiles(context, rows, n, 0.2, [&](int64_t row, int64_t begin, int64_t end) {
    float* v = x + row * stride + begin;
    map(end - begin, v, v, [&](F a, int64_t) { return a / F::of(divisor); });
  });
}

void softcap(const Context& context, float* x, int64_t stride, float cap, int64_t rows, int64_t n) {
  tiles(context, rows, n, 1.0, [&](int64_t row, int64_t begin, int64_t end) {
    float* v = x + row * stride + begin;
    map(end - begin, v, v, [&](F a, int64_t) { return F::of(cap) * math::tanh(a / F::of(cap)); });
  });
}

void gather_rows(const Context& context, const quant::PackedMatrix& table, std::span<const int32_t> ids, float* y,
                 int64_t y_stride) {
  const quant::Codec codec = table.format.codec;
  const int64_t cols = table.cols;
  const bool halves = codec == quant::Codec::kBF16 || codec == quant::Codec::kF16;
  const double element_ns = halves || codec == quant::Codec::kF32 ? 0.2 : 2.0;
  split(context, static_cast<int64_t>(ids.size()), element_ns * static_cast<double>(cols),
        [&](int64_t begin, int64_t end, int) {
          for (int64_t r = begin; r < end; ++r) {
            const int64_t id = ids[static_cast<size_t>(r)];
            float* out = y + r * y_stride;
            int64_t i = 0;
            const uint16_t* row = table.plane<uint16_t>(quant::Plane::kCodes) + table.stored_row(id) * cols;
            if (codec == quant::Codec::kBF16)
              for (; i + F::kLanes <= cols; i += F::kLanes) F::load_bf16(row + i).store(out + i);
            if (codec == quant::Codec::kF16)
              for (; i + F::kLanes <= cols; i += F::kLanes) F::load_f16(row + i).store(out + i);
            if (!halves) {
              quant::decode_row(table, id, out);
              continue;
            }
            for (; i < cols; ++i) out[i] = codec == quant::Codec::kBF16 ? bf16_to_f32(row[i]) : f16_to_f32(row[i]);
          }
        });
}

void softmax(const Context& context, float* x, int64_t stride, int64_t rows, int64_t n) {
  split(context, rows, 1.5 * static_cast<double>(n), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* v = x + row * stride;
      F largest = F::of(v[0]);
      int64_t i = 0;
      for (; i + F::kLanes <= n; i += F::kLanes) largest = max(largest, F::load(v + i));
      alignas(64) float lanes[F::kLanes];
      largest.store(lanes);
      float m = lanes[0];
      for (const float lane : lanes) m = std::max(m, lane);
      for (; i < n; ++i) m = std::max(m, v[i]);
      map(n, v, v, [&](F a, int64_t) { return math::exp(a - F::of(m)); });
      const float sum = lane_reduce(
          n, [&](F a, int64_t j) { return a + F::load(v + j); }, [&](float a, int64_t j) { return a + v[j]; });
      map(n, v, v, [&](F a, int64_t) { return a / F::of(sum); });
    }
  });
}

int64_t argmax(const float* x, int64_t n) {
  constexpr int kChains = 4;
  constexpr int64_t kStep = kChains * F::kLanes;
  const float low = -__builtin_inff();
  F largest[kChains];
  for (F& v : largest) v = F::of(low);
  int64_t i = 0;
  bool nan = false;
  for (; i + kStep <= n; i += kStep) {
    for (int j = 0; j < kChains; ++j) {
      const F v = F::load(x + i + j * F::kLanes);
      nan |= any_nan(v);
      largest[j] = max(largest[j], v);
    }
  }
  float m = low;
  alignas(64) float lanes[F::kLanes];
  for (const F& v : largest) {
    v.store(lanes);
    for (const float lane : lanes) m = std::max(m, lane);
  }
  for (; i < n; ++i) {
    nan |= x[i] != x[i];
    m = std::max(m, x[i]);
  }
  if (nan) return -1;
  for (i = 0; i + F::kLanes <= n; i += F::kLanes)
    if (any_equal(F::load(x + i), F::of(m))) break;
  for (; i < n; ++i)
    if (x[i] == m) return i;
  return -1;
}

bool all_finite(const float* x, int64_t n) {
  F zeros = F::of(0.0f);  // x - x is NaN for what is not finite, and stays
  int64_t i = 0;
  for (; i + F::kLanes <= n; i += F::kLanes) {
    const F v = F::load(x + i);
    zeros = zeros + (v - v);
  }
  if (any_nan(zeros)) return false;
  for (; i < n; ++i)
    if (!(x[i] - x[i] == 0)) return false;
  return true;
}

}  // namespace berth::kernel::BERTH_TARGET
