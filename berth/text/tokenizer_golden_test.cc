// text/tokenizer_golden_test.cc — every golden tokenizer from its tokenizer.json: ids, text, streams and splits, n/n.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "berth/text/golden_cases.h"

namespace berth::text {
namespace {

// The folders under golden/tokenizers[/tiny] that hold a tokenizer.
std::vector<std::string> tokenizer_folders(const std::string& root) {
  std::vector<std::string> folders;
  const std::vector<std::string> names = list_folder(root).value();
  for (const std::string& name : names) {
    const std::string folder = path_join(root, name);
    if (path_exists(folder + "/tokenizer.json") || path_exists(folder + "/tokenizer.json.gz"))
      folders.push_back(folder);
  }
  return folders;
}

void check_all(const std::string& root, size_t count) {
  REQUIRE_PATH(root);
  const std::vector<std::string> folders = tokenizer_folders(root);
  EXPECT_EQ(folders.size(), count) << "in " << root;
  size_t right = 0;
  for (const std::string& folder : folders) {
    const std::string json = read_maybe_gzip(folder + "/tokenizer.json");
    const auto start = std::chrono::steady_clock::now();
    const auto t = Tokenizer::create({folder, json, {}, {}, nullptr});
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (!t) {
      ADD_FAILURE() << folder << ": " << t.error().message;
      continue;
    }
    const GoldenTallies tallies = check_goldens(*t, folder);
    std::printf("%-28s %6.1f ms  %s\n", path_name(folder).c_str(), ms, tallies.text().c_str());
    EXPECT_TRUE(tallies.all_right()) << folder << ": " << tallies.text();
    right += tallies.all_right();
  }
  std::printf("%zu of %zu tokenizers equal in everything\n", right, folders.size());
}

TEST(TokenizerGoldens, RealTokenizersGiveTheirIdsTextStreamsAndSplits) { check_all(golden_folder("tokenizers"), 10); }

TEST(TokenizerGoldens, SmallTokenizersOfEveryKindGiveTheirIdsTextStreamsAndSplits) {
  check_all(golden_folder("tokenizers/tiny"), 63);
}

}  // namespace
}  // namespace berth::text
