#include "berth/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>

#include "berth/base/strings.h"
#include "berth/base/utf8.h"
#include "berth/text/regex_syntax.h"

namespace berth::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kMaxCompiledBytes = 16 << 20;
constexpr uint32_t kMatchLimit = 5'000'000;  // backtracking steps of one attempt at one position
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = 8 << 20;
constexpr auto kTimeLimit = std::chrono::seconds(5);  // of one find_all()
constexpr unsigned kAttemptsPerClockReading = 32;

struct CodeDeleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

// What a match needs besides the program; one for each thread.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);
  Scratch() {
    if (!context) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack) pcre2_jit_stack_free(stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

}  // namespace

struct Regex::Program {
  std::string source;  // as written, for messages
  std::string plain;   // a literal; `code` is null then
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  bool jit = false;
};

Result<Regex> Regex::literal(std::string_view text) {
  if (text.empty())
    return Error(ErrorCode::kUnsupported, "while reading a pattern: expected some text to look for, found \"\"");
  auto program = std::make_shared<Program>();
  program->source = text;
  program->plain = text;
  return Regex(std::move(program));
}

Result<Regex> Regex::compile(std::string_view pattern) {
  const std::string where = "while compiling the regular expression " + quoted(pattern);
  if (pattern.size() > kMaxPatternBytes)
    return Error(ErrorCode::kUnsupported,
                 where + ": expected at most 65536 bytes, found " + std::to_string(pattern.size()));
  auto translated = pcre2_syntax(pattern);
  if (!translated) return translated.error().with_context(where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) return Error(ErrorCode::kInternal, where + ": out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 200);
  int code = 0;
  PCRE2_SIZE at = 0;
  // Anchored: find_all() tries position after position itself, so that its limits hold between any two attempts.
  auto program = std::make_shared<Program>();
  program->source = pattern;
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C,
                                    &code, &at, context.get()));
  if (!program->code) return Error(ErrorCode::kCorruptData, where + ": " + pcre2_message(code));
  size_t size = 0;
  pcre2_pattern_info(program->code.get(), PCRE2_INFO_SIZE, &size);
  if (size > kMaxCompiledBytes) return Error(ErrorCode::kUnsupported, where + ": it is too large when compiled");
  program->jit = pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(program));
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  if (!program_->code) {
    const std::string& plain = program_->plain;
    for (size_t at = text.find(plain); at != std::string_view::npos; at = text.find(plain, at + plain.size()))
      matches.push_back({at, at + plain.size()});
    return {};
  }
  Scratch& s = scratch();
  if (!s.data || !s.context) return Error(ErrorCode::kInternal, "while matching: out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(s.data);
  const auto out_of_bounds = [&](const std::string& why) {
    return Error(ErrorCode::kCorruptData,
                 "while splitting a text of " + std::to_string(text.size()) + " bytes with the regular expression " +
                     quoted(program_->source) + ": " + why,
                 {"The expression backtracks without end; use a tokenizer from a source you trust."});
  };
  size_t last_match_end = std::string_view::npos;
  unsigned attempts = 0;
  for (size_t at = 0; at <= text.size();) {
    if (++attempts % kAttemptsPerClockReading == 0 && std::chrono::steady_clock::now() > deadline)
      return out_of_bounds("expected to finish within 5 s, found no end");
    const int rc =
        program_->jit
            ? pcre2_jit_match(program_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, s.data, s.context)
            : pcre2_match(program_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, s.data, s.context);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) return out_of_bounds(pcre2_message(rc));
    const bool matched = rc >= 0 && found[0] == at && found[1] >= at;
    if (matched && (found[1] > at || last_match_end != at)) {
      matches.push_back({at, found[1]});
      last_match_end = found[1];
      if (found[1] > at) {
        at = found[1];
        continue;
      }
      continue;  // an empty match: the next round sees it right behind and moves on
    }
    at += at < text.size() ? utf8_length(text[at]) : 1;
  }
  return {};
}

}  // namespace berth::text
