// engine/checkpoint_writer.cc — see checkpoint_writer.h.
#include "berth/engine/checkpoint_writer.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <optional>

#include "berth/base/file.h"
#include "berth/base/json.h"
#include "berth/base/strings.h"
#include "berth/format/write_safetensors.h"

namespace berth::engine {
namespace {

using format::SafetensorsWriter;

struct Place {
  size_t group = 0, tensor = 0;  // which
  size_t shard = 0, index = 0;   // where
};

// Types as safetensors' own writer orders them in a file: wide ones first.
int type_rank(DType type) {
  constexpr DType kOrder[] = {DType::kU64, DType::kI64,    DType::kF64,    DType::kC64,    DType::kF32,
                              DType::kU32, DType::kI32,    DType::kBF16,   DType::kF16,    DType::kU16,
                              DType::kI16, DType::kF8E8M0, DType::kF8E4M3, DType::kF8E5M2, DType::kI8,
                              DType::kU8,  DType::kF6E3M2, DType::kF6E2M3, DType::kF4,     DType::kBool};
  return static_cast<int>(std::ranges::find(kOrder, type) - std::begin(kOrder));
}

class TensorFiles {
 public:
  TensorFiles(const std::vector<OutputGroup>& groups, const WriteTensorsOptions& options, const Log& log)
      : groups_(groups), options_(options), log_(log) {}

  Result<WrittenTensors> write(const std::string& folder, const std::string& single_file) {
    place(single_file.empty() ? options_.max_shard_bytes : UINT64_MAX);
    const size_t n = shards_.size();
    for (size_t s = 0; s < n; ++s) {
      const std::string name = n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, n);
      shards_[s].path = single_file.empty() ? path_join(folder, name) : single_file;
      out_.files.push_back(single_file.empty() ? name : path_name(single_file));
    }
    for (const size_t g : group_order_) {
      GroupSink sink(*this, g);
      TRY_STATUS(groups_[g].make(sink));
      for (const size_t s : shards_of_[g])
        if (--shards_[s].groups_left == 0) TRY_STATUS(finish(s));
      out_.parameters += groups_[g].parameters;
      for (const OutputTensor& t : groups_[g].tensors) done_ += t.desc.size_bytes;
      if (!log_.progress("writing", done_, total_)) return Error(ErrorCode::kCancelled, "writing was interrupted");
    }
    if (n > 1) TRY_STATUS(write_index(folder));
    return std::move(out_);
  }

 private:
  struct Shard {
    std::string path;
    std::vector<Place> places;  // in file order; late tensors last
    std::optional<SafetensorsWriter> writer;
    std::map<size_t, std::string> late;  // by index
    size_t groups_left = 0;
  };

  class GroupSink final : public TensorSink {
   public:
    GroupSink(TensorFiles& files, size_t group) : files_(files), group_(group) {}
    Status write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) override {
      const Place& p = files_.where_[group_][tensor];
      TRY(SafetensorsWriter* const writer, files_.writer(p.shard));
      return writer->write(p.index, offset, bytes);
    }
    Status write_late(size_t tensor, std::string bytes) override {
      const Place& p = files_.where_[group_][tensor];
      const std::lock_guard lock(files_.mutex_);
      files_.shards_[p.shard].late[p.index] = std::move(bytes);
      return {};
    }

   private:
    TensorFiles& files_;
    size_t group_;
  };

  const OutputTensor& tensor(const Place& p) const { return groups_[p.group].tensors[p.tensor]; }

  void place(uint64_t max_shard_bytes) {
    std::vector<Place> all;
    where_.resize(groups_.size());
    shards_of_.resize(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      where_[g].resize(groups_[g].tensors.size());
      for (size_t t = 0; t < groups_[g].tensors.size(); ++t) all.push_back({g, t});
    }
    std::ranges::sort(all, [&](const Place& a, const Place& b) {
      return natural_less(tensor(a).desc.name, tensor(b).desc.name);
    });
    std::vector<uint64_t> sizes;
    for (const Place& p : all) {
      const OutputTensor& t = tensor(p);
      sizes.push_back(t.late ? static_cast<uint64_t>(t.typical_bytes) : t.desc.size_bytes);
      total_ += t.desc.size_bytes;
    }
    const auto split = split_into_shards(sizes, max_shard_bytes);
    shards_.resize(split.size());
    std::vector<bool> listed(groups_.size(), false);
    for (size_t s = 0; s < split.size(); ++s) {
      for (const size_t i : split[s]) {
        shards_[s].places.push_back(all[i]);
        if (!listed[all[i].group]) group_order_.push_back(all[i].group);
        listed[all[i].group] = true;
      }
      std::ranges::sort(shards_[s].places, [&](const Place& a, const Place& b) {
        const OutputTensor &x = tensor(a), &y = tensor(b);
        if (x.late != y.late) return y.late;
        const int rx = type_rank(x.desc.dtype), ry = type_rank(y.desc.dtype);
        return rx != ry ? rx < ry : x.desc.name < y.desc.name;
      });
      for (size_t i = 0; i < shards_[s].places.size(); ++i) {
        Place& p = shards_[s].places[i];
        p.shard = s;
        p.index = i;
        where_[p.group][p.tensor] = p;
        auto& of = shards_of_[p.group];
        if (std::ranges::find(of, s) == of.end()) {
          of.push_back(s);
          ++shards_[s].groups_left;
        }
      }
    }
  }

  Result<SafetensorsWriter*> writer(size_t s) {
    const std::lock_guard lock(mutex_);
    Shard& shard = shards_[s];
    if (!shard.writer) {
      std::vector<TensorDesc> descs;
      for (const Place& p : shard.places) descs.push_back(tensor(p).desc);
      TRY(auto made, SafetensorsWriter::create(shard.path, std::move(descs), {{"format", "pt"}}, {8, options_.sync}));
      shard.writer.emplace(std::move(made));
    }
    return &*shard.writer;
  }

  Status finish(size_t s) {
    TRY(SafetensorsWriter* const w, writer(s));
    Shard& shard = shards_[s];
    for (size_t i = 0; i < shard.places.size(); ++i) {
      if (!tensor(shard.places[i]).late) continue;
      const std::string& bytes = shard.late[i];
      TRY_STATUS(w->shrink(i, static_cast<int64_t>(bytes.size())));
      TRY_STATUS(w->write(i, 0, std::as_bytes(std::span(bytes))));
    }
    for (const TensorDesc& t : w->tensors()) {
      index_[t.name] = path_name(shard.path);
      out_.tensor_bytes += t.size_bytes;
      ++out_.tensors;
    }
    out_.file_bytes += w->file_bytes();
    TRY_STATUS(w->finish());
    shard = Shard();
    return {};
  }

  Status write_index(const std::string& folder) {
    JsonWriter w(2);
    w.begin_object().key("metadata").begin_object();
    w.member("total_parameters", out_.parameters).member("total_size", out_.tensor_bytes).end_object();
    w.key("weight_map").begin_object();
    for (const auto& [name, file] : index_) w.member(name, file);
    w.end_object().end_object();
    const std::string name = "model.safetensors.index.json", text = w.take() + "\n";
    out_.files.push_back(name);
    out_.file_bytes += text.size();
    return write_file_atomically(path_join(folder, name), text);
  }

  const std::vector<OutputGroup>& groups_;
  const WriteTensorsOptions& options_;
  const Log& log_;
  std::vector<Shard> shards_;
  std::vector<std::vector<Place>> where_;       // [group][tensor]
  std::vector<std::vector<size_t>> shards_of_;  // [group]
  std::vector<size_t> group_order_;
  std::map<std::string, std::string> index_;
  std::mutex mutex_;  // of writers and late texts
  WrittenTensors out_;
  uint64_t total_ = 0, done_ = 0;
};

Error io_error(std::string_view doing, const std::string& path, int number) {
  return Error(number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               fmt::format("{} {}: {}", doing, berth::quoted(path, 400), std::strerror(number)));
}

}  // namespace

std::vector<std::vector<size_t>> split_into_shards(std::span<const uint64_t> sizes, uint64_t max_shard_bytes) {
  std::vector<std::vector<size_t>> shards;
  std::vector<size_t> current;
  uint64_t filled = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > max_shard_bytes) {
      shards.push_back({i});
      continue;
    }
    if (!current.empty() && sizes[i] > max_shard_bytes - filled) {
      shards.push_back(std::move(current));
      current.clear();
      filled = 0;
    }
    current.push_back(i);
    filled += sizes[i];
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_number = [](std::string_view s) {
    return !s.empty() && s.size() < 19 && s.find_first_not_of("0123456789") == std::string_view::npos;
  };
  while (!a.empty() && !b.empty()) {
    const std::string_view x = a.substr(0, a.find('.')), y = b.substr(0, b.find('.'));
    if (x != y) {
      if (!is_number(x) || !is_number(y)) return is_number(x) != is_number(y) ? is_number(x) : x < y;
      uint64_t m = 0, n = 0;
      std::from_chars(x.data(), x.data() + x.size(), m);
      std::from_chars(y.data(), y.data() + y.size(), n);
      if (m != n) return m < n;
    }
    a.remove_prefix(std::min(a.size(), x.size() + 1));
    b.remove_prefix(std::min(b.size(), y.size() + 1));
  }
  return a.empty() && !b.empty();
}

Result<WrittenTensors> write_tensors(const std::string& folder, const std::vector<OutputGroup>& groups,
                                     const WriteTensorsOptions& options, const Log& log) {
  return TensorFiles(groups, options, log).write(folder, "");
}

Result<WrittenTensors> write_tensors_file(const std::string& path, const std::vector<OutputGroup>& groups,
                                          const WriteTensorsOptions& options, const Log& log) {
  return TensorFiles(groups, options, log).write("", path);
}

Result<StagedFolder> StagedFolder::create(const std::string& target) {
  StagedFolder f;
  f.target_ = target;
  while (f.target_.size() > 1 && f.target_.back() == '/') f.target_.pop_back();
  if (f.target_.empty()) return Error(ErrorCode::kInvalidArgument, "an empty name was given for the folder to write");
  std::error_code dangling;
  if (std::filesystem::is_symlink(f.target_, dangling)) {  // what it points to is replaced, not the link
    const auto real = std::filesystem::canonical(f.target_, dangling);
    if (dangling)
      return Error(ErrorCode::kInvalidArgument, fmt::format("writing {}: it is a link to nothing", berth::quoted(target, 400)),
                   {"Choose another name, or remove it first."});
    f.target_ = real.string();
  }
  if (path_exists(f.target_)) {
    const auto names = is_directory(f.target_) ? list_folder(f.target_) : Result<std::vector<std::string>>({"."});
    if (!names) return names.error();
    if (!names->empty())
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("writing {}: it exists already{}", berth::quoted(target, 400),
                               is_directory(f.target_) ? " and is not empty" : " and is no folder"),
                   {"Choose another name, or remove it first."});
  }
  const std::string path = fmt::format("{}.tmp-{}", f.target_, ::getpid());
  if (::mkdir(path.c_str(), 0755) != 0) return io_error("creating folder", path, errno);
  f.path_ = path;
  return f;
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept { *this = std::move(other); }
StagedFolder& StagedFolder::operator=(StagedFolder&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(path_, other.path_);
  return *this;
}
StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Status StagedFolder::commit() {
  if (::rename(path_.c_str(), target_.c_str()) != 0) return io_error("renaming to", target_, errno);
  path_.clear();
  return {};
}

}  // namespace berth::engine
