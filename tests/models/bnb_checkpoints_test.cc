// tests/models/bnb_checkpoints_test.cc — checkpoints that bitsandbytes quantized (save_pretrained), loaded and run as they are:
// 4 bit against the library's own logits, int8 against its dequantized weights (golden/bitsandbytes/README.md).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace berth::testing
