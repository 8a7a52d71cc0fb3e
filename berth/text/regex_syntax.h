// text/regex_syntax.h — Oniguruma's (Ruby) regular expression syntax rewritten for PCRE2. Private to regex.cc.
#pragma once

#include <string>
#include <string_view>

#include "berth/base/result.h"

namespace berth::text {

// `pattern` in PCRE2's syntax, for the options UTF, UCP and MULTILINE with LF line ends. Errors: kCorruptData where a
// class or group does not end, kUnsupported where a construct has no equal; the message says which, not the pattern.
Result<std::string> pcre2_syntax(std::string_view pattern);

}  // namespace berth::text
