// engine/synth.cc — see synth.h.
#include "berth/engine/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/bnb_tensors.h"
#include "berth/engine/checkpoint_writer.h"
#include "berth/engine/opened_model.h"
#include "berth/engine/planning.h"
#include "berth/engine/random_weights.h"
#include "berth/engine/synth_gguf.h"
#include "berth/load/fill_matrix.h"
#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/tensor/float16.h"

namespace berth::engine {
namespace {

using arch::SourceStorage;
using arch::TensorKind;
using quant::Plane;

// Root mean square of a codec's code values taken at random.
float rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

float e4m3_rms() {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i)
    if ((i & 0x7F) != 0x7F) values.push_back(e4m3_to_f32(static_cast<uint8_t>(i)));
  return rms(values);
}

// One tensor to be made: what it is called, how large it is, and around what its values lie.
struct Wanted {
  TensorDesc desc;
  float mean = 0, deviation = 0;
  std::string module;  // of the tree; "" for none
  bool is_weight = false;
};

class Synth {
 public:
  Synth(const arch::ModelDescription& model, const Options& options, const SynthOptions& synth, ThreadPool& pool)
      : model_(model), o_(options), synth_(synth), pool_(pool) {}

  Result<std::vector<OutputGroup>> groups(uint64_t& modules) {
    TRY(const auto format, requested_format(o_));
    TRY(const ChosenStorage chosen, choose_storage(model_, o_));
    std::set<std::string> replaced;
    for (const arch::QuantizeDecision& d : chosen.rules.decisions)
      if (d.replaced && format) replaced.insert(d.path);
    DType storage = DType::kU8;
    for (const DTypeInfo& info : all_dtypes())
      if (info.torch == o_.bnb_4bit_quant_storage) storage = info.dtype;

    read_tree();
    for (const arch::TensorSpec& t : model_.spec.tensors) TRY_STATUS(add_sources(t));
    add_rest_of_tree();
    std::vector<OutputGroup> out;
    for (const Wanted& w : wanted_) {
      if (!w.is_weight || !replaced.contains(w.module) || w.desc.shape.size() != 2) {
        out.push_back(plain(w));
        continue;
      }
      const bool transposed = classes_[w.module] == "Conv1D";
      const BnbWeight weight{w.desc.name,    w.desc.shape[transposed ? 1 : 0], w.desc.shape[transposed ? 0 : 1],
                             *format,        model_.spec.dtype,                storage};
      TRY(auto group, bnb_group(weight, [this, w](const quant::MutablePackedMatrix& m) { return fill_codes(w, m); }));
      out.push_back(std::move(group));
      ++modules;
    }
    for (OutputGroup& g : scales_) out.push_back(std::move(g));
    return out;
  }

 private:
  // Shapes, types and classes by path.
  void read_tree() {
    arch::for_each_module(model_.tree, [&](const std::string& path, const arch::Module& m) {
      if (!m.same_as.empty()) return;
      classes_[path] = m.class_name;
      for (const arch::Parameter& p : m.parameters) tree_[arch::join_path(path, p.name)] = {{"", p.dtype, p.shape, 0}, path};
      for (const arch::Buffer& b : m.buffers)
        if (b.persistent) tree_[arch::join_path(path, b.name)] = {{"", b.dtype, b.shape, 0}, path};
    });
  }

  static std::string module_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "" : name.substr(0, dot);
  }

  // Norms lie around 1 (or 0 where the model adds the one), matrices have columns' worth of variance, tables and the
  // rest are small.
  void set_values(Wanted& w, bool is_norm, bool add_one, int64_t cols, bool is_matrix) const {
    w.mean = is_norm && !add_one ? 1.0f : 0.0f;
    w.deviation = is_matrix ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(cols, 1)))) : 0.02f;
  }

  Status add_sources(const arch::TensorSpec& t) {
    if (t.tied_to) return {};
    made_.insert(t.name);
    // Matrices cut out of one tensor come as several sources of its name.
    std::map<std::string, int64_t> slices;
    for (const arch::Source& s : t.recipe.sources)
      if (s.slice >= 0) slices[s.name] = std::max(slices[s.name], s.slice + 1);
    for (const arch::Source& s : t.recipe.sources) {
      if (!names_.insert(s.name).second) continue;
      Wanted w;
      w.module = t.module;
      const bool whole = t.recipe.sources.size() == 1 && t.recipe.segments.empty() && s.slice < 0;
      const auto in_tree = tree_.find(whole ? t.name : s.name);
      const bool is_matrix = t.kind == TensorKind::kMatrix || t.kind == TensorKind::kBank;
      const bool is_norm = t.kind == TensorKind::kVector && t.name.ends_with(".weight") && in_tree != tree_.end() &&
                           classes_[in_tree->second.second].find("Norm") != std::string::npos;
      set_values(w, is_norm, t.recipe.add_one, s.cols, is_matrix && t.role != arch::Role::kHead);
      w.is_weight = t.kind == TensorKind::kMatrix && whole && t.name == t.module + ".weight";
      const bool bnb = s.storage == SourceStorage::kBnb4 || s.storage == SourceStorage::kBnbInt8;
      w.desc = {s.name, s.storage == SourceStorage::kPlain || bnb ? model_.spec.dtype : s.dtype, {}, 0};
      if (s.storage == SourceStorage::kMxfp4) {
        add_mxfp4(t, s);
        continue;
      }
      const int64_t rows = s.transposed ? s.cols : s.rows, cols = s.transposed ? s.rows : s.cols;
      const uint64_t elements = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
      if (in_tree != tree_.end() && element_count(in_tree->second.first.shape) == elements) {
        w.desc.shape = in_tree->second.first.shape;
        if (s.storage == SourceStorage::kPlain) w.desc.dtype = in_tree->second.first.dtype;
      } else if (slices.contains(s.name)) {
        w.desc.shape = {slices[s.name], rows, cols};
      } else if (t.kind == TensorKind::kVector && rows == 1) {
        w.desc.shape = {cols};
      } else {
        w.desc.shape = {rows, cols};
      }
      if (s.storage == SourceStorage::kFp8Block) add_fp8_scales(s, w);
      if (s.storage == SourceStorage::kOther)
        return Error(ErrorCode::kUnsupported, fmt::format("making tensor {}: there is no generator for its storage", quoted(s.name)));
      wanted_.push_back(std::move(w));
    }
    return {};
  }

  // Towers and what else the forward pass does not read.
  void add_rest_of_tree() {
    std::set<std::string> tied;
    for (const auto& [target, source] : model_.tree.ties) tied.insert(target);
    for (const auto& [name, what] : tree_) {
      if (made_.contains(name) || names_.contains(name) || tied.contains(name)) continue;
      Wanted w;
      w.desc = {name, what.first.dtype, what.first.shape, 0};
      w.module = what.second;
      const bool is_norm = name.ends_with(".weight") && classes_[w.module].find("Norm") != std::string::npos;
      const bool is_matrix = w.desc.shape.size() >= 2;
      set_values(w, is_norm, false, is_matrix ? w.desc.shape.back() : 1, is_matrix);
      w.is_weight = name == w.module + ".weight";
      wanted_.push_back(std::move(w));
    }
  }

  OutputGroup plain(const Wanted& w) {
    OutputGroup g;
    g.tensors.push_back({w.desc, false, 0});
    TensorDesc& desc = g.tensors[0].desc;
    const uint64_t elements = element_count(desc.shape).value_or(0);
    desc.size_bytes = dtype_bytes(desc.dtype, elements).value_or(0);
    g.parameters = elements;
    g.make = [this, w, size = desc.size_bytes](TensorSink& sink) -> Status {
      const RandomWeights random(synth_.seed, w.desc.name);
      const uint64_t e = dtype_info(w.desc.dtype).block_bytes;
      return pieces(size, [&](uint64_t at, std::span<std::byte> out) -> Status {
        if (w.desc.dtype == DType::kF32 || w.desc.dtype == DType::kBF16 || w.desc.dtype == DType::kF16) {
          random.normals(w.desc.dtype, w.mean, w.deviation, at / e, out);
        } else if (w.desc.dtype == DType::kF8E4M3) {
          random.bytes(at, out);
          for (std::byte& b : out)
            if ((b & std::byte{0x7F}) == std::byte{0x7F}) b &= std::byte{0xF0};  // no NaN
        } else {
          std::ranges::fill(out, std::byte{0});  // counters and masks
        }
        return sink.write(0, at, out);
      });
    };
    return g;
  }

  Status pieces(uint64_t size, FunctionRef<Status(uint64_t at, std::span<std::byte> out)> make) {
    const auto count = static_cast<int64_t>(ceil_div(size, load::kPieceBytes));
    return load::for_pieces(pool_, count, staging_, [&](int64_t piece, load::Staging& s) -> Status {
      const uint64_t at = static_cast<uint64_t>(piece) * load::kPieceBytes;
      s.raw.resize(std::min(load::kPieceBytes, size - at));
      return make(at, s.raw);
    });
  }

  // Codes at random, scales that give them the wanted deviation.
  Status fill_codes(const Wanted& w, const quant::MutablePackedMatrix& m) {
    TRY(const quant::PackedLayout layout, quant::packed_layout(m.format, m.rows, m.cols));
    const RandomWeights random(synth_.seed, w.desc.name);
    const bool int8 = m.format.codec == quant::Codec::kInt8Row;
    const uint64_t size = layout.plane(Plane::kCodes).bytes;
    std::byte* codes = m.planes[static_cast<size_t>(Plane::kCodes)];
    TRY_STATUS(pieces(size, [&](uint64_t at, std::span<std::byte> out) -> Status {
      const std::span<std::byte> to(codes + at, out.size());
      random.bytes(at, to);
      if (int8)
        for (std::byte& b : to)
          if (b == std::byte{0x80}) b = std::byte{0x81};  // -127 is the least
      return {};
    }));
    const uint64_t scales = layout.plane(Plane::kScales).count;
    if (int8) {
      std::fill_n(m.plane<float>(Plane::kScales), scales, w.deviation * 127.0f / 73.5f);
      return {};
    }
    const float absmax = w.deviation / rms({quant::codec_info(m.format.codec).code_book, 16});
    if (!m.format.nested) {
      std::fill_n(m.plane<float>(Plane::kScales), scales, absmax);
      return {};
    }
    // Around the offset: the map's values lie between -1 and 1.
    RandomWeights(synth_.seed, w.desc.name + ".absmax").bytes(0, {m.planes[static_cast<size_t>(Plane::kScales)], scales});
    std::fill_n(m.plane<float>(Plane::kNestedAbsmax), layout.plane(Plane::kNestedAbsmax).count, 0.25f * absmax);
    *m.plane<float>(Plane::kNestedOffset) = absmax;
    std::ranges::copy(quant::dynamic_map(), m.plane<float>(Plane::kNestedMap));
    return {};
  }

  // A small tensor with one value everywhere.
  void add_constant(const std::string& name, DType dtype, Shape shape, float value) {
    OutputGroup g;
    const uint64_t n = element_count(shape).value_or(0);
    g.tensors.push_back({{name, dtype, std::move(shape), dtype_bytes(dtype, n).value_or(0)}, false, 0});
    g.make = [n, dtype, value](TensorSink& sink) -> Status {
      if (dtype == DType::kF32) {
        const std::vector<float> values(n, value);
        return sink.write(0, 0, std::as_bytes(std::span(values)));
      }
      const std::vector<std::byte> bytes(n, static_cast<std::byte>(static_cast<int>(value)));
      return sink.write(0, 0, bytes);
    };
    scales_.push_back(std::move(g));
  }

  void add_fp8_scales(const arch::Source& s, const Wanted& w) {
    const int64_t rows = ceil_div<int64_t>(s.transposed ? s.cols : s.rows, 128), cols = ceil_div<int64_t>(s.transposed ? s.rows : s.cols, 128);
    add_constant(s.companions.at(0), DType::kF32, {rows, cols}, w.deviation / e4m3_rms());
  }

  void add_mxfp4(const arch::TensorSpec& t, const arch::Source& s) {
    const int64_t experts = std::max<int64_t>(t.experts, 1);
    Wanted w;
    w.desc = {s.name, DType::kU8, {experts, s.rows / experts, s.cols / 32, 16}, 0};
    OutputGroup g = plain(w);
    g.make = [this, w, size = g.tensors[0].desc.size_bytes](TensorSink& sink) {
      const RandomWeights random(synth_.seed, w.desc.name);
      return pieces(size, [&](uint64_t at, std::span<std::byte> out) -> Status {
        random.bytes(at, out);
        return sink.write(0, at, out);
      });
    };
    scales_.push_back(std::move(g));
    const double deviation = 1.0 / std::sqrt(static_cast<double>(s.cols));
    add_constant(s.companions.at(0), DType::kU8, {experts, s.rows / experts, s.cols / 32},
                 static_cast<float>(127 + std::lround(std::log2(deviation / 2.9))));
  }

  const arch::ModelDescription& model_;
  const Options& o_;
  const SynthOptions& synth_;
  ThreadPool& pool_;
  std::vector<load::Staging> staging_;
  std::map<std::string, std::pair<TensorDesc, std::string>> tree_;  // parameter -> shape and type, module
  std::map<std::string, std::string> classes_;                     // module -> class
  std::set<std::string> made_, names_;                             // spec tensors; tensors of the files
  std::vector<Wanted> wanted_;
  std::vector<OutputGroup> scales_;
};

// Which config.json, and how its own quantization_config reads as options.
Status take_quantization(const format::Checkpoint& checkpoint, Options& o) {
  const auto& q = checkpoint.quantization();
  if (!q) return {};
  using format::QuantMethod;
  const bool asked = o.load_in_4bit || o.load_in_8bit;
  if (q->method == QuantMethod::kFp8 || q->method == QuantMethod::kMxfp4) {
    if (asked)
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("the config says {} and 4 or 8 bit was asked for", quoted(q->method_name)), {"Leave the option out, or take quantization_config out of the config."});
    return {};
  }
  if (q->method != QuantMethod::kBitsAndBytes)
    return Error(ErrorCode::kUnsupported, fmt::format("making weights stored as {} is not supported", quoted(q->method_name)),
                 {"Take quantization_config out of the config for bf16 weights."});
  if (asked) return {};
  o.load_in_4bit = q->bitsandbytes.load_in_4bit;
  o.load_in_8bit = q->bitsandbytes.load_in_8bit;
  o.bnb_4bit_quant_type = q->bitsandbytes.bnb_4bit_quant_type;
  o.bnb_4bit_use_double_quant = q->bitsandbytes.bnb_4bit_use_double_quant;
  o.llm_int8_skip_modules = q->bitsandbytes.has_skip_modules ? skip_list_text(q->bitsandbytes.llm_int8_skip_modules) : "";
  return {};
}

}  // namespace

Result<QuantizeReport> synthesize(const std::string& config, const std::string& out, const Options& options,
                                  const SynthOptions& synth, const Log& log) {
  const auto start = std::chrono::steady_clock::now();
  Options o = options;
  TRY(const ParsedSize shard, parse_size(synth.max_shard_size));
  if (shard.bytes == 0) return Error(ErrorCode::kInvalidArgument, "--max-shard-size must be more than nothing");
  TRY(const format::Checkpoint checkpoint, open_checkpoint(config, log));
  if (checkpoint.config() == nullptr)
    return Error(ErrorCode::kInvalidArgument, fmt::format("{} has no config.json to take shapes from", quoted(config, 400)));
  TRY(const auto dtype, requested_dtype("dtype", o.dtype));
  arch::DescribeOptions describe;
  if (dtype) describe.dtype = *dtype, describe.has_dtype = true;
  TRY(arch::ModelDescription model, arch::describe_config(*checkpoint.config(), describe));
  if (dtype) model.spec.dtype = *dtype;  // not what the config states
  ThreadPool pool(chosen_threads(o));
  QuantizeReport report;
  report.out = out;
  if (!synth.gguf.empty()) {
    if (o.load_in_4bit || o.load_in_8bit)
      return Error(ErrorCode::kInvalidArgument, "--gguf has a type of its own: leave --load-in-4bit and --load-in-8bit out");
    TRY(const SynthGguf made, write_synth_gguf(model.spec, synth.gguf, synth.seed, out, pool, log));
    report.files = {path_name(out)};
    report.tensors = made.tensors;
    report.written_bytes = made.file_bytes;
  } else {
    TRY_STATUS(take_quantization(checkpoint, o));
    Synth work(model, o, synth, pool);
    TRY(const auto groups, work.groups(report.quantized_modules));
    TRY(StagedFolder staged, StagedFolder::create(out));
    TRY(const WrittenTensors written, write_tensors(staged.path(), groups, {shard.bytes, false}, log));
    // A config.json of any name is taken; the checkpoint's is called so.
    const std::string path = config.ends_with(".json") && !config.ends_with(".index.json") ? config : path_join(checkpoint.folder(), "config.json");
    TRY(const std::string text, quantized_config_json(path, o, model.spec.dtype));
    TRY_STATUS(write_file_atomically(path_join(staged.path(), "config.json"), text));
    TRY_STATUS(copy_companion_files(checkpoint.folder(), staged.path()));
    TRY_STATUS(staged.commit());
    report.files = written.files;
    report.tensors = written.tensors;
    report.written_bytes = written.file_bytes;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::string synth_report_text(const QuantizeReport& r) {
  return fmt::format("{}: {} tensors, {} in {:.1f} s ({:.2f} GB/s)\n", quoted(r.out, 400), r.tensors, format_bytes(r.written_bytes), r.seconds,
                     r.seconds > 0 ? static_cast<double>(r.written_bytes) / r.seconds / 1e9 : 0.0);
}

}  // namespace berth::engine
