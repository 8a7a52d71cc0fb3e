// base/trace.h — a timeline of operations: how long each took, and how long its threads computed or waited.
//
//   Trace trace(pool.size());
//   pool.set_trace(&trace);              forks and pieces are recorded from here on
//   { TraceScope scope(&trace, {"linear", rows, cols, bytes}); pool.parallel_for(...); }
//   pool.set_trace(nullptr);
//   for (const Trace::Row& row : trace.rows()) ...
//
// Everything is recorded into memory reserved beforehand; what does not fit is dropped and counted. Each thread writes
// its own list. Start reading at: Trace::Row.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace berth {

class Trace {
 public:
  // What an operation is: rows of the table are made per value. `bytes`: what it has to read, 0 where nobody says.
  struct Operation {
    const char* name = "";
    int64_t outputs = 0, inputs = 0;
    int64_t bytes = 0;
  };

  // All operations of one kind. Times are sums in seconds; `early`, `late` and `between` are means over the threads.
  struct Row {
    Operation operation;
    int64_t count = 0;
    double seconds = 0;  // from begin to end
    double alone = 0;    // of that outside forks: the calling thread alone
    double early = 0;    // in forks: until a thread's first piece
    double between = 0;  //   between its pieces
    double late = 0;     //   after its last piece, waiting for others
  };

  explicit Trace(int threads, size_t capacity = size_t{1} << 16);

  // Rows in the order in which their operations first occurred, then "between operations": from the first operation's
  // begin to the last one's end, what belongs to none. To be called when nothing is being recorded.
  std::vector<Row> rows() const;
  int64_t dropped() const { return dropped_; }

  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void add_operation(const Operation& operation, int64_t begin_ns, int64_t end_ns);
  void add_fork(int64_t begin_ns, int64_t end_ns);
  void add_piece(int thread, int64_t begin_ns, int64_t end_ns);

 private:
  struct Span {
    int64_t begin, end;
  };
  struct Event {
    Operation operation;
    Span span;
  };
  struct alignas(64) Pieces {
    std::vector<Span> spans;
  };
  size_t capacity_;
  std::vector<Event> events_;
  std::vector<Span> forks_;
  std::vector<Pieces> pieces_;  // by thread
  int64_t dropped_ = 0;
};

// While it lives, an operation of `trace`; null: nothing.
class TraceScope {
 public:
  TraceScope(Trace* trace, const Trace::Operation& operation)
      : trace_(trace), operation_(operation), begin_(trace == nullptr ? 0 : Trace::now_ns()) {}
  ~TraceScope() {
    if (trace_ != nullptr) trace_->add_operation(operation_, begin_, Trace::now_ns());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  Trace::Operation operation_;
  int64_t begin_;
};

}  // namespace berth
