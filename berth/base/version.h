// base/version.h — Berth's version, as CMakeLists.txt's project() states it.
#pragma once

#include <string_view>

namespace berth {

std::string_view version();  // "0.1.0"

}  // namespace berth
