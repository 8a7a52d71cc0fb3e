// plan/wide.h — 128-bit integers, for products of bytes, rates and prices.
#pragma once

namespace berth::plan {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

}  // namespace berth::plan
