// plan/strategies/run_search.h — the exact search over runs.
//
// What happens on an accelerator between the first and the last unit that it computes, a *run*, depends on nothing
// outside, and a plan in F is a sequence of runs and units at the cpu. Two ways lead to the best one:
//
//   all at once    forwards through the chain, for each (class, set of accelerators used before) one front of
//                  (bytes, time) over all runs, whatever they began with (run_fronts.h);
//   by stretches   where such pairs are many: the best run of each class over each stretch of the chain first, walked
//   as
//                  a tree of beginnings (run_chain.h), then the best sequence of stretches.
//
// Both rule out what cannot lead to a plan as good as the best known one: stretches are bounded first, with the
// multipliers of lagrange.h but each workspace by itself, and joined backwards, so that for every point the least that
// may follow is known.
//
// Left out are the cpu's and the disk's budgets and copies of shared caches (complete() is false where there are such).
//
// Start reading at: RunSearch::prove.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "berth/plan/strategies/lagrange.h"
#include "berth/plan/strategies/run_chain.h"
#include "berth/plan/strategies/run_fronts.h"
#include "berth/plan/strategies/search_space.h"

namespace berth::plan {

struct RunSearchResult {
  bool gave_up = false;      // nothing else is said
  bool exact = false;        // fronts were complete
  bool exists = false;       // false: nothing that takes `most_time` at most was found (exact: there is nothing)
  Cost bound;                // of prove(): of every plan in F that takes `most_time` at most
  std::vector<int> options;  // the plan of that cost or, where not exact, one like it, by unit; empty: none
  std::vector<bool> opens;
  int64_t work = 0;  // points made
};

class RunSearch {
 public:
  // `bound`, of the same space, prices memory; null: nothing is ruled out within a run.
  RunSearch(const SearchSpace& space, const Bound* bound);

  bool applies() const { return chain_.usable(); }  // else nothing below may be called
  bool complete() const;                            // nothing is left out: what is proved is so, and plans fit
  int64_t root_ps() const;                          // a bound of every plan in F, before any search

  // A good plan that takes `most_time` at most, with fronts of `width` points.
  RunSearchResult sketch(size_t width, int64_t most_time);
  // The best plan that takes `most_time` at most. From `most_points` on (of each class) fronts are thinned, or the
  // search is given up.
  RunSearchResult prove(int64_t most_time, int64_t most_points, bool give_up);

 private:
  struct Value {
    RunKey key = kNever;
    int64_t bytes = 0;  // on accelerators
    bool operator<(const Value& o) const { return key != o.key ? key < o.key : bytes < o.bytes; }
  };
  // The best run of a class over units [first, last).
  struct Stretch {
    size_t last = 0;
    Value value;
  };
  using Stretches = std::vector<std::vector<Stretch>>;  // by first unit
  // The best way to be before a unit, at a place, with a set of accelerators used; and where from: before a run, or the
  // unit at the cpu, that began with unit `first` and set `set`.
  struct Way {
    Value value;
    int32_t set = -1, first = -1;
  };
  struct Ways {
    std::vector<Way> best;         // [unit][place][set]
    std::vector<int16_t> entered;  // [unit][place][set]: place entered before the unit: from which one
  };
  // What precedes and follows a run of one class, in time: for each set that leaves one of the class side by side.
  struct Outlook {
    std::vector<size_t> sets;
    std::vector<int64_t> begun;         // [unit]: until a run begins with it
    std::vector<int64_t> on, off, end;  // [unit]: from it on, being on the accelerator, away, or done with it
    size_t at(size_t unit, size_t q) const { return unit * sets.size() + q; }
  };
  // Of a class: what the outlook leaves open.
  struct Slacks {
    std::vector<RunSlack> of_beginning;
    std::vector<std::vector<int64_t>> of_stretch;  // [first][last - first - 1]; empty: nothing is known
  };

  size_t places() const { return chain_.classes() + 1; }
  size_t cpu() const { return chain_.classes(); }
  bool has_cpu() const { return chain_.space.cpu_place() >= 0; }
  size_t index(size_t unit, size_t place, size_t set) const {
    return (unit * places() + place) * chain_.set_count() + set;
  }
  std::optional<RunKey> move(size_t from, size_t to, size_t unit) const;
  RunKey most_detour() const;

  // Bounds before any search.
  Stretches price_stretches(size_t k) const;
  std::vector<int64_t> workspaces(size_t k) const;
  void look_ahead();
  Outlook outlook(size_t k) const;

  RunSearchResult search(const RunEffort& effort, int64_t most_time);
  bool all_at_once() const {
    return chain_.pair_count() * chain_.size() <= chain_.beginnings.size() * chain_.classes();
  }
  void walk_all(const RunEffort& effort, int64_t most_time, RunSearchResult& out);
  void walk_stretches(const RunEffort& effort, int64_t most_time, RunSearchResult& out);
  Slacks slacks(size_t k, int64_t most_time) const;
  Stretches find_stretches(size_t k, const Slacks& slacks, const RunEffort& effort, RunSearchResult& out) const;
  Stretches to_stretches(const std::vector<Value>& ends, const Slacks& slacks) const;

  // Joining.
  Ways no_ways() const;
  void enter(size_t unit, size_t place, Ways& ways, std::vector<Value>& from) const;
  void pass_by_cpu(size_t unit, Ways& ways, std::vector<Value>& from) const;
  void join(const std::vector<Stretches>& stretches, Ways& ways) const;
  bool finish(const Ways& ways, RunSearchResult& out) const;
  void trace(const Ways& ways, const RunEffort& effort, const std::vector<Outlook>& outlooks,
             RunSearchResult& out) const;
  bool trace_run(size_t k, size_t first, size_t last, const RunPoint& before, const std::vector<RunSlack>& slack,
                 const RunEffort& effort, RunSearchResult& out) const;

  RunChain chain_;
  const Bound* bound_;
  std::vector<Stretches> bounds_;     // by class: what stretches take at least
  std::vector<RunKey> begun_, rest_;  // [unit][place][set]: into a place before the unit; from it on, having left one
  RunKey root_ = 0;
};

}  // namespace berth::plan
