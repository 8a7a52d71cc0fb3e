// arch/families/tower_config.h — numbers of the vision and audio towers, which are planned and not run.
//
// A number that is absent or out of range takes its class default: a tower's config never stops the text model.
#pragma once

#include <string>
#include <string_view>

#include "berth/arch/config_reader.h"

namespace berth::arch {

class TowerConfig {
 public:
  // The nested object `key` of `root`: "vision_config".
  TowerConfig(const format::ConfigView& root, std::string_view key) : present_(root.has(key)) {
    const auto object = root.find_object(key);
    if (object && *object) view_ = **object;
  }
  explicit TowerConfig(format::ConfigView view) : view_(std::move(view)), present_(true) {}

  bool present() const { return present_; }
  int64_t integer(const format::ConfigKey& key, int64_t otherwise) const {
    const auto n = view_.int_or(key, otherwise, {0, 1 << 20});
    return n ? *n : otherwise;
  }
  double number(const format::ConfigKey& key, double otherwise) const {
    const auto d = view_.double_or(key, otherwise, {0, 1e6, false});
    return d ? *d : otherwise;
  }
  bool boolean(const format::ConfigKey& key, bool otherwise) const {
    const auto v = view_.bool_or(key, otherwise);
    return v ? *v : otherwise;
  }
  std::string text(const format::ConfigKey& key, std::string_view otherwise) const {
    const auto v = view_.string_or(key, std::string(otherwise));
    return v ? *v : std::string(otherwise);
  }
  const format::ConfigView& view() const { return view_; }
  // The number of layers: at least 0, at most what any tower has.
  int64_t layers(const format::ConfigKey& key, int64_t otherwise) const {
    const int64_t n = integer(key, otherwise);
    return n > 10'000 ? otherwise : n;
  }

 private:
  format::ConfigView view_;
  bool present_ = false;
};

}  // namespace berth::arch
