// jinja/parser.h — tokens to a tree, by Jinja's grammar.
#pragma once

#include <string_view>

#include "berth/base/result.h"
#include "berth/jinja/ast.h"

namespace berth::jinja {

// Parses `source`. Errors: kCorruptData with the line (syntax), kUnsupported for tags that read other templates.
Result<Body> parse(std::string_view source);

}  // namespace berth::jinja
