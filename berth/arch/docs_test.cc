// docs/architectures.md names every family there is.
#include <gtest/gtest.h>

#include "berth/arch/registry.h"
#include "berth/base/file.h"

namespace berth::arch {
namespace {

TEST(ArchitectureDocs, NameEveryModelTypeAndGgufArchitecture) {
  const auto text = read_file(std::string(BERTH_SOURCE_DIR) + "/docs/architectures.md", 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  for (const std::string& type : known_model_types())
    EXPECT_NE(text->find("`" + type + "`"), std::string::npos) << type;
  for (const std::string& name : known_gguf_architectures())
    if (name != "llama+experts") EXPECT_NE(text->find("`" + name + "`"), std::string::npos) << name;
  EXPECT_EQ(known_model_types().size(), 39u);
}

}  // namespace
}  // namespace berth::arch
