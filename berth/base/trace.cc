// base/trace.cc — see trace.h. Events, forks and every thread's pieces lie in the order of their times, so one walk
// over all lists finds what belongs to what.
#include "berth/base/trace.h"

#include <algorithm>
#include <cstring>

namespace berth {

Trace::Trace(int threads, size_t capacity) : capacity_(capacity), pieces_(static_cast<size_t>(threads)) {
  events_.reserve(capacity);
  forks_.reserve(capacity);
  for (Pieces& p : pieces_) p.spans.reserve(capacity * 4);
}

void Trace::add_operation(const Operation& operation, int64_t begin_ns, int64_t end_ns) {
  if (events_.size() == capacity_) {
    ++dropped_;
    return;
  }
  events_.push_back({operation, {begin_ns, end_ns}});
}

void Trace::add_fork(int64_t begin_ns, int64_t end_ns) {
  if (forks_.size() < capacity_) forks_.push_back({begin_ns, end_ns});
}

void Trace::add_piece(int thread, int64_t begin_ns, int64_t end_ns) {
  std::vector<Span>& spans = pieces_[static_cast<size_t>(thread)].spans;
  if (spans.size() < spans.capacity()) spans.push_back({begin_ns, end_ns});
}

std::vector<Trace::Row> Trace::rows() const {
  std::vector<Row> rows;
  const auto row_of = [&](const Operation& o) -> Row& {
    for (Row& row : rows)
      if (std::strcmp(row.operation.name, o.name) == 0 && row.operation.outputs == o.outputs &&
          row.operation.inputs == o.inputs && row.operation.bytes == o.bytes)
        return row;
    rows.push_back({o});
    return rows.back();
  };
  constexpr double kSecond = 1e9;
  const double threads = static_cast<double>(pieces_.size());
  size_t fork = 0;
  std::vector<size_t> next(pieces_.size(), 0);
  int64_t outside = 0, last_end = events_.empty() ? 0 : events_.front().span.begin;
  for (const Event& event : events_) {
    Row& row = row_of(event.operation);
    ++row.count;
    int64_t alone = event.span.end - event.span.begin;
    row.seconds += static_cast<double>(alone) / kSecond;
    outside += std::max<int64_t>(event.span.begin - last_end, 0);
    last_end = std::max(last_end, event.span.end);
    while (fork < forks_.size() && forks_[fork].begin < event.span.begin) ++fork;
    for (; fork < forks_.size() && forks_[fork].end <= event.span.end; ++fork) {
      const Span f = forks_[fork];
      alone -= f.end - f.begin;
      for (size_t t = 0; t < pieces_.size(); ++t) {
        const std::vector<Span>& spans = pieces_[t].spans;
        size_t& i = next[t];
        while (i < spans.size() && spans[i].begin < f.begin) ++i;
        int64_t at = f.begin;
        for (bool first = true; i < spans.size() && spans[i].begin < f.end; ++i, first = false) {
          (first ? row.early : row.between) += static_cast<double>(spans[i].begin - at) / kSecond / threads;
          at = spans[i].end;
        }
        row.late += static_cast<double>(std::max<int64_t>(f.end - at, 0)) / kSecond / threads;
      }
    }
    row.alone += static_cast<double>(alone) / kSecond;
  }
  Row rest;
  rest.operation.name = "between operations";
  rest.count = static_cast<int64_t>(events_.size());
  rest.seconds = rest.alone = static_cast<double>(outside) / kSecond;
  rows.push_back(rest);
  return rows;
}

}  // namespace berth
