// base/check.cc — prints the failed condition and aborts.
#include "berth/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace berth::detail {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: internal error: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace berth::detail
