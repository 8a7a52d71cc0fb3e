// base/thread_pool.cc — one atomic word hands out pieces; see thread_pool.h.
//
// The word is [fork number : 44][pieces not yet claimed : 20]. Claiming is a compare-and-swap that takes one piece off.
// A claim that succeeds proves that the fork it read was still open, and a fork's description is rewritten only after
// all its pieces are finished: so what a thread read of the description before its successful claim is that fork's.
#include "berth/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "berth/base/cgroup.h"

namespace berth {
namespace {

constexpr uint64_t kPieceBits = 20;
constexpr uint64_t kPieceMask = (uint64_t{1} << kPieceBits) - 1;
constexpr int64_t kMaxPieces = static_cast<int64_t>(kPieceMask);

// About how long a thread spins before it sleeps, in rounds of spin_pause() (some 15 to 40 ns each). Long enough for
// the serial stretch between two forks of a token, short enough that an idle worker soon gives its core to others.
constexpr int kWorkerSpins = 2000;
constexpr int kCallerSpins = 1000;

inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

// Which thread of which pool this is; a call from inside a task finds its pool here and stays on its thread.
struct Inside {
  const void* pool = nullptr;
  int thread = 0;
};
thread_local Inside inside;

}  // namespace

struct alignas(64) ThreadPool::State {
  using Thunk = void (*)(void*, int64_t, int64_t, int);

  alignas(64) std::atomic<uint64_t> word{0};
  // The open fork. Atomics, since a late worker may read them while the next fork is described (and then fails to
  // claim).
  std::atomic<Thunk> thunk{nullptr};
  std::atomic<void*> object{nullptr};
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> grain{1};         // longest range of one call
  std::atomic<int64_t> piece_length{1};  // a multiple of grain: more than one only where there would be too many pieces
  std::atomic<int64_t> pieces{0};

  alignas(64) std::atomic<int64_t> finished{0};
  std::atomic<int> caller_sleeps{0};  // 1 while the caller sleeps on it

  alignas(64) std::atomic<int> wake{0};  // changes with every fork and at the end; workers sleep on it
  std::atomic<int> sleepers{0};
  std::atomic<bool> stopping{false};

  std::atomic<Trace*> trace{nullptr};

  std::mutex one_fork;  // callers take turns
  int num_threads = 1;
  std::vector<std::thread> workers;

  int64_t work(int thread);
  void worker_main(int thread);
  void fork(int64_t pieces_wanted);
  void wait_for(int64_t total);
};

// Claims and computes pieces of the open fork until none is left; returns how many.
int64_t ThreadPool::State::work(int thread) {
  int64_t done = 0;
  uint64_t seen = word.load(std::memory_order_acquire);
  while ((seen & kPieceMask) != 0) {
    const Thunk f = thunk.load(std::memory_order_relaxed);
    void* const f_object = object.load(std::memory_order_relaxed);
    const int64_t n = count.load(std::memory_order_relaxed);
    const int64_t g = grain.load(std::memory_order_relaxed);
    const int64_t length = piece_length.load(std::memory_order_relaxed);
    const int64_t total = pieces.load(std::memory_order_relaxed);
    if (!word.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const int64_t first = (total - static_cast<int64_t>(seen & kPieceMask)) * length;
    const int64_t last = first + std::min(length, n - first);
    Trace* const timeline = trace.load(std::memory_order_relaxed);
    const int64_t since = timeline == nullptr ? 0 : Trace::now_ns();
    for (int64_t begin = first; begin < last; begin += std::min(g, last - begin))
      f(f_object, begin, begin + std::min(g, last - begin), thread);
    if (timeline != nullptr) timeline->add_piece(thread, since, Trace::now_ns());
    ++done;
    seen = word.load(std::memory_order_acquire);
  }
  return done;
}

void ThreadPool::State::worker_main(int thread) {
  use_exact_floats();
  inside = {this, thread};
  while (true) {
    const int signal = wake.load(std::memory_order_seq_cst);
    if (stopping.load(std::memory_order_acquire)) return;
    if (const int64_t done = work(thread); done != 0) {
      // The caller may return as soon as it sees this; after it only the pool's own members are touched.
      finished.fetch_add(done, std::memory_order_seq_cst);
      if (caller_sleeps.load(std::memory_order_seq_cst) != 0) {
        caller_sleeps.store(0, std::memory_order_seq_cst);
        caller_sleeps.notify_one();
      }
    }
    bool found = false;
    for (int i = 0; i < kWorkerSpins && !found; ++i) {
      spin_pause();
      found = wake.load(std::memory_order_relaxed) != signal;
    }
    if (found) continue;
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(signal, std::memory_order_seq_cst);
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

// Until `total` pieces are finished. All are claimed: what is missing is being computed by a worker right now.
void ThreadPool::State::wait_for(int64_t total) {
  for (int i = 0; i < kCallerSpins; ++i) {
    if (finished.load(std::memory_order_acquire) == total) return;
    spin_pause();
  }
  while (finished.load(std::memory_order_acquire) != total) {
    caller_sleeps.store(1, std::memory_order_seq_cst);
    if (finished.load(std::memory_order_seq_cst) == total) break;
    caller_sleeps.wait(1, std::memory_order_seq_cst);
  }
  caller_sleeps.store(0, std::memory_order_relaxed);
}

// Opens a fork whose description is already stored, takes part in it and waits for the rest.
void ThreadPool::State::fork(int64_t pieces_wanted) {
  Trace* const timeline = trace.load(std::memory_order_relaxed);
  const int64_t since = timeline == nullptr ? 0 : Trace::now_ns();
  finished.store(0, std::memory_order_relaxed);
  const uint64_t number = (word.load(std::memory_order_relaxed) >> kPieceBits) + 1;
  word.store(number << kPieceBits | static_cast<uint64_t>(pieces_wanted), std::memory_order_release);
  wake.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) wake.notify_all();
  const int64_t done = work(0);
  if (finished.fetch_add(done, std::memory_order_acq_rel) + done != pieces_wanted) wait_for(pieces_wanted);
  if (timeline != nullptr) timeline->add_fork(since, Trace::now_ns());
}

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  const int wanted = std::clamp(num_threads, 1, kMaxThreads);
  state_->workers.reserve(static_cast<size_t>(wanted - 1));
  State* const state = state_.get();
  try {
    for (int thread = 1; thread < wanted; ++thread)
      state_->workers.emplace_back([state, thread] { state->worker_main(thread); });
  } catch (const std::system_error&) {  // no more threads to be had: go on with those there are
  }
  state_->num_threads = static_cast<int>(state_->workers.size()) + 1;
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->wake.fetch_add(1, std::memory_order_seq_cst);
  state_->wake.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::size() const { return state_->num_threads; }
void ThreadPool::set_trace(Trace* trace) { state_->trace.store(trace, std::memory_order_relaxed); }
Trace* ThreadPool::trace() const { return state_->trace.load(std::memory_order_relaxed); }

void ThreadPool::for_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> f) {
  if (count <= 0) return;
  State& s = *state_;
  const int64_t range = std::clamp<int64_t>(grain, 1, count);
  const auto alone = [&](int thread) {
    for (int64_t begin = 0; begin < count; begin += std::min(range, count - begin))
      f(begin, begin + std::min(range, count - begin), thread);
  };
  if (inside.pool == &s) {  // a fork inside a task: on this thread alone
    alone(inside.thread);
    return;
  }
  const FloatEnvironmentScope exact;
  const std::lock_guard<std::mutex> turn(s.one_fork);
  const Inside outer = inside;
  inside = {&s, 0};
  if (s.num_threads == 1 || count <= range) {
    alone(0);
  } else {
    const int64_t ranges = (count - 1) / range + 1;
    const int64_t ranges_per_piece = (ranges - 1) / kMaxPieces + 1;
    const int64_t pieces = (ranges - 1) / ranges_per_piece + 1;
    s.thunk.store(f.thunk(), std::memory_order_relaxed);
    s.object.store(f.object(), std::memory_order_relaxed);
    s.count.store(count, std::memory_order_relaxed);
    s.grain.store(range, std::memory_order_relaxed);
    s.piece_length.store(range * ranges_per_piece, std::memory_order_relaxed);
    s.pieces.store(pieces, std::memory_order_relaxed);
    s.fork(pieces);
  }
  inside = outer;
}

void ThreadPool::run(FunctionRef<void(int share, int num_shares)> task) {
  const int n = size();
  const auto shares = [&](int64_t begin, int64_t end, int) {
    for (int64_t share = begin; share < end; ++share) task(static_cast<int>(share), n);
  };
  parallel_for(n, 1, shares);
}

int usable_cores() {
  int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
#if defined(__linux__)
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) cores = std::max(1, CPU_COUNT(&mask));
#endif
  // Half a core of quota still runs one thread; more threads than quota only wait for the next period together.
  if (const auto quota = cgroup_cpu_quota()) cores = std::clamp(static_cast<int>(*quota), 1, cores);
  return cores;
}

}  // namespace berth
