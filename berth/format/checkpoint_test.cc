// format/checkpoint_test.cc — every form MODEL can have, on hand-written folders and on the goldens.
#include "berth/format/checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "berth/base/strings.h"
#include "berth/format/gguf.h"
#include "berth/format/safetensors.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

const char* kConfig = R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1})";

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

TEST(Checkpoint, OpensASingleFileWithItsFolder) {
  const TempFolder folder;
  folder.write("config.json", kConfig);
  const std::string file = folder.write("model.safetensors", one_tensor("a"));
  for (const std::string& model : {folder.path(), folder.path() + "/", file}) {
    const auto c = Checkpoint::open(model);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->kind(), CheckpointKind::kSafetensors);
    ASSERT_NE(c->config(), nullptr);
    ASSERT_NE(c->find("a"), nullptr);
    std::array<std::byte, 4> bytes{};
    ASSERT_TRUE(c->read(*c->find("a"), 4, bytes));
    EXPECT_EQ(bytes[3], std::byte{1});
    EXPECT_EQ(c->read(*c->find("a"), 5, bytes).error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Checkpoint, OpensEveryFormOfModel) {
  const TempFolder folder;
  folder.write("st/config.json", kConfig);
  folder.write("st/model-00001-of-00002.safetensors", one_tensor("a"));
  folder.write("st/model-00002-of-00002.safetensors", one_tensor("b"));
  folder.write("st/model.safetensors.index.json",
               R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  folder.write("gg/x.gguf", small_gguf().tensor("token_embd.weight", {8}, 0, 0).bytes(32));
  folder.write("gg/mmproj-x.gguf", "not looked at");
  folder.write("bare/config.json", kConfig);
  folder.write("tree/m.tree.json", "{}");
  struct Case {
    const char* model;
    CheckpointKind kind;
    size_t tensors;
    const char* name;
  };
  for (const Case& c :
       {Case{"st", CheckpointKind::kSafetensors, 2, "st"},
        Case{"st/model.safetensors.index.json", CheckpointKind::kSafetensors, 2, "st"},
        Case{"st/model-00001-of-00002.safetensors", CheckpointKind::kSafetensors, 1, "model-00001-of-00002"},
        Case{"gg", CheckpointKind::kGguf, 1, "gg"}, Case{"gg/x.gguf", CheckpointKind::kGguf, 1, "x"},
        Case{"bare", CheckpointKind::kConfig, 0, "bare"}, Case{"bare/config.json", CheckpointKind::kConfig, 0, "bare"},
        Case{"tree/m.tree.json", CheckpointKind::kTree, 0, "m.tree.json"},
        Case{"tree", CheckpointKind::kTree, 0, "tree"}}) {
    const auto opened = Checkpoint::open(folder / c.model);
    ASSERT_TRUE(opened) << c.model << ": " << opened.error().message;
    EXPECT_EQ(opened->kind(), c.kind) << c.model;
    EXPECT_EQ(opened->tensors().size(), c.tensors) << c.model;
    EXPECT_EQ(opened->display_name(), c.name);
    EXPECT_EQ(opened->gguf() != nullptr, c.kind == CheckpointKind::kGguf);
    EXPECT_EQ(opened->config() != nullptr, c.kind == CheckpointKind::kSafetensors || c.kind == CheckpointKind::kConfig);
    EXPECT_EQ(opened->tree_path().empty(), c.kind != CheckpointKind::kTree);
  }
}

TEST(Checkpoint, TellsFilesWithoutAnEndingByTheirContent) {
  const TempFolder folder;
  EXPECT_EQ(Checkpoint::open(folder.write("a", one_tensor("a")))->kind(), CheckpointKind::kSafetensors);
  EXPECT_EQ(Checkpoint::open(folder.write("b", small_gguf().bytes(0)))->kind(), CheckpointKind::kGguf);
  EXPECT_EQ(Checkpoint::open(folder.write("c", kConfig))->kind(), CheckpointKind::kConfig);
  expect_refused("content", Checkpoint::open(folder.write("d", "hello")), {"is no checkpoint"});
  expect_refused("content", Checkpoint::open(folder.write("e", "")), {"is no checkpoint"});
}

TEST(Checkpoint, SaysWhatIsNotThereOrNotRead) {
  const TempFolder folder;
  EXPECT_EQ(Checkpoint::open(folder / "absent").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Checkpoint::open("").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Checkpoint::open(std::string("a\0b", 3)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Checkpoint::open(folder.path()).error().code, ErrorCode::kNotFound);
  folder.write("pytorch_model.bin", "x");
  expect_refused("pickled", Checkpoint::open(folder.path()), {"pytorch_model.bin", "pickled"});
  expect_refused("pickled", Checkpoint::open(folder / "pytorch_model.bin"), {"pickled"});
  folder.write("pytorch_model.bin.index.json", "{}");
  expect_refused("pickled", Checkpoint::open(folder / "pytorch_model.bin.index.json"), {"pickled"});
  folder.write("config.json", kConfig);
  const auto planning = Checkpoint::open(folder.path());
  ASSERT_TRUE(planning) << planning.error().message;
  EXPECT_EQ(planning->kind(), CheckpointKind::kConfig);
  EXPECT_EQ(planning->warnings().size(), 1u);
  folder.write("x.gguf", small_gguf().bytes(0));
  folder.write("y.gguf", small_gguf().bytes(0));
  expect_refused("several", Checkpoint::open(folder.path()), {"several", "x.gguf", "y.gguf"});
}

TEST(Checkpoint, SF38_EN04_NoticesFilesThatChange) {
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors", one_tensor("a"));
  auto c = Checkpoint::open(path);
  ASSERT_TRUE(c);
  EXPECT_TRUE(c->check_unchanged());
  std::array<std::byte, 8> bytes{};
  // Cut: an ordinary error with file, tensor and sizes.
  std::filesystem::resize_file(path, 60);
  const auto cut = c->read(*c->find("a"), 0, bytes);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, ErrorCode::kIo);
  EXPECT_NE(cut.error().message.find("model.safetensors"), std::string::npos);
  EXPECT_NE(cut.error().message.find("60 now"), std::string::npos) << cut.error().message;
  EXPECT_NE(cut.error().message.find("\"a\""), std::string::npos);
  // Grown.
  std::filesystem::resize_file(path, 100000);
  EXPECT_FALSE(c->read(*c->find("a"), 0, bytes));
  // Replaced under its name: what was checked is what is read; check_unchanged says so.
  folder.write("model.safetensors", one_tensor("a"));
  c = Checkpoint::open(path);
  ASSERT_TRUE(c);
  std::filesystem::rename(folder.write("other", one_tensor("b")), path);
  EXPECT_TRUE(c->read(*c->find("a"), 0, bytes));
  const auto replaced = c->check_unchanged();
  ASSERT_FALSE(replaced);
  EXPECT_NE(replaced.error().message.find("replaced by another file"), std::string::npos);
  // Deleted: still readable.
  std::filesystem::remove(path);
  EXPECT_TRUE(c->check_unchanged());
  EXPECT_TRUE(c->read(*c->find("a"), 0, bytes));
}

TEST(Checkpoint, EN03_BR102_ShortReadsAreErrorsWithTheOffset) {
  // A source whose data ends early although its size says otherwise.
  class Failing final : public ByteSource {
   public:
    const std::string& name() const override { return name_; }
    uint64_t size_bytes() const override { return 1000; }
    Status read_at(uint64_t offset, std::span<std::byte> out) const override {
      if (offset + out.size() > 8) return Error(ErrorCode::kIo, "reading \"x\" at offset 8: Input/output error");
      store_le<uint64_t>(out.data(), 100);
      return {};
    }

   private:
    std::string name_ = "x";
  };
  const auto header = read_safetensors_header(Failing());
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, ErrorCode::kIo);
  EXPECT_NE(header.error().message.find("offset 8"), std::string::npos);
  EXPECT_EQ(read_gguf(Failing()).error().code, ErrorCode::kIo);
}

TEST(Checkpoint, EN07_EN08_OpensAndPrintsStrangeFolderNames) {
  const TempFolder folder;
  for (const std::string& name :
       {std::string("with space"), std::string("\xFF\xFE"), std::string("new\nline"), std::string("\x1b[31m")}) {
    folder.write(name + "/config.json", kConfig);
    folder.write(name + "/model.safetensors", one_tensor("a"));
    EXPECT_TRUE(Checkpoint::open(folder / name)) << name;
    folder.write(name + "/model.safetensors", safetensors("{" + entry("\\u001b[31mred", "[3]", 0, 8) + "}", 8));
    expect_refused("EN-08", Checkpoint::open(folder / name), {"model.safetensors", "\\x1b[31mred"});
  }
  const std::string long_name(4000, 'x');
  EXPECT_EQ(Checkpoint::open(long_name).error().code, ErrorCode::kNotFound);
  EXPECT_LT(Checkpoint::open(long_name).error().message.size(), 1000u);
}

TEST(Checkpoint, FingerprintFollowsNamesTypesShapesAndOffsets) {
  const TempFolder folder;
  const auto print = [&](const std::string& header, size_t data) {
    const auto c = Checkpoint::open(folder.write("model.safetensors", safetensors(header, data)));
    EXPECT_TRUE(c) << c.error().message;
    return c->fingerprint();
  };
  const std::string base = print("{" + entry("a", "[2]", 0, 8) + "," + entry("b", "[]", 8, 12) + "}", 12);
  EXPECT_EQ(base.size(), 32u);
  EXPECT_EQ(print("{" + entry("b", "[]", 8, 12) + "," + entry("a", "[2]", 0, 8) + "}", 12), base);
  EXPECT_NE(print("{" + entry("c", "[2]", 0, 8) + "," + entry("b", "[]", 8, 12) + "}", 12), base);
  EXPECT_NE(print("{" + entry("a", "[2]", 0, 8, "I32") + "," + entry("b", "[]", 8, 12) + "}", 12), base);
  EXPECT_NE(print("{" + entry("a", "[1,2]", 0, 8) + "," + entry("b", "[]", 8, 12) + "}", 12), base);
  EXPECT_NE(Checkpoint::open(folder.write("c.json", "{\"a\":1}"))->fingerprint(),
            Checkpoint::open(folder.write("d.json", "{\"a\":2}"))->fingerprint());
}

TEST(Checkpoint, ReadsTextsBesideTheWeightsWhenAsked) {
  const TempFolder folder;
  const std::string path = folder.write("model.safetensors", one_tensor("a"));
  folder.write("tokenizer.json", "{\"t\":1}");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]})");
  auto c = Checkpoint::open(path);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->tokenizer_json().value(), "{\"t\":1}");
  EXPECT_EQ(c->special_tokens_map_json().value(), std::nullopt);
  EXPECT_EQ(c->chat_template().value(), "D");
  EXPECT_EQ(c->chat_template("rag").value(), "R");
  EXPECT_EQ(c->chat_template("other").value(), std::nullopt);
  // What Transformers writes where a tokenizer has no limit: beyond 64 bits, and no reason to refuse the file.
  folder.write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656, "chat_template": "T"})");
  EXPECT_EQ(c->chat_template().value(), "T");
  EXPECT_EQ(c->chat_template("rag").value(), std::nullopt);
  folder.write("chat_template.json", R"({"chat_template": "J"})");
  EXPECT_EQ(c->chat_template().value(), "J");
  folder.write("chat_template.jinja", "F");
  folder.write("additional_chat_templates/rag.jinja", "A");
  EXPECT_EQ(c->chat_template().value(), "F");
  EXPECT_EQ(c->chat_template("rag").value(), "A");
  EXPECT_EQ(c->chat_template("../../etc/x").value(), std::nullopt);
  folder.write("chat_template.json", R"({"chat_template": 7})");
  std::filesystem::remove(folder / "chat_template.jinja");
  expect_refused("template", c->chat_template(), {"chat_template.json", "a text"});

  GgufBytes g = small_gguf();
  g.string("tokenizer.chat_template", "G").string("tokenizer.chat_template.tool_use", "U");
  c = Checkpoint::open(folder.write("x.gguf", g.bytes(0)));
  ASSERT_TRUE(c);
  EXPECT_EQ(c->chat_template().value(), "G");
  EXPECT_EQ(c->chat_template("tool_use").value(), "U");
  EXPECT_EQ(c->tokenizer_json().value(), std::nullopt);
}

TEST(Checkpoint, BR082_TheStoredTypeCountsAndADisagreementIsSaidOnce) {
  const TempFolder folder;
  const auto open = [&](const char* config) {
    folder.write("config.json", config);
    folder.write("model.safetensors",
                 safetensors("{" + entry("a", "[8]", 0, 16, "BF16") + "," + entry("n", "[1]", 16, 20) + "," +
                                 entry("q", "[64]", 20, 84, "U8") + "}",
                             84));
    auto c = Checkpoint::open(folder.path());
    EXPECT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->stored_dtype(), DType::kBF16);
    return c->warnings();
  };
  EXPECT_TRUE(open("{}").empty());
  EXPECT_TRUE(open(R"({"torch_dtype": "bfloat16"})").empty());
  const auto warnings = open(R"({"torch_dtype": "float16"})");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("says f16, the tensors are stored as bf16"), std::string::npos);
}

TEST(Checkpoint, NotesNumberedFilesThatTheIndexDoesNotName) {
  const TempFolder folder;
  folder.write("model-00001-of-00001.safetensors", one_tensor("a"));
  folder.write("model-00002-of-00003.safetensors", one_tensor("a"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00001.safetensors"}})");
  const auto c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->tensors().size(), 1u);
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("model-00002-of-00003.safetensors"), std::string::npos);
}

TEST(Checkpoint, TellsTheLogWhatItWarnsOf) {
  const TempFolder folder;
  folder.write("config.json", R"({"auto_map": {"x": "y"}})");
  folder.write("model.safetensors", one_tensor("a"));
  std::vector<std::string> heard;
  Log log;
  log.sink = [&](LogLevel, const std::string& m) { heard.push_back(m); };
  const auto c = Checkpoint::open(folder.path(), log);
  ASSERT_TRUE(c);
  EXPECT_EQ(heard, c->warnings());
  EXPECT_EQ(heard.size(), 1u);
}

TEST(Checkpoint, StaysWholeWhenMoved) {
  const TempFolder folder;
  auto opened = Checkpoint::open(folder.write("model.safetensors", one_tensor("a")));
  ASSERT_TRUE(opened);
  Checkpoint moved = std::move(opened).value();
  ASSERT_NE(moved.find("a"), nullptr);
  auto gguf = Checkpoint::open(folder.write("x.gguf", small_gguf().bytes(0)));
  ASSERT_TRUE(gguf);
  moved = std::move(gguf).value();
  EXPECT_EQ(*moved.gguf()->find_int("llama.block_count"), 2);
  EXPECT_EQ(moved.gguf()->architecture(), "llama");
}

TEST(Checkpoint, OpensEveryGoldenFolder) {
  SKIP_WITHOUT_SHARED(golden, "golden");
  size_t opened = 0;
  for (const char* part : {"models", "bitsandbytes/checkpoints"}) {
    const std::string folder = path_join(golden, part);
    const auto names = list_folder(folder);
    ASSERT_TRUE(names);
    for (const std::string& name : *names) {
      const std::string path = path_join(folder, name);
      if (!is_directory(path)) continue;
      const auto c = Checkpoint::open(path);
      ASSERT_TRUE(c) << name << ": " << c.error().message;
      EXPECT_EQ(c->kind(), CheckpointKind::kSafetensors) << name;
      EXPECT_NE(c->config(), nullptr) << name;
      EXPECT_FALSE(c->tensors().empty()) << name;
      EXPECT_TRUE(c->generation_config()) << name;
      ++opened;
    }
  }
  EXPECT_EQ(opened, 57u + 30u);
}

TEST(Checkpoint, OpensAHundredThousandTensorsQuickly) {
  // Printed, not asserted: the machine may be busy. 100 shards of 1,000 tensors behind an index, and one file of all.
  const TempFolder folder;
  std::string map, single;
  for (int shard = 0; shard < 100; ++shard) {
    std::string header;
    const std::string file = fmt::format("model-{:05}-of-00100.safetensors", shard + 1);
    for (int i = 0; i < 1000; ++i) {
      const std::string name = fmt::format("model.layers.{}.mlp.experts.{}.gate_proj.weight", shard, i);
      header += (i ? "," : "{") +
                entry(name, "[1,1]", static_cast<uint64_t>(i) * 2, static_cast<uint64_t>(i) * 2 + 2, "BF16");
      const uint64_t at = static_cast<uint64_t>(shard * 1000 + i) * 2;
      single += (single.empty() ? "{" : ",") + entry(name, "[1,1]", at, at + 2, "BF16");
      map += fmt::format("{}\"{}\": \"{}\"", map.empty() ? "" : ",\n    ", name, file);
    }
    folder.write("sharded/" + file, safetensors(header + "}", 2000));
  }
  folder.write("sharded/model.safetensors.index.json",
               "{\"metadata\": {\"total_size\": 200000}, \"weight_map\": {" + map + "}}");
  const std::string one = folder.write("single/model.safetensors", safetensors(single + "}", 200000));
  for (const std::string& model : {folder / "sharded", one}) {
    double best = 1e9, first = 0, best_cpu = 1e9;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const std::clock_t cpu = std::clock();
      const auto c = Checkpoint::open(model);
      best_cpu = std::min(best_cpu, 1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
      const double ms = milliseconds_since(start);
      ASSERT_TRUE(c) << c.error().message;
      ASSERT_EQ(c->tensors().size(), 100000u);
      ASSERT_NE(c->find("model.layers.99.mlp.experts.999.gate_proj.weight"), nullptr);
      if (run == 0) first = ms;
      best = std::min(best, ms);
    }
    std::printf("[ measured ] %s: 100,000 tensors open in %.1f ms the first time, %.1f ms at best (%.1f ms of CPU)\n",
                path_name(model).c_str(), first, best, best_cpu);
  }
}

}  // namespace
}  // namespace berth::format
