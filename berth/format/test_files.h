// format/test_files.h — what this layer's tests write by hand: folders that go away, safetensors and GGUF bytes.
// Only for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/result.h"
#include "berth/format/gguf_metadata.h"

namespace berth::format {

// An empty folder below the test's temporary one, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = path_join(testing::TempDir(), "berth_format_XXXXXX");
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_join(path_, name); }
  // Writes a file (folders in between are made) and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string file = *this / name;
    std::filesystem::create_directories(path_folder(file));
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::string path_;
};

inline std::string le64(uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }
inline std::string le32(uint32_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }

// A safetensors file: length, header, data.
inline std::string safetensors(std::string_view header, size_t data_bytes) {
  return le64(header.size()) + std::string(header) + std::string(data_bytes, '\1');
}
// `"NAME":{"dtype":"F32","shape":SHAPE,"data_offsets":[BEGIN,END]}`
inline std::string entry(std::string_view name, std::string_view shape, uint64_t begin, uint64_t end,
                         std::string_view dtype = "F32") {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":" + std::string(shape) +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}
// One F32 tensor of two elements called `name`.
inline std::string one_tensor(std::string_view name) { return safetensors("{" + entry(name, "[2]", 0, 8) + "}", 8); }

// GGUF bytes, piece by piece, right or wrong as the caller likes.
class GgufBytes {
 public:
  explicit GgufBytes(uint32_t version = 3) : version_(version) {}

  static std::string text(std::string_view s) { return le64(s.size()) + std::string(s); }
  GgufBytes& raw_pair(std::string_view key, GgufType type, std::string_view value) {
    pairs_ += text(key) + le32(static_cast<uint32_t>(type)) + std::string(value);
    ++pair_count_;
    return *this;
  }
  GgufBytes& u32(std::string_view key, uint32_t v) { return raw_pair(key, GgufType::kU32, le32(v)); }
  GgufBytes& u16(std::string_view key, uint16_t v) { return raw_pair(key, GgufType::kU16, le32(v).substr(0, 2)); }
  GgufBytes& string(std::string_view key, std::string_view v) { return raw_pair(key, GgufType::kString, text(v)); }
  GgufBytes& array(std::string_view key, GgufType element, uint64_t count, std::string_view elements) {
    return raw_pair(key, GgufType::kArray, le32(static_cast<uint32_t>(element)) + le64(count) + std::string(elements));
  }
  GgufBytes& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& v : values) elements += text(v);
    return array(key, GgufType::kString, values.size(), elements);
  }
  // `ne`: row length first, as in the file.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type, uint64_t offset) {
    infos_ += text(name) + le32(static_cast<uint32_t>(ne.size()));
    for (const uint64_t n : ne) infos_ += le64(n);
    infos_ += le32(type) + le64(offset);
    ++tensor_count_;
    return *this;
  }
  GgufBytes& counts(uint64_t tensors, uint64_t pairs) {
    tensor_count_ = tensors;
    pair_count_ = pairs;
    return *this;
  }
  std::string header() const {
    return "GGUF" + le32(version_) + le64(tensor_count_) + le64(pair_count_) + pairs_ + infos_;
  }
  // With padding and `data_bytes` bytes of data.
  std::string bytes(size_t data_bytes, size_t alignment = 32) const {
    std::string out = header();
    out.append(align_up(out.size(), alignment) - out.size(), '\0');
    return out + std::string(data_bytes, '\1');
  }

 private:
  uint32_t version_;
  uint64_t tensor_count_ = 0, pair_count_ = 0;
  std::string pairs_, infos_;
};

// A small llama whose keys agree; tensors are added by the test.
inline GgufBytes small_gguf() {
  GgufBytes g;
  g.string("general.architecture", "llama").u32("llama.block_count", 2).u32("llama.attention.head_count", 4);
  g.u32("llama.attention.head_count_kv", 2).u32("llama.embedding_length", 32);
  return g;
}

inline std::string shared_folder() {
  const char* named = std::getenv("BERTH_SHARED");
  return named != nullptr ? named : std::string(BERTH_SOURCE_DIR) + "/../shared";
}

// A refusal as the checkpoint's user sees it: exit status 4, one printable line with all of `words`. Prints it, so that
// "berth_format_test | grep refused" is the table of malformed files and messages.
inline void expect_refusal(std::string_view id, const Error& error, const std::vector<std::string_view>& words) {
  std::printf("[ refused  ] %.*s: %s\n", static_cast<int>(id.size()), id.data(), error.message.c_str());
  EXPECT_EQ(exit_status(error.code), 4) << error.message;
  for (const std::string_view word : words)
    EXPECT_NE(error.message.find(word), std::string::npos) << "expected \"" << word << "\" in: " << error.message;
  for (const char c : error.message) EXPECT_GE(static_cast<unsigned char>(c), 0x20u) << error.message;
  EXPECT_LT(error.message.size(), 4000u);
}
template <typename T>
void expect_refused(std::string_view id, const Result<T>& result, const std::vector<std::string_view>& words) {
  if (result.has_value()) {
    ADD_FAILURE() << id << " was accepted";
    return;
  }
  expect_refusal(id, result.error(), words);
}

// Resident bytes of this process.
inline uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

// Leaves the test where `path` below the shared folder is absent: skipped, or failed with CI=true.
#define SKIP_WITHOUT_SHARED(variable, below)                                                  \
  const std::string variable = ::berth::path_join(::berth::format::shared_folder(), below);   \
  if (!::berth::path_exists(variable)) {                                                      \
    const char* ci = std::getenv("CI");                                                       \
    if (ci != nullptr && std::string_view(ci) == "true") FAIL() << variable << " is missing"; \
    GTEST_SKIP() << variable << " is missing";                                                \
  }

}  // namespace berth::format
