// format/hub_cache_test.cc — the hub's cache layout, made by hand.
#include "berth/format/hub_cache.h"

#include <cstdlib>

#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

const char* kCommit = "0123456789abcdef0123456789abcdef01234567";
const char* kConfig = R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})";

// A repository with one snapshot whose files are links to blobs, as the hub's client makes it.
std::string write_repo(const TempFolder& cache, const std::string& folder = "models--org--name") {
  const std::string repo = cache / folder;
  cache.write(folder + "/refs/main", kCommit);
  cache.write(folder + "/blobs/aaa", kConfig);
  cache.write(folder + "/blobs/bbb", one_tensor("a"));
  const std::string snapshot = repo + "/snapshots/" + kCommit;
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/aaa", snapshot + "/config.json");
  std::filesystem::create_symlink("../../blobs/bbb", snapshot + "/model.safetensors");
  return repo;
}

TEST(HubCache, NamesItsFolderFromTheEnvironment) {
  const auto with = [](std::vector<std::pair<const char*, const char*>> variables) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"})
      ::unsetenv(name);
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    return hub_cache_folder();
  };
  const char* home = std::getenv("HOME");
  const std::string saved = home == nullptr ? "" : home;
  EXPECT_EQ(with({{"HF_HUB_CACHE", "/a"}, {"HF_HOME", "/b"}}), "/a");
  EXPECT_EQ(with({{"HUGGINGFACE_HUB_CACHE", "/a"}, {"HF_HOME", "/b"}}), "/a");
  EXPECT_EQ(with({{"HF_HOME", "/b"}, {"HOME", "/h"}}), "/b/hub");
  EXPECT_EQ(with({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/huggingface/hub");
  EXPECT_EQ(with({{"HOME", "/h"}}), "/h/.cache/huggingface/hub");
  EXPECT_EQ(with({}), "");
  if (!saved.empty()) ::setenv("HOME", saved.c_str(), 1);
}

TEST(HubCache, KnowsRepositoryNames) {
  for (const char* good : {"gpt2", "org/name", "Qwen/Qwen2.5-0.5B_x"}) EXPECT_TRUE(is_repo_id(good)) << good;
  for (const char* bad : {"", "/", "a/", "/b", "a/b/c", "../x", "a/..", "a--b", "a b", ".x", "x.", "-x", "a\nb"})
    EXPECT_FALSE(is_repo_id(bad)) << bad;
  EXPECT_EQ(hub_repo_folder("org/name"), "models--org--name");
}

TEST(HubCache, OpensARepositoryById) {
  const TempFolder cache;
  const std::string repo = write_repo(cache);
  const OpenOptions options{cache.path(), ""};
  for (const std::string& model : {std::string("org/name"), std::string("org/name@main"),
                                   std::string("org/name@") + kCommit, repo, repo + "/snapshots/" + kCommit}) {
    const auto c = Checkpoint::open(model, {}, options);
    ASSERT_TRUE(c) << model << ": " << c.error().message;
    EXPECT_NE(c->find("a"), nullptr);
    EXPECT_NE(c->config(), nullptr);
    EXPECT_TRUE(c->warnings().empty()) << c->warnings()[0];
  }
  EXPECT_EQ(Checkpoint::open("org/name", {}, options)->display_name(), "org/name");
  EXPECT_EQ(Checkpoint::open(repo, {}, options)->display_name(), "org/name");
  const auto absent = Checkpoint::open("org/other", {}, options);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_NE(absent.error().hints.front().find("hf download org/other"), std::string::npos);
  EXPECT_EQ(Checkpoint::open("org/name@v2", {}, options).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::open("org/name@../../x", {}, options).error().code, ErrorCode::kNotFound);
}

TEST(HubCache, RefusesRefsThatAreNoCommit) {
  const TempFolder cache;
  write_repo(cache);
  for (const char* ref : {"../../..", "", "a/b", ".."}) {
    cache.write("models--org--name/refs/main", ref);
    expect_refused("ref", Checkpoint::open("org/name", {}, {cache.path(), ""}), {"refs/main", "a commit was expected"});
  }
}

TEST(HubCache, BR193_SaysWhereLinksLeadOut) {
  const TempFolder cache, elsewhere;
  const std::string repo = write_repo(cache);
  std::filesystem::rename(repo + "/blobs", elsewhere / "blobs");
  std::filesystem::create_symlink(elsewhere / "blobs", repo + "/blobs");
  auto c = Checkpoint::open("org/name", {}, {cache.path(), ""});
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("itself a link"), std::string::npos);
  EXPECT_NE(c->warnings()[0].find(elsewhere / "blobs"), std::string::npos);
  std::filesystem::remove(repo + "/blobs");
  std::filesystem::rename(elsewhere / "blobs", repo + "/blobs");
  const std::string file = repo + "/snapshots/" + kCommit + "/model.safetensors";
  std::filesystem::remove(file);
  std::filesystem::create_symlink(elsewhere.write("w", one_tensor("a")), file);
  c = Checkpoint::open("org/name", {}, {cache.path(), ""});
  ASSERT_TRUE(c) << c.error().message;
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("out of its repository's cache folder"), std::string::npos);
}

}  // namespace
}  // namespace berth::format
