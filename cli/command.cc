// cli/command.cc — see command.h.
#include "command.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "berth/base/bytes.h"

namespace berth::cli {
namespace {

std::atomic<int> interrupts{0};

bool wants_color(const std::string& mode, int fd) {
  if (mode == "always") return true;
  if (mode == "never") return false;
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == 0) && ::isatty(fd) == 1;
}

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 96;
}

// One progress line, rewritten on a terminal.
class Progress {
 public:
  explicit Progress(bool terminal) : terminal_(terminal), start_(std::chrono::steady_clock::now()), last_(start_) {}
  ~Progress() {
    if (shown_ && terminal_) std::fputs("\r\x1b[K", stderr);
  }
  void show(std::string_view what, uint64_t done, uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (what != what_ || done < done_) start_ = last_ = now;  // another load begins
    what_ = what;
    done_ = done;
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const double since = std::chrono::duration<double>(now - last_).count();
    if (elapsed < 1 || since < (terminal_ ? 0.1 : 3.0)) return;
    last_ = now;
    shown_ = true;
    const double rate = static_cast<double>(done) / elapsed;
    const double left = rate > 0 ? static_cast<double>(total - std::min(done, total)) / rate : 0;
    const std::string line = fmt::format("{}: {} of {} ({}/s, {:.0f} s left)", what, format_bytes(done), format_bytes(total),
                                         format_bytes(static_cast<uint64_t>(rate)), left);
    if (terminal_) {
      const int cells = total > 0 ? static_cast<int>(20 * done / total) : 0;
      std::string bar;
      for (int i = 0; i < 20; ++i) bar += i < cells ? "█" : "·";
      std::fprintf(stderr, "\r\x1b[K%s %s", bar.c_str(), line.c_str());
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    std::fflush(stderr);
  }

 private:
  bool terminal_;
  std::chrono::steady_clock::time_point start_, last_;
  std::string what_;
  uint64_t done_ = 0;
  bool shown_ = false;
};

}  // namespace

bool interrupted() { return interrupts.load() > 0; }
void catch_interrupts() {
  // Ctrl-C, what `kill` and service managers send, and a terminal that closes: the work stops and nothing half written
  // stays. A second one ends the process at once.
  const auto handler = [](int) {
    if (interrupts.fetch_add(1) > 0) std::_Exit(130);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup: it stays ignored
}

engine::TextStyle Output::style() const { return {wants_color(common_.color, STDOUT_FILENO), terminal_width(STDOUT_FILENO)}; }
engine::TextStyle Output::error_style() const { return {wants_color(common_.color, STDERR_FILENO), terminal_width(STDERR_FILENO)}; }
void Output::print(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}
void Output::note(const std::string& text) const {
  if (!common_.quiet) std::fprintf(stderr, "note: %s\n", text.c_str());
}
void Output::warning(const std::string& text) const {
  if (!common_.quiet) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

Log Output::log() const {
  Log log;
  const bool quiet = common_.quiet, verbose = common_.verbose > 0;
  log.sink = [quiet, verbose](LogLevel level, const std::string& text) {
    if (quiet || (level == LogLevel::kDebug && !verbose)) return;
    std::fprintf(stderr, "%s: %s\n", level == LogLevel::kWarning ? "warning" : "note", text.c_str());
  };
  auto progress = std::make_shared<Progress>(::isatty(STDERR_FILENO) == 1);
  log.on_progress = [quiet, progress](std::string_view what, uint64_t done, uint64_t total) {
    if (!quiet) progress->show(what, done, total);
    return !interrupted();
  };
  return log;
}

int Output::fail(const Error& error) const {
  if (common_.json) {
    JsonWriter w(2);
    engine::write_error(error, w);
    print(w.take() + "\n");
  } else {
    std::fprintf(stderr, "berth: %s: %s\n", std::string(error_code_name(error.code)).c_str(), error.message.c_str());
    for (const std::string& hint : error.hints) std::fprintf(stderr, "  try: %s\n", hint.c_str());
  }
  return exit_status(error.code);
}

}  // namespace berth::cli
