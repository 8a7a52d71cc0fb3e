// format/gguf_test.cc — GGUF headers written by hand, right and wrong; real ones compared with the numbers known of
// them. Names of tests hold the ids of the fault classes they cover.
#include "berth/format/gguf.h"

#include <fmt/format.h>

#include <ctime>
#include <limits>

#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

constexpr uint32_t kF32 = 0, kQ4_K = 12, kI8 = 24;

Result<GgufFile> read(std::string_view bytes) { return read_gguf(MemorySource("x.gguf", bytes)); }
Result<Checkpoint> open(std::string_view bytes) {
  const TempFolder folder;
  return Checkpoint::open(folder.write("x.gguf", bytes));
}
void refused(std::string_view id, std::string_view bytes, std::vector<std::string_view> words) {
  words.push_back("x.gguf");
  expect_refused(id, read(bytes), words);
}
// Through all of opening, where rules between keys are checked.
void refused_model(std::string_view id, std::string_view bytes, std::vector<std::string_view> words) {
  words.push_back("x.gguf");
  expect_refused(id, open(bytes), words);
}
// A file of one tensor of a small model.
std::string with_tensor(const std::vector<uint64_t>& ne, uint32_t type, uint64_t offset = 0, size_t data = 64) {
  return small_gguf().tensor("token_embd.weight", ne, type, offset).bytes(data);
}

TEST(Gguf, ReadsPairsOfEveryTypeAndTensors) {
  GgufBytes g = small_gguf();
  g.raw_pair("t.u8", GgufType::kU8, "\xFF").raw_pair("t.i8", GgufType::kI8, "\xFF");
  g.raw_pair("t.u16", GgufType::kU16, "\xFF\xFF").raw_pair("t.i16", GgufType::kI16, "\xFF\xFF");
  g.raw_pair("t.u32", GgufType::kU32, le32(~0u)).raw_pair("t.i32", GgufType::kI32, le32(~0u));
  g.raw_pair("t.u64", GgufType::kU64, le64(~0ull)).raw_pair("t.i64", GgufType::kI64, le64(~0ull));
  const float f = 1.5f;
  const double d = 2.5;
  g.raw_pair("t.f32", GgufType::kF32, {reinterpret_cast<const char*>(&f), 4});
  g.raw_pair("t.f64", GgufType::kF64, {reinterpret_cast<const char*>(&d), 8});
  g.raw_pair("t.bool", GgufType::kBool, std::string_view("\1", 1)).string("t.text", "hello");
  g.array("t.ints", GgufType::kI16, 3, std::string_view("\1\0\2\0\xFF\xFF", 6)).strings("t.texts", {"a", "", "ccc"});
  g.array("t.bools", GgufType::kBool, 2, std::string_view("\0\1", 2));
  g.tensor("token_embd.weight", {32, 2}, kF32, 0).tensor("blk.0.x.weight", {256, 2, 3}, kQ4_K, 256);
  const auto file = read(g.bytes(256 + 6 * 144));
  ASSERT_TRUE(file) << file.error().message;
  const GgufMetadata& m = file->metadata;
  EXPECT_EQ(m.architecture(), "llama");
  EXPECT_EQ(*m.find_int("t.u8"), 255);
  EXPECT_EQ(*m.find_int("t.i8"), -1);
  EXPECT_EQ(*m.find_int("t.u16"), 65535);
  EXPECT_EQ(*m.find_int("t.i16"), -1);
  EXPECT_EQ(*m.find_int("t.u32"), 4294967295);
  EXPECT_EQ(*m.find_int("t.i32"), -1);
  EXPECT_EQ(*m.find_int("t.i64"), -1);
  EXPECT_FALSE(m.find_int("t.u64"));  // does not fit
  EXPECT_EQ(*m.find_double("t.f32"), 1.5);
  EXPECT_EQ(*m.find_double("t.f64"), 2.5);
  EXPECT_EQ(*m.find_bool("t.bool"), true);
  EXPECT_EQ(*m.find_string("t.text"), "hello");
  EXPECT_EQ(**m.find_ints("t.ints"), (std::vector<int64_t>{1, 2, -1}));
  EXPECT_EQ(**m.find_ints("t.u8"), (std::vector<int64_t>{255}));
  EXPECT_EQ(**m.find_bools("t.bools"), (std::vector<bool>{false, true}));
  const auto texts = m.find_strings("t.texts");
  ASSERT_TRUE(texts && *texts);
  ASSERT_EQ((*texts)->size(), 3u);
  EXPECT_EQ((**texts)[0], "a");
  EXPECT_EQ((**texts)[1], "");
  EXPECT_EQ((**texts)[2], "ccc");
  EXPECT_EQ(*m.find_int("absent"), std::nullopt);
  EXPECT_EQ(**m.find_ints_per_layer("llama.attention.head_count", 3), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(**m.find_bools_per_layer("t.bools", 2), (std::vector<bool>{false, true}));
  EXPECT_FALSE(m.find_ints_per_layer("t.ints", 2));
  expect_refused("key", m.find_int("t.text"), {"x.gguf", "t.text", "an integer", "string \"hello\""});
  expect_refused("key", m.find_int("t.u16", {0, 100}), {"t.u16", "0 to 100", "u16 65535"});
  expect_refused("key", m.find_strings("t.ints"), {"t.ints", "array of 3 i16"});

  ASSERT_EQ(file->tensors.size(), 2u);
  EXPECT_EQ(file->tensors[1].shape, (Shape{3, 2, 256}));
  EXPECT_EQ(file->tensors[1].dtype, DType::kQ4_K);
  EXPECT_EQ(file->tensors[1].size_bytes, 6u * 144);
  EXPECT_EQ(file->tensors[1].offset, file->data_offset + 256);
  EXPECT_EQ(file->data_offset % 32, 0u);
}

TEST(Gguf, ReadsEveryTensorTypeOfTheTable) {
  size_t types = 0;
  for (const DTypeInfo& t : all_dtypes()) {
    if (t.gguf_id < 0) continue;
    const uint64_t row = t.block_elements > 1 ? t.block_elements : 8;
    const uint64_t bytes = row / t.block_elements * t.block_bytes;
    const auto file = read(with_tensor({row}, static_cast<uint32_t>(t.gguf_id), 0, align_up<uint64_t>(bytes, 32)));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors[0].dtype, t.dtype);
    EXPECT_EQ(file->tensors[0].size_bytes, bytes);
    ++types;
  }
  EXPECT_EQ(types, 33u);
}

TEST(Gguf, ReadsVersion2AndOtherAlignments) {
  GgufBytes two(2);
  two.string("general.architecture", "llama").u32("general.alignment", 64);
  two.tensor("token_embd.weight", {4}, kF32, 0).tensor("output.weight", {4}, kF32, 64);
  const auto file = read(two.bytes(128, 64));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version, 2u);
  EXPECT_EQ(file->data_offset % 64, 0u);
}

TEST(Gguf, ReadsTheGoldenFiles) {
  SKIP_WITHOUT_SHARED(folder, "golden/real_models/stories260k");
  for (const char* name : {"stories260K-f32.gguf", "stories260K-q8_0.gguf"}) {
    const auto c = Checkpoint::open(path_join(folder, name));
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->kind(), CheckpointKind::kGguf);
    EXPECT_EQ(*c->gguf()->find_int("llama.block_count"), 5);
    ASSERT_NE(c->find("token_embd.weight"), nullptr);
    EXPECT_EQ(c->find("token_embd.weight")->shape, (Shape{512, 64}));
    EXPECT_EQ(c->find("blk.0.ffn_down.weight")->shape, (Shape{64, 172}));
  }
}

TEST(Gguf, ReadsRealModels) {
  const char* models = std::getenv("BERTH_MODELS");
  if (models == nullptr) GTEST_SKIP() << "BERTH_MODELS names no folder with real models";
  struct Known {
    const char* file;
    size_t pairs, tensors;
    int64_t layers;
    size_t tokens, merges;
  };
  for (const Known& known : {Known{"SmolLM2-135M-Instruct.Q4_1.gguf", 33, 272, 30, 49152, 48900},
                             Known{"gemma-3-270m-q4_k_m.gguf", 33, 236, 18, 262144, 0},
                             Known{"qwen2.5-coder-0.5b.gguf", 26, 291, 24, 151936, 151387}}) {
    const auto c = Checkpoint::open(path_join(models, known.file));
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->gguf()->size(), known.pairs);
    EXPECT_EQ(c->tensors().size(), known.tensors);
    EXPECT_EQ(*c->gguf()->find_int(c->gguf()->arch_key("block_count")), known.layers);
    EXPECT_EQ((*c->gguf()->find_strings("tokenizer.ggml.tokens"))->size(), known.tokens);
    const auto merges = c->gguf()->find_strings("tokenizer.ggml.merges");
    EXPECT_EQ(*merges ? (*merges)->size() : 0, known.merges);
    EXPECT_TRUE(c->warnings().empty());
  }
}

TEST(Gguf, GF01_RefusesOtherMagicsAndVersions) {
  refused("GF-01", "GGML" + std::string(60, '\0'), {"\"GGML\"", "\"GGUF\" was expected"});
  refused("GF-01", "FUGG" + std::string(60, '\0'), {"byte-swapped"});
  refused("GF-01", "GG", {"the magic at byte 0 needs 4 bytes", "2 more"});
  refused("GF-01", "", {"the file has 0 more"});
  for (const uint32_t version : {0u, 1u, 4u, ~0u})
    refused("GF-01", GgufBytes(version).bytes(64), {fmt::format("version {}", version), "2 and 3"});
  refused("GF-01", GgufBytes(__builtin_bswap32(3)).bytes(64), {"version 50331648", "big-endian"});
}

TEST(Gguf, RefusesCountsThatDoNotFit) {
  for (const uint64_t n : {~0ull, 1ull << 63, 1ull << 40, 1000ull}) {
    refused("GF-02", GgufBytes().counts(0, n).bytes(64), {std::to_string(n), "metadata pairs do not fit"});
    refused("GF-02", GgufBytes().counts(n, 0).bytes(64), {std::to_string(n), "tensors do not fit"});
  }
  refused("GF-02", small_gguf().counts(0, 6).bytes(0, 1), {"metadata key", "more"});
}

TEST(Gguf, GF03_RefusesStringLengthsPastTheFile) {
  const uint64_t before = resident_bytes();
  for (const uint64_t n : {~0ull, ~0ull - 7, 1ull << 40, 500ull}) {
    const std::string text = le64(n) + std::string(40, 'x');
    refused("GF-03", GgufBytes().raw_pair("k", GgufType::kString, text).bytes(64), {"key \"k\"", std::to_string(n)});
    refused("GF-03", "GGUF" + le32(3) + le64(0) + le64(1) + text, {std::to_string(n), "a metadata key"});
    refused("GF-03", GgufBytes().array("k", GgufType::kString, 1, text).bytes(64), {"an element", std::to_string(n)});
    refused("GF-03", "GGUF" + le32(3) + le64(1) + le64(0) + text, {"a tensor name", std::to_string(n)});
  }
  EXPECT_LT(resident_bytes(), before + (1 << 20));
}

TEST(Gguf, GF04_RefusesBadKeys) {
  refused("GF-04", GgufBytes().u32("", 1).bytes(64), {"an empty metadata key"});
  refused("GF-04", GgufBytes().u32("a.b", 1).u32("a.b", 2).bytes(64), {"duplicate metadata key", "a.b"});
  refused("GF-04", GgufBytes().u32("a\xC3\x28", 1).bytes(64), {"not valid UTF-8", "\\xc3"});
  refused("GF-04", GgufBytes().u32(std::string_view("a\0b", 3), 1).bytes(64), {"NUL"});
  EXPECT_TRUE(read(GgufBytes().u32(std::string(65535, 'k'), 1).bytes(64)));
  refused("GF-04", GgufBytes().u32(std::string(65536, 'k'), 1).bytes(64), {"65536 bytes", "at most 65535"});
}

TEST(Gguf, GF05_RefusesUnknownValueTypesAndArrays) {
  for (const uint32_t type : {13u, ~0u}) {
    refused("GF-05", GgufBytes().raw_pair("k", static_cast<GgufType>(type), le64(0)).bytes(64),
            {"key \"k\"", fmt::format("value type {}", type)});
    refused("GF-05", GgufBytes().array("k", static_cast<GgufType>(type), 0, "").bytes(64),
            {"key \"k\"", fmt::format("array element type {}", type)});
  }
  refused("GF-05", GgufBytes().array("k", GgufType::kArray, 1, le32(0) + le64(0)).bytes(64), {"arrays of arrays"});
  for (const uint64_t n : {1ull << 61, ~0ull, (1ull << 62) + 1, 1000ull}) {
    refused("GF-05", GgufBytes().array("k", GgufType::kU64, n, le64(0)).bytes(64),
            {"key \"k\"", std::to_string(n), "does not fit"});
    refused("GF-05", GgufBytes().array("k", GgufType::kString, n, le64(0)).bytes(64), {"key \"k\"", "does not fit"});
  }
}

TEST(Gguf, RefusesBoolsOtherThan0And1) {
  refused("GF-06", GgufBytes().raw_pair("k", GgufType::kBool, "\2").bytes(64), {"key \"k\"", "value 2"});
  refused("GF-06", GgufBytes().array("k", GgufType::kBool, 2, "\1\xFF").bytes(64), {"key \"k\"", "value 255"});
}

TEST(Gguf, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const uint32_t a : {0u, 3u, 48u, ~0u, 1u << 31})
    refused("GF-07", GgufBytes().u32("general.alignment", a).bytes(64),
            {"general.alignment", "a power of two", std::to_string(a)});
  refused("GF-07", GgufBytes().string("general.alignment", "32").bytes(64), {"general.alignment", "string"});
}

TEST(Gguf, GF08_RefusesDimensionsOtherThan1To4) {
  for (const uint32_t n : {0u, 5u, ~0u}) {
    std::string header = "GGUF" + le32(3) + le64(1) + le64(0) + GgufBytes::text("token_embd.weight") + le32(n);
    refused("GF-08", header + std::string(200, '\1'), {"\"token_embd.weight\"", fmt::format("{} dimensions", n)});
  }
}

TEST(Gguf, GF09_BR167_RefusesEmptyNegativeAndOverflowingExtents) {
  refused("GF-09", with_tensor({0}, kF32), {"extent 0"});
  refused("GF-09", with_tensor({4, 0}, kF32), {"extent 0"});
  refused("GF-09", with_tensor({~0ull}, kF32), {"extent 18446744073709551615"});
  refused("GF-09", with_tensor({1ull << 63}, kF32), {"2^63-1 was expected"});
  const uint64_t most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  for (const std::vector<uint64_t>& ne :
       {std::vector<uint64_t>{most, 2, 1, 1}, {(1ull << 42) + 1, 1ull << 22}, {1ull << 32, 1ull << 32}})
    refused("BR-167", with_tensor(ne, kI8), {"\"token_embd.weight\""});
  refused("BR-167", with_tensor({1ull << 32, 1ull << 32}, kI8), {"does not fit 64 bits"});
  refused("GF-09", with_tensor({1ull << 62}, kF32), {"does not fit 64 bits"});
}

TEST(Gguf, GF10_RefusesRowsThatAreNoWholeNumberOfBlocks) {
  refused("GF-10", with_tensor({255, 2}, kQ4_K, 0, 4096), {"rows of 255", "blocks of 256"});
  refused("GF-10", with_tensor({16, 16}, kQ4_K, 0, 4096), {"rows of 16"});
}

TEST(Gguf, GF11_RefusesUnknownAndRetiredTypes) {
  for (const uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 41u, 1000u, ~0u})
    refused("GF-11", with_tensor({256}, type), {"\"token_embd.weight\"", fmt::format("type {}", type)});
}

TEST(Gguf, RefusesMisplacedTensors) {
  refused("GF-12", with_tensor({4}, kF32, 16), {"offset 16", "alignment 32"});
  refused("GF-13", with_tensor({4}, kF32, 1ull << 40), {"reach past the 64 bytes"});
  refused("GF-13", with_tensor({4}, kF32, ~0ull - 31), {"reach past the 64 bytes"});
  refused("GF-13", with_tensor({32}, kF32, 0, 64), {"128 bytes at data offset 0", "64 bytes of data"});
  const auto two = [](uint64_t first, uint64_t second, size_t data) {
    return small_gguf()
        .tensor("token_embd.weight", {8}, kF32, first)
        .tensor("output.weight", {8}, kF32, second)
        .bytes(data);
  };
  EXPECT_TRUE(read(two(0, 32, 64)));
  EXPECT_TRUE(read(two(32, 0, 64)));
  refused("GF-15", two(0, 0, 64), {"overlap"});
  refused("GF-15", two(0, 64, 96), {"\"output.weight\"", "32 bytes before it, at data offset 32"});
  refused("GF-15", two(32, 64, 96), {"\"token_embd.weight\"", "32 bytes before it, at data offset 0"});
  refused("GF-15", small_gguf().tensor("a", {8}, kF32, 0).tensor("a", {8}, kF32, 32).bytes(64),
          {"duplicate tensor name"});
  refused("GF-15", small_gguf().tensor("", {8}, kF32, 0).bytes(64), {"an empty tensor name"});
  refused("GF-15", small_gguf().tensor("a\xFF", {8}, kF32, 0).bytes(64), {"UTF-8"});
  const auto trailing = read(two(0, 32, 164));
  ASSERT_TRUE(trailing);
  ASSERT_EQ(trailing->warnings.size(), 1u);
  EXPECT_NE(trailing->warnings[0].find("100 bytes after the last tensor"), std::string::npos);
}

TEST(Gguf, GF14_RefusesSizesThatOverflowTogether) {
  GgufBytes g = small_gguf();
  for (int i = 0; i < 4; ++i) g.tensor(fmt::format("blk.{}.x", i), {1ull << 62}, kI8, static_cast<uint64_t>(i) << 62);
  refused("GF-14", g.bytes(64), {"\"blk.0.x\"", "reach past the 64 bytes"});
}

std::string part(int number, int count, int tensors, const std::string& name,
                 const std::string& architecture = "llama") {
  GgufBytes g;
  if (number == 0)
    g = small_gguf();
  else if (!architecture.empty())
    g.string("general.architecture", architecture);
  g.u16("split.no", static_cast<uint16_t>(number)).u16("split.count", static_cast<uint16_t>(count));
  g.u32("split.tensors.count", static_cast<uint32_t>(tensors));
  return g.tensor(name, {8}, kF32, 0).bytes(32);
}

TEST(Gguf, GF16_ReadsSplitSetsAndRefusesBrokenOnes) {
  const TempFolder folder;
  const std::string first = folder / "m-00001-of-00003.gguf", second = folder / "m-00002-of-00003.gguf";
  const auto write = [&](const std::string& one, const std::string& two, const std::string& three) {
    folder.write("m-00001-of-00003.gguf", one);
    folder.write("m-00002-of-00003.gguf", two);
    folder.write("m-00003-of-00003.gguf", three);
  };
  const std::string a = part(0, 3, 3, "token_embd.weight"), b = part(1, 3, 3, "blk.0.a"), c = part(2, 3, 3, "blk.1.a");
  write(a, b, c);
  for (const std::string& model : {first, second, folder.path()}) {
    const auto whole = Checkpoint::open(model);
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->tensors().size(), 3u);
    EXPECT_EQ(whole->files().size(), 3u);
    EXPECT_EQ(whole->find("blk.1.a")->file, 2u);
    EXPECT_EQ(*whole->gguf()->find_int("llama.block_count"), 2);
    EXPECT_EQ(whole->warnings().size(), model == second ? 1u : 0u);
  }
  const auto fails = [&](std::vector<std::string_view> words) {
    expect_refused("GF-16", Checkpoint::open(first), words);
  };
  write(part(0, 2, 3, "token_embd.weight"), b, c);
  fails({"split.count", "u16 2", "3 parts were expected"});
  write(a, part(2, 3, 3, "blk.0.a"), c);
  fails({"00002-of-00003", "split.no", "u16 2", "1 was expected"});
  write(a, part(1, 3, 7, "blk.0.a"), c);
  fails({"split.tensors.count", "u32 7", "another model"});
  write(a, part(1, 3, 3, "blk.0.a", "qwen2"), c);
  fails({"general.architecture", "qwen2", "another model"});
  write(a, part(1, 3, 3, "token_embd.weight"), c);
  fails({"duplicate tensor name", "token_embd.weight"});
  write(part(0, 3, 4, "token_embd.weight"), part(1, 3, 4, "blk.0.a"), part(2, 3, 4, "blk.1.a"));
  fails({"split.tensors.count is 4", "3 tensors"});
  write(a, small_gguf().tensor("blk.0.a", {8}, kF32, 0).bytes(32), c);
  fails({"split.count is nothing"});
  write(a, b, c);
  std::filesystem::remove(second);
  fails({"1 of 3 parts are missing", "m-00002-of-00003.gguf"});
  std::filesystem::create_symlink(first, second);
  fails({"the same file as an earlier part"});
  // Other names than the set's pattern say nothing about where the others are.
  folder.write("alone.gguf", a);
  expect_refused("GF-16", Checkpoint::open(folder / "alone.gguf"),
                 {"split.count says 3 parts", "NAME-00001-of-00003.gguf"});
}

TEST(Gguf, GF17_RefusesKeysOfNoModel) {
  const auto with = [](auto&& change) {
    GgufBytes g;
    change(g);
    return g.tensor("token_embd.weight", {8}, kF32, 0).bytes(32);
  };
  refused_model("GF-17", with([](GgufBytes& g) { g.u32("llama.block_count", 1); }),
                {"general.architecture", "nothing was found"});
  refused_model("GF-17", with([](GgufBytes& g) { g.string("general.architecture", ""); }), {"general.architecture"});
  refused_model("GF-17", with([](GgufBytes& g) { g.u32("general.architecture", 1); }),
                {"general.architecture", "u32 1"});
  for (const uint32_t n : {0u, 1u << 31, ~0u})
    refused_model("GF-17",
                  with([&](GgufBytes& g) { g.string("general.architecture", "llama").u32("llama.block_count", n); }),
                  {"llama.block_count", "1 to 65536", std::to_string(n)});
  const auto heads = [&](auto&& change) {
    return with([&](GgufBytes& g) {
      g.string("general.architecture", "llama").u32("llama.block_count", 2);
      change(g);
    });
  };
  refused_model("GF-17", heads([](GgufBytes& g) { g.u32("llama.attention.head_count", 0); }), {"head_count", "u32 0"});
  refused_model("GF-17", heads([](GgufBytes& g) {
                  g.array("llama.attention.head_count_kv", GgufType::kI32, 3, le32(1) + le32(1) + le32(1));
                }),
                {"head_count_kv", "each of 2 layers", "array of 3"});
  refused_model("GF-17", heads([](GgufBytes& g) {
                  g.array("llama.attention.head_count_kv", GgufType::kI32, 2, std::string(8, '\0'));
                }),
                {"head_count_kv"});
  EXPECT_TRUE(open(
      heads([](GgufBytes& g) { g.array("llama.attention.head_count_kv", GgufType::kI32, 2, le32(0) + le32(2)); })));
}

TEST(Gguf, GF18_BR170_RefusesTokenArraysThatDoNotAgree) {
  const auto with = [](auto&& change) {
    GgufBytes g = small_gguf();
    g.strings("tokenizer.ggml.tokens", {"a", "b", "c"});
    change(g);
    return g.tensor("token_embd.weight", {8}, kF32, 0).bytes(32);
  };
  EXPECT_TRUE(open(with([](GgufBytes& g) {
    g.array("tokenizer.ggml.scores", GgufType::kF32, 3, std::string(12, '\0'));
    g.array("tokenizer.ggml.token_type", GgufType::kI32, 3, std::string(12, '\0'))
        .u32("tokenizer.ggml.eos_token_id", 2);
    g.u32("tokenizer.ggml.padding_token_id", ~0u);
  })));
  refused_model("GF-18",
                with([](GgufBytes& g) { g.array("tokenizer.ggml.scores", GgufType::kF32, 2, std::string(8, '\0')); }),
                {"tokenizer.ggml.scores", "3 tokens", "array of 2 f32"});
  refused_model("GF-18", with([](GgufBytes& g) {
                  g.array("tokenizer.ggml.token_type", GgufType::kI32, 4, std::string(16, '\0'));
                }),
                {"tokenizer.ggml.token_type", "array of 4 i32"});
  refused_model("GF-18", with([](GgufBytes& g) { g.u32("tokenizer.ggml.eos_token_id", 3); }),
                {"eos_token_id", "3 tokens", "u32 3"});
  refused_model("BR-170",
                with([](GgufBytes& g) { g.array("tokenizer.ggml.scores", GgufType::kU8, 3, std::string(3, '\0')); }),
                {"tokenizer.ggml.scores", "f32", "array of 3 u8"});
  refused_model("BR-170", with([](GgufBytes& g) {
                  g.strings("tokenizer.ggml.token_type", {"1", "1", "1"});
                }),
                {"tokenizer.ggml.token_type", "array of 3 string"});
  refused_model("BR-170", with([](GgufBytes& g) { g.array("tokenizer.ggml.merges", GgufType::kU32, 1, le32(0)); }),
                {"tokenizer.ggml.merges", "array of string"});
}

TEST(Gguf, GF19_LoadsAFirstTensorAtOffset0) { EXPECT_TRUE(read(with_tensor({8}, kF32, 0, 32))); }

TEST(Gguf, GF20_RefusesFilesWithOtherNames) {
  refused_model("GF-20",
                small_gguf()
                    .tensor("model.embed_tokens.weight", {8}, kF32, 0)
                    .tensor("model.norm.weight", {8}, kF32, 32)
                    .bytes(64),
                {"0 of its 2 tensors", "model.embed_tokens.weight"});
}

TEST(Gguf, GF21_LoadsBlocksWithAnyScales) {
  EXPECT_TRUE(read(with_tensor({32}, 8, 0, 64)));  // Q8_0; what the bytes are is the codec's business
}

std::string many_merges(size_t n) {
  std::string elements;
  for (size_t i = 0; i < n; ++i) elements += GgufBytes::text(fmt::format("m{} x", i));
  return small_gguf().array("tokenizer.ggml.merges", GgufType::kString, n, elements).bytes(0);
}
std::string many_keys(size_t n) {
  GgufBytes g = small_gguf();
  for (size_t i = 0; i < n; ++i) g.u32(fmt::format("k{}", i), 1);
  return g.bytes(0);
}

TEST(Gguf, GF22_BR172_ReadsLongArraysAndManyKeysInLinearTime) {
  const auto seconds = [](const std::string& bytes) {
    double best = 1e9;
    for (int run = 0; run < 3; ++run) {
      const std::clock_t start = std::clock();  // of the processor: a busy machine changes nothing
      EXPECT_TRUE(read(bytes));
      best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    }
    return best;
  };
  const double merges = seconds(many_merges(500'000)), twice = seconds(many_merges(1'000'000));
  const double keys = seconds(many_keys(1'000'000));
  std::printf("[ measured ] 500,000 merges %.1f ms, twice as many %.1f ms; 1,000,000 keys %.1f ms\n", merges * 1e3,
              twice * 1e3, keys * 1e3);
  EXPECT_LT(merges, 1);
  EXPECT_LT(keys, 3);
}

}  // namespace
}  // namespace berth::format
