// Checkpoints that bitsandbytes wrote (golden/bitsandbytes): each module that the golden says is quantized has that
// storage in its recipe, with block size and nesting from the file; nothing else is left unread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/arch/sources.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/checkpoint.h"

namespace berth::arch {
namespace {

namespace fs = std::filesystem;

std::set<std::string> quantized_modules(const ModelSpec& spec) {
  std::set<std::string> out;
  for (const TensorSpec& t : spec.tensors)
    for (const Source& s : t.recipe.sources)
      if (s.storage == SourceStorage::kBnb4 || s.storage == SourceStorage::kBnbInt8) out.insert(t.module);
  return out;
}

TEST(Prequantized, BitsandbytesStorageIsToldFromTheTensors) {
  const std::string folder = shared_folder() + "/golden/bitsandbytes/checkpoints";
  BERTH_NEED_SHARED(folder);
  int total = 0;
  size_t modules = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const auto checkpoint = format::Checkpoint::open(entry.path().string());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto d = describe_model(*checkpoint, {});
    EXPECT_TRUE(d) << d.error().message;
    if (!d) continue;
    ++total;
    std::set<std::string> expected;
    const auto facts = JsonDocument::parse_file((entry.path() / "expected.json").string());
    ASSERT_TRUE(facts) << facts.error().message;
    const JsonView listed = facts->root()["quantized_modules"];
    if (listed.is_object()) {
      for (const auto& [module, value] : listed.members()) expected.insert(std::string(module));
    } else {
      for (const JsonView v : listed.elements()) expected.insert(std::string(v.as_string().value_or("?")));
    }
    EXPECT_EQ(quantized_modules(d->spec), expected);
    modules += expected.size();
    EXPECT_EQ(unread_tensors(*checkpoint, d->spec), std::vector<std::string>());
    const bool nested = name.find("_dq") != std::string::npos;
    for (const TensorSpec& t : d->spec.tensors)
      for (const Source& s : t.recipe.sources)
        if (s.storage == SourceStorage::kBnb4) {
          ASSERT_TRUE(s.prequantized);
          EXPECT_EQ(s.prequantized->nested, nested) << t.name;
          EXPECT_EQ(s.companions.size(), nested ? 3u : 1u);
        }
  }
  std::printf("bitsandbytes checkpoints: %d described, %zu quantized modules\n", total, modules);
  EXPECT_EQ(total, 30);
}

}  // namespace
}  // namespace berth::arch
