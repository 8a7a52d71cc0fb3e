// format/write_safetensors_test.cc
#include "berth/format/write_safetensors.h"

#include <fmt/format.h>

#include <array>

#include "berth/format/checkpoint.h"
#include "berth/format/safetensors.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

std::span<const std::byte> bytes_of(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  const std::string path = folder / "out.safetensors";
  std::vector<TensorDesc> descs = {{"z.weight", DType::kF32, {2, 1}},
                                   {"a \"quoted\"\n", DType::kF4, {4}},
                                   {"empty", DType::kBF16, {0, 3}},
                                   {"s", DType::kU8, {}}};
  for (const uint64_t alignment : {8u, 64u, 4096u}) {
    auto w = SafetensorsWriter::create(path, descs, {{"format", "pt"}}, {alignment, false});
    ASSERT_TRUE(w) << w.error().message;
    ASSERT_TRUE(w->write(3, 0, bytes_of("s")));
    ASSERT_TRUE(w->write(0, 4, bytes_of("5678")));
    ASSERT_TRUE(w->write(0, 0, bytes_of("1234")));
    ASSERT_TRUE(w->write(1, 0, bytes_of("ab")));
    ASSERT_TRUE(w->finish());
    const auto c = Checkpoint::open(path);
    ASSERT_TRUE(c) << c.error().message;
    ASSERT_EQ(c->tensors().size(), 4u);
    EXPECT_EQ(c->tensors()[0].offset % alignment, 0u);
    EXPECT_EQ(c->files()[0].size_bytes(), w->file_bytes());
    std::array<char, 8> read{};
    ASSERT_TRUE(c->read(*c->find("z.weight"), 0, std::as_writable_bytes(std::span(read))));
    EXPECT_EQ(std::string_view(read.data(), 8), "12345678");
    EXPECT_EQ(c->find("a \"quoted\"\n")->shape, (Shape{4}));
    EXPECT_EQ(c->find("empty")->size_bytes, 0u);
    const auto header = read_safetensors_header(FileSource(c->files()[0]));
    ASSERT_TRUE(header);
    EXPECT_EQ(header->metadata.size(), 1u);
  }
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutFinish) {
  const TempFolder folder;
  const std::string path = folder.write("out.safetensors", "old");
  {
    auto w = SafetensorsWriter::create(path, {{"a", DType::kF32, {2}}});
    ASSERT_TRUE(w);
    ASSERT_TRUE(w->write(0, 0, bytes_of("1234")));
    const auto unfinished = w->finish();
    ASSERT_FALSE(unfinished);
    EXPECT_NE(unfinished.error().message.find("4 of 8 bytes of tensor \"a\""), std::string::npos);
    EXPECT_EQ(list_folder(folder.path())->size(), 2u);
  }
  EXPECT_EQ(list_folder(folder.path())->size(), 1u);
  EXPECT_EQ(*read_file(path), "old");
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TempFolder folder;
  const auto fails = [&](std::vector<TensorDesc> descs, std::string_view word) {
    const auto w = SafetensorsWriter::create(folder / "out.safetensors", std::move(descs));
    ASSERT_FALSE(w);
    EXPECT_EQ(w.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(w.error().message.find(word), std::string::npos) << w.error().message;
  };
  fails({{"a", DType::kQ4_K, {256}}}, "no type q4_k");
  fails({{"", DType::kF32, {1}}}, "no such name");
  fails({{"__metadata__", DType::kF32, {1}}}, "no such name");
  fails({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}, "two of this name");
  fails({{"a", DType::kF4, {3}}}, "no whole number of bytes");
  fails({{"a", DType::kF32, {2}, 7}}, "needs 8 bytes, 7");
  EXPECT_EQ(list_folder(folder.path())->size(), 0u);
  auto w = SafetensorsWriter::create(folder / "out.safetensors", {{"a", DType::kF32, {1}}});
  ASSERT_TRUE(w);
  EXPECT_FALSE(w->write(0, 1, bytes_of("1234")));
  EXPECT_FALSE(w->write(1, 0, bytes_of("1")));
  EXPECT_EQ(SafetensorsWriter::create(folder / "no/such/folder", {}).error().code, ErrorCode::kIo);
}

TEST(SafetensorsWriter, CopiesAGoldenFileByteForByteInItsTensors) {
  SKIP_WITHOUT_SHARED(golden, "golden/models/llama_fp16/model.safetensors");
  const auto in = Checkpoint::open(golden);
  ASSERT_TRUE(in);
  const TempFolder folder;
  std::vector<TensorDesc> descs;
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::span<const std::byte>> views;
  for (const TensorEntry& t : in->tensors()) {
    descs.push_back({t.name, t.dtype, t.shape, t.size_bytes});
    contents.emplace_back(t.size_bytes);
    ASSERT_TRUE(in->read(t, 0, contents.back()));
  }
  for (const auto& c : contents) views.emplace_back(c);
  ASSERT_TRUE(write_safetensors(folder / "copy.safetensors", descs, views, {{"format", "pt"}}));
  const auto out = Checkpoint::open(folder / "copy.safetensors");
  ASSERT_TRUE(out) << out.error().message;
  ASSERT_EQ(out->tensors().size(), in->tensors().size());
  for (size_t i = 0; i < contents.size(); ++i) {
    std::vector<std::byte> read(contents[i].size());
    ASSERT_TRUE(out->read(out->tensors()[i], 0, read));
    EXPECT_EQ(read, contents[i]) << out->tensors()[i].name;
  }
}

}  // namespace
}  // namespace berth::format
