// format/sharded_index_test.cc — indexes written by hand, right and wrong; folders whose files do not fit their index.
#include "berth/format/sharded_index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

const char* kConfig = R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})";

Result<ShardedIndex> parse(std::string_view json) { return parse_sharded_index(json, "m.safetensors.index.json"); }
void refused(std::string_view id, std::string_view json, std::vector<std::string_view> words) {
  words.push_back("m.safetensors.index.json");
  expect_refused(id, parse(json), words);
}
std::string map_of(std::string_view entries) {
  return "{\"metadata\":{},\"weight_map\":{" + std::string(entries) + "}}";
}
std::string shard_name(int i, int n) { return fmt::format("model-{:05}-of-{:05}.safetensors", i, n); }

// A folder with `n` shards of one tensor each ("t1".."tN") and their index.
void write_shards(const TempFolder& folder, int n) {
  std::string map;
  for (int i = 1; i <= n; ++i) {
    folder.write(shard_name(i, n), one_tensor(fmt::format("t{}", i)));
    map += fmt::format("{}\"t{}\":\"{}\"", i > 1 ? "," : "", i, shard_name(i, n));
  }
  folder.write("model.safetensors.index.json", map_of(map));
  folder.write("config.json", kConfig);
}
// The same with the index's map given.
void write_index(const TempFolder& folder, std::string_view entries) {
  folder.write("model.safetensors.index.json", map_of(entries));
}

TEST(ShardedIndex, ReadsFilesOnceEach) {
  const auto index = parse(map_of("\"b\":\"2.safetensors\",\"a\":\"1.safetensors\",\"c\":\"./2.safetensors\""));
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->files, (std::vector<std::string>{"1.safetensors", "2.safetensors"}));
  ASSERT_EQ(index->items.size(), 3u);
  EXPECT_EQ(index->items[0].tensor, "b");
  EXPECT_EQ(index->items[0].file, 1u);
  EXPECT_EQ(index->items[1].file, 0u);
  EXPECT_EQ(index->items[2].file, 1u);
}

TEST(ShardedIndex, ReadsThePublishedOnes) {
  SKIP_WITHOUT_SHARED(folder, "checkpoints");
  for (const char* model : {"gpt-oss-20b", "Mixtral-8x7B-v0.1", "Llama-3.1-8B-Instruct-bnb-int8"}) {
    const auto text = read_file(path_join(folder, std::string(model) + "/model.safetensors.index.json"));
    ASSERT_TRUE(text);
    const auto index = parse(*text);
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_GT(index->items.size(), 100u);
    EXPECT_LT(index->files.size(), 30u);
  }
  // Without the files themselves such a folder is good for planning.
  const auto c = Checkpoint::open(path_join(folder, "gpt-oss-20b"));
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->kind(), CheckpointKind::kConfig);
  EXPECT_FALSE(c->warnings().empty());
  // But the index itself names files.
}

TEST(ShardedIndex, JS01_SaysLineAndColumnOfMalformedJson) {
  refused("JS-01", "", {"line 1, column 1"});
  refused("JS-01", "{\"weight_map\":\n {\"a\": \"x", {"line 2"});
  refused("JS-01", "\xEF\xBB\xBF{}", {"byte-order mark"});
  refused("JS-01", std::string_view("\xFF\xFE{\0}\0", 6), {"not valid JSON", "column"});
  refused("JS-01", "[]", {"a JSON object was expected", "a list"});
}

TEST(ShardedIndex, JS02_RefusesMapsThatAreNone) {
  refused("JS-02", "{}", {"weight_map", "missing"});
  refused("JS-02", "{\"weight_map\":{}}", {"weight_map is empty"});
  refused("JS-02", "{\"weight_map\":[]}", {"weight_map", "a list"});
  for (const char* value : {"7", "null", "{}", "[\"x\"]", "true"})
    refused("JS-02", map_of(std::string("\"a\":") + value), {"\"a\"", "a file name was expected"});
  refused("JS-02", map_of("\"a\":\"1.safetensors\",\"a\":\"2.safetensors\""), {"duplicate tensor name", "\"a\""});
  refused("JS-02", "{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{\"a\":\"x\"}}", {"duplicate key"});
}

TEST(ShardedIndex, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "", ".", "./", "..", "a/.."})
    refused("JS-03", map_of(fmt::format("\"t\":\"{}\"", name)), {"\"t\"", "no name of a file in the index's folder"});
}

TEST(ShardedIndex, JS05_TakesOddNamesLiterally) {
  refused("JS-05", map_of("\"t\":\"a\\u0000.safetensors\""), {"no name of a file"});
  for (const std::string& name :
       {std::string("%2e%2e%2fmodel.safetensors"), std::string("\\u2024\\u2024\\u2215x.safetensors"),
        std::string("a\\nb.safetensors"), std::string(5000, 'x')}) {
    const TempFolder folder;
    folder.write("config.json", kConfig);
    folder.write("model.safetensors", one_tensor("t"));
    write_index(folder, "\"t\":\"" + name + "\"");
    expect_refused("JS-05", Checkpoint::open(folder.path()),
                   {"1 of 1 files are missing", "model.safetensors.index.json"});
  }
}

TEST(ShardedIndex, JS06_RefusesWhatIsNoRegularFileWithoutBlocking) {
  const auto with = [](auto&& make, std::vector<std::string_view> words) {
    const TempFolder folder;
    write_shards(folder, 2);
    const std::string path = folder / shard_name(2, 2);
    ::unlink(path.c_str());
    make(path);
    words.push_back("model-00002-of-00002.safetensors");
    expect_refused("JS-06", Checkpoint::open(folder.path()), words);
  };
  with([](const std::string& p) { ASSERT_EQ(::mkdir(p.c_str(), 0755), 0); }, {"a folder"});
  with([](const std::string& p) { ASSERT_EQ(::mkfifo(p.c_str(), 0644), 0); }, {"a pipe"});
  with([](const std::string& p) { ASSERT_EQ(::symlink("/dev/zero", p.c_str()), 0); }, {"a special file"});
  with([](const std::string& p) { ASSERT_GE(::close(::open(p.c_str(), O_CREAT | O_WRONLY, 0644)), 0); }, {"0 bytes"});
  with(
      [](const std::string& p) {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        ASSERT_LT(p.size(), sizeof address.sun_path);
        p.copy(address.sun_path, p.size());
        ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        ::close(fd);
      },
      {"a special file"});
}

TEST(ShardedIndex, JS08_OpensOneFileUnderTwoNamesOnce) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("m.safetensors", safetensors("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 4, 8) + "}", 8));
  write_index(folder, "\"a\":\"m.safetensors\",\"b\":\"./m.safetensors\"");
  auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->files().size(), 1u);
  EXPECT_EQ(c->tensors().size(), 2u);
  ASSERT_EQ(::symlink("m.safetensors", (folder / "n.safetensors").c_str()), 0);
  write_index(folder, "\"a\":\"m.safetensors\",\"b\":\"n.safetensors\"");
  c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->files().size(), 1u);
  EXPECT_EQ(c->tensors().size(), 2u);
  write_index(folder, "\"a\":\"m.safetensors\",\"b\":\"M.safetensors\"");
  expect_refused("JS-08", Checkpoint::open(folder.path()), {"M.safetensors", "missing"});
}

TEST(ShardedIndex, JS09_ComparesTheIndexWithItsFiles) {
  const TempFolder folder;
  write_shards(folder, 2);
  const std::string one = shard_name(1, 2), two = shard_name(2, 2);
  const auto with = [&](const std::string& more) {
    write_index(folder, fmt::format("\"t1\":\"{}\",\"t2\":\"{}\"{}", one, two, more));
    return Checkpoint::open(folder.path());
  };
  expect_refused("JS-09", with(fmt::format(",\"gone\":\"{}\"", two)), {"1 of 3 tensors", "\"gone\"", two});
  // In the other file only: what the index names does not hold it.
  write_index(folder, fmt::format("\"t1\":\"{}\",\"t2\":\"{}\"", two, two));
  folder.write(one, one_tensor("unused"));
  expect_refused("JS-09", Checkpoint::open(folder.path()), {"\"t1\"", two});
  // In a file but not in the index: noted, with the count.
  folder.write(one, safetensors("{" + entry("t1", "[1]", 0, 4) + "," + entry("extra", "[1]", 4, 8) + "}", 8));
  const auto c = with("");
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_NE(c->find("extra"), nullptr);
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("1 tensors of the files are not in"), std::string::npos) << c->warnings()[0];
  // In both files: the index decides.
  folder.write(one, safetensors("{" + entry("t1", "[1]", 0, 4) + "," + entry("t2", "[1]", 4, 8) + "}", 8));
  const auto both = with("");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->tensors().size(), 2u);
  EXPECT_EQ(both->find("t2")->file, 1u);
  EXPECT_EQ(both->warnings().size(), 1u);
}

TEST(ShardedIndex, RefusesANameInTwoFilesThatTheIndexDoesNotList) {
  const TempFolder folder;
  write_shards(folder, 2);
  for (int i : {1, 2})
    folder.write(shard_name(i, 2),
                 safetensors("{" + entry(fmt::format("t{}", i), "[1]", 0, 4) + "," + entry("x", "[1]", 4, 8) + "}", 8));
  expect_refused("JS-09", Checkpoint::open(folder.path()),
                 {"duplicate tensor name", "\"x\"", shard_name(1, 2), shard_name(2, 2)});
}

TEST(ShardedIndex, JS11_NeverUsesTheTotalSize) {
  for (const char* total : {"0", "-1", "\"8\"", "9", "9223372036854775808", "null", "1.5e10", "[]"}) {
    const auto index =
        parse(fmt::format("{{\"metadata\":{{\"total_size\":{}}},\"weight_map\":{{\"a\":\"x\"}}}}", total));
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_LE(index->warnings.size(), 1u);
  }
  EXPECT_EQ(parse("{\"metadata\":{\"total_size\":-1},\"weight_map\":{\"a\":\"x\"}}")->warnings.size(), 1u);
  EXPECT_TRUE(parse("{\"metadata\":7,\"weight_map\":{\"a\":\"x\"}}"));
}

TEST(ShardedIndex, JS13_RefusesBySizeAndDepth) {
  refused("JS-13", "{\"weight_map\":" + std::string(100000, '['), {"nested more than"});
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors.index.json", "{");
  ASSERT_EQ(::truncate(path.c_str(), 2ll << 30), 0);  // a sparse file
  const uint64_t before = resident_bytes();
  expect_refused("JS-13", Checkpoint::open(path), {"2147483648 bytes", "at most"});
  const std::string config = folder.write("config.json", "{");
  ASSERT_EQ(::truncate(config.c_str(), 1ll << 30), 0);
  expect_refused("JS-13", Checkpoint::open(config), {"1073741824 bytes", "at most"});
  EXPECT_LT(resident_bytes(), before + (4 << 20));
}

TEST(ShardedIndex, BR094_ListsMissingFilesAndCountsTheirTensors) {
  const TempFolder folder;
  write_shards(folder, 3);
  std::filesystem::remove(folder / shard_name(2, 3));
  const auto c = Checkpoint::open(folder.path());
  expect_refused("BR-094", c, {"1 of 3 files are missing", shard_name(2, 3), "1 of 3 tensors"});
  EXPECT_NE(c.error().hints.front().find("incomplete"), std::string::npos);
  // A link to a blob that was never downloaded is missing too.
  ASSERT_EQ(::symlink("../../blobs/none", (folder / shard_name(2, 3)).c_str()), 0);
  expect_refused("BR-094", Checkpoint::open(folder.path()), {"1 of 3 files are missing"});
}

TEST(ShardedIndex, BR097_TheIndexWinsOverAStrayFile) {
  const TempFolder folder;
  write_shards(folder, 2);
  folder.write("model.safetensors",
               safetensors("{" + entry("t1", "[8]", 0, 8, "U8") + "," + entry("t2", "[8]", 8, 16, "U8") + "}", 16));
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->find("t1")->dtype, DType::kF32);
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("model.safetensors"), std::string::npos);
  // Without the index there are two candidates.
  std::filesystem::remove(folder / "model.safetensors.index.json");
  expect_refused("BR-097", Checkpoint::open(folder.path()), {"several", "\"model.safetensors\"", shard_name(1, 2)});
  // Two single files with equal names, of which none is the usual one; and one that is.
  const TempFolder other;
  other.write("config.json", kConfig);
  other.write("a.safetensors", one_tensor("t"));
  other.write("b.safetensors", one_tensor("t"));
  expect_refused("BR-097", Checkpoint::open(other.path()), {"several", "a.safetensors", "b.safetensors"});
  std::filesystem::rename(other / "a.safetensors", other / "model.safetensors");
  expect_refused("BR-097", Checkpoint::open(other.path()), {"both hold", "\"model.safetensors\"", "\"b.safetensors\""});
  // Other tensors, or a variant of the hub's naming: noted.
  other.write("b.safetensors", one_tensor("adapter"));
  other.write("model.fp16.safetensors", one_tensor("t"));
  const auto noted = Checkpoint::open(other.path());
  ASSERT_TRUE(noted) << noted.error().message;
  EXPECT_EQ(noted->tensors().size(), 1u);
  EXPECT_EQ(noted->warnings().size(), 1u);
}

TEST(ShardedIndex, BR185_SaysWhatNumberedFilesWithoutAnIndexLack) {
  const TempFolder folder;
  folder.write("config.json", R"({"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 5})");
  for (int i = 1; i <= 5; ++i)
    folder.write(shard_name(i, 5),
                 one_tensor(i == 5 ? "model.norm.weight" : fmt::format("model.layers.{}.a.weight", i)));
  folder.write("model-00001-of-00005.safetensors",
               safetensors("{" + entry("model.layers.0.a.weight", "[1]", 0, 4) + "," +
                               entry("model.layers.1.a.weight", "[1]", 4, 8) + "}",
                           8));
  const auto whole = Checkpoint::open(folder.path());
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->tensors().size(), 6u);
  std::filesystem::remove(folder / shard_name(5, 5));
  std::filesystem::remove(folder / shard_name(4, 5));
  expect_refused("BR-185", Checkpoint::open(folder.path()),
                 {"4 tensors in 3 files", "5 files", shard_name(4, 5), shard_name(5, 5),
                  "1 of 5 layers (the first is 4)", "the final norm"});
}

TEST(ShardName, ReadsNumbersAndRefusesOthers) {
  const auto s = parse_shard_name("model-00002-of-00005.safetensors", ".safetensors");
  ASSERT_TRUE(s);
  EXPECT_EQ(s->stem, "model");
  EXPECT_EQ(s->number, 2u);
  EXPECT_EQ(s->count, 5u);
  for (const char* bad :
       {"model.safetensors", "model-2-of-5.safetensors", "model-00002-of-00005.gguf", "-of-00005.safetensors",
        "model-0000a-of-00005.safetensors", "model-00002-of--0005.safetensors"})
    EXPECT_FALSE(parse_shard_name(bad, ".safetensors")) << bad;
}

TEST(ShardedIndex, FilesCountedFromZeroAreASetToo) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  for (int i = 0; i <= 2; ++i) folder.write(shard_name(i, 2), one_tensor(fmt::format("t{}", i)));
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->tensors().size(), 3u);
}

}  // namespace
}  // namespace berth::format
