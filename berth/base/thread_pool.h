// base/thread_pool.h — fork-join over a few threads, made for hundreds of short forks per token on shared cores.
//
//   ThreadPool pool(2);
//   pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int thread) { ... scratch[thread] ... });
//   pool.run([&](int share, int num_shares) { ... });
//
// Work is cut into pieces that threads claim one at a time from one atomic word, the caller included. Nobody waits for
// a thread that has not claimed anything: if a worker is off its core (another process has it), the caller does the
// rest alone. So *which* thread computes a piece varies from call to call; results must not depend on it.
//
// A worker spins for a few tens of microseconds after its last piece and then sleeps; a caller that waits for a piece
// someone else is still computing does the same, which lets the kernel move that thread to the caller's idle core.
//
// Nothing is allocated per call. Worker threads keep exact floats (float_environment.h) for life and run() gives them
// to the caller for its duration.
//
// Non-goals: futures, task graphs, priorities, tasks that block. Start reading at: ThreadPool::fork in thread_pool.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "berth/base/float_environment.h"
#include "berth/base/function_ref.h"
#include "berth/base/trace.h"

namespace berth {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 256;

  // `num_threads` computing threads, the caller of run() being one of them; clamped to 1..kMaxThreads. Fewer where the
  // system refuses to start more: size() says.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Forks and pieces go to `trace` (base/trace.h, for size() threads) until it is set to null. Not during a fork.
  void set_trace(Trace* trace);
  Trace* trace() const;

  // Calls task(share, size()) once for every share in [0, size()), possibly several shares on one thread one after the
  // other, and returns when all are done. Two calls that run at the same time always have different shares, so `share`
  // may index scratch space.
  //
  // One fork at a time: a second calling thread waits for the first. A call from inside a task runs all shares on the
  // thread it is made from. `task` must not throw.
  void run(FunctionRef<void(int share, int num_shares)> task);

  // Calls f(begin, end, thread) on disjoint ranges that cover [0, count). `begin` is a multiple of `grain`, and every
  // range is `grain` long but the last, which ends at `count`. `thread` in [0, size()) is never in use twice at a time.
  // grain < 1 counts as 1; count <= 0 does nothing.
  // Choose `grain` so that a piece takes 5 us or more and every thread gets about four.
  template <typename F>
  void parallel_for(int64_t count, int64_t grain, F&& f) {
    for_ranges(count, grain, FunctionRef<void(int64_t, int64_t, int)>(f));
  }

 private:
  struct State;
  void for_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end, int thread)> f);
  std::unique_ptr<State> state_;
};

// How many threads suit this process: the cores it may run on (affinity mask), limited by its cgroup's CPU quota.
int usable_cores();

}  // namespace berth
