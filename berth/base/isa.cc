// base/isa.cc — cpuid, once.
#include "berth/base/isa.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "berth/base/strings.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace berth {
namespace {

constexpr std::array<Isa, 4> kIsas = {Isa::kRef, Isa::kNeon, Isa::kAvx2, Isa::kAvx512};

struct Needed {
  const char* name;
  bool present;
};

#if defined(__x86_64__)

struct Cpuid {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpuid(unsigned leaf, unsigned subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};

constexpr bool bit(unsigned word, unsigned position) { return (word >> position & 1u) != 0; }

// Which register states the operating system saves (XCR0); 0 where it does not say.
uint64_t saved_register_state(bool osxsave) {
  if (!osxsave) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

std::vector<Needed> needs(Isa isa) {
  if (isa == Isa::kNeon) return {{"an AArch64 CPU", false}};
  if (isa == Isa::kRef) return {};
  const Cpuid one(1, 0);
  const Cpuid seven(7, 0);  // all zero where the CPU has no leaf 7
  const uint64_t state = saved_register_state(bit(one.ecx, 27));
  std::vector<Needed> list = {
      {"operating-system support for 256-bit registers", (state & 0x6) == 0x6},
      {"avx2", bit(seven.ebx, 5)},
      {"fma", bit(one.ecx, 12)},
      {"f16c", bit(one.ecx, 29)},
      {"bmi2", bit(seven.ebx, 8)},
  };
  if (isa == Isa::kAvx512) {
    list.push_back({"operating-system support for 512-bit registers", (state & 0xe6) == 0xe6});
    list.push_back({"avx512f", bit(seven.ebx, 16)});
    list.push_back({"avx512bw", bit(seven.ebx, 30)});
    list.push_back({"avx512dq", bit(seven.ebx, 17)});
    list.push_back({"avx512vl", bit(seven.ebx, 31)});
    list.push_back({"avx512vnni", bit(seven.ecx, 11)});
    list.push_back({"avx512vbmi", bit(seven.ecx, 1)});
  }
  return list;
}

#else

std::vector<Needed> needs(Isa isa) {
#if defined(__aarch64__)
  if (isa == Isa::kNeon) return {};
#else
  if (isa == Isa::kNeon) return {{"an AArch64 CPU", false}};
#endif
  if (isa == Isa::kRef) return {};
  return {{"an x86-64 CPU", false}};
}

#endif

struct Availability {
  std::array<std::string, kIsas.size()> missing;  // by enum value
};

const Availability& availability() {
  static const Availability found = [] {
    Availability a;
    for (const Isa isa : kIsas) {
      std::vector<std::string> names;
      for (const Needed& n : needs(isa))
        if (!n.present) names.emplace_back(n.name);
      a.missing[static_cast<size_t>(isa)] = join(names, ", ");
    }
    return a;
  }();
  return found;
}

std::string names_of(std::span<const Isa> isas) {
  std::vector<std::string> names;
  for (const Isa isa : isas) names.emplace_back(isa_name(isa));
  return join(names, ", ");
}

}  // namespace

std::span<const Isa> all_isas() { return kIsas; }

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kRef:
      return "ref";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "ref";
}

Result<Isa> parse_isa(std::string_view name) {
  if (name == "auto") return best_isa();
  std::vector<std::string> names = {"auto"};
  for (const Isa isa : kIsas) {
    if (isa_name(isa) == name) return isa;
    names.emplace_back(isa_name(isa));
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("instruction set {} is unknown{}: expected one of {}",
                                                        quoted(name), did_you_mean(name, names), join(names, ", ")));
}

bool isa_available(Isa isa) { return availability().missing[static_cast<size_t>(isa)].empty(); }

std::string isa_missing(Isa isa) { return availability().missing[static_cast<size_t>(isa)]; }

Result<Isa> require_isa(Isa isa) {
  if (isa_available(isa)) return isa;
  return Error(ErrorCode::kUnsupported, fmt::format("this CPU cannot run the {} kernels: it lacks {}; it can run {}",
                                                    isa_name(isa), isa_missing(isa), names_of(available_isas())));
}

Isa best_isa() {
  Isa best = Isa::kRef;
  for (const Isa isa : kIsas)
    if (isa_available(isa)) best = isa;
  return best;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (const Isa isa : kIsas)
    if (isa_available(isa)) out.push_back(isa);
  return out;
}

}  // namespace berth
