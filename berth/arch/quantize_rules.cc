// arch/quantize_rules.cc — the skip list and its matching, by PCRE2 (Python's `re` and it agree on what lists use).
#include "berth/arch/quantize_rules.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "berth/base/bytes.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

struct FreeCode {
  void operator()(pcre2_code* c) const { pcre2_code_free(c); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};
struct FreeContext {
  void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
};

// One compiled entry of a skip list.
class SkipKey {
 public:
  static Result<SkipKey> make(std::string_view key) {
    if (key.find_first_of("\\^$|?*+()[]{}") == std::string_view::npos) {  // dots apart, plain text
      SkipKey out;
      out.key_ = std::string(key);
      return out;
    }
    return compile(key, fmt::format("(?:{})(?:(?<=\\.)|(?=\\.)|\\z)", key));
  }
  // `pattern` as it is, anchored at the start.
  static Result<SkipKey> compile(std::string_view key, const std::string& pattern) {
    SkipKey out;
    out.key_ = std::string(key);
    int code = 0;
    PCRE2_SIZE at = 0;
    out.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_ANCHORED | PCRE2_UTF, &code, &at, nullptr));
    if (!out.code_) {
      PCRE2_UCHAR why[160] = {};
      pcre2_get_error_message(code, why, sizeof why);
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("skip list: {} is no regular expression: {}", quoted(key), reinterpret_cast<const char*>(why)),
          {"Entries of --llm-int8-skip-modules are regular expressions, matched from the start of a module's path."});
    }
    out.match_.reset(pcre2_match_data_create(1, nullptr));
    out.context_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(out.context_.get(), 1000000);  // a pattern from outside cannot run for long
    return out;
  }

  Result<bool> matches(std::string_view path) const {
    if (path.ends_with(key_)) return true;  // true for the empty key: it skips everything
    if (!code_) return matches_plainly(path);
    return matches_pattern(path);
  }
  Result<bool> matches_pattern(std::string_view path) const {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0, 0, match_.get(),
                               context_.get());
    if (rc >= 0) return true;
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("skip list: {} takes too long to match {}", quoted(key_), quoted(path)));
  }

  const std::string& key() const { return key_; }

 private:
  // Without other operators the match has the key's length, and its dots stand for any character.
  bool matches_plainly(std::string_view path) const {
    const size_t n = key_.size();
    if (path.size() < n) return false;
    for (size_t i = 0; i < n; ++i)
      if (key_[i] != '.' && key_[i] != path[i]) return false;
    return path.size() == n || path[n] == '.' || (n > 0 && path[n - 1] == '.');
  }

  std::string key_;
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
};

struct Entry {
  SkipKey key;
  QuantizeReason reason;
  bool used = false;
};

std::string without_weight(std::string name) {
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name;
}

bool is_replaceable_class(std::string_view name) { return name == "Linear" || name == "Conv1D"; }

bool owns_stacked_parameter(const Module& m) {
  return std::any_of(m.parameters.begin(), m.parameters.end(), [](const Parameter& p) { return p.shape.size() >= 3; });
}

// Convolutions own kernels of three and more dimensions too, but nobody expects those to shrink.
bool is_convolution(std::string_view name) { return name.find("Conv") != std::string_view::npos; }

}  // namespace

std::string_view quantize_reason_text(QuantizeReason reason) {
  switch (reason) {
    case QuantizeReason::kReplaced:
      return "are replaced";
    case QuantizeReason::kSkippedByUser:
      return "stay wide by the skip list given";
    case QuantizeReason::kSkippedByModel:
      return "stay wide by the model's own list (tied weights, head, fp32 modules)";
    case QuantizeReason::kSkippedByMap:
      return "stay wide because the map puts them on the cpu or the disk";
    case QuantizeReason::kSubclass:
      return "stay wide: a class that derives from Linear is not replaced, only Linear itself";
    case QuantizeReason::kFusedExperts:
      return "stay wide: experts in one stacked tensor are no Linear modules";
  }
  return "";
}

std::string find_output_embedding(const ModuleTree& tree) {
  for (const char* name : {"lm_head", "embed_out"}) {
    if (tree.root.child(name) != nullptr) return name;
    for (const Module& c : tree.root.children)
      if (c.child(name) != nullptr) return join_path(c.name, name);
  }
  return {};
}

std::vector<std::string> automatic_skip_list(const ModuleTree& tree, std::string_view output_embedding) {
  std::set<std::string> names;
  for (const auto& [target, source] : tree.ties) {
    names.insert(without_weight(target));
    names.insert(without_weight(source));
  }
  std::string last;
  for_each_module(tree, [&](const std::string& path, const Module& m) {
    if (!m.parameters.empty()) last = join_path(path, m.parameters.back().name);
  });
  if (!last.empty()) names.insert(without_weight(last));
  if (!output_embedding.empty()) names.insert(std::string(output_embedding));
  return {names.begin(), names.end()};
}

Result<bool> skip_key_matches(std::string_view key, std::string_view path) {
  TRY(const SkipKey compiled, SkipKey::make(key));
  return compiled.matches(path);
}

Result<bool> pattern_matches_start(std::string_view pattern, std::string_view text) {
  TRY(const SkipKey compiled, SkipKey::compile(pattern, std::string(pattern)));
  return compiled.matches_pattern(text);
}

Result<QuantizeRules> quantize_rules(const ModuleTree& tree, const QuantizeOptions& options) {
  QuantizeRules out;
  std::vector<Entry> entries;
  std::set<std::string> listed;
  const auto add = [&](const std::vector<std::string>& keys, QuantizeReason reason) -> Status {
    for (const std::string& key : keys) {
      if (!listed.insert(key).second) continue;
      TRY(SkipKey compiled, SkipKey::make(key));
      entries.push_back({std::move(compiled), reason});
      out.skip_list.push_back(key);
    }
    return {};
  };
  if (options.skip_modules) {
    TRY_STATUS(add(*options.skip_modules, QuantizeReason::kSkippedByUser));
  } else {
    const std::string head = options.output_embedding ? *options.output_embedding : find_output_embedding(tree);
    TRY_STATUS(add(automatic_skip_list(tree, head), QuantizeReason::kSkippedByModel));
  }
  TRY_STATUS(add(tree.keep_in_fp32, QuantizeReason::kSkippedByModel));
  TRY_STATUS(add(options.kept_off_accelerators, QuantizeReason::kSkippedByMap));

  std::optional<Error> failed;
  for_each_module(tree, [&](const std::string& path, const Module& m) {
    if (failed || !m.same_as.empty() || path.empty()) return;
    const bool replaceable = is_replaceable_class(m.class_name);
    QuantizeDecision d{path, m.class_name, replaceable, QuantizeReason::kReplaced, ""};
    const bool subclass = !replaceable && m.class_name.ends_with("Linear") && !m.parameters.empty();
    if (!replaceable && !m.parameters.empty()) {  // stays wide in any case; a key that names it is no mistake
      for (Entry& e : entries) {
        const auto hit = e.key.matches(path);
        e.used = e.used || (hit && *hit);
      }
    }
    if (!replaceable) {
      if (subclass)
        d.reason = QuantizeReason::kSubclass;
      else if (owns_stacked_parameter(m) && !is_convolution(m.class_name))
        d.reason = QuantizeReason::kFusedExperts;
      else
        return;
      out.decisions.push_back(std::move(d));
      return;
    }
    for (Entry& e : entries) {
      const auto hit = e.key.matches(path);
      if (!hit) {
        failed = hit.error();
        return;
      }
      if (!*hit) continue;
      e.used = true;
      if (!d.replaced) continue;
      d.replaced = false;
      d.reason = e.reason;
      d.key = e.key.key();
    }
    out.decisions.push_back(std::move(d));
  });
  if (failed) return *std::move(failed);
  for (const Entry& e : entries)
    if (!e.used && e.reason == QuantizeReason::kSkippedByUser) out.unmatched_keys.push_back(e.key.key());
  return out;
}

std::vector<std::string> quantize_notes(const ModuleTree& tree, const QuantizeRules& rules) {
  const auto bytes_of = [](const Module& m) {
    uint64_t sum = 0;
    for (const Parameter& p : m.parameters) {
      const auto n = element_count(p.shape);
      sum += n ? dtype_bytes(p.dtype, *n).value_or(0) : 0;
    }
    return sum;
  };
  uint64_t total = 0;
  for_each_module(tree, [&](const std::string&, const Module& m) { total += bytes_of(m); });
  struct Group {
    size_t modules = 0;
    uint64_t bytes = 0;
    std::string first;
  };
  std::map<QuantizeReason, Group> groups;
  for (const QuantizeDecision& d : rules.decisions) {
    const Module* m = tree.find(d.path);
    if (m == nullptr) continue;
    Group& g = groups[d.reason];
    if (g.modules++ == 0) g.first = d.path;
    g.bytes += bytes_of(*m);
  }
  std::vector<std::string> out;
  for (const auto& [reason, g] : groups) {
    if (reason == QuantizeReason::kReplaced)
      out.push_back(fmt::format("{} of {} are in {} modules that are replaced.", format_bytes(g.bytes),
                                format_bytes(total), g.modules));
    else
      out.push_back(fmt::format("{} of {} {}: {}{}.", format_bytes(g.bytes), format_bytes(total),
                                quantize_reason_text(reason), quoted(g.first),
                                g.modules == 1 ? "" : fmt::format(" and {} more", g.modules - 1)));
  }
  if (!rules.unmatched_keys.empty()) {
    std::vector<std::string> keys;
    for (const std::string& k : rules.unmatched_keys) keys.push_back(quoted(k));
    out.push_back(fmt::format("Entries of the skip list that match no module: {}.", join(keys, ", ")));
  }
  for (const QuantizeDecision& d : rules.decisions)
    if (d.replaced && d.path == find_output_embedding(tree))
      out.push_back(
          fmt::format("The head {} is replaced as well: a skip list that is given takes the place of the one that "
                      "protects it; add it to the list to keep it wide.",
                      quoted(d.path)));
  return out;
}

ModuleTree with_quantized_linears(const ModuleTree& tree, const QuantizeRules& rules, QuantizedLinear kind) {
  ModuleTree out = tree;
  std::set<std::string_view> replaced;
  for (const QuantizeDecision& d : rules.decisions)
    if (d.replaced) replaced.insert(d.path);
  const auto visit = [&](auto&& self, Module& m, const std::string& path) -> void {
    if (replaced.contains(path)) m.class_name = kind == QuantizedLinear::kLinear4bit ? "Linear4bit" : "Linear8bitLt";
    for (Module& c : m.children) self(self, c, join_path(path, c.name));
  };
  visit(visit, out.root, "");
  return out;
}

}  // namespace berth::arch
