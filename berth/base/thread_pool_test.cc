// base/thread_pool_test.cc — every piece exactly once, whoever is late.
#include "berth/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace berth {
namespace {

class ThreadPoolOfSize : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolOfSize, RunCallsEveryShareOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::vector<int> calls(static_cast<size_t>(pool.size()), 0);  // plain ints: a share is one thread's at a time
    pool.run([&](int share, int num_shares) {
      EXPECT_EQ(num_shares, pool.size());
      ++calls[static_cast<size_t>(share)];
    });
    for (const int c : calls) ASSERT_EQ(c, 1);
  }
}

TEST_P(ThreadPoolOfSize, RangesCoverTheCountOnceAndStartAtMultiplesOfTheGrain) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {1, 2, 7, 64, 1000, 4097})
    for (const int64_t grain : {-3, 0, 1, 3, 64, 5000}) {
      const int64_t longest = std::max<int64_t>(grain, 1);
      std::vector<int> seen(static_cast<size_t>(count), 0);
      pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, pool.size());
        EXPECT_EQ(begin % longest, 0);
        EXPECT_LT(begin, end);
        EXPECT_LE(end - begin, longest);
        EXPECT_TRUE(end == count || end - begin == longest);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const int s : seen) ASSERT_EQ(s, 1) << count << " by " << grain;
    }
}

TEST_P(ThreadPoolOfSize, ThreadNumbersAreNeverInUseTwiceAtATime) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> in_use(static_cast<size_t>(pool.size()));
  std::atomic<bool> clash{false};
  for (int repeat = 0; repeat < 200; ++repeat)
    pool.parallel_for(64, 1, [&](int64_t, int64_t, int thread) {
      auto& mine = in_use[static_cast<size_t>(thread)];
      if (mine.fetch_add(1) != 0) clash = true;
      mine.fetch_sub(1);
    });
  EXPECT_FALSE(clash);
}

TEST_P(ThreadPoolOfSize, WritesOfAForkAreSeenByTheCallerAndByTheNextFork) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(300, 0);
  for (int64_t round = 1; round <= 300; ++round) {
    pool.parallel_for(300, 7, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t mirror = static_cast<size_t>(i);
        if (values[mirror] != round - 1) std::abort();
        values[mirror] = round;
      }
    });
    ASSERT_EQ(values[static_cast<size_t>(round - 1)], round);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, SizesAreClamped) {
  EXPECT_EQ(ThreadPool(0).size(), 1);
  EXPECT_EQ(ThreadPool(-5).size(), 1);
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(2);
  pool.parallel_for(0, 1, [](int64_t, int64_t, int) { FAIL(); });
  pool.parallel_for(-1, 1, [](int64_t, int64_t, int) { FAIL(); });
}

TEST(ThreadPool, ManyMoreRangesThanPiecesStillRespectTheGrain) {
  ThreadPool pool(2);
  std::atomic<int64_t> covered{0}, calls{0};
  pool.parallel_for(5'000'001, 2, [&](int64_t begin, int64_t end, int) {
    if (begin % 2 != 0 || end - begin > 2) std::abort();
    covered.fetch_add(end - begin, std::memory_order_relaxed);
    calls.fetch_add(1, std::memory_order_relaxed);
  });
  EXPECT_EQ(covered, 5'000'001);
  EXPECT_EQ(calls, 2'500'001);
}

TEST(ThreadPool, AForkInsideATaskRunsOnThatThread) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  pool.run([&](int, int) {
    const auto here = std::this_thread::get_id();
    pool.run([&](int, int num_shares) {
      EXPECT_EQ(num_shares, 3);
      EXPECT_EQ(std::this_thread::get_id(), here);
      ++inner;
    });
  });
  EXPECT_EQ(inner, 9);
}

TEST(ThreadPool, AForkOnAnotherPoolInsideATaskWorks) {
  ThreadPool outer(2), inner(2);
  std::atomic<int> calls{0};
  outer.run([&](int, int) { inner.run([&](int, int) { ++calls; }); });
  EXPECT_EQ(calls, 4);
}

TEST(ThreadPool, TwoCallersTakeTurns) {
  ThreadPool pool(2);
  std::vector<std::atomic<int>> in_use(2);
  std::atomic<bool> clash{false};
  std::atomic<int64_t> total{0};
  const auto caller = [&] {
    for (int repeat = 0; repeat < 300; ++repeat)
      pool.parallel_for(16, 1, [&](int64_t, int64_t, int thread) {
        if (in_use[static_cast<size_t>(thread)].fetch_add(1) != 0) clash = true;
        ++total;
        in_use[static_cast<size_t>(thread)].fetch_sub(1);
      });
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_FALSE(clash);
  EXPECT_EQ(total, 2 * 300 * 16);
}

TEST(ThreadPool, SleepingWorkersWakeForTheNextFork) {
  ThreadPool pool(2);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the spin
    std::set<std::thread::id> threads;
    std::mutex mutex;
    // The first share waits until the second has begun elsewhere: without a woken worker this would never end.
    std::atomic<int> begun{0};
    pool.run([&](int, int) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
      const std::lock_guard<std::mutex> lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(threads.size(), 2u);
  }
}

TEST(ThreadPool, AWorkerThatIsBusyElsewhereIsNotWaitedFor) {
  // More threads than cores, forks shorter than a wake-up: most workers never get a piece, and all forks still end.
  ThreadPool pool(32);
  std::atomic<int64_t> sum{0};
  for (int repeat = 0; repeat < 2000; ++repeat)
    pool.parallel_for(4, 1, [&](int64_t begin, int64_t, int) { sum.fetch_add(begin, std::memory_order_relaxed); });
  EXPECT_EQ(sum, 2000 * 6);
}

TEST(ThreadPool, ACallerThatWaitsLongSleepsAndIsWoken) {
  ThreadPool pool(2);
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::atomic<int> begun{0};
    const auto caller = std::this_thread::get_id();
    pool.run([&](int, int) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
      if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    });
    EXPECT_EQ(begun, 2);
  }
}

TEST(ThreadPool, PoolsStartAndStopWithoutWork) {
  for (int repeat = 0; repeat < 50; ++repeat) ThreadPool pool(4);
}

TEST(UsableCores, IsAtLeastOneAndNoMoreThanThereAre) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace berth
