// base/check.h — programmer errors: CHECK always, DCHECK in debug and sanitizer builds.
//
// For bugs in Berth's own code only. Anything a file, a user or the machine can cause is a Result (result.h).
#pragma once

namespace berth::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition);
}

#define CHECK(condition) \
  (__builtin_expect(!(condition), 0) ? ::berth::detail::check_failed(__FILE__, __LINE__, #condition) : void(0))

#ifdef NDEBUG
#define DCHECK(condition) (void(sizeof(!(condition))))
#else
#define DCHECK(condition) CHECK(condition)
#endif
