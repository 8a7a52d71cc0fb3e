// format/checkpoint_test.cc — every form MODEL can have, on hand-written folders and on the goldens.
#include "berth/format/checkpoint.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "berth/base/strings.h"
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
    double best = 1e9, first = 0;
    for (int run = 0; run < 5; ++run) {
      const auto start = std::chrono::steady_clock::now();
      const auto c = Checkpoint::open(model);
      const double ms = milliseconds_since(start);
      ASSERT_TRUE(c) << c.error().message;
      ASSERT_EQ(c->tensors().size(), 100000u);
      ASSERT_NE(c->find("model.layers.99.mlp.experts.999.gate_proj.weight"), nullptr);
      if (run == 0) first = ms;
      best = std::min(best, ms);
    }
    std::printf("[ measured ] %s: 100,000 tensors open in %.1f ms the first time, %.1f ms at best\n",
                path_name(model).c_str(), first, best);
  }
}

}  // namespace
}  // namespace berth::format
