// engine/quantize.cc — see quantize.h.
#include "berth/engine/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/bnb_tensors.h"
#include "berth/engine/checkpoint_writer.h"
#include "berth/engine/opened_model.h"
#include "berth/engine/planning.h"
#include "berth/load/fill_matrix.h"
#include "berth/quant/cast.h"

namespace berth::engine {
namespace {

using format::TensorEntry;

// What weights can be quantized from, and cast to.
bool is_loadable_float(DType d) { return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16; }
bool is_wide_float(DType d) { return d == DType::kF64 || is_loadable_float(d); }

// What all tensors of one run share.
struct Workshop {
  const format::Checkpoint* checkpoint = nullptr;
  std::unique_ptr<ThreadPool> pool;
  std::vector<load::Staging> staging;
  Isa isa = Isa::kRef;
  load::NonFinite non_finite = load::NonFinite::kRefuse;
  const Log* log = nullptr;
};

// The matrix of one tensor of the file, to be quantized. `transposed`: the file has [cols, rows] (GPT-2's Conv1D).
Result<OutputGroup> quantized_group(Workshop& shop, const TensorEntry& entry, bool transposed, BnbWeight weight) {
  arch::TensorSpec spec;
  spec.kind = arch::TensorKind::kMatrix;
  spec.name = entry.name;
  spec.rows = weight.rows = entry.shape[transposed ? 1 : 0];
  spec.cols = weight.cols = entry.shape[transposed ? 0 : 1];
  arch::Source source;
  source.name = entry.name;
  source.dtype = entry.dtype;
  source.transposed = transposed;
  source.rows = spec.rows;
  source.cols = spec.cols;
  spec.recipe.sources = {source};
  const DType from = weight.load_dtype;
  return bnb_group(weight, [&shop, spec, from](const quant::MutablePackedMatrix& matrix) -> Status {
    const auto fill = [&]() -> Result<load::Filled> {
      TRY(const load::RowReader reader, load::RowReader::create(*shop.checkpoint, spec));
      load::FillOptions options;
      options.quantize = true;
      options.quantize_from = from;
      options.isa = shop.isa;
      options.non_finite = shop.non_finite;
      return load::fill_matrix(reader, matrix, options, *shop.pool, shop.staging);
    };
    const auto filled = fill();
    if (!filled) return filled.error().with_context("quantizing tensor " + berth::quoted(spec.name));
    if (filled->met_non_finite)
      shop.log->warning(fmt::format("tensor {} has weights that are NaN or infinite; they are encoded as the library does", berth::quoted(spec.name)));
    return {};
  });
}

// `n` elements at `in` to `to`, rounded to nearest even.
void cast_elements(std::span<const float> values, DType to, std::byte* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (to == DType::kF32) store_le(out + 4 * i, values[i]);
    else store_le(out + 2 * i, to == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]));
  }
}

// A tensor that stays as it is, called `name` and in type `dtype`.
OutputGroup kept_group(Workshop& shop, const TensorEntry& entry, std::string name, DType dtype, bool is_parameter) {
  OutputGroup group;
  if (!is_loadable_float(dtype)) dtype = entry.dtype;  // only between floats is anything cast
  const uint64_t elements = element_count(entry.shape).value_or(0);
  group.tensors.push_back({{std::move(name), dtype, entry.shape, 0}, false, 0});
  group.tensors[0].desc.size_bytes = dtype_bytes(dtype, elements).value_or(0);
  group.parameters = is_parameter ? elements : 0;
  group.make = [&shop, &entry, dtype](TensorSink& sink) -> Status {
    const bool cast = dtype != entry.dtype;
    const uint64_t in_bytes = dtype_info(entry.dtype).block_bytes, out_bytes = dtype_info(dtype).block_bytes;
    const uint64_t total = cast ? entry.size_bytes / in_bytes : entry.size_bytes;  // elements, or bytes
    const uint64_t unit_in = cast ? in_bytes : 1, unit_out = cast ? out_bytes : 1;
    const uint64_t step = load::kPieceBytes / 8;
    return load::for_pieces(*shop.pool, static_cast<int64_t>(ceil_div(total, step)), shop.staging,
                            [&](int64_t piece, load::Staging& s) -> Status {
                              const uint64_t first = static_cast<uint64_t>(piece) * step;
                              const uint64_t n = std::min(step, total - first);
                              s.raw.resize(n * unit_in);
                              TRY_STATUS(shop.checkpoint->read(entry, first * unit_in, s.raw));
                              if (!cast) return sink.write(0, first, s.raw);
                              s.values.resize(n);
                              TRY_STATUS(load::decode_rows(entry.dtype, s.raw, s.values));
                              s.scratch.resize(n * unit_out);
                              cast_elements(s.values, dtype, s.scratch.data());
                              return sink.write(0, first * unit_out, s.scratch);
                            });
  };
  return group;
}

// What the tree says of a parameter or persistent buffer.
struct Known {
  DType dtype = DType::kBF16;
  std::string module;
  bool is_parameter = true;
};

// The tree's parameter behind each tensor of the file: files may lack the base prefix, have a wrapper's, or hold experts
// one by one.
class TreeNames {
 public:
  TreeNames(const arch::ModelDescription& model) {
    arch::for_each_module(model.tree, [&](const std::string& path, const arch::Module& m) {
      if (!m.same_as.empty()) return;
      for (const arch::Parameter& p : m.parameters) known_[arch::join_path(path, p.name)] = {p.dtype, path, true};
      for (const arch::Buffer& b : m.buffers) known_[arch::join_path(path, b.name)] = {b.dtype, path, false};
    });
    for (const arch::TensorSpec& t : model.spec.tensors) {
      const bool whole = t.recipe.sources.size() == 1 && t.recipe.segments.empty() && t.recipe.sources[0].slice < 0;
      for (const arch::Source& s : t.recipe.sources) {
        by_file_.emplace(s.name, t.name);
        (whole ? whole_ : parts_).insert(s.name);
        if (whole && !rebase_ && s.name != t.name) learn(s.name, t.name);
        if (whole && t.role == arch::Role::kEmbedding) table_ = {s.name, t.name};
      }
    }
    find_base();
  }

  // What the library calls it when it saves: a file of the base model (GPT-2's "h.0...") gets the base's prefix, and a
  // shared table that was stored as the head is the embedding's. Names that the library itself translates back stay.
  std::string written(const std::string& file_name) const {
    if (table_.first == file_name && known_.contains(file_name)) return table_.second;
    const std::string tree = path(file_name);
    return !base_.empty() && tree.starts_with(base_) && tree != file_name ? base_ + file_name : file_name;
  }

  // The parameter's path, or "".
  std::string path(const std::string& file_name) const {
    // (One of a list that is read as one tensor is known by its own name.)
    if (const auto it = by_file_.find(file_name); it != by_file_.end() && known_.contains(it->second)) return it->second;
    if (known_.contains(file_name)) return file_name;
    if (rebase_ && file_name.starts_with(rebase_->first)) {
      std::string name = rebase_->second + file_name.substr(rebase_->first.size());
      if (known_.contains(name)) return name;
    }
    std::string wrapped = "model." + file_name;
    return known_.contains(wrapped) ? wrapped : "";
  }
  const Known* find(const std::string& path) const {
    const auto it = known_.find(path);
    return it == known_.end() ? nullptr : &it->second;
  }
  // The prefix that the embedding lacks in the file, where no other name there has it either: a file of the base model.
  void find_base() {
    const auto& [file, tree] = table_;
    if (file == tree || !tree.ends_with("." + file)) return;
    const std::string prefix = tree.substr(0, tree.size() - file.size());
    const auto next = by_file_.lower_bound(prefix);
    const bool occurs = next != by_file_.end() && next->first.starts_with(prefix);
    if (prefix.find('.') + 1 == prefix.size() && !occurs) base_ = prefix;
  }

  bool is_part(const std::string& file_name) const { return parts_.contains(file_name) && !whole_.contains(file_name); }

 private:
  // What stands in front of the common end of both names.
  void learn(const std::string& file, const std::string& tree) {
    size_t same = 0, end = 0;
    while (same < file.size() && same < tree.size() && file[file.size() - 1 - same] == tree[tree.size() - 1 - same]) {
      ++same;
      if (same == file.size() || same == tree.size() || file[file.size() - 1 - same] == '.') end = same;
    }
    rebase_ = {file.substr(0, file.size() - end), tree.substr(0, tree.size() - end)};
  }

  std::map<std::string, Known, std::less<>> known_;
  std::map<std::string, std::string, std::less<>> by_file_;
  std::set<std::string, std::less<>> whole_, parts_;
  std::optional<std::pair<std::string, std::string>> rebase_;
  std::pair<std::string, std::string> table_;  // the embedding: name in the file, in the tree
  std::string base_;                           // "transformer.": see find_base()
};

// Buffers that old files carry and Transformers passes over.
bool is_left_out(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.masked_bias") || name.ends_with(".attn.bias") ||
         name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias");
}

Status check_source(const format::Checkpoint& checkpoint) {
  if (checkpoint.kind() != format::CheckpointKind::kSafetensors)
    return Error(ErrorCode::kUnsupported,
                 fmt::format("quantizing {}: a {} cannot become a bitsandbytes checkpoint", berth::quoted(checkpoint.display_name()),
                             format::checkpoint_kind_name(checkpoint.kind())),
                 {"Use the model's safetensors checkpoint in bf16, fp16 or fp32."});
  return {};
}

// Files beside the weights that a checkpoint needs to be used: everything but weights, configs that are written anew
// and what is about the repository.
bool is_companion(std::string_view name) {
  constexpr std::array<std::string_view, 16> kNames{
      "generation_config.json", "tokenizer.json",     "tokenizer_config.json",    "special_tokens_map.json",
      "added_tokens.json",      "vocab.json",         "merges.txt",               "vocab.txt",
      "tokenizer.model",        "spiece.model",       "chat_template.json",       "preprocessor_config.json",
      "processor_config.json",  "tekken.json",        "video_preprocessor_config.json", "sentencepiece.bpe.model"};
  return std::ranges::find(kNames, name) != kNames.end() || name.ends_with(".jinja") || name.ends_with(".py") ||
         name.ends_with(".tiktoken");
}

class Quantizing {
 public:
  Quantizing(const Options& options, const Log& log) : o_(options), log_(log) {}

  Status prepare() {
    if (!o_.load_in_4bit && !o_.load_in_8bit) {
      o_.load_in_4bit = true;
      log_.note("neither --load-in-4bit nor --load-in-8bit was given: 4 bit (" + o_.bnb_4bit_quant_type + ")");
    }
    if (o_.quantize_experts)
      return Error(ErrorCode::kUnsupported,
                   "--quantize-experts: Transformers and bitsandbytes have no stored form for fused experts in 4 or 8 bit",
                   {"Leave it out: the experts stay wide in the checkpoint and are quantized when Berth loads it (berth run --quantize-experts)."});
    TRY(format_, requested_format(o_));
    TRY(dtype_, requested_dtype("dtype", o_.dtype));
    TRY(shop_.isa, chosen_isa(o_));
    shop_.pool = std::make_unique<ThreadPool>(chosen_threads(o_));
    shop_.log = &log_;
    // The option's words are torch's names, checked by requested_format().
    for (const DTypeInfo& info : all_dtypes())
      if (info.torch == o_.bnb_4bit_quant_storage) storage_ = info.dtype;
    return {};
  }

  // A folder, from a checkpoint with its config.
  Result<QuantizeReport> folder(const std::string& model, const std::string& out, uint64_t max_shard_bytes) {
    Options plain = o_;  // the model as it is; 4 and 8 bit are chosen below
    plain.load_in_4bit = plain.load_in_8bit = false;
    TRY(format::Checkpoint opened, open_checkpoint(model, log_));
    TRY_STATUS(check_source(opened));
    if (opened.quantization())
      return Error(ErrorCode::kUnsupported,
                   fmt::format("quantizing {}: it is quantized already ({})", berth::quoted(opened.display_name()), berth::quoted(opened.quantization()->method_name)),
                   {"Use the model's checkpoint in bf16, fp16 or fp32."});
    shop_.checkpoint = &opened;
    arch::DescribeOptions describe;
    if (dtype_) describe.dtype = *dtype_, describe.has_dtype = true;
    TRY(const arch::ModelDescription description, arch::describe_model(opened, describe));
    const DType dtype = dtype_.value_or(description.stated_dtype.value_or(description.spec.dtype));
    if (!is_loadable_float(dtype))
      return Error(ErrorCode::kUnsupported, fmt::format("quantizing {}: its weights are to be {}; bitsandbytes quantizes float32, float16 and bfloat16", berth::quoted(opened.display_name()), dtype_name(dtype)),
                   {"Name one of them: --dtype float32."});
    TRY(const auto groups, folder_groups(description, dtype));
    TRY(StagedFolder staged, StagedFolder::create(out));
    TRY(const WrittenTensors written, write_tensors(staged.path(), groups, {max_shard_bytes, true}, log_));
    TRY_STATUS(opened.check_unchanged());
    TRY(const std::string config, quantized_config_json(path_join(opened.folder(), "config.json"), o_, dtype));
    TRY_STATUS(write_file_atomically(path_join(staged.path(), "config.json"), config));
    TRY_STATUS(copy_companion_files(opened.folder(), staged.path()));
    TRY_STATUS(staged.commit());
    return report(out, written);
  }

  // One file, without a config. A file that is there already is replaced, but not one that is read.
  Result<QuantizeReport> bare(const std::string& model, const std::string& out) {
    TRY(format::Checkpoint opened, open_checkpoint(model, log_));
    TRY_STATUS(check_source(opened));
    for (const File& file : opened.files()) {
      std::error_code is_not_there;
      if (std::filesystem::equivalent(out, file.path(), is_not_there))
        return Error(ErrorCode::kInvalidArgument, fmt::format("writing {}: it is a file of the checkpoint that is quantized", berth::quoted(out, 400)),
                     {"Choose another name."});
    }
    shop_.checkpoint = &opened;
    shop_.non_finite = load::NonFinite::kAsLibrary;
    TRY(const auto groups, bare_groups());
    TRY(const WrittenTensors written, write_tensors_file(out, groups, {}, log_));
    TRY_STATUS(opened.check_unchanged());
    return report(out, written);
  }

 private:
  Result<OutputGroup> quantized(const TensorEntry& entry, std::string name, bool transposed, DType load_dtype) {
    ++modules_;
    return quantized_group(shop_, entry, transposed, {std::move(name), 0, 0, *format_, load_dtype, storage_});
  }

  Result<std::vector<OutputGroup>> folder_groups(const arch::ModelDescription& model, DType dtype) {
    const TreeNames names(model);
    TRY(const ChosenStorage chosen, choose_storage(model, o_));
    TRY_STATUS(check_skip_list(model.tree, chosen.rules));
    std::map<std::string, std::string> replaced;  // module -> class
    for (const arch::QuantizeDecision& d : chosen.rules.decisions)
      if (d.replaced && format_) replaced[d.path] = d.class_name;
    std::map<std::string, std::string> tied;  // parameter -> the one it shares
    for (const auto& [target, source] : model.tree.ties) tied[target] = source;
    std::set<std::string> present;
    for (const TensorEntry& t : shop_.checkpoint->tensors()) present.insert(names.path(t.name));

    std::vector<OutputGroup> groups;
    std::vector<std::string> unknown;
    std::set<std::string> done;
    for (const TensorEntry& entry : shop_.checkpoint->tensors()) {
      const std::string path = names.path(entry.name);
      const Known* known = names.find(path);
      if (const auto t = tied.find(path); t != tied.end() && present.contains(t->second)) continue;
      source_bytes_ += entry.size_bytes;
      if (known == nullptr) {
        if (is_left_out(entry.name)) continue;
        unknown.push_back(entry.name);
        groups.push_back(kept_group(shop_, entry, entry.name, is_wide_float(entry.dtype) ? dtype : entry.dtype, true));
        continue;
      }
      const auto module = replaced.find(known->module);
      const bool quantize = module != replaced.end() && path == known->module + ".weight" && !names.is_part(entry.name);
      if (!quantize) {
        groups.push_back(kept_group(shop_, entry, names.written(entry.name), is_wide_float(entry.dtype) ? known->dtype : entry.dtype, known->is_parameter));
        continue;
      }
      if (entry.shape.size() != 2 || !is_wide_float(entry.dtype))
        return Error(ErrorCode::kUnsupported, fmt::format("quantizing tensor {}: a matrix of floats was expected, found {} {}", berth::quoted(entry.name),
                                                          dtype_name(entry.dtype), shape_text(entry.shape)));
      done.insert(known->module);
      TRY(auto group, quantized(entry, names.written(entry.name), module->second == "Conv1D", dtype));
      groups.push_back(std::move(group));
    }
    TRY(const auto skip, requested_skip_list(o_));
    const auto skipping_too = [&skip](const std::string& path) {
      std::vector<std::string> list = skip.value_or(std::vector<std::string>());
      list.push_back(path);
      return skip_list_text(list);
    };
    for (const auto& [path, class_name] : replaced) {
      if (done.contains(path)) continue;
      if (const auto t = tied.find(path + ".weight"); t != tied.end())
        return Error(ErrorCode::kUnsupported,
                     fmt::format("quantizing module {}: its weight is {}, which stays wide; Transformers quantizes such a module and fails at its first forward",
                                 berth::quoted(path), berth::quoted(t->second)),
                     {"Name it among those to be left alone: --llm-int8-skip-modules " + skipping_too(path)});
      return Error(ErrorCode::kUnsupported, fmt::format("quantizing module {}: the checkpoint has no tensor of its own for its weight", berth::quoted(path)));
    }
    if (!unknown.empty())
      log_.note(fmt::format("{} tensors belong to no module of the model and are kept wide: {}{}", unknown.size(), berth::quoted(unknown[0]), unknown.size() > 1 ? "..." : ""));
    for (const std::string& note : arch::quantize_notes(model.tree, chosen.rules)) log_.note(note);
    return groups;
  }

  Result<std::vector<OutputGroup>> bare_groups() {
    TRY(const auto skip, requested_skip_list(o_));
    std::vector<OutputGroup> groups;
    for (const TensorEntry& entry : shop_.checkpoint->tensors()) {
      source_bytes_ += entry.size_bytes;
      bool quantize = format_ && entry.shape.size() == 2 && entry.size_bytes > 0 &&
                      (entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16);
      const std::string module = entry.name.substr(0, entry.name.rfind('.'));
      for (const std::string& key : skip.value_or(std::vector<std::string>())) {
        TRY(const bool hit, arch::skip_key_matches(key, module));
        quantize = quantize && !hit;
      }
      if (!quantize) {
        groups.push_back(kept_group(shop_, entry, entry.name, is_wide_float(entry.dtype) ? dtype_.value_or(entry.dtype) : entry.dtype, true));
        continue;
      }
      TRY(auto group, quantized(entry, entry.name, false, dtype_.value_or(entry.dtype)));
      groups.push_back(std::move(group));
    }
    return groups;
  }

  QuantizeReport report(const std::string& out, const WrittenTensors& written) const {
    QuantizeReport r;
    r.out = out;
    r.files = written.files;
    r.tensors = written.tensors;
    r.quantized_modules = modules_;
    r.source_bytes = source_bytes_;
    r.written_bytes = written.file_bytes;
    return r;
  }

  Options o_;
  const Log& log_;
  Workshop shop_;
  std::optional<quant::StoredFormat> format_;
  std::optional<DType> dtype_;
  DType storage_ = DType::kU8;
  uint64_t source_bytes_ = 0, modules_ = 0;
};

}  // namespace

Status copy_companion_files(const std::string& from_folder, const std::string& to_folder) {
  TRY(const auto names, list_folder(from_folder.empty() ? "." : from_folder));
  for (const std::string& name : names) {
    const std::string path = path_join(from_folder, name);
    std::error_code error;
    if (name == "additional_chat_templates" && is_directory(path))
      std::filesystem::copy(path, path_join(to_folder, name), std::filesystem::copy_options::recursive, error);
    if (error) return Error(ErrorCode::kIo, fmt::format("copying {}: {}", berth::quoted(path, 400), error.message()));
    if (!is_companion(name) || is_directory(path)) continue;
    TRY(const std::string text, read_file(path));
    TRY_STATUS(write_file_atomically(path_join(to_folder, name), text));
  }
  return {};
}

bool is_bare_file(const std::string& out) { return out.ends_with(".safetensors"); }

Result<QuantizeReport> quantize_checkpoint(const std::string& model, const std::string& out, const Options& options,
                                           const std::string& max_shard_size, const Log& log) {
  const auto start = std::chrono::steady_clock::now();
  TRY(const ParsedSize shard, parse_size(max_shard_size));
  if (shard.bytes == 0) return Error(ErrorCode::kInvalidArgument, "--max-shard-size must be more than nothing");
  Quantizing work(options, log);
  TRY_STATUS(work.prepare());
  TRY(QuantizeReport report, is_bare_file(out) ? work.bare(model, out) : work.folder(model, out, shard.bytes));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void write_quantize_report(const QuantizeReport& r, JsonWriter& w) {
  w.begin_object().member("out", r.out).key("files").begin_array();
  for (const std::string& f : r.files) w.value(f);
  w.end_array().member("tensors", r.tensors).member("quantized_modules", r.quantized_modules);
  w.member("source_bytes", r.source_bytes).member("written_bytes", r.written_bytes).member("seconds", r.seconds);
  w.member("source_gb_per_s", r.seconds > 0 ? static_cast<double>(r.source_bytes) / r.seconds / 1e9 : 0.0).end_object();
}

std::string quantize_report_text(const QuantizeReport& r) {
  return fmt::format("{}: {} tensors of {} modules quantized, {} of weights became {} in {:.1f} s ({:.2f} GB/s)\n", berth::quoted(r.out, 400),
                     r.tensors, r.quantized_modules, format_bytes(r.source_bytes), format_bytes(r.written_bytes), r.seconds,
                     r.seconds > 0 ? static_cast<double>(r.source_bytes) / r.seconds / 1e9 : 0.0);
}

}  // namespace berth::engine
