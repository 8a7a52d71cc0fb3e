// Recipes of bare configs against the tensor listings of published checkpoints (checkpoints/*/tensors.tsv): each
// presumed tensor is listed with the shape and type the recipe says, and what is listed beyond is what nobody reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "berth/arch/golden_tree.h"
#include "berth/arch/registry.h"
#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/hf_config.h"

namespace berth::arch {
namespace {

namespace fs = std::filesystem;

struct Listed {
  DType dtype = DType::kF32;
  uint64_t elements = 0, bytes = 0;
  bool read = false;
};

Result<std::map<std::string, Listed>> read_listing(const std::string& path) {
  TRY(const std::string text, read_file(path, size_t{1} << 28));
  std::map<std::string, Listed> out;
  bool first = true;
  for (const std::string& line : split(text, '\n')) {
    if (std::exchange(first, false) || line.empty()) continue;
    const std::vector<std::string> row = split(line, '\t');
    const auto dtype = row.size() > 2 ? dtype_from_safetensors(row[1]) : std::nullopt;
    if (!dtype) return Error(ErrorCode::kCorruptData, "listing: " + line);
    TRY(const JsonDocument shape, JsonDocument::parse(row[2]));
    uint64_t n = 1;
    for (const JsonView v : shape.root().elements()) n *= static_cast<uint64_t>(*v.as_int64());
    out[row[0]] = {*dtype, n, *dtype_bytes(*dtype, n)};
  }
  return out;
}

bool expected_beyond(const std::string& model, const std::string& name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (has("vision_tower") || has("multi_modal_projector") || has("audio_tower") || has("embed_vision") ||
      has("embed_audio") || has("patch_merge_mlp") || has("weight_format") || has("rotary_emb.inv_freq"))
    return true;
  if (name.starts_with("mtp.")) return true;
  if (model == "DeepSeek-V3") return name.starts_with("model.layers.61.");
  if (model.starts_with("gemma-4-E")) return has("k_proj") || has("v_proj") || has("k_norm");
  if (model == "falcon-40b") return name == "lm_head.weight";
  return false;
}

// The name in the listing: recipes of a bare config say the model's own base path.
std::string find_name(const std::map<std::string, Listed>& listing, const std::string& name) {
  if (listing.contains(name)) return name;
  const auto swapped = [&](std::string_view from, std::string_view to) {
    return name.starts_with(from) ? std::string(to) + name.substr(from.size()) : name;
  };
  for (const std::string& other : {swapped("model.language_model.", "language_model.model."),
                                   swapped("lm_head.", "language_model.lm_head."), swapped("transformer.", "")})
    if (listing.contains(other)) return other;
  return "";
}

int compare(const std::string& model, std::map<std::string, Listed> listing, const ModelSpec& spec) {
  int wrong = 0;
  const auto complain = [&](const std::string& text) {
    if (++wrong <= 3) ADD_FAILURE() << model << ": " << text;
  };
  for (const TensorSpec& t : spec.tensors) {
    for (const Source& s : t.recipe.sources) {
      const std::string name = find_name(listing, s.name);
      if (name.empty()) {
        complain("not listed: " + s.name);
        continue;
      }
      Listed& l = listing[name];
      l.read = true;
      const auto n = static_cast<uint64_t>(s.rows * s.cols);
      const bool packed = s.storage == SourceStorage::kMxfp4;
      if (s.slice < 0 && l.elements != (packed ? n / 2 : n)) complain("elements of " + name);
      // Correction biases and routers are wider in some files than the config says.
      if (l.dtype != s.dtype && l.dtype != DType::kF32) complain("type of " + name);
      for (const std::string& c : s.companions) {
        const std::string companion = find_name(listing, c);
        if (companion.empty()) {
          complain("not listed: " + c);
        } else {
          listing[companion].read = true;
        }
      }
    }
  }
  for (const auto& [name, l] : listing)
    if (!l.read && !expected_beyond(model, name)) complain("not read: " + name);
  return wrong;
}

// Formats that are counted and not run: the bytes of all tensors of the model, and that it says so.
TEST(PublishedListings, CountedFormatsHaveTheBytesOfTheirFiles) {
  const std::string folder = shared_folder() + "/checkpoints";
  BERTH_NEED_SHARED(folder);
  for (const char* name : {"Llama-2-7B-AWQ", "Qwen3-32B-AWQ"}) {
    SCOPED_TRACE(name);
    const auto config = format::HfConfig::open(folder + "/" + name + "/config.json");
    ASSERT_TRUE(config) << config.error().message;
    const auto listing = read_listing(folder + "/" + name + "/tensors.tsv");
    ASSERT_TRUE(listing) << listing.error().message;
    const auto d = describe_config(*config, {});
    ASSERT_TRUE(d) << d.error().message;
    EXPECT_EQ(d->spec.unsupported, "weights stored as awq");
    uint64_t listed = 0, counted = 0;
    for (const auto& [tensor, l] : *listing) listed += expected_beyond(name, tensor) ? 0 : l.bytes;
    for (const TensorSpec& t : d->spec.tensors)
      for (const Source& s : t.recipe.sources)
        counted += s.storage == SourceStorage::kOther ? s.other_bytes
                                                      : *dtype_bytes(s.dtype, static_cast<uint64_t>(s.rows * s.cols));
    EXPECT_EQ(counted, listed);
  }
}

TEST(PublishedListings, HoldExactlyTheTensorsOfTheSpec) {
  const std::string folder = shared_folder() + "/checkpoints";
  BERTH_NEED_SHARED(folder);
  int compared = 0, equal = 0;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (fs::exists(entry.path() / "tensors.tsv")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string falcon = folder + "/" + name + "/config.falcon.json";
    const auto config = format::HfConfig::open(path_exists(falcon) ? falcon : folder + "/" + name + "/config.json");
    ASSERT_TRUE(config) << config.error().message;
    auto listing = read_listing(folder + "/" + name + "/tensors.tsv");
    ASSERT_TRUE(listing) << listing.error().message;
    const auto description = describe_config(*config, {});
    ASSERT_TRUE(description) << description.error().message;
    // AWQ stores other tensors; recipes of a bare config cannot know them.
    if (description->spec.unsupported.find("weights stored as") != std::string::npos) continue;
    ++compared;
    equal += compare(name, *std::move(listing), description->spec) == 0;
  }
  std::printf("published listings: %d of %d equal (%zu there)\n", equal, compared, names.size());
  EXPECT_EQ(compared, 29);
}

}  // namespace
}  // namespace berth::arch
