// format/safetensors_test.cc — headers written by hand, right and wrong. Names of tests hold the ids of the fault
// classes they cover.
#include "berth/format/safetensors.h"

#include <fmt/format.h>

#include <ctime>

#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

Result<SafetensorsHeader> read(std::string_view bytes) {
  return read_safetensors_header(MemorySource("x.safetensors", bytes));
}
// A file whose header is `header`, with `data` bytes behind it.
Result<SafetensorsHeader> read(std::string_view header, size_t data) { return read(safetensors(header, data)); }

void refused(std::string_view id, std::string_view header, size_t data, std::vector<std::string_view> words) {
  words.push_back("x.safetensors");
  expect_refused(id, read(header, data), words);
}
void refused_bytes(std::string_view id, std::string_view bytes, std::vector<std::string_view> words) {
  words.push_back("x.safetensors");
  expect_refused(id, read(bytes), words);
}
void loads(std::string_view header, size_t data, size_t tensors) {
  const auto h = read(header, data);
  ASSERT_TRUE(h) << h.error().message;
  EXPECT_EQ(h->tensors.size(), tensors);
}

TEST(SafetensorsHeader, ReadsTypesShapesAndPlaces) {
  const auto h = read("{\"__metadata__\":{\"format\":\"pt\"}," + entry("b", "[2,3]", 0, 12, "BF16") + "," +
                          entry("a", "[]", 12, 16) + "}   ",
                      16);
  ASSERT_TRUE(h) << h.error().message;
  ASSERT_EQ(h->tensors.size(), 2u);
  const TensorEntry& b = h->tensors[0];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::kBF16);
  EXPECT_EQ(b.shape, (Shape{2, 3}));
  EXPECT_EQ(b.offset, h->data_offset);
  EXPECT_EQ(b.size_bytes, 12u);
  EXPECT_EQ(h->tensors[1].shape, Shape{});
  EXPECT_EQ(h->metadata, (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
}

TEST(SafetensorsHeader, ReadsEveryTypeOfTheTable) {
  size_t types = 0;
  for (const DTypeInfo& t : all_dtypes()) {
    if (t.safetensors.empty()) continue;
    const uint64_t bytes = 8 / t.block_elements * t.block_bytes;
    const auto h = read("{" + entry("a", "[8]", 0, bytes, t.safetensors) + "}", bytes);
    ASSERT_TRUE(h) << h.error().message;
    EXPECT_EQ(h->tensors[0].dtype, t.dtype);
    ++types;
  }
  EXPECT_GE(types, 22u);
}

TEST(SafetensorsHeader, SF01_RefusesFilesTooShortForTheLength) {
  for (size_t n = 0; n < 8; ++n)
    refused_bytes("SF-01", std::string(n, '\2'), {fmt::format("{} bytes", n), "at least 8"});
}

TEST(SafetensorsHeader, SF02_RefusesHeadersThatAreNoObject) {
  refused("SF-02", "", 0, {"empty"});
  refused("SF-02", "{", 0, {"not valid JSON", "byte 1"});
}

TEST(SafetensorsHeader, SF03_LoadsAFileWithoutTensors) {
  loads("{}", 0, 0);
  refused("SF-03", "{}", 3, {"3 bytes after the last tensor"});
}

TEST(SafetensorsHeader, SF04_RefusesHeadersPastTheEnd) {
  const std::string whole = one_tensor("a");
  refused_bytes("SF-04", le64(9) + "{}      ", {"9 bytes", "8 bytes follow"});
  refused_bytes("SF-04", std::string_view(whole).substr(0, 30), {"22 bytes follow"});
}

TEST(SafetensorsHeader, SF05_BR191_RefusesHugeLengthsWithoutAllocating) {
  const uint64_t before = resident_bytes();
  for (const uint64_t n : {~0ull, ~0ull - 7, 1ull << 63, (1ull << 63) - 1, 57ull, 100'000'001ull})
    refused_bytes("SF-05", le64(n) + std::string(56, ' '), {std::to_string(n), "56 bytes follow"});
  EXPECT_LT(resident_bytes(), before + (1 << 20));
}

TEST(SafetensorsHeader, RefusesHeadersOverTheLimitEvenWhereTheFileIsLargeEnough) {
  class Large final : public ByteSource {
   public:
    const std::string& name() const override { return name_; }
    uint64_t size_bytes() const override { return 1ull << 40; }
    Status read_at(uint64_t offset, std::span<std::byte> out) const override {
      EXPECT_EQ(offset, 0u);
      EXPECT_EQ(out.size(), 8u);
      store_le<uint64_t>(out.data(), kMaxSafetensorsHeaderBytes + 1);
      return {};
    }

   private:
    std::string name_ = "x.safetensors";
  };
  expect_refused("SF-06", read_safetensors_header(Large()), {"100000001", "at most 100000000"});
}

TEST(SafetensorsHeader, SF07_SaysThatALengthSeemsByteSwapped) {
  refused_bytes("SF-07", le64(__builtin_bswap64(2)) + "{}", {"byte-swapped"});
}

TEST(SafetensorsHeader, SF08_RefusesAnythingBeforeTheBrace) {
  refused("SF-08", " {}", 0, {"first byte is 0x20"});
  refused("SF-08", "\n{}", 0, {"first byte is 0x0a"});
  refused("SF-08", "\xEF\xBB\xBF{}", 0, {"first byte is 0xef"});
}

TEST(SafetensorsHeader, SF09_AllowsOnlySpacesAfterTheObject) {
  loads("{}        ", 0, 0);
  refused("SF-09", std::string("{}\0\0\0", 5), 0, {"not valid JSON", "byte 2"});
  refused("SF-09", "{} x", 0, {"not valid JSON", "byte 3"});
  refused("SF-09", "{}{}", 0, {"not valid JSON"});
}

TEST(SafetensorsHeader, SF10_RefusesMalformedUtf8) {
  for (const char* bad : {"\xC3\x28", "\xC0\xAF", "\xED\xA0\x80", "\xE2\x82"})
    refused("SF-10", "{" + entry(bad, "[2]", 0, 8) + "}", 8, {"not valid JSON", "UTF-8"});
}

TEST(SafetensorsHeader, SF11_RefusesNulAndLoneSurrogatesAndEscapesTheRest) {
  refused("SF-11", "{" + entry("a\\u0000b", "[2]", 0, 8) + "}", 8, {"NUL"});
  refused("SF-11", "{" + entry("a\\ud800", "[2]", 0, 8) + "}", 8, {"surrogate"});
  loads("{" + entry("a\\nb\\u001b[31m", "[2]", 0, 8) + "}", 8, 1);
  refused("SF-11", "{" + entry("a\\nb\\u001b[31m", "[3]", 0, 8) + "}", 8, {"a\\nb\\x1b[31m"});
}

TEST(SafetensorsHeader, SF12_BR088_NamesWhatIsThereTwice) {
  refused("SF-12", "{" + entry("key00", "[1]", 0, 4) + "," + entry("key00", "[1]", 4, 8) + "}", 8,
          {"duplicate tensor name", "key00"});
  refused("SF-12", "{" + entry("a", "[1]", 0, 4) + "," + entry("\\u0061", "[1]", 4, 8) + "}", 8,
          {"duplicate", "\"a\""});
  refused("SF-12", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
          {"duplicate field \"dtype\""});
  refused("SF-12", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
          {"duplicate field \"shape\""});
  refused("SF-12", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"data_offsets\":[0,4]}}", 4,
          {"duplicate field \"data_offsets\""});
  refused("SF-12", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, {"duplicate", "__metadata__"});
  refused("SF-12", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, {"duplicate key", "\"k\""});
}

TEST(SafetensorsHeader, SF13_RefusesDialectsOfJson) {
  const std::string e = entry("a", "[1]", 0, 4);
  for (const std::string& bad : {"{" + e + ",}", "{/* c */" + e + "}", "{" + e + "// c\n}", std::string("{'a':1}")})
    refused("SF-13", bad, 4, {"not valid JSON"});
  for (const char* number : {"NaN", "Infinity", "-Infinity", "+1", "01", "0x10", "1.", ".5"})
    refused("SF-13", fmt::format("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[0,4]}}}}", number), 4,
            {"not valid JSON"});
}

TEST(SafetensorsHeader, SF14_RefusesDeepNesting) {
  refused("SF-14", "{\"a\":" + std::string(100000, '['), 0, {"nested more than"});
  std::string deep = "{\"a\":{\"x\":";
  for (int i = 0; i < 1000000; ++i) deep += "{\"a\":";
  refused("SF-14", deep, 0, {"nested more than"});
}

TEST(SafetensorsHeader, SF16_RefusesOtherTopLevels) {
  for (const char* top : {"[]", "\"text\"", "null", "7"}) refused("SF-16", top, 0, {"'{' was expected"});
}

TEST(SafetensorsHeader, SF17_RefusesEntriesWithMissingOrWrongFields) {
  refused("SF-17", "{\"a\":[]}", 0, {"\"a\"", "an object was expected", "a list"});
  refused("SF-17", "{\"a\":7}", 0, {"an object was expected"});
  refused("SF-17", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"\"dtype\" is missing"});
  refused("SF-17", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, {"\"shape\" is missing"});
  refused("SF-17", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, {"\"data_offsets\" is missing"});
  loads("{\"a\":{\"dtype\":\"F32\",\"strides\":{\"x\":[1]},\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 1);
}

TEST(SafetensorsHeader, BR189_RefusesUnknownTypesAndWrappingOffsetsEach) {
  refused("BR-189", "{" + entry("a", "[1]", 0xFFFFFFFFFFFFFFF8ull, 8, "X9") + "}", 8, {"\"a\"", "X9", "BF16"});
  refused("BR-189", "{" + entry("a", "[4]", 0xFFFFFFFFFFFFFFF8ull, 8) + "}", 8, {"end before they begin"});
  for (const char* type : {"f32", "F32 ", "", "FLOAT"})
    refused("SF-18", "{" + entry("a", "[1]", 0, 4, type) + "}", 4, {"dtype", "not known"});
  refused("SF-18", "{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, {"dtype: a text was expected"});
}

TEST(SafetensorsHeader, RefusesShapesThatAreNoListOfExtents) {
  for (const char* shape :
       {"7", "\"[1]\"", "null", "{}", "[\"1\"]", "[1.0]", "[1e0]", "[-1]", "[true]", "[null]", "[[1]]"})
    refused("SF-19", "{" + entry("a", shape, 0, 4) + "}", 4, {"\"a\"", "shape"});
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  refused("SF-20", "{" + entry("a", many + "]", 0, 4) + "}", 4, {"more than 64 dimensions"});
}

TEST(SafetensorsHeader, RefusesOffsetsThatAreNoPairOfNumbers) {
  for (const char* offsets : {"7", "null", "[]", "[0]", "[0,4,8]", "[0,\"4\"]", "[0,4.0]", "[-4,0]", "[0,null]", "{}"})
    refused("SF-20", fmt::format("{{\"a\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":{}}}}}", offsets), 4,
            {"\"a\"", "data_offsets"});
}

TEST(SafetensorsHeader, SF21_RefusesProductOverflow) {
  for (const char* shape : {"[4294967296,4294967296]", "[9223372036854775807,3]", "[4611686018427387904,4]"})
    refused("SF-21", "{" + entry("a", shape, 0, 4, "U8") + "}", 4, {"\"a\"", "does not fit 64 bits"});
  refused("SF-21", "{" + entry("a", "[9223372036854775808,2]", 0, 4, "U8") + "}", 4, {"extents"});
  // With a zero the order of the extents does not matter.
  for (const char* shape : {"[0,9223372036854775808,4]", "[9223372036854775808,4,0]"})
    refused("SF-21", "{" + entry("a", shape, 0, 0, "U8") + "}", 0, {"extents"});
  for (const char* shape : {"[0,4611686018427387904,4]", "[4611686018427387904,4,0]"})
    loads("{" + entry("a", shape, 0, 0, "U8") + "}", 0, 1);
}

TEST(SafetensorsHeader, SF22_RefusesByteCountOverflow) {
  refused("SF-22", "{" + entry("a", "[4611686018427387904]", 0, 0, "F64") + "}", 0, {"in bytes does not fit 64 bits"});
  refused("SF-22", "{" + entry("a", "[2305843009213693952,1]", 0, 0, "F64") + "}", 0,
          {"in bytes does not fit 64 bits"});
}

TEST(SafetensorsHeader, RefusesRangesThatDifferFromTypeAndShape) {
  refused("SF-23", "{" + entry("a", "[3]", 0, 8) + "}", 8, {"\"a\"", "hold 8 bytes", "F32 [3] needs 12"});
  refused("SF-23", "{" + entry("a", "[1]", 0, 8) + "}", 8, {"hold 8 bytes", "needs 4"});
}

TEST(SafetensorsHeader, SF24_RefusesBackwardAndEmptyRanges) {
  refused("SF-24", "{" + entry("a", "[1]", 8, 4) + "}", 8, {"\"a\"", "[8, 4]", "end before they begin"});
  refused("SF-24", "{" + entry("a", "[1]", 0, 0) + "}", 0, {"hold 0 bytes", "needs 4"});
}

TEST(SafetensorsHeader, SF25_RefusesRangesPastTheData) {
  refused("SF-25", "{" + entry("a", "[3]", 0, 12) + "}", 8, {"\"a\"", "[0, 12]", "8 bytes of data"});
  refused("SF-25", "{" + entry("a", "[4]", 0xFFFFFFFFFFFFFFF0ull, 0xFFFFFFFFFFFFFFFFull) + "}", 8,
          {"reach past the 8 bytes"});
}

TEST(SafetensorsHeader, RefusesOverlaps) {
  refused("SF-26", "{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 4, 12) + "}", 12,
          {"\"b\"", "overlap", "\"a\""});
  refused("SF-26", "{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[2]", 0, 8) + "}", 8, {"overlap"});
  refused("SF-26", "{" + entry("a", "[2]", 0, 8) + "," + entry("e", "[0]", 4, 4) + "}", 8, {"\"e\"", "overlap"});
}

TEST(SafetensorsHeader, SF27_BR090_SF37_RefusesBytesThatBelongToNoTensor) {
  refused("SF-27", "{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 8, 12) + "}", 12,
          {"\"b\"", "4 bytes before it, at data offset 4"});
  refused("SF-27", "{" + entry("a", "[1]", 4, 8) + "}", 8, {"\"a\"", "4 bytes before it, at data offset 0"});
  refused("SF-27", "{" + entry("a", "[1]", 0, 4) + "}", 5, {"1 bytes after the last tensor, at data offset 4"});
  refused("BR-090", "{" + entry("a", "[1]", 0, 4) + "}", 4100, {"4096 bytes after the last tensor"});
  refused_bytes("SF-37", one_tensor("a") + "PK\3\4 a zip archive", {"after the last tensor"});
  refused_bytes("SF-37", one_tensor("a") + "GGUF", {"4 bytes after the last tensor"});
}

TEST(SafetensorsHeader, SF28_LoadsEntriesInAnyOrderSortedByTheirBytes) {
  const auto h =
      read("{" + entry("z", "[1]", 8, 12) + "," + entry("m", "[1]", 0, 4) + "," + entry("a", "[1]", 4, 8) + "}", 12);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->tensors[0].name, "m");
  EXPECT_EQ(h->tensors[1].name, "a");
  EXPECT_EQ(h->tensors[2].name, "z");
}

TEST(SafetensorsHeader, SF31_TakesStrangeNamesAsNamesButNotEmptyOnes) {
  refused("SF-31", "{" + entry("", "[1]", 0, 4) + "}", 4, {"empty name"});
  for (const std::string& name : {std::string(65536, 'n'), std::string("__METADATA__"), std::string("__metadata__ ")})
    loads("{" + entry(name, "[1]", 0, 4) + "}", 4, 1);
}

TEST(SafetensorsHeader, SF33_BR085_CountsSubByteTypesInWholeBytes) {
  loads("{" + entry("a", "[2,8]", 0, 8, "F4") + "}", 8, 1);
  loads("{" + entry("a", "[2,7]", 0, 7, "F4") + "}", 7, 1);
  loads("{" + entry("a", "[0,8]", 0, 0, "F4") + "}", 0, 1);
  loads("{" + entry("a", "[3]", 0, 3, "F8_E8M0") + "}", 3, 1);
  loads("{" + entry("a", "[4]", 0, 3, "F6_E2M3") + "}", 3, 1);
  refused("SF-33", "{" + entry("a", "[1,7]", 0, 4, "F4") + "}", 4, {"\"a\"", "F4 [1, 7]", "no whole number of bytes"});
  refused("SF-33", "{" + entry("a", "[3]", 0, 2, "F6_E3M2") + "}", 2, {"no whole number of bytes"});
}

TEST(SafetensorsHeader, BR091_DemandsAnObjectOfTextsAsMetadata) {
  for (const char* good : {"{}", "{\"format\":\"pt\"}"}) loads(fmt::format("{{\"__metadata__\":{}}}", good), 0, 0);
  loads("{}", 0, 0);
  for (const char* bad : {"null", "{\"a\":1}", "[]", "\"pt\"", "{\"a\":{}}", "{\"a\":null}"})
    refused("BR-091", fmt::format("{{\"__metadata__\":{}}}", bad), 0, {"__metadata__"});
}

TEST(SafetensorsHeader, BR093_LoadsTensorsWithoutElements) {
  loads("{" + entry("A", "[2]", 0, 8) + "," + entry("E", "[0]", 8, 8, "F8_E4M3") + "," + entry("E2", "[3,0,5]", 0, 0) +
            "," + entry("s", "[]", 8, 12) + "}",
        12, 4);
  refused("BR-093", "{" + entry("a", "[1]", 0, 0) + "}", 0, {"hold 0 bytes"});
}

TEST(SafetensorsHeader, SF34_SF35_SF36_AnyBytesReadAtAnyAlignment) {
  // A header length of 77 puts F32 data at an odd offset; BOOL bytes may be anything; weights may be NaN.
  const TempFolder folder;
  std::string header = "{" + entry("b", "[2]", 8, 10, "BOOL") + "," + entry("w", "[2]", 0, 8) + "}";
  header.append((header.size() | 1) - header.size(), ' ');
  ASSERT_EQ(header.size() % 2, 1u);
  const std::string data = std::string("\x00\x00\xC0\x7F\x01\x00\x00\x00", 8) + "\x02\xFF";
  const auto c = Checkpoint::open(folder.write("x.safetensors", le64(header.size()) + header + data));
  ASSERT_TRUE(c) << c.error().message;
  std::vector<std::byte> bytes(8);
  ASSERT_TRUE(c->read(*c->find("w"), 0, bytes));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), 8), std::string_view(data).substr(0, 8));
  ASSERT_TRUE(c->read(*c->find("b"), 0, std::span(bytes).first(2)));
  EXPECT_EQ(bytes[1], std::byte{0xFF});
}

TEST(SafetensorsHeader, SF40_AMillionNamesStayFarBelowTheTimeLimit) {
  // Names that a sum or a multiplicative hash cannot tell apart: permutations of pairs.
  std::string header = "{\"__metadata__\":{}";
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    std::string name;
    for (int bit = 0; bit < 20; ++bit) name += (i >> bit) & 1 ? "Aa" : "BB";
    header += ",\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  }
  const std::string file = safetensors(header + "}", 0);
  const std::clock_t start = std::clock();  // of the processor: a busy machine changes nothing
  const auto h = read(file);
  const double took_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (file.size() - 8 > kMaxSafetensorsHeaderBytes)
    expect_refused("SF-40", h, {"at most"});
  else
    EXPECT_TRUE(h);
  std::printf("[ measured ] 1,000,000 names of %.0f MB in %.2f s\n", static_cast<double>(file.size()) / 1e6, took_s);
#ifdef BERTH_SANITIZED
  EXPECT_LT(took_s, 60);
#else
  EXPECT_LT(took_s, 10);
#endif
}

}  // namespace
}  // namespace berth::format
