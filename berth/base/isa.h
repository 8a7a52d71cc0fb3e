// base/isa.h — the instruction sets that kernels exist for, and which of them this CPU can run.
//
// kAvx2 means AVX2 + FMA + F16C + BMI2, kAvx512 means those and AVX-512 F, BW, DQ, VL, VNNI, VBMI, each with the
// operating system's support for the registers (XCR0). kRef is portable C++ and runs everywhere.
//
// Non-goals: choosing a kernel (kernel/), naming the CPU (device/probe.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/result.h"

namespace berth {

enum class Isa { kRef, kAvx2, kAvx512, kNeon };

// Every Isa, slowest first.
std::span<const Isa> all_isas();

// "ref", "avx2", "avx512", "neon".
std::string_view isa_name(Isa isa);

// A name as above, or "auto" for best_isa(). Says nothing about availability. Errors: kInvalidArgument with the names.
Result<Isa> parse_isa(std::string_view name);

// Whether this process can execute `isa`'s kernels. Looked up once; afterwards a load.
bool isa_available(Isa isa);

// What this CPU lacks for `isa`, for messages: "avx512vbmi, avx512vnni"; empty where it is available.
std::string isa_missing(Isa isa);

// `isa` if available, else kUnsupported naming it, what is missing and what this CPU has instead.
Result<Isa> require_isa(Isa isa);

// The fastest available one.
Isa best_isa();

// All available ones, slowest first; kRef is always among them.
std::vector<Isa> available_isas();

}  // namespace berth
