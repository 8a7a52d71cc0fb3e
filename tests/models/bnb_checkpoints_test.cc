// tests/models/bnb_checkpoints_test.cc — checkpoints that bitsandbytes quantized (save_pretrained), loaded and run as they are:
// 4 bit against the library's own logits, int8 against its dequantized weights (golden/bitsandbytes/README.md); and the
// other way: berth quantize makes the same files from the same sources.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>
#include <unistd.h>

#include "berth/base/json.h"
#include "berth/engine/checkpoint_writer.h"
#include "berth/engine/quantize.h"
#include "berth/format/write_safetensors.h"
#include "placed_model.h"

namespace berth::testing {
namespace {

std::vector<float> floats(const format::Checkpoint& file, const std::string& name) {
  const format::TensorEntry* e = file.find(name);
  if (e == nullptr) return {};
  std::vector<float> out(e->size_bytes / 4);
  EXPECT_TRUE(file.read(*e, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

// Differences over the largest |logit| of one checkpoint; the folder's name decides what is compared.
void compare(const std::string& name, int& compared, int& refused) {
  const std::string folder = shared_path("golden/bitsandbytes/checkpoints/" + name);
  if (!path_exists(folder + "/expected.safetensors")) return;
  RunOptions options;
  options.shape = {.ctx_size = 32, .batch = 1, .prefill_chunk = 5, .logit_rows = 4, .kv_dtype = DType::kF32};
  auto placed = place_model(folder, all_on_cpu(), options);
  if (!placed && placed.error().code == ErrorCode::kUnsupported) {
    std::printf("[ refused  ] %-36s %s\n", name.c_str(), placed.error().message.c_str());
    ++refused;
    return;
  }
  ASSERT_TRUE(placed) << name << ": " << placed.error().message;
  auto expected = format::Checkpoint::open(folder + "/expected.safetensors", Log{});
  ASSERT_TRUE(expected) << expected.error().message;
  const format::TensorEntry* ids_entry = expected->find("input_ids");
  ASSERT_NE(ids_entry, nullptr);
  std::vector<int64_t> wide(ids_entry->size_bytes / 8);
  ASSERT_TRUE(expected->read(*ids_entry, 0, std::as_writable_bytes(std::span(wide))));
  std::vector<float> want = floats(*expected, "logits_dequant_fp32");
  if (want.empty()) want = floats(*expected, "logits_fp32");
  ASSERT_FALSE(want.empty()) << name;
  auto got = all_logits(*(*placed)->model, {wide.begin(), wide.end()});
  ASSERT_TRUE(got) << name << ": " << got.error().message;
  ASSERT_EQ(got->size(), want.size()) << name;
  float largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    worst = std::max(worst, std::fabs((*got)[i] - want[i]));
  }
  EXPECT_LE(worst, 2e-4f * largest) << name;
  ++compared;
  std::printf("[ golden   ] %-36s largest |logit| %7.3f  difference %.2e\n", name.c_str(), static_cast<double>(largest), static_cast<double>(worst));
}

TEST(BitsandbytesCheckpoints, GiveTheLogitsOfTheLibrary) {
  BERTH_NEEDS(shared_path("golden/bitsandbytes/checkpoints"));
  auto names = list_folder(shared_path("golden/bitsandbytes/checkpoints"));
  ASSERT_TRUE(names);
  int compared = 0, refused = 0;
  for (const std::string& name : *names) compare(name, compared, refused);
  std::printf("[ golden   ] %d of %zu checkpoints compared, %d refused by name\n", compared, names->size(), refused);
  EXPECT_EQ(compared + refused, static_cast<int>(names->size()));
  EXPECT_GE(compared, 24);
}

// A folder that is gone at the end.
class TempFolder {
 public:
  explicit TempFolder(const std::string& name) : path_(::testing::TempDir() + name + "-" + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Sets the option that BitsAndBytesConfig calls `key`; false where there is none.
bool set_option(engine::Options& options, std::string_view key, JsonView value) {
  bool found = false;
  engine::visit_options(options, [&](const engine::OptionInfo& info, auto& member) {
    std::string name(info.name);
    std::ranges::replace(name, '-', '_');
    if (name != key) return;
    found = true;
    using T = std::remove_cvref_t<decltype(member)>;
    if constexpr (std::is_same_v<T, bool>) {
      member = *value.as_bool();
    } else if constexpr (std::is_same_v<T, double>) {
      member = *value.as_double();
    } else if constexpr (std::is_same_v<T, std::string>) {
      member.clear();
      if (const auto text = value.as_string()) member = *text;
      for (const JsonView e : value.elements()) member += (member.empty() ? "" : ",") + std::string(*e.as_string());
    }
  });
  return found;
}

// JSON values with the members of objects in one order.
std::string canonical(JsonView v) {
  std::string out;
  if (v.is_object()) {
    std::map<std::string, std::string> members;
    for (const auto& [key, value] : v.members()) members[std::string(key)] = canonical(value);
    for (const auto& [key, value] : members) out += json_quoted(key) + ":" + value + ",";
    return "{" + out + "}";
  }
  if (!v.is_array()) return v.is_number() ? json_number(*v.as_double()) : v.text();
  for (const JsonView e : v.elements()) out += canonical(e) + ",";
  return "[" + out + "]";
}
std::string canonical_file(const std::string& path) {
  auto document = JsonDocument::parse_file(path);
  return document ? canonical(document->root()) : document.error().message;
}

std::vector<std::byte> bytes_of(const format::Checkpoint& file, const format::TensorEntry& t) {
  std::vector<std::byte> out(t.size_bytes);
  EXPECT_TRUE(file.read(t, 0, out));
  return out;
}

struct Compared {
  int tensors = 0, equal = 0, files = 0, equal_files = 0;
};

void compare_tensors(const format::Checkpoint& made, const format::Checkpoint& golden, const std::string& name, Compared& sum) {
  EXPECT_EQ(made.tensors().size(), golden.tensors().size()) << name;
  for (const format::TensorEntry& want : golden.tensors()) {
    ++sum.tensors;
    const format::TensorEntry* have = made.find(want.name);
    ASSERT_NE(have, nullptr) << name << ": " << want.name;
    EXPECT_EQ(have->dtype, want.dtype) << name << ": " << want.name;
    EXPECT_EQ(have->shape, want.shape) << name << ": " << want.name;
    const bool equal = bytes_of(made, *have) == bytes_of(golden, want);
    EXPECT_TRUE(equal) << name << ": " << want.name;
    sum.equal += equal;
  }
}

TEST(QuantizedCheckpoints, AreTheFilesThatTheLibrariesSave) {
  const std::string folder = shared_path("golden/bitsandbytes/");
  BERTH_NEEDS(folder + "checkpoints_index.json");
  auto index = JsonDocument::parse_file(folder + "checkpoints_index.json");
  ASSERT_TRUE(index) << index.error().message;
  Compared sum;
  int checkpoints = 0, refused = 0;
  for (const JsonView c : index->root()["checkpoints"].elements()) {
    if (c["made_with"].members().empty()) continue;
    const std::string name(*c["name"].as_string()), golden = folder + "checkpoints/" + name;
    engine::Options options;
    options.dtype = *c["load_dtype"].as_string();
    options.threads = 2;
    for (const auto& [key, value] : c["made_with"].members()) ASSERT_TRUE(set_option(options, key, value)) << key;
    const TempFolder out("berth-quantized-" + name);
    const auto report = engine::quantize_checkpoint(folder + "checkpoints/" + std::string(*c["source"].as_string()), out.path(), options,
                                                    name.ends_with("_sharded") ? "40KB" : "50GB", Log{});
    if (!report && report.error().code == ErrorCode::kUnsupported) {
      std::printf("[ refused  ] %-36s %s\n", name.c_str(), report.error().message.c_str());
      ++refused;
      continue;
    }
    ASSERT_TRUE(report) << name << ": " << report.error().message;
    auto made = format::Checkpoint::open(out.path(), Log{});
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    auto want = format::Checkpoint::open(golden, Log{});
    ASSERT_TRUE(want) << name << ": " << want.error().message;
    compare_tensors(*made, *want, name, sum);
    for (const char* file : {"config.json", "generation_config.json"})
      EXPECT_EQ(canonical_file(out.path() + "/" + file), canonical_file(golden + "/" + file)) << name;
    auto names = list_folder(golden);
    ASSERT_TRUE(names);
    for (const std::string& file : *names) {
      if (!file.starts_with("model")) continue;
      ++sum.files;
      auto a = read_file(out.path() + "/" + file), b = read_file(golden + "/" + file);
      ASSERT_TRUE(a) << name << "/" << file << " was not written";
      sum.equal_files += *a == *b;
      if (file.ends_with(".json")) EXPECT_EQ(canonical_file(out.path() + "/" + file), canonical_file(golden + "/" + file)) << name;
    }
    ++checkpoints;
  }
  std::printf("[ golden   ] %d checkpoints written, %d refused by name: %d of %d tensors byte-equal, %d of %d files byte-equal\n", checkpoints,
              refused, sum.equal, sum.tensors, sum.equal_files, sum.files);
  EXPECT_EQ(sum.equal, sum.tensors);
  EXPECT_GE(checkpoints, 24);
}

// The codec cases as files of one tensor: what the command does to a matrix without a model around it.
TEST(QuantizedFiles, EqualTheCodecCases) {
  const std::string folder = shared_path("golden/bitsandbytes/");
  BERTH_NEEDS(folder + "codecs_index.json");
  auto index = JsonDocument::parse_file(folder + "codecs_index.json");
  ASSERT_TRUE(index) << index.error().message;
  std::map<std::string, format::Checkpoint> files;
  const TempFolder out("berth-quantized-codecs");
  ASSERT_TRUE(std::filesystem::create_directory(out.path()));
  int cases = 0, equal = 0;
  for (const JsonView c : index->root()["cases"].elements()) {
    const std::string op(*c["op"].as_string()), name(*c["name"].as_string());
    const JsonView params = c["params"], keys = c["tensors"];
    if ((op != "quantize_4bit" && op != "int8_vectorwise_quant") || params.contains("refused")) continue;
    // A threshold concerns activations, not weights; and NaN scales are equal to any NaN, not byte for byte.
    const auto threshold = params["threshold"].as_double();
    if ((threshold && *threshold > 0) || name.find("threshold") != std::string::npos || name == "int8_nan_inf") continue;
    const std::string file(*c["file"].as_string());
    auto it = files.find(file);
    if (it == files.end()) {
      auto opened = format::Checkpoint::open(folder + file, Log{});
      ASSERT_TRUE(opened) << opened.error().message;
      it = files.emplace(file, *std::move(opened)).first;
    }
    const auto golden = [&](std::string_view key) {
      const format::TensorEntry* t = keys.contains(key) ? it->second.find(*keys[key].as_string()) : nullptr;
      return t == nullptr ? std::vector<std::byte>() : bytes_of(it->second, *t);
    };
    const format::TensorEntry* input = it->second.find(*keys["input"].as_string());
    if (input == nullptr || input->shape.size() != 2) continue;
    const std::vector<std::byte> data = golden("input");
    const std::span<const std::byte> view(data);
    ASSERT_TRUE(format::write_safetensors(out.path() + "/in.safetensors", {{"m.weight", input->dtype, input->shape, 0}}, {&view, 1}));
    engine::Options options;
    options.load_in_4bit = op == "quantize_4bit";
    options.load_in_8bit = !options.load_in_4bit;
    if (options.load_in_4bit) {
      options.bnb_4bit_quant_type = *params["quant_type"].as_string();
      options.bnb_4bit_blocksize = *params["blocksize"].as_int64();
      options.bnb_4bit_use_double_quant = keys.contains("nested_absmax");
    }
    const auto report = engine::quantize_checkpoint(out.path() + "/in.safetensors", out.path() + "/out.safetensors", options, "50GB", Log{});
    ASSERT_TRUE(report) << name << ": " << report.error().message;
    auto made = format::Checkpoint::open(out.path() + "/out.safetensors", Log{});
    ASSERT_TRUE(made) << name << ": " << made.error().message;
    const auto check = [&](std::string_view key, const std::string& tensor) {
      const format::TensorEntry* t = made->find(tensor);
      if (t == nullptr || bytes_of(*made, *t) != golden(key)) {
        ADD_FAILURE() << name << ": " << tensor;
        return false;
      }
      return true;
    };
    bool same = true;
    if (options.load_in_8bit) {
      same = check("CB", "m.weight") && check("SCB", "m.SCB");
    } else {
      same = check("packed", "m.weight");
      same = check(keys.contains("nested_absmax") ? "absmax_u8" : "absmax", "m.weight.absmax") && same;
      if (keys.contains("nested_absmax")) same = check("nested_absmax", "m.weight.nested_absmax") && same;
      if (keys.contains("quant_state_json"))
        same = check("quant_state_json", "m.weight.quant_state.bitsandbytes__" + options.bnb_4bit_quant_type) && same;
    }
    ++cases;
    equal += same;
  }
  std::printf("[ golden   ] %d of %d codec cases with matrices are written byte for byte\n", equal, cases);
  EXPECT_EQ(equal, cases);
  EXPECT_GE(cases, 49);
}

TEST(QuantizedCheckpoints, LeaveNothingBehindWhenInterrupted) {
  const std::string source = shared_path("golden/bitsandbytes/checkpoints/llama_untied");
  BERTH_NEEDS(source);
  const TempFolder out("berth-interrupted");
  Log log;
  log.on_progress = [](std::string_view, uint64_t done, uint64_t) { return done < 100000; };
  engine::Options options;
  options.load_in_4bit = true;
  const auto report = engine::quantize_checkpoint(source, out.path(), options, "50GB", log);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kCancelled);
  for (const auto& entry : std::filesystem::directory_iterator(::testing::TempDir()))
    EXPECT_FALSE(entry.path().string().starts_with(out.path())) << entry.path();
}

TEST(QuantizedCheckpoints, AreNotWrittenOverOthers) {
  const std::string source = shared_path("golden/bitsandbytes/checkpoints/llama_untied");
  BERTH_NEEDS(source);
  const TempFolder out("berth-occupied");
  std::filesystem::create_directories(out.path() + "/kept");
  engine::Options options;
  options.load_in_8bit = true;
  const auto report = engine::quantize_checkpoint(source, out.path(), options, "50GB", Log{});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(path_exists(out.path() + "/kept"));
}

TEST(ShardSplit, FollowsTheRule) {
  using Shards = std::vector<std::vector<size_t>>;
  const std::vector<uint64_t> sizes{5, 4, 2, 20, 3, 6, 1};
  EXPECT_EQ(engine::split_into_shards(sizes, 10), (Shards{{0, 1}, {3}, {2, 4}, {5, 6}}));
  EXPECT_EQ(engine::split_into_shards(sizes, 1000), (Shards{{0, 1, 2, 3, 4, 5, 6}}));
  EXPECT_TRUE(engine::natural_less("layers.2.a", "layers.10.a"));
  EXPECT_TRUE(engine::natural_less("lm_head.weight", "model.a"));
  EXPECT_TRUE(engine::natural_less("a.weight", "a.weight.absmax"));
  EXPECT_FALSE(engine::natural_less("layers.10.a", "layers.2.a"));
}

}  // namespace
}  // namespace berth::testing
