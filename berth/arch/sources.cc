// arch/sources.cc — see sources.h.
#include "berth/arch/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>

#include "berth/arch/quantize_rules.h"
#include "berth/arch/stored_source.h"
#include "berth/base/strings.h"

namespace berth::arch {
namespace {

using format::Checkpoint;
using format::TensorEntry;

// The form a tensor has where its family names no other: one source called as in memory.
WantedForm own_form(const WantedTensor& w) {
  const bool vector = w.spec.kind == TensorKind::kVector && w.rows.value == 1;
  return {{{w.spec.name, vector ? Shape{w.cols.value} : Shape{w.rows.value, w.cols.value}}}, {}};
}

// What files put in place of the text model's path.
constexpr std::array<std::string_view, 9> kPrefixes{"model.language_model.",
                                                    "language_model.model.",
                                                    "model.decoder.",
                                                    "decoder.",
                                                    "model.",
                                                    "transformer.",
                                                    "gpt_neox.",
                                                    "language_model.",
                                                    ""};

// The checkpoint's names for names in memory.
class DiskNames {
 public:
  DiskNames(const Checkpoint& checkpoint, const Builder& builder, std::span<const WantedTensor> wanted)
      : checkpoint_(checkpoint), base_(builder.base().empty() ? "" : builder.base() + ".") {
    prefix_ = base_;
    size_t best = hits(base_, wanted);
    for (const std::string_view candidate : kPrefixes) {
      const size_t n = hits(candidate, wanted);
      if (n <= best) continue;
      best = n;
      prefix_ = std::string(candidate);
    }
    known_ = best > 0;
  }

  bool known() const { return known_; }  // whether anything was found at all
  std::string below_base(std::string_view name) const { return rebased(name, prefix_); }

  // The name that is stored, or nothing.
  std::optional<std::string> find(const WantedSource& source) const {
    std::string name = below_base(source.name);
    if (is_stored(checkpoint_, source, name)) return name;
    if (in_base(source.name)) return std::nullopt;
    for (const std::string_view wrapper : {"language_model.", "model.language_model."}) {
      std::string wrapped = std::string(wrapper) + source.name;
      if (is_stored(checkpoint_, source, wrapped)) return wrapped;
    }
    constexpr std::string_view kWrapper = "language_model.";
    if (source.name.starts_with(kWrapper)) {
      std::string bare = source.name.substr(kWrapper.size());
      if (is_stored(checkpoint_, source, bare)) return bare;
    }
    return std::nullopt;
  }

 private:
  bool in_base(std::string_view name) const { return name.starts_with(base_); }
  std::string rebased(std::string_view name, std::string_view prefix) const {
    if (!in_base(name)) return std::string(name);
    return std::string(prefix) + std::string(name.substr(base_.size()));
  }
  // How many of the first tensors are there under this prefix.
  size_t hits(std::string_view prefix, std::span<const WantedTensor> wanted) const {
    size_t n = 0;
    for (const WantedTensor& w : wanted.first(std::min<size_t>(wanted.size(), 24))) {
      if (!in_base(w.spec.name)) continue;
      const std::string name = rebased(w.spec.name, prefix);
      n += is_stored(checkpoint_, own_form(w).sources.front(), name) ? 1 : 0;
    }
    return n;
  }

  const Checkpoint& checkpoint_;
  std::string base_, prefix_;
  bool known_ = false;
};

// The layer number in "PREFIX.12.rest"; -1 where there is none.
int64_t layer_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  name.remove_prefix(prefix.size());
  int64_t n = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), n);
  return error == std::errc() && end < name.data() + name.size() && *end == '.' ? n : -1;
}

Status check_layer_count(const Checkpoint& checkpoint, const std::string& layers_prefix, const Decoder& d) {
  const auto layers = static_cast<int64_t>(d.spec.layers.size());
  int64_t highest = -1;
  const TensorEntry* example = nullptr;
  for (const TensorEntry& t : checkpoint.tensors()) {
    const int64_t n = layer_of(t.name, layers_prefix);
    if (n <= highest) continue;
    highest = n;
    example = &t;
  }
  if (highest < layers + d.extra_layers) return {};
  return Error(ErrorCode::kCorruptData,
               fmt::format("{} says {} layers, the checkpoint has layer {} (tensor {})", d.keys.layers, layers, highest,
                           quoted(example->name)),
               {"The config belongs to another checkpoint, or its layer count was edited."});
}

Status equal_bytes(const Checkpoint& checkpoint, const TensorEntry& a, const TensorEntry& b, bool* equal) {
  constexpr uint64_t kChunk = uint64_t{4} << 20;
  *equal = false;
  if (a.dtype != b.dtype || a.shape != b.shape) return {};
  std::vector<std::byte> left(std::min(a.size_bytes, kChunk)), right(left.size());
  for (uint64_t at = 0; at < a.size_bytes; at += kChunk) {
    const size_t n = std::min<uint64_t>(kChunk, a.size_bytes - at);
    TRY_STATUS(checkpoint.read(a, at, std::span(left).first(n)));
    TRY_STATUS(checkpoint.read(b, at, std::span(right).first(n)));
    if (std::memcmp(left.data(), right.data(), n) != 0) return {};
  }
  *equal = true;
  return {};
}

TensorSpec* find_spec(ModelSpec& spec, Role role) {
  for (TensorSpec& t : spec.tensors)
    if (t.role == role && t.layer == -1) return &t;
  return nullptr;
}

// Tables and heads may have more rows than the vocabulary: padding that is loaded and never chosen.
void accept_padding(const Checkpoint& checkpoint, WantedTensor& w, WantedForm& form, const std::string& name) {
  if (w.spec.role != Role::kEmbedding && w.spec.role != Role::kHead && w.spec.role != Role::kHeadBias) return;
  const TensorEntry* entry = checkpoint.find(name);
  Shape& shape = form.sources.front().shape;
  if (entry == nullptr || entry->shape.size() != shape.size()) return;
  if (shape.size() == 2 && entry->shape[1] != shape[1]) return;
  if (entry->shape[0] <= shape[0] || entry->shape[0] > kVocabRange.max) return;
  const bool vector = w.spec.kind == TensorKind::kVector;
  shape[0] = entry->shape[0];
  (vector ? w.cols : w.rows).value = shape[0];
  (vector ? w.spec.cols : w.spec.rows) = shape[0];
}

class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec)
      : checkpoint_(checkpoint),
        d_(decoder),
        builder_(builder),
        spec_(spec),
        names_(checkpoint, builder, builder.wanted()) {}

  Status resolve() {
    if (!names_.known()) {
      return Error(
          ErrorCode::kCorruptData,
          fmt::format("0 of {} tensors are known: {} expects names such as {}, the first one here is {}",
                      checkpoint_.tensors().size(), d_.architecture, quoted(builder_.wanted().front().spec.name),
                      checkpoint_.tensors().empty() ? "missing" : quoted(checkpoint_.tensors().front().name)));
    }
    TRY_STATUS(check_layer_count(checkpoint_, names_.below_base(builder_.layers()) + ".", d_));
    spec_.tensors.reserve(builder_.wanted().size());
    for (WantedTensor& w : builder_.wanted()) TRY_STATUS(add(w));
    TRY_STATUS(tie_head());
    if (const TensorSpec* table = find_spec(spec_, Role::kEmbedding)) {
      spec_.vocab_rows = table->rows;
      const DType dtype = table->recipe.sources.front().dtype;
      if (is_float(dtype)) spec_.dtype = dtype;
    }
    return {};
  }

 private:
  Status add(WantedTensor& w) {
    if (w.forms.empty()) w.forms.push_back(own_form(w));
    for (WantedForm& form : w.forms) {
      const auto first = names_.find(form.sources.front());
      if (!first) continue;
      accept_padding(checkpoint_, w, form, *first);
      TRY_STATUS(add_form(w, form));
      return {};
    }
    if (is_tie_side(w)) return {};
    return missing_tensor(w, names_.below_base(w.forms.front().sources.front().name), d_, d_.keys.layers);
  }

  Status add_form(const WantedTensor& w, const WantedForm& form) {
    TensorSpec tensor = w.spec;
    tensor.recipe.segments = form.segments;
    tensor.recipe.sources.reserve(form.sources.size());
    for (const WantedSource& wanted : form.sources) {
      const auto name = names_.find(wanted);
      if (!name) return missing_tensor(w, names_.below_base(wanted.name), d_, d_.keys.layers);
      auto source = describe_source(checkpoint_, wanted, *name);
      if (!source) {
        Error error = std::move(source).error();
        error.message += ": " + extents_text(w);
        return error;
      }
      if (source->storage == SourceStorage::kOther && spec_.unsupported.empty()) {
        const auto& method = checkpoint_.quantization();
        std::string blocks;  // fp8 runs in blocks of 128 x 128 with scales that are floats
        if (method && !method->block_size.empty()) blocks = " in blocks of " + shape_text(method->block_size);
        const TensorEntry* scales = checkpoint_.find(source->name + "_scale_inv");
        if (scales != nullptr && scales->dtype != DType::kF32 && scales->dtype != DType::kBF16 &&
            scales->dtype != DType::kF16)
          blocks += fmt::format(" with scales in {}", dtype_name(scales->dtype));
        spec_.unsupported =
            fmt::format("weights stored as {}{} (tensor {}, {})", method ? method->method_name : "an unknown format",
                        blocks, quoted(source->name), dtype_name(source->dtype));
      }
      tensor.recipe.sources.push_back(*std::move(source));
    }
    spec_.tensors.push_back(std::move(tensor));
    return {};
  }

  // Of a tied pair one side may be missing.
  bool is_tie_side(const WantedTensor& w) const {
    return spec_.tied_head && (w.spec.role == Role::kHead || w.spec.role == Role::kEmbedding);
  }

  Status tie_head() {
    if (!spec_.tied_head) return {};
    TensorSpec* table = find_spec(spec_, Role::kEmbedding);
    TensorSpec* head = find_spec(spec_, Role::kHead);
    if (table == nullptr && head == nullptr)
      return Error(ErrorCode::kCorruptData, "neither the embedding nor the head is in the checkpoint");
    if (table != nullptr && head != nullptr) {
      const TensorEntry* a = checkpoint_.find(table->recipe.sources.front().name);
      const TensorEntry* b = checkpoint_.find(head->recipe.sources.front().name);
      bool equal = a != nullptr && b != nullptr;
      if (equal) TRY_STATUS(equal_bytes(checkpoint_, *a, *b, &equal));
      if (!equal) {
        spec_.tied_head = false;
        spec_.notes.push_back(
            "the config ties the head to the embedding, but the checkpoint has two that differ: both are kept");
        return {};
      }
      spec_.notes.push_back(fmt::format("{} equals the embedding and is shared with it", quoted(b->name)));
      head->recipe = {};
      head->tied_to = Role::kEmbedding;
      return {};
    }
    TensorSpec other;
    for (const WantedTensor& w : builder_.wanted())
      if (w.spec.layer == -1 && w.spec.role == (table == nullptr ? Role::kEmbedding : Role::kHead)) other = w.spec;
    if (table == nullptr) {  // only the head is on disk: the table is read from there
      other.recipe = head->recipe;
      other.rows = head->rows;
      head->recipe = {};
      head->tied_to = Role::kEmbedding;
      spec_.tensors.insert(spec_.tensors.begin(), std::move(other));
      return {};
    }
    other.rows = table->rows;
    other.recipe = {};
    other.tied_to = Role::kEmbedding;
    spec_.tensors.push_back(std::move(other));
    return {};
  }

  const Checkpoint& checkpoint_;
  const Decoder& d_;
  Builder& builder_;
  ModelSpec& spec_;
  const DiskNames names_;
};

}  // namespace

std::string extents_text(const WantedTensor& w) {
  const auto one = [](const Dim& d) {
    return d.keys.empty() ? std::to_string(d.value) : fmt::format("{} = {}", d.keys, d.value);
  };
  if (w.rows.keys.empty()) return fmt::format("its {} elements follow {}", w.cols.value, one(w.cols));
  return fmt::format("rows follow {}, columns {}", one(w.rows), one(w.cols));
}

Error missing_tensor(const WantedTensor& w, std::string_view name, const Decoder& decoder,
                     std::string_view layers_key) {
  std::string message = fmt::format("tensor {} is missing from the checkpoint", quoted(name));
  if (w.spec.layer >= 0)
    message += fmt::format("; {} says there are {} layers", layers_key, decoder.spec.layers.size());
  if (w.spec.role == Role::kHead) message += "; the config says that the head is not tied to the embedding";
  return Error(ErrorCode::kCorruptData, std::move(message),
               {"Check that all shards are there and that the config belongs to this checkpoint."});
}

Status resolve_sources(const Checkpoint& checkpoint, const Decoder& decoder, Builder& builder, ModelSpec& spec) {
  return Resolver(checkpoint, decoder, builder, spec).resolve();
}

namespace {
// GGUF: numbers that became part of the spec.
bool is_rope_table(std::string_view name) {
  return name == "rope_freqs.weight" || name == "rope_factors_long.weight" || name == "rope_factors_short.weight";
}
}  // namespace

std::vector<std::string> unread_tensors(const Checkpoint& checkpoint, const ModelSpec& spec) {
  std::unordered_set<std::string_view> read;
  std::vector<std::string> modules;  // bitsandbytes' small tensors lie below the weight
  for (const TensorSpec& t : spec.tensors) {
    for (const Source& s : t.recipe.sources) {
      read.insert(s.name);
      for (const std::string& c : s.companions) read.insert(c);
    }
  }
  const auto belongs = [&](const std::string& name) {
    for (const std::string_view part :
         {".quant_map", ".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"})
      if (name.ends_with(part) && read.contains(std::string_view(name).substr(0, name.size() - part.size())))
        return true;
    constexpr std::string_view kFormat = ".weight_format";
    return name.ends_with(kFormat) && read.contains(name.substr(0, name.size() - kFormat.size()) + ".weight");
  };
  std::vector<std::string> out;
  for (const TensorEntry& t : checkpoint.tensors())
    if (!read.contains(t.name) && !belongs(t.name) && !is_rope_table(t.name)) out.push_back(t.name);
  return out;
}

std::string unread_note(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  // By path without numbers, three parts deep.
  std::map<std::string, size_t> groups;
  for (const std::string& name : names) {
    std::vector<std::string> kept;
    for (const std::string& part : split(name, '.')) {
      const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      kept.push_back(number ? "*" : part);
      if (kept.size() == 3) break;
    }
    ++groups[join(kept, ".")];
  }
  std::vector<std::string> parts;
  for (const auto& [prefix, count] : groups) {
    if (parts.size() == 8) {
      parts.push_back("...");
      break;
    }
    parts.push_back(fmt::format("{} ({})", escaped(prefix), count));
  }
  return fmt::format("{} not read: {}", names.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", names.size()),
                     join(parts, ", "));
}

}  // namespace berth::arch
