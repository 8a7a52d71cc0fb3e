// base/file_mapping_test.cc — mapped bytes, what follows them, and what happens when the file is cut.
#include "berth/base/file_mapping.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "berth/base/read_once.h"

namespace berth {
namespace {

class FileMappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "berth_mapping_" + std::to_string(::getpid());
    text_.resize(3 * 4096 + 100);
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>('a' + i % 23);
    ASSERT_TRUE(write_file_atomically(path_, text_));
  }
  void TearDown() override { ::unlink(path_.c_str()); }
  std::string path_, text_;
};

TEST_F(FileMappingTest, HasTheFilesBytesAndZerosAfterThem) {
  const auto file = File::open(path_);
  ASSERT_TRUE(file);
  const auto mapping = FileMapping::create(*file);
  ASSERT_TRUE(mapping);
  const std::span<const std::byte> bytes = (*mapping)->bytes();
  ASSERT_EQ(bytes.size(), text_.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % (2 << 20), 0u);
  (*mapping)->populate(4096, 4096);
  (*mapping)->populate(0, uint64_t{1} << 40);  // as much as there is
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), std::as_bytes(std::span(text_)).begin()));
  for (uint64_t i = 0; i < FileMapping::kTailBytes; ++i) ASSERT_EQ(bytes.data()[bytes.size() + i], std::byte{0}) << i;
  EXPECT_TRUE((*mapping)->check_unchanged());
}

// Whatever is in the page cache, wherever the range begins and ends.
TEST_F(FileMappingTest, ReadingOnceGivesTheSameBytesColdAndWarm) {
  text_.resize((3 << 20) + 77);
  for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>(i * 2654435761u >> 7);
  ASSERT_TRUE(write_file_atomically(path_, text_));
  const auto file = File::open(path_);
  ASSERT_TRUE(file);
  const auto text = std::as_bytes(std::span(text_));
  std::vector<std::byte> out(text.size() + 8192);
  std::byte* const page = out.data() + (4096 - reinterpret_cast<uintptr_t>(out.data()) % 4096);
  for (const bool cold : {true, false}) {
    for (const size_t begin : {0, 1, 4096, 4097, 70000, 1 << 20}) {
      for (const size_t n : {size_t{1}, size_t{65536}, size_t{70001}, size_t{2} << 20, text.size() - begin}) {
        if (begin + n > text.size()) continue;
        for (const size_t shift : {0, 3}) {
          if (cold) file->drop_cache(0, 0);
          ASSERT_TRUE(read_once_at(*file, begin, {page + shift, n}));
          ASSERT_TRUE(std::equal(page + shift, page + shift + n, text.begin() + static_cast<int64_t>(begin)))
              << (cold ? "cold " : "warm ") << begin << " " << n;
        }
      }
    }
  }
  const Status beyond = read_once_at(*file, text.size() - 10, {page, 100000});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("the file ends"), std::string::npos) << beyond.error().message;
}

TEST_F(FileMappingTest, AFileThatWasWrittenToIsNoted) {
  const auto file = File::open(path_);
  ASSERT_TRUE(file);
  const auto mapping = FileMapping::create(*file);
  ASSERT_TRUE(mapping);
  ASSERT_EQ(::truncate(path_.c_str(), 4096), 0);
  const Status changed = (*mapping)->check_unchanged();
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::kIo);
  EXPECT_NE(changed.error().message.find(path_), std::string::npos) << changed.error().message;
}

TEST_F(FileMappingTest, AnEmptyFileIsRefusedByName) {
  ASSERT_TRUE(write_file_atomically(path_, ""));
  const auto file = File::open(path_);
  ASSERT_TRUE(file);
  const auto mapping = FileMapping::create(*file);
  ASSERT_FALSE(mapping);
  EXPECT_NE(mapping.error().message.find(path_), std::string::npos) << mapping.error().message;
}

using FileMappingDeathTest = FileMappingTest;

TEST_F(FileMappingDeathTest, TheHandlerNamesAFileThatWasCut) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const auto file = File::open(path_);
        const auto mapping = FileMapping::create(*file);
        exit_on_mapping_fault();
        if (::truncate(path_.c_str(), 4096) != 0) std::_Exit(99);
        volatile int last = std::to_integer<int>((*mapping)->bytes().back());
        std::_Exit(last == 0 ? 97 : 98);
      },
      ::testing::ExitedWithCode(exit_status(ErrorCode::kIo)), "berth: io: .*berth_mapping_.*cut short");
}

TEST_F(FileMappingDeathTest, OtherFaultsAreLeftAlone) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto raise = [] {
    exit_on_mapping_fault();
    ::raise(SIGBUS);
    std::_Exit(0);
  };
#ifdef BERTH_SANITIZED  // what was there before is the sanitizer's own handler
  EXPECT_EXIT(raise(), ::testing::ExitedWithCode(1), "AddressSanitizer: BUS");
#else
  EXPECT_EXIT(raise(), ::testing::KilledBySignal(SIGBUS), "");
#endif
}

}  // namespace
}  // namespace berth
