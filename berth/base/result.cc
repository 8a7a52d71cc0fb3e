// base/result.cc — the one table of error codes: printed name and exit status.
#include "berth/base/result.h"

#include "berth/base/check.h"

namespace berth {
namespace {

struct CodeRow {
  ErrorCode code;
  std::string_view name;
  int exit_status;
};

constexpr CodeRow kCodes[] = {
    {ErrorCode::kInvalidArgument, "invalid_argument", 2}, {ErrorCode::kNotFound, "not_found", 1},
    {ErrorCode::kCorruptData, "corrupt_data", 4},         {ErrorCode::kUnsupported, "unsupported", 4},
    {ErrorCode::kNotAvailable, "unsupported", 2},         {ErrorCode::kDoesNotFit, "does_not_fit", 3},
    {ErrorCode::kIo, "io", 1},                            {ErrorCode::kDevice, "device", 1},
    {ErrorCode::kNetwork, "network", 1},                  {ErrorCode::kCancelled, "cancelled", 130},
    {ErrorCode::kInternal, "internal", 1},
};

const CodeRow& row(ErrorCode code) {
  for (const CodeRow& r : kCodes)
    if (r.code == code) return r;
  CHECK(false);
  return kCodes[0];
}

}  // namespace

std::string_view error_code_name(ErrorCode code) { return row(code).name; }
int exit_status(ErrorCode code) { return row(code).exit_status; }

Error Error::with_context(std::string_view context) const {
  Error e = *this;
  e.message = std::string(context) + ": " + message;
  return e;
}

Error Error::with_hint(std::string hint) const {
  Error e = *this;
  e.hints.push_back(std::move(hint));
  return e;
}

}  // namespace berth
