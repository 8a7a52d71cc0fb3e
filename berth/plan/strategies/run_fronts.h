// plan/strategies/run_fronts.h — what a run on one accelerator may have taken so far, as fronts of points.
//
// A point is (bytes kept on the accelerator; time and moves so far). Of two points of which one has no more of either,
// the other is dropped, so a front is sorted: bytes ascend, keys descend. Fronts are told apart by where the walk is
// (on the accelerator, or away at the cpu) and by the most workspace and staging that the run's units need, its
// *level*. One unit further is a merge of sorted lists, so a point costs a few comparisons.
//
// Start reading at: RunFronts::advance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "berth/plan/strategies/lagrange.h"
#include "berth/plan/strategies/run_chain.h"

namespace berth::plan {

struct RunPoint {
  int64_t bytes = 0;  // on this accelerator
  RunKey key = 0;
  int64_t total = 0;  // bytes on all accelerators: decides between equal keys
  int32_t first = 0;  // the unit that the run began with
  bool better(const RunPoint& o) const { return key != o.key ? key < o.key : total < o.total; }
};

// Points side by side, in room that is used again.
class RunFront {
 public:
  const RunPoint* begin() const { return points_.data(); }
  const RunPoint* end() const { return points_.data() + size_; }
  RunPoint& operator[](size_t i) { return points_[i]; }
  const RunPoint& operator[](size_t i) const { return points_[i]; }
  const RunPoint& back() const { return points_[size_ - 1]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Room for so many; what they are is for the caller to say.
  RunPoint* room(size_t size) {
    if (points_.size() < size) points_.resize(size + size / 2);
    return points_.data();
  }
  void set_size(size_t size) { size_ = size; }  // within the room
  void swap(RunFront& o) {
    points_.swap(o.points_);
    std::swap(size_, o.size_);
  }

 private:
  std::vector<RunPoint> points_;
  size_t size_ = 0;
};

// A point after some unit may lead to a plan that is good enough where its time, less what the memory that is left is
// worth, is at most this.
struct RunSlack {
  int64_t on = INT64_MAX, off = INT64_MAX;
};

// What happens where points are many.
struct RunEffort {
  // Fronts of more than twice as many points are thinned to about that number: neighbours become one, with the least of
  // each of both (kBound: what comes out is a bound), or the one of the least key stays (kPlan: what comes out can be
  // had, but may not be the best).
  enum class Thinning { kBound, kPlan };
  Thinning thinning = Thinning::kBound;
  size_t width = 0;
  // Points, of one accelerator class; beyond, fronts are kept narrow, or the search is given up.
  int64_t most_points = INT64_MAX;
  bool give_up = false;
};

class RunFronts {
 public:
  // Of class `place`. `bound` prices what is left of its memory; null: points are not ruled out.
  RunFronts(const RunChain& chain, size_t place, const Bound* bound, const RunEffort& effort);

  struct State {
    std::vector<RunFront> on, off;  // by level
    bool empty() const;
  };
  State state() const { return {std::vector<RunFront>(capacity_.size()), std::vector<RunFront>(capacity_.size())}; }

  // One unit further. `also`: a run that begins with this unit, before which that was; null: none begins.
  void advance(const State& from, size_t kind, const RunPoint* also, const RunSlack& slack, State& to);
  // Where a run that ends here is best; its key is kNever where none may.
  RunPoint best_end(const State& state) const;

  // The way back: the point that best_end() gave, and from there the option of each unit (-1: at the cpu) and the point
  // before. Points of a front differ in their keys, by which they are found.
  struct At {
    bool on = true;
    size_t level = 0;
    RunPoint point;
  };
  At end(const State& state) const;
  int back(const State& before, size_t kind, At& at) const;
  int back_to_start(size_t kind, const At& at, const RunPoint& before) const;

  int64_t points() const { return points_; }  // made
  bool exact() const { return exact_; }       // fronts were complete
  bool gave_up() const { return gave_up_; }

 private:
  // One way to use a unit on the accelerator.
  struct Way {
    int option = 0;
    RunKey key = 0;
    int64_t size = 0;  // weights and KV cache there
    size_t level = 0;  // of its workspace and staging alone
  };
  struct Unit {
    RunKey base = kNever;                // at the cpu
    RunKey into = kNever, out = kNever;  // the ways there and back, before this unit
    std::vector<Way> ways;
  };

  size_t join(size_t a, size_t b) const;
  void rule_out(size_t level, int64_t slack, RunFront& front) const;
  void thin(size_t level, RunFront& front);
  void finish(size_t level, int64_t slack, RunFront& front);
  void drop_useless_staging(State& state) const;

  const Bound* bound_;
  uint64_t price_ = 0;
  RunEffort effort_;
  std::vector<Unit> units_;  // by kind
  std::vector<int64_t> workspaces_, stagings_;
  std::vector<int64_t> capacity_;  // by level
  RunKey most_into_ = 0;           // any way from the cpu to an accelerator
  std::vector<RunFront> entering_;
  RunFront merged_, start_;
  int64_t points_ = 0;
  bool exact_ = true, gave_up_ = false;
};

}  // namespace berth::plan
