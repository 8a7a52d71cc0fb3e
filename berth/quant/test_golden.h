// quant/test_golden.h — for tests: where goldens are, and a reader of small safetensors files (quant must not include
// format).
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/tensor/dtype.h"
#include "berth/tensor/float16.h"

namespace berth::quant {

struct GoldenTensor {
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  std::string bytes;

  uint64_t count() const { return bytes.size() / dtype_info(dtype).block_bytes; }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(bytes.data(), bytes.size())); }
  template <typename T>
  std::vector<T> as() const {
    std::vector<T> v(bytes.size() / sizeof(T));
    if (!v.empty()) std::memcpy(v.data(), bytes.data(), v.size() * sizeof(T));
    return v;
  }
  // F32, F16 and BF16 widened.
  std::vector<float> floats() const {
    if (dtype == DType::kF32) return as<float>();
    std::vector<float> out;
    for (const uint16_t u : as<uint16_t>()) out.push_back(dtype == DType::kBF16 ? bf16_to_f32(u) : f16_to_f32(u));
    return out;
  }
};

inline std::map<std::string, GoldenTensor> read_golden(const std::string& path) {
  std::map<std::string, GoldenTensor> tensors;
  const auto text = read_file(path);
  if (!text) {
    ADD_FAILURE() << text.error().message;
    return tensors;
  }
  const auto header_bytes = load_le<uint64_t>(text->data());
  const auto header = JsonDocument::parse(std::string_view(*text).substr(8, header_bytes));
  if (!header) {
    ADD_FAILURE() << header.error().message;
    return tensors;
  }
  header->root().for_each_member([&](std::string_view name, JsonView t) {
    if (name == "__metadata__") return true;
    GoldenTensor out;
    out.dtype = *dtype_from_safetensors(*t["dtype"].as_string());
    t["shape"].for_each_element([&](JsonView d) {
      out.shape.push_back(*d.as_int64());
      return true;
    });
    const auto range = t["data_offsets"].elements();
    const uint64_t begin = *range[0].as_uint64(), end = *range[1].as_uint64();
    out.bytes = text->substr(8 + header_bytes + begin, end - begin);
    tensors.emplace(std::string(name), std::move(out));
    return true;
  });
  return tensors;
}

// The folder with goldens: $BERTH_SHARED, else ../shared beside the repository. "" and a reason to skip where absent.
inline std::string golden_folder(const std::string& below) {
  const char* shared = std::getenv("BERTH_SHARED");
  return std::string(shared != nullptr ? shared : BERTH_SOURCE_DIR "/../shared") + "/golden/" + below;
}
inline bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string_view(ci) == "true";
}

// Skips the test where `folder` is missing; in CI that is a failure.
#define BERTH_NEED_GOLDEN(folder)                                               \
  if (!::berth::is_directory(folder)) {                                         \
    if (::berth::quant::in_ci()) FAIL() << "goldens are missing: " << (folder); \
    GTEST_SKIP() << "goldens are missing: " << (folder);                        \
  }                                                                             \
  static_assert(true)

}  // namespace berth::quant
