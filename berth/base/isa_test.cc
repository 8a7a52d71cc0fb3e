// base/isa_test.cc — names both ways; availability agrees with what the compiler's own check says.
#include "berth/base/isa.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

TEST(Isa, EveryNameParsesBackToItself) {
  for (const Isa isa : all_isas()) {
    const auto parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed) << isa_name(isa);
    EXPECT_EQ(*parsed, isa);
  }
}

TEST(Isa, AutoIsTheBestAvailable) {
  EXPECT_EQ(*parse_isa("auto"), best_isa());
  EXPECT_EQ(available_isas().back(), best_isa());
}

TEST(Isa, UnknownNameNamesTheNearestAndTheAccepted) {
  const auto parsed = parse_isa("avx51");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(parsed.error().message.find("\"avx51\""), std::string::npos);
  EXPECT_NE(parsed.error().message.find("did you mean \"avx512\""), std::string::npos);
  EXPECT_FALSE(parse_isa("AVX2"));
  EXPECT_FALSE(parse_isa(""));
}

TEST(Isa, RefRunsEverywhere) {
  EXPECT_TRUE(isa_available(Isa::kRef));
  EXPECT_EQ(available_isas().front(), Isa::kRef);
  EXPECT_EQ(isa_missing(Isa::kRef), "");
}

TEST(Isa, MissingIsEmptyExactlyWhereAvailable) {
  for (const Isa isa : all_isas()) EXPECT_EQ(isa_available(isa), isa_missing(isa).empty()) << isa_name(isa);
}

TEST(Isa, RequireNamesWhatIsMissingAndWhatThereIs) {
#if defined(__x86_64__)
  const Isa foreign = Isa::kNeon;
#else
  const Isa foreign = Isa::kAvx512;
#endif
  const auto required = require_isa(foreign);
  ASSERT_FALSE(required);
  EXPECT_EQ(required.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(required.error().message.find(isa_name(foreign)), std::string::npos);
  EXPECT_NE(required.error().message.find("ref"), std::string::npos);
  EXPECT_EQ(*require_isa(Isa::kRef), Isa::kRef);
}

#if defined(__x86_64__)
TEST(Isa, AgreesWithTheCompilersCheck) {
  EXPECT_EQ(isa_available(Isa::kAvx2),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"));
  EXPECT_EQ(isa_available(Isa::kAvx512),
            isa_available(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"));
}
#endif

}  // namespace
}  // namespace berth
