// base/trace_test.cc — times given by hand come out under the right operation and heading; a pool records what it ran.
#include "berth/base/trace.h"

#include <gtest/gtest.h>

#include <string>

#include "berth/base/thread_pool.h"

namespace berth {
namespace {

constexpr double kNs = 1e-9;

TEST(Trace, SharesAnOperationsTimeOut) {
  Trace trace(2);
  trace.add_operation({"small"}, 1000, 1100);
  // Begins at 1150, forks from 1200 to 1300; the second thread comes 20 later and is done 30 earlier.
  trace.add_piece(0, 1200, 1240);
  trace.add_piece(0, 1246, 1300);
  trace.add_piece(1, 1220, 1270);
  trace.add_fork(1200, 1300);
  trace.add_operation({"linear", 8, 64, 512}, 1150, 1310);
  trace.add_operation({"small"}, 1310, 1330);
  const auto rows = trace.rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_STREQ(rows[0].operation.name, "small");
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_NEAR(rows[0].seconds, 120 * kNs, 1e-12);
  EXPECT_NEAR(rows[0].alone, 120 * kNs, 1e-12);
  EXPECT_EQ(rows[1].operation.bytes, 512);
  EXPECT_NEAR(rows[1].seconds, 160 * kNs, 1e-12);
  EXPECT_NEAR(rows[1].alone, 60 * kNs, 1e-12);
  EXPECT_NEAR(rows[1].early, 20 * kNs / 2, 1e-12);
  EXPECT_NEAR(rows[1].between, 6 * kNs / 2, 1e-12);
  EXPECT_NEAR(rows[1].late, 30 * kNs / 2, 1e-12);
  EXPECT_STREQ(rows[2].operation.name, "between operations");
  EXPECT_NEAR(rows[2].seconds, 50 * kNs, 1e-12);
}

TEST(Trace, AThreadThatTookNoPieceWaitedForTheWholeFork) {
  Trace trace(2);
  trace.add_piece(0, 100, 200);
  trace.add_fork(100, 200);
  trace.add_operation({"alone"}, 100, 200);
  EXPECT_NEAR(trace.rows()[0].late, 100 * kNs / 2, 1e-12);
}

TEST(Trace, DropsAndCountsWhatDoesNotFit) {
  Trace trace(1, 2);
  for (int i = 0; i < 5; ++i) trace.add_operation({"x"}, i * 10, i * 10 + 1);
  EXPECT_EQ(trace.dropped(), 3);
  EXPECT_EQ(trace.rows()[0].count, 2);
}

TEST(Trace, APoolTellsItWhatItRan) {
  ThreadPool pool(2);
  Trace trace(pool.size());
  const auto work = [](int64_t, int64_t, int) {};
  pool.parallel_for(8, 1, work);
  pool.set_trace(&trace);
  {
    const TraceScope scope(pool.trace(), {"eight"});
    pool.parallel_for(8, 1, work);
  }
  pool.set_trace(nullptr);
  pool.parallel_for(8, 1, work);
  const auto rows = trace.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].operation.name, std::string("eight"));
  EXPECT_EQ(rows[0].count, 1);
  EXPECT_GT(rows[0].seconds, rows[0].alone);  // the fork is known
  EXPECT_GE(rows[0].alone, 0);
}

}  // namespace
}  // namespace berth
