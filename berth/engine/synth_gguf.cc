// engine/synth_gguf.cc — see synth_gguf.h.
#include "berth/engine/synth_gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "berth/base/bytes.h"
#include "berth/base/file.h"
#include "berth/base/strings.h"
#include "berth/engine/random_weights.h"
#include "berth/load/fill_matrix.h"
#include "berth/tensor/float16.h"

namespace berth::engine {
namespace {

using arch::Role;

constexpr uint64_t kAlignment = 32;

struct FileType {
  std::string_view name;
  DType dtype;
  uint32_t file_type;  // general.file_type
};
constexpr std::array kTypes{
    FileType{"f32", DType::kF32, 0},    FileType{"f16", DType::kF16, 1},   FileType{"bf16", DType::kBF16, 32},
    FileType{"q8_0", DType::kQ8_0, 7},  FileType{"q4_0", DType::kQ4_0, 2}, FileType{"q4_1", DType::kQ4_1, 3},
    FileType{"q4_k", DType::kQ4_K, 14}, FileType{"q6_k", DType::kQ6_K, 18}, FileType{"q4_k_m", DType::kQ4_K, 15},
};

struct RoleName {
  Role role;
  std::string_view name;
};
constexpr std::array kNames{RoleName{Role::kEmbedding, "token_embd.weight"}, RoleName{Role::kFinalNorm, "output_norm.weight"},
                            RoleName{Role::kHead, "output.weight"},          RoleName{Role::kInputNorm, "attn_norm.weight"},
                            RoleName{Role::kQ, "attn_q.weight"},             RoleName{Role::kK, "attn_k.weight"},
                            RoleName{Role::kV, "attn_v.weight"},             RoleName{Role::kO, "attn_output.weight"},
                            RoleName{Role::kMlpNorm, "ffn_norm.weight"},     RoleName{Role::kGate, "ffn_gate.weight"},
                            RoleName{Role::kUp, "ffn_up.weight"},            RoleName{Role::kDown, "ffn_down.weight"}};

// Metadata as bytes: key, type, value.
class Metadata {
 public:
  void string(std::string_view key, std::string_view value) { head(key, 8), text(value); }
  void u32(std::string_view key, uint64_t value) { head(key, 4), put(static_cast<uint32_t>(value)); }
  void f32(std::string_view key, double value) { head(key, 6), put(static_cast<float>(value)); }
  void strings(std::string_view key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& v : values) text(v);
  }
  void floats(std::string_view key, const std::vector<float>& values) {
    array(key, 6, values.size());
    for (const float v : values) put(v);
  }
  void ints(std::string_view key, const std::vector<int32_t>& values) {
    array(key, 5, values.size());
    for (const int32_t v : values) put(v);
  }
  void text(std::string_view s) {
    put(static_cast<uint64_t>(s.size()));
    bytes_ += s;
  }
  template <typename T>
  void put(T value) {
    char raw[sizeof(T)];
    store_le(raw, value);
    bytes_.append(raw, sizeof(T));
  }
  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void head(std::string_view key, uint32_t type) {
    text(key);
    put(type);
    ++count_;
  }
  void array(std::string_view key, uint32_t type, size_t n) {
    head(key, 9);
    put(type);
    put(static_cast<uint64_t>(n));
  }
  std::string bytes_;
  uint64_t count_ = 0;
};

// <unk> <s> </s>, the bytes, then words a, b, .. z, aa..: what a sentencepiece vocabulary looks like.
void add_vocabulary(Metadata& m, int64_t size) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types{2, 3, 3};
  for (int i = 0; i < 256; ++i) tokens.push_back(fmt::format("<0x{:02X}>", i)), types.push_back(6);
  for (int64_t i = 0; static_cast<int64_t>(tokens.size()) < size; ++i) {
    std::string word;
    for (int64_t n = i; n >= 0; n = n / 26 - 1) word.insert(word.begin(), static_cast<char>('a' + n % 26));
    tokens.push_back("\xE2\x96\x81" + word);
    types.push_back(1);
  }
  tokens.resize(static_cast<size_t>(size));
  types.resize(static_cast<size_t>(size));
  std::vector<float> scores;
  for (int64_t i = 0; i < size; ++i) scores.push_back(-static_cast<float>(i));
  m.string("tokenizer.ggml.model", "llama");
  m.strings("tokenizer.ggml.tokens", tokens);
  m.floats("tokenizer.ggml.scores", scores);
  m.ints("tokenizer.ggml.token_type", types);
  m.u32("tokenizer.ggml.bos_token_id", 1);
  m.u32("tokenizer.ggml.eos_token_id", 2);
  m.u32("tokenizer.ggml.unknown_token_id", 0);
}

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;  // rows 0: a vector
  uint64_t offset = 0, bytes = 0;
  float mean = 0, deviation = 0;
};

// Constant scales under uniform codes, so that values have the tensor's deviation. `out` holds whole blocks of random
// bytes. Codes from -8 to 7 have a mean of -0.5: scales of both signs keep that out of the matrix, where it would be one
// direction stronger than all others (and attention scores so far apart that their weights are denormal).
void set_scales(DType dtype, float deviation, std::span<std::byte> out) {
  const uint64_t size = dtype_info(dtype).block_bytes;
  const auto f16 = [](std::byte* at, double v) { store_le(at, f32_to_f16(static_cast<float>(v))); };
  const double s = deviation;
  for (std::byte* b = out.data(); b < out.data() + out.size(); b += size) switch (dtype) {
      case DType::kQ8_0: f16(b, s / 73.9); break;
      case DType::kQ4_0: f16(b, ((b[2] & std::byte{1}) != std::byte{0} ? s : -s) / 4.64); break;  // q - 8 with q in 0..15
      case DType::kQ4_1:
        f16(b, s / 4.61);
        f16(b + 2, -7.5 * s / 4.61);
        break;
      case DType::kQ4_K: {  // every 6-bit scale and minimum is 32
        f16(b, s / 4.61 / 32);
        f16(b + 2, 7.5 * s / 4.61 / 32);
        for (int i = 0; i < 12; ++i) b[4 + i] = static_cast<std::byte>(i < 8 ? 0xA0 : 0);
        break;
      }
      default:  // q6_k: q - 32 with q in 0..63, scales of 64
        for (int i = 0; i < 16; ++i) b[192 + i] = static_cast<std::byte>(i % 2 == 0 ? 64 : -64);
        f16(b + 208, s / 18.5 / 64);
    }
}

void fill(const RandomWeights& random, const GgufTensor& t, uint64_t at, std::span<std::byte> out) {
  if (!is_block_type(t.dtype)) return random.normals(t.dtype, t.mean, t.deviation, at / dtype_info(t.dtype).block_bytes, out);
  random.bytes(at, out);
  set_scales(t.dtype, t.deviation, out);
}

Error io_error(std::string_view doing, const std::string& path) {
  return Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{} {}: {}", doing, quoted(path, 400), std::strerror(errno)));
}

// A file that is written under another name and renamed at the end.
class AsideFile {
 public:
  static Result<AsideFile> create(const std::string& path, uint64_t bytes) {
    AsideFile f;
    f.path_ = path;
    const std::string aside = fmt::format("{}.tmp-{}", path, ::getpid());
    f.fd_ = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (f.fd_ < 0) return io_error("creating", aside);
    f.aside_ = aside;
    const int error = ::posix_fallocate(f.fd_, 0, static_cast<off_t>(bytes));
    if (error != 0 && error != EINVAL && error != EOPNOTSUPP) {
      errno = error;
      return io_error(fmt::format("reserving {} for", format_bytes(bytes)), aside);
    }
    return f;
  }
  AsideFile(AsideFile&& other) noexcept
      : path_(std::move(other.path_)), aside_(std::exchange(other.aside_, "")), fd_(std::exchange(other.fd_, -1)) {}
  AsideFile& operator=(AsideFile&&) = delete;
  ~AsideFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!aside_.empty()) ::unlink(aside_.c_str());
  }
  Status write(uint64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return io_error("writing", aside_);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }
  Status finish() {
    const bool failed = ::close(std::exchange(fd_, -1)) != 0 || ::rename(aside_.c_str(), path_.c_str()) != 0;
    if (failed) return io_error("writing", path_);
    aside_.clear();
    return {};
  }

 private:
  AsideFile() = default;
  std::string path_, aside_;
  int fd_ = -1;
};

Error not_llama(std::string_view why) {
  return Error(ErrorCode::kUnsupported, fmt::format("--gguf: only Llama's parts are written as GGUF, this model has {}", why),
               {"Leave --gguf out for safetensors."});
}

// The type of one matrix: of the mix, llama.cpp's choice for Q4_K_M.
DType matrix_type(const FileType& type, const arch::TensorSpec& t, int64_t layers) {
  if (type.name != "q4_k_m") return type.dtype;
  const int64_t i = t.layer;
  const bool more = i < layers / 8 || i >= 7 * layers / 8 || (i - layers / 8) % 3 == 2;
  if (t.role == Role::kHead || ((t.role == Role::kV || t.role == Role::kDown) && more)) return DType::kQ6_K;
  return DType::kQ4_K;
}

Result<std::vector<GgufTensor>> list_tensors(const arch::ModelSpec& spec, const FileType& type) {
  std::vector<GgufTensor> out;
  uint64_t at = 0;
  for (const arch::TensorSpec& t : spec.tensors) {
    if (t.tied_to) continue;
    const auto name = std::ranges::find(kNames, t.role, &RoleName::role);
    if (name == kNames.end()) return not_llama("the tensor " + quoted(t.name));
    GgufTensor g;
    g.name = t.layer < 0 ? std::string(name->name) : fmt::format("blk.{}.{}", t.layer, name->name);
    g.cols = t.cols;
    if (t.kind == arch::TensorKind::kVector) {
      g.mean = 1;
      g.deviation = 0.02f;
    } else {
      g.rows = t.rows;
      g.dtype = matrix_type(type, t, static_cast<int64_t>(spec.layers.size()));
      const bool table = t.role == Role::kEmbedding || t.role == Role::kHead;
      g.deviation = table ? 0.02f : static_cast<float>(1 / std::sqrt(static_cast<double>(t.cols)));
    }
    const DTypeInfo& info = dtype_info(g.dtype);
    if (g.cols % info.block_elements != 0)
      return Error(ErrorCode::kUnsupported, fmt::format("--gguf {}: rows of {} have {} elements, which are no whole blocks of {}", type.name, quoted(t.name), g.cols, info.block_elements));
    g.bytes = static_cast<uint64_t>(std::max<int64_t>(g.rows, 1)) * (static_cast<uint64_t>(g.cols) / info.block_elements) * info.block_bytes;
    g.offset = at;
    at = align_up(at + g.bytes, kAlignment);
    out.push_back(std::move(g));
  }
  return out;
}

Result<std::string> file_head(const arch::ModelSpec& spec, const FileType& type, const std::vector<GgufTensor>& tensors) {
  const arch::LayerSpec& layer = spec.layers.at(0);
  const arch::AttentionSpec& a = layer.attention;
  Metadata m;
  m.string("general.architecture", "llama");
  m.string("general.name", fmt::format("synth-{}", type.name));
  m.u32("general.file_type", type.file_type);
  m.u32("general.quantization_version", 2);
  m.u32("llama.context_length", static_cast<uint64_t>(spec.max_position));
  m.u32("llama.embedding_length", static_cast<uint64_t>(spec.hidden));
  m.u32("llama.block_count", spec.layers.size());
  m.u32("llama.feed_forward_length", static_cast<uint64_t>(layer.mlp.intermediate));
  m.u32("llama.attention.head_count", static_cast<uint64_t>(a.heads));
  m.u32("llama.attention.head_count_kv", static_cast<uint64_t>(a.kv_heads));
  m.u32("llama.attention.key_length", static_cast<uint64_t>(a.head_dim));
  m.u32("llama.attention.value_length", static_cast<uint64_t>(a.v_head_dim > 0 ? a.v_head_dim : a.head_dim));
  m.f32("llama.attention.layer_norm_rms_epsilon", layer.input_norm.eps);
  m.u32("llama.rope.dimension_count", static_cast<uint64_t>(spec.ropes.at(0).rotary_dim));
  m.f32("llama.rope.freq_base", spec.ropes.at(0).theta);
  m.u32("llama.vocab_size", static_cast<uint64_t>(spec.vocab_rows));
  add_vocabulary(m, spec.vocab_rows);
  Metadata head;
  head.put(uint32_t{0x46554747});  // "GGUF"
  head.put(uint32_t{3});
  head.put(static_cast<uint64_t>(tensors.size()));
  head.put(m.count());
  std::string out = head.bytes() + m.bytes();
  Metadata list;
  for (const GgufTensor& t : tensors) {
    list.text(t.name);
    list.put(static_cast<uint32_t>(t.rows > 0 ? 2 : 1));
    list.put(static_cast<uint64_t>(t.cols));
    if (t.rows > 0) list.put(static_cast<uint64_t>(t.rows));
    list.put(static_cast<uint32_t>(dtype_info(t.dtype).gguf_id));
    list.put(t.offset);
  }
  out += list.bytes();
  out.resize(align_up<uint64_t>(out.size(), kAlignment));
  return out;
}

}  // namespace

Result<SynthGguf> write_synth_gguf(const arch::ModelSpec& spec, const std::string& type_name, int64_t seed,
                                   const std::string& path, ThreadPool& pool, const Log& log) {
  std::string lower = type_name;
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const auto type = std::ranges::find(kTypes, std::string_view(lower), &FileType::name);
  if (type == kTypes.end()) {
    std::vector<std::string> names;
    for (const FileType& t : kTypes) names.emplace_back(t.name);
    return Error(ErrorCode::kInvalidArgument, fmt::format("--gguf must be one of {}, not {}", join(names, ", "), quoted(type_name)));
  }
  if (is_directory(path)) return Error(ErrorCode::kInvalidArgument, fmt::format("writing {}: it is a folder; --gguf writes a file", quoted(path, 400)));
  if (spec.family != "llama" && spec.family != "mistral") return not_llama("the family " + quoted(spec.family));
  if (spec.layers.empty() || spec.ropes.empty()) return not_llama("no layers");
  for (const arch::RopeSpec& r : spec.ropes)
    if (r.scaling != arch::RopeScaling::kDefault) log.note("the file says nothing of the config's rope scaling");
  TRY(const auto tensors, list_tensors(spec, *type));
  TRY(const std::string head, file_head(spec, *type, tensors));
  SynthGguf out{tensors.size(), head.size() + (tensors.empty() ? 0 : align_up(tensors.back().offset + tensors.back().bytes, kAlignment))};
  TRY(AsideFile file, AsideFile::create(path, out.file_bytes));
  TRY_STATUS(file.write(0, std::as_bytes(std::span(head))));
  std::vector<load::Staging> staging;
  uint64_t done = 0;
  for (const GgufTensor& t : tensors) {
    const RandomWeights random(seed, t.name);
    // Whole blocks, and whole words of random numbers.
    const uint64_t block = uint64_t{8} * dtype_info(t.dtype).block_bytes, step = load::kPieceBytes / block * block;
    TRY_STATUS(load::for_pieces(pool, static_cast<int64_t>(ceil_div(t.bytes, step)), staging, [&](int64_t piece, load::Staging& s) -> Status {
      const uint64_t at = static_cast<uint64_t>(piece) * step;
      s.raw.resize(std::min(step, t.bytes - at));
      fill(random, t, at, s.raw);
      return file.write(head.size() + t.offset + at, s.raw);
    }));
    done += t.bytes;
    if (!log.progress("writing", done, out.file_bytes)) return Error(ErrorCode::kCancelled, "writing was interrupted");
  }
  TRY_STATUS(file.finish());
  return out;
}

}  // namespace berth::engine
