// max_memory and get_balanced_memory as the libraries have them: texts, keys, rounding, the discount for a single card.
#include "berth/plan/strategies/compat_memory.h"

#include <gtest/gtest.h>

#include "berth/arch/tree_json.h"

namespace berth::plan::compat {
namespace {

std::string parsed(std::string_view text) {
  const auto n = parse_memory_text(text);
  return raised(n) ? std::get<Raised>(n).type : std::get<Number>(n).text();
}

TEST(CompatMemory, ReadsTextsAsTheLibrariesDo) {
  EXPECT_EQ(parsed("0MB"), "0");
  EXPECT_EQ(parsed("100MB"), "100000000");
  EXPECT_EQ(parsed("2GiB"), "2147483648");
  EXPECT_EQ(parsed("512KiB"), "524288");
  EXPECT_EQ(parsed("1.5GB"), "1500000000");
  EXPECT_EQ(parsed("100KB"), "100000");
  EXPECT_EQ(parsed("1e3MB"), "1000000000");
  EXPECT_EQ(parsed("10 GB"), "10000000000");
  EXPECT_EQ(parsed(".5GiB"), "536870912");
  EXPECT_EQ(parsed("10gib"), "10737418240");
  EXPECT_EQ(parsed("1_0MB"), "10000000");
  EXPECT_EQ(parsed("0.1KB"), "100");
  EXPECT_EQ(parsed("1.0005KB"), "1000");  // truncated
}

TEST(CompatMemory, LowerCaseBMeansBits) {
  EXPECT_EQ(parsed("10Gb"), "1250000000");
  EXPECT_EQ(parsed("10gb"), "1250000000");
  EXPECT_EQ(parsed("24gb"), "3000000000");
  const auto notes =
      max_memory_notes({{"0", std::string("24gb")}, {"1", std::string("24GB")}, {"cpu", std::string("24gib")}});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("3000000000"), std::string::npos);
}

TEST(CompatMemory, RefusesOtherTexts) {
  for (const char* text : {"5MBB", "5k0MB", "-1GB", "1TB", "1TiB", "10G", "10", "", "GB", "nanGB", "0x10MB", "1__0MB",
                           "_1MB", "1 0MB", "1e400x MB"})
    EXPECT_EQ(parsed(text), "ValueError") << text;
  EXPECT_EQ(parsed("infGB"), "OverflowError");
  EXPECT_EQ(parsed("1e400GB"), "OverflowError");
}

Outcome<Budgets> read(const std::string& json) {
  const auto doc = JsonDocument::parse(json);
  EXPECT_TRUE(doc);
  const auto entries = memory_entries_from_json(doc->root());
  EXPECT_TRUE(entries);
  return read_max_memory(*entries);
}
std::string text_of(const Budgets& b) {
  std::string s;
  for (const auto& [device, bytes] : b.entries) s += device.text() + "=" + bytes.text() + " ";
  return s;
}

TEST(CompatMemory, OrdersDevicesNumbersThenMpsCpuDisk) {
  const auto b = read(R"({"disk":1,"cpu":"1KB","10":5,"2":4.5,"mps":true,"-1":-3})");
  ASSERT_FALSE(raised(b));
  EXPECT_EQ(text_of(std::get<Budgets>(b)), "-1=-3 2=4.5 10=5 mps=1 cpu=1000 disk=1 ");
}

TEST(CompatMemory, RefusesOtherKeys) {
  for (const char* key : {"cuda:0", "gpu", "", "0x0", " 0"}) {
    const auto b = read(std::string("{\"") + key + "\":1}");
    ASSERT_TRUE(raised(b)) << key;
    EXPECT_EQ(std::get<Raised>(b).type, "ValueError");
  }
}

TEST(CompatMemory, DefaultsTakeTheFreeBytes) {
  EXPECT_EQ(text_of(default_max_memory(Library::kAccelerate, {7, 9}, 100)), "0=7 1=9 cpu=100 ");
  EXPECT_EQ(text_of(default_max_memory(Library::kTransformers, {7, 9}, 100)), "0=7 1=9 cpu=90.0 ");
}

// linear1 64, batchnorm 72, linear2 100: 236 bytes, three leaves.
Model model(Library library, const std::vector<std::string>& no_split = {}) {
  const auto tree = arch::parse_tree_json(R"({"tree":{"c":"ModelForTest","m":[
    ["linear1",{"c":"Linear","p":[["weight",[4,3],"f32"],["bias",[4],"f32"]]}],
    ["batchnorm",{"c":"BatchNorm1d","p":[["weight",[4],"f32"],["bias",[4],"f32"]],"b":[["running_mean",[4],"f32",true],["running_var",[4],"f32",true],["num_batches_tracked",[],"i64",true]]}],
    ["linear2",{"c":"Linear","p":[["weight",[5,4],"f32"],["bias",[5],"f32"]]}]]}})",
                                          {.require_format = false});
  EXPECT_TRUE(tree);
  SizeRules sizes;
  sizes.library = library;
  auto m = Model::build(*tree, sizes, no_split);
  EXPECT_TRUE(m);
  return *std::move(m);
}

std::string balanced(Library library, const std::string& json, bool low_zero = false, bool unset = false) {
  const auto given = read(json);
  EXPECT_FALSE(raised(given));
  const auto b = balanced_memory(model(library), std::get<Budgets>(given), low_zero, unset);
  return raised(b) ? std::get<Raised>(b).type : text_of(std::get<Budgets>(b));
}

TEST(CompatMemory, BalancesAsTheLibrarysOwnTestsExpect) {
  const Library a = Library::kAccelerate;
  EXPECT_EQ(balanced(a, R"({"0":200,"1":200})"), "0=200 1=200 ");
  EXPECT_EQ(balanced(a, R"({"0":200,"2":200})"), "0=200 2=200 ");
  EXPECT_EQ(balanced(a, R"({"0":300,"1":300})"), "0=215 1=300 ");
  EXPECT_EQ(balanced(a, R"({"0":300,"1":500})"), "0=215 1=500 ");
  EXPECT_EQ(balanced(a, R"({"0":300,"cpu":1000})"), "0=300 cpu=1000 ");
  EXPECT_EQ(balanced(a, R"({"0":0,"1":300,"2":300})"), "0=0 1=215 2=300 ");
  EXPECT_EQ(balanced(a, R"({"0":0,"cpu":100})"), "0=0 cpu=100 ");  // BR-042: no division by zero
}

TEST(CompatMemory, TransformersTakesTheLargestLayerInsteadOfTheMean) {
  EXPECT_EQ(balanced(Library::kTransformers, R"({"0":300,"1":300})"), "0=243 1=300 ");  // 118 + int(1.25 * 100)
}

TEST(CompatMemory, SingleCardWithoutMaxMemoryIsCutToNinetyPercent) {
  EXPECT_EQ(balanced(Library::kAccelerate, R"({"0":100,"cpu":50})", false, true), "0=90.0 cpu=50 ");
  EXPECT_EQ(balanced(Library::kAccelerate, R"({"0":100,"cpu":50})", true, true), "0=90.0 cpu=50 ");
  EXPECT_EQ(balanced(Library::kAccelerate, R"({"0":0,"1":100})", false, true),
            "0=0.0 1=100 ");  // the first number, even if excluded
}

TEST(CompatMemory, LowZeroCountsIdsByPosition) {
  EXPECT_EQ(balanced(Library::kTransformers, R"({"0":200,"3":200})", true), "KeyError");
  EXPECT_EQ(balanced(Library::kTransformers, R"({"1":200,"2":200})", true), "KeyError");
}

TEST(CompatMemory, DiskInABalancedModeRaisesInAccelerate) {
  EXPECT_EQ(balanced(Library::kAccelerate, R"({"0":200,"disk":5})"), "RuntimeError");
  EXPECT_EQ(balanced(Library::kTransformers, R"({"0":200,"disk":5})"), "0=200 disk=5 ");
}

TEST(CompatMemory, MpsCountsForTransformersOnly) {
  EXPECT_EQ(balanced(Library::kTransformers, R"({"0":300,"1":300,"mps":300})"),
            "0=203 1=300 mps=300 ");  // 236 // 3 + 125
  EXPECT_EQ(balanced(Library::kAccelerate, R"({"0":300,"1":300,"mps":300})"), "0=215 1=300 mps=300 ");
}

TEST(CompatNumber, FollowsPython) {
  EXPECT_EQ(Number::real(7.5).floor_divided_by(2).text(), "3.0");
  EXPECT_EQ(Number::real(-7.5).floor_divided_by(2).text(), "-4.0");
  EXPECT_EQ(Number::whole(-7).floor_divided_by(2).text(), "-4");
  EXPECT_EQ((Number::whole(1) + Number::real(2)).text(), "3.0");
  EXPECT_EQ((Number::whole(9) * Number::real(0.9)).text(), "8.1");
  EXPECT_EQ(Number::real(1e16).text(), "1e+16");
  EXPECT_EQ(Number::real(123456789012345.0).text(), "123456789012345.0");
  EXPECT_EQ(Number::real(0.1 + 0.2).text(), "0.30000000000000004");
  EXPECT_EQ(Number::real(-2.9).truncated().text(), "-2");
  // exact where a double cannot tell
  EXPECT_TRUE(Number::whole(9007199254740993) > Number::real(9007199254740992.0));
  EXPECT_TRUE(Number::real(0.5) > Number::whole(0));
  EXPECT_TRUE(Number::whole(-1) < Number::real(-0.5));
  EXPECT_EQ(max_of(Number::whole(3), Number::real(3.0)).text(), "3");
  EXPECT_EQ(min_of(Number::real(3.0), Number::whole(3)).text(), "3.0");
}

TEST(CompatModel, CountsEighthsOfBytesForBoolsInAccelerateOnly) {
  const auto tree = arch::parse_tree_json(
      R"({"tree":{"c":"M","m":[["a",{"c":"L","p":[["w",[8],"i8"],["q",[4],"f4"]],"b":[["mask",[16],"bool",false]]}]]}})",
      {.require_format = false});
  ASSERT_TRUE(tree);
  SizeRules sizes;
  EXPECT_EQ(Model::build(*tree, sizes, {})->root().size.text(), "26");  // 8 + 2 + 16
  sizes.library = Library::kAccelerate;
  EXPECT_EQ(Model::build(*tree, sizes, {})->root().size.text(), "10.0");  // 8 + 0 + 2
}

TEST(CompatModel, DtypeLowersFloatsAndLeavesIntegers) {
  const auto tree = arch::parse_tree_json(
      R"({"tree":{"c":"M","m":[["a",{"c":"L","p":[["w",[8],"f32"],["h",[8],"f16"],["n",[1],"i64"]]}]]}})",
      {.require_format = false});
  ASSERT_TRUE(tree);
  SizeRules sizes;
  sizes.library = Library::kAccelerate;
  sizes.dtype = DType::kF16;
  EXPECT_EQ(Model::build(*tree, sizes, {})->root().size.text(), "40");
  sizes.dtype = DType::kF32;
  EXPECT_EQ(Model::build(*tree, sizes, {})->root().size.text(), "56");  // never more than it has
  sizes.special_dtypes["a.w"] = DType::kF64;
  EXPECT_EQ(Model::build(*tree, sizes, {})->root().size.text(), "88");
}

TEST(CompatModel, RefusesPathsThatMultiply) {
  // each level holds the next one twice, by a second name under another parent: 2^40 paths
  std::string json = R"({"c":"L","p":[["w",[1],"f32"]]})";
  std::string path;
  const auto nest = [](int level, auto&& self, const std::string& at) -> std::string {
    if (level == 0) return R"({"c":"L","p":[["w",[1],"f32"]]})";
    const std::string inner = at.empty() ? "p.c" : at + ".p.c";
    return R"({"c":"N","m":[["p",{"c":"P","m":[["c",)" + self(level - 1, self, inner) +
           R"(]]}],["q",{"c":"P","m":[["c",{"same_as":")" + inner + R"("}]]}]]})";
  };
  const auto tree = arch::parse_tree_json(R"({"tree":)" + nest(26, nest, "") + "}", {.require_format = false});
  ASSERT_TRUE(tree) << tree.error().message;
  const auto m = Model::build(*tree, {}, {});
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace berth::plan::compat
