// model/head.cc — final norm and head: logits of the wanted rows, a few at a time.
#include <algorithm>

#include "berth/kernel/elementwise.h"
#include "berth/model/families/gemma3n.h"
#include "berth/model/state.h"

namespace berth::model {

using arch::Role;

namespace {

constexpr int64_t kMostRows = 64;  // at once, whatever the plan says

struct WantedRow {
  size_t item;
  int64_t row, position;
};

// The next wanted rows of a batch, in order.
class WantedRows {
 public:
  WantedRows(std::span<const BatchItem> items, std::span<const RowRange> ranges) : items_(items), ranges_(ranges) {}

  size_t take(std::span<WantedRow> out) {
    size_t count = 0;
    while (item_ < items_.size() && count < out.size()) {
      const LogitRows want = items_[item_].logits;
      const RowRange& range = ranges_[item_];
      if (want == LogitRows::kNone || next_ >= range.rows) {
        ++item_;
        next_ = 0;
        continue;
      }
      if (want == LogitRows::kLast) next_ = range.rows - 1;
      out[count++] = {item_, range.first_row + next_, range.position + next_};
      ++next_;
    }
    return count;
  }

 private:
  std::span<const BatchItem> items_;
  std::span<const RowRange> ranges_;
  size_t item_ = 0;
  int64_t next_ = 0;  // row within the item
};

}  // namespace

Status Model::State::head(std::span<const BatchItem> items, LogitsCallback on_logits) {
  const Step& step = steps.back();
  DeviceState& on = devices[this->on(step)];
  const arch::ModelSpec& m = spec();
  ForwardState p = pass();
  const int64_t n = m.hidden;
  const load::HeldTensor* weight = parts.weights->find(Role::kHead, -1);
  if (weight == nullptr) weight = embedding;
  float* normed = on.at(step.layout.normed);
  float* logits = on.at(step.layout.logits);
  WantedRows wanted(items, ranges);
  WantedRow room[kMostRows];
  const std::span<WantedRow> turn(room,
                                  static_cast<size_t>(std::clamp<int64_t>(parts.plan->shape.logit_rows, 1, kMostRows)));
  bool begun = false;
  for (;;) {
    const size_t taken = wanted.take(turn);
    if (taken == 0) return begun ? end_stage(step.stage[mode]) : Status();
    if (!begun) begin_stage(step.stage[mode]);
    begun = true;
    p.stream = stage_stream;
    const auto count = static_cast<int64_t>(taken);
    const float* source = on.at(step.layout.merged);
    if (m.altup.inputs > 0) {
      int64_t row_of[kMostRows];
      for (size_t i = 0; i < taken; ++i) row_of[i] = turn[i].row;
      merge_streams(p, on, step.layout, std::span(row_of, taken));
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* row =
          m.altup.inputs > 0 ? source + i * n : on.at(step.layout.hidden) + turn[static_cast<size_t>(i)].row * n;
      apply_norm(on.context, m.final_norm, p.vector(Role::kFinalNorm, -1), p.vector(Role::kFinalNormBias, -1), row, 1,
                 n, normed + i * n);
    }
    const float* x = normed;
    int64_t width = n;
    if (m.embedding_dim > 0) {
      float* projected = on.at(step.layout.projected);
      width = m.embedding_dim;
      Linears out(p);
      out.add(p.need(Role::kProjectOut, -1), nullptr, projected, width);
      out.run(on, step.layout, normed, count, n);
      x = projected;
    }
    Linears out(p);
    out.add_rows(*weight, p.vector(Role::kHeadBias, -1), 0, m.vocab_size, logits, m.vocab_size);
    out.run(on, step.layout, x, count, width);
    if (m.logits_multiplier != 1)
      kernel::scale(on.context, logits, m.vocab_size, static_cast<float>(m.logits_multiplier), count, m.vocab_size);
    if (m.logits_divisor != 1)
      kernel::divide(on.context, logits, m.vocab_size, static_cast<float>(m.logits_divisor), count, m.vocab_size);
    if (m.final_softcap != 0)
      kernel::softcap(on.context, logits, m.vocab_size, static_cast<float>(m.final_softcap), count, m.vocab_size);
    if (stream != nullptr) TRY_STATUS(stream->status());
    // What the passes until now did not prove to be without NaN, before anybody sees logits.
    if (load::UnseenWeights* const unseen = parts.weights->unseen()) TRY_STATUS(unseen->look(*parts.pool));
    for (size_t i = 0; i < taken; ++i) {
      const std::span<const float> row(logits + static_cast<int64_t>(i) * m.vocab_size,
                                       static_cast<size_t>(m.vocab_size));
      if (!kernel::all_finite(row.data(), m.vocab_size)) return find_fault(items);
      TRY_STATUS(on_logits(turn[i].item, turn[i].position, row));
    }
  }
}

}  // namespace berth::model
