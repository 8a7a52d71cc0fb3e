// text/test_gguf.h — just enough of GGUF to hand a real file's tokenizer.ggml.* metadata to the tests of this layer.
// For tests only: the reader that Berth uses, which trusts nothing, is format/gguf.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/text/tokenizer.h"

namespace berth::text {

class TestGguf {
 public:
  // Reads the metadata at the front of a trusted file.
  explicit TestGguf(const std::string& path) {
    auto file = File::open(path).value();
    bytes_.resize(std::min<uint64_t>(file.size_bytes(), 64 << 20));
    if (!file.read_at(0, std::as_writable_bytes(std::span(bytes_)))) return;
    at_ = 16;
    const auto count = take<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key(text());
      value(key, take<uint32_t>());
    }
  }

  // Views into this object.
  GgufTokenizer tokenizer() const {
    GgufTokenizer g;
    g.model = string("model");
    g.pre = string("pre");
    g.tokens = strings("tokens");
    g.merges = strings("merges");
    if (const auto it = integers_.find(kPrefix + "token_type"); it != integers_.end())
      g.token_types.assign(it->second.begin(), it->second.end());
    if (const auto it = floats_.find(kPrefix + "scores"); it != floats_.end()) g.scores = it->second;
    g.bos_id = integer("bos_token_id");
    g.eos_id = integer("eos_token_id");
    g.unknown_id = integer("unknown_token_id");
    g.padding_id = integer("padding_token_id");
    const auto flag = [&](const char* key) {
      const auto n = integer(key);
      return n ? std::optional(*n != 0) : std::nullopt;
    };
    g.add_bos = flag("add_bos_token");
    g.add_eos = flag("add_eos_token");
    g.add_space_prefix = flag("add_space_prefix");
    return g;
  }
  std::string chat_template() const { return string("../chat_template"); }

 private:
  inline static const std::string kPrefix = "tokenizer.ggml.";

  template <typename T>
  T take() {
    const T v = load_le<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return v;
  }
  std::string_view text() {
    const auto n = take<uint64_t>();
    const std::string_view s(bytes_.data() + at_, n);
    at_ += n;
    return s;
  }
  void value(const std::string& key, uint32_t type) {
    switch (type) {
      case 0:
      case 7:
        integers_[key].push_back(take<uint8_t>());
        break;
      case 1:
        integers_[key].push_back(take<int8_t>());
        break;
      case 2:
        integers_[key].push_back(take<uint16_t>());
        break;
      case 3:
        integers_[key].push_back(take<int16_t>());
        break;
      case 4:
        integers_[key].push_back(take<uint32_t>());
        break;
      case 5:
        integers_[key].push_back(take<int32_t>());
        break;
      case 6:
        floats_[key].push_back(take<float>());
        break;
      case 8:
        strings_[key].push_back(text());
        break;
      case 9: {
        const auto element = take<uint32_t>();
        const auto n = take<uint64_t>();
        for (uint64_t i = 0; i < n; ++i) value(key, element);
        break;
      }
      case 10:
      case 11:
        integers_[key].push_back(take<int64_t>());
        break;
      default:
        at_ += 8;
    }
  }
  std::vector<std::string_view> strings(const std::string& name) const {
    const auto it = strings_.find(kPrefix + name);
    return it == strings_.end() ? std::vector<std::string_view>() : it->second;
  }
  std::string string(const std::string& name) const {
    const auto it = strings_.find(name.starts_with("../") ? "tokenizer." + name.substr(3) : kPrefix + name);
    return it == strings_.end() || it->second.empty() ? std::string() : std::string(it->second[0]);
  }
  std::optional<int64_t> integer(const std::string& name) const {
    const auto it = integers_.find(kPrefix + name);
    return it == integers_.end() || it->second.empty() ? std::nullopt : std::optional(it->second[0]);
  }

  std::string bytes_;
  size_t at_ = 0;
  std::map<std::string, std::vector<std::string_view>> strings_;
  std::map<std::string, std::vector<int64_t>> integers_;
  std::map<std::string, std::vector<float>> floats_;
};

}  // namespace berth::text
