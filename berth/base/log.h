// base/log.h — how the library tells people things: notes, warnings and progress, through sinks that a front end gives.
//
// The library never prints. A Log is passed down; a default one swallows everything.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace berth {

enum class LogLevel { kDebug, kNote, kWarning };

// `done` of `total` bytes (or other units) of `what` so far. Return false to cancel.
using ProgressCallback = std::function<bool(std::string_view what, uint64_t done, uint64_t total)>;

struct Log {
  std::function<void(LogLevel, const std::string&)> sink;
  ProgressCallback on_progress;

  void debug(const std::string& m) const { send(LogLevel::kDebug, m); }
  void note(const std::string& m) const { send(LogLevel::kNote, m); }
  void warning(const std::string& m) const { send(LogLevel::kWarning, m); }
  bool progress(std::string_view what, uint64_t done, uint64_t total) const {
    return !on_progress || on_progress(what, done, total);
  }

 private:
  void send(LogLevel level, const std::string& m) const {
    if (sink) sink(level, m);
  }
};

}  // namespace berth
