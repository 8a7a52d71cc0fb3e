// load/load_weights.cc — see load_weights.h.
#include "berth/load/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "berth/base/bytes.h"
#include "berth/base/check.h"
#include "berth/base/read_once.h"
#include "berth/base/strings.h"
#include "berth/base/thread_pool.h"
#include "berth/device/cpu/memory.h"
#include "berth/load/fill_matrix.h"
#include "berth/load/gguf_view.h"
#include "berth/load/offload_folder.h"
#include "berth/load/read_ahead.h"
#include "berth/load/row_reader.h"
#include "berth/load/unseen_weights.h"

namespace berth::load {
namespace {

using arch::SourceStorage;
using arch::TensorKind;
using arch::TensorSpec;
using quant::Codec;
using quant::Plane;

constexpr uint64_t kMaxChunkBytes = uint64_t{4} << 20;  // of planes that are tensors of their own

}  // namespace

class Loader {
 public:
  Loader(const LoadRequest& request, const Log& log) : r_(request), log_(log) {}

  Result<WeightStore> load() {
    TRY_STATUS(check_files());
    if (r_.look_while_used) store_.unseen_ = std::make_unique<UnseenWeights>();
    TRY_STATUS(allocate());
    TRY_STATUS(open_offload_folder());
    read_ahead_of_cold_files();
    for (const File& file : r_.checkpoint->files())
      if (was_cold(file) && !cached_ && !waiting_pool_)
        waiting_pool_ = std::make_unique<ThreadPool>(std::max(4, 2 * r_.pool->size()));
    uint64_t total = 0, done = 0;
    for (const sizing::TensorStorage& s : *r_.storage) total += s.bytes;
    for (size_t t = 0; t < r_.spec->tensors.size(); ++t) {
      if (r_.spec->tensors[t].tied_to) continue;
      if (read_ahead_) read_ahead_->wait_for(t);
      TRY_STATUS(load_tensor(t));
      done += (*r_.storage)[t].bytes;
      if (!log_.progress("loading weights", done, total))
        return Error(ErrorCode::kCancelled, "loading was interrupted");
    }
    TRY_STATUS(check_files());
    read_ahead_.reset();
    return std::move(store_);
  }

 private:
  Status check_files() const { return r_.checkpoint->check_unchanged(); }

  Status allocate() {
    const auto& tensors = r_.spec->tensors;
    store_.tensors_.resize(tensors.size());
    std::vector<device::Device*> device_of(tensors.size(), nullptr);
    on_disk_.resize(tensors.size(), false);
    mapped_.resize(tensors.size(), false);
    CHECK(r_.plan->units.size() == r_.units->units.size());
    find_uses();
    for (size_t u = 0; u < r_.units->units.size(); ++u) {
      const std::string& name = r_.plan->units[u].device;
      for (const int32_t t : r_.units->units[u].tensors) {
        if (name == "disk") {
          on_disk_[static_cast<size_t>(t)] = true;
          continue;
        }
        device::Device* d = r_.devices->find(name);
        if (d == nullptr || !d->host_addressable())
          return Error(
              ErrorCode::kUnsupported,
              fmt::format("loading {} onto {} is not supported by this build", quoted(r_.plan->units[u].path), name),
              {"Place it on the cpu or on an emulated device."});
        device_of[static_cast<size_t>(t)] = d;
      }
    }
    targets_.resize(tensors.size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].tied_to) continue;
      const quant::PackedLayout& layout = (*r_.storage)[t].layout;
      const bool bank = tensors[t].kind == TensorKind::kBank;
      if (on_disk_[t]) {
        store_.tensors_[t].matrix = {layout.format, layout.rows, layout.cols, {}};
        store_.tensors_[t].index = static_cast<int32_t>(t);
        store_.tensors_[t].bank = bank;
        store_.index_[{tensors[t].role, tensors[t].layer}] = static_cast<int32_t>(t);
        continue;
      }
      CHECK(device_of[t] != nullptr);
      store_.tensors_[t] = {{}, device_of[t], nullptr, static_cast<int32_t>(t), bank};
      store_.index_[{tensors[t].role, tensors[t].layer}] = static_cast<int32_t>(t);
      if (r_.map_files && device_of[t] == &r_.devices->cpu()) {
        TRY(const bool mapped, map_tensor(t));
        if (mapped) continue;
      }
      TRY(device::Buffer buffer, device_of[t]->arena().allocate(layout.total_bytes, device::Tag::kWeights));
      targets_[t] = quant::bind_planes(layout, buffer.data());
      store_.tensors_[t].matrix = targets_[t];
      store_.buffers_.push_back(std::move(buffer));
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (!tensors[t].tied_to) continue;
      const auto source = store_.index_.find({*tensors[t].tied_to, -1});
      CHECK(source != store_.index_.end());
      aliases_.emplace_back(t, static_cast<size_t>(source->second));
      store_.tensors_[t] = store_.tensors_[static_cast<size_t>(source->second)];
      store_.index_[{tensors[t].role, tensors[t].layer}] = static_cast<int32_t>(t);
    }
    return {};
  }

  // As it was when first asked.
  bool was_cold(const File& file) {
    const auto known = cold_.find(&file);
    return known != cold_.end() ? known->second : cold_.emplace(&file, is_cold(file)).first->second;
  }

  const FileMapping* mapping_of(const File& file) {
    for (const auto& mapping : store_.mappings_)
      if (&mapping->file() == &file) return mapping.get();
    auto made = FileMapping::create(file);
    if (!made) {
      log_.debug(made.error().message + ": its weights are copied");
      return nullptr;
    }
    store_.mappings_.push_back(*std::move(made));
    return store_.mappings_.back().get();
  }

  // For what is made of them, while loading. Files that are not to be in the page cache are read past it instead.
  void map_files_to_read() {
    if (!reading_.empty()) return;
    for (const File& file : r_.checkpoint->files()) {
      if (was_cold(file) && !cached_) continue;
      if (auto mapping = FileMapping::create(file)) reading_.push_back(*std::move(mapping));
    }
  }

  const FileMapping* holding(const std::byte* at) const {
    for (const auto& m : store_.mappings_)
      if (at >= m->bytes().data() && at < m->bytes().data() + m->bytes().size()) return m.get();
    return nullptr;
  }

  // How the units that hold a tensor, or are tied to it, use it.
  struct Uses {
    bool streamed = false;    // copied elsewhere, as planes
    bool multiplied = false;  // more than rows gathered from it
  };
  // Of every tensor, once: a walk over all units is not for each of them.
  void find_uses() {
    const auto& tensors = r_.spec->tensors;
    uses_.resize(tensors.size());
    const auto add = [](Uses& to, const Uses& more) {
      to.streamed |= more.streamed;
      to.multiplied |= more.multiplied;
    };
    for (size_t u = 0; u < r_.units->units.size(); ++u) {
      const plan::PlacedUnit& placed = r_.plan->units[u];
      const Uses here{placed.access == plan::Access::kStream || placed.access_prefill == plan::Access::kStream,
                      placed.access != plan::Access::kGather};
      for (const int32_t i : r_.units->units[u].tensors) {
        add(uses_[static_cast<size_t>(i)], here);
        const auto& tied_to = tensors[static_cast<size_t>(i)].tied_to;
        if (!tied_to) continue;
        for (size_t t = 0; t < tensors.size(); ++t)
          if (tensors[t].role == *tied_to) add(uses_[t], here);
      }
    }
  }

  // FP8 in blocks: the codes as the file has them, with scales made beside them (they may be of another type there, and
  // are a ten-thousandth of it). Not matrices put together of several.
  Result<std::optional<quant::PackedMatrix>> fp8_view(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const quant::PackedLayout& layout = (*r_.storage)[t].layout;
    const arch::Source& source = spec.recipe.sources[0];
    const quant::PlaneLayout &codes = layout.plane(Plane::kCodes), &scales = layout.plane(Plane::kScales);
    const auto none = std::optional<quant::PackedMatrix>();
    const format::TensorEntry* const entry = r_.checkpoint->find(source.name);
    if ((*r_.storage)[t].quantized_on_load || spec.recipe.add_one || spec.recipe.sources.size() != 1 ||
        !spec.recipe.segments.empty() || source.transposed || source.slice >= 0 || source.companions.empty() ||
        codes.dtype != DType::kF8E4M3 || scales.dtype != DType::kF32 || entry == nullptr ||
        entry->dtype != DType::kF8E4M3 || entry->size_bytes != codes.bytes)
      return none;
    const FileMapping* const mapping = mapping_of(r_.checkpoint->files()[entry->file]);
    if (mapping == nullptr || entry->offset + entry->size_bytes > mapping->bytes().size()) return none;
    auto made = std::make_unique<float[]>(scales.count + quant::kTailPadding / sizeof(float));
    quant::MutablePackedMatrix to{layout.format, layout.rows, layout.cols, {}};
    to.planes[static_cast<size_t>(Plane::kScales)] = reinterpret_cast<std::byte*>(made.get());
    if (Status status = load_plane(to, Plane::kScales, source.companions[0]); !status)
      return std::move(status).error().with_context("loading tensor " + quoted(spec.name));
    quant::PackedMatrix matrix = to;
    matrix.planes[static_cast<size_t>(Plane::kCodes)] = mapping->bytes().data() + entry->offset;
    store_.numbers_.push_back(std::move(made));
    return std::optional(matrix);
  }

  // The view of a tensor's bytes in the mapped checkpoint, where they are its planes, one piece each and aligned to
  // their elements, or (GGUF) differ from them as PackedMatrix can say. Nothing: to be copied.
  Result<std::optional<quant::PackedMatrix>> view_in_file(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const sizing::TensorStorage& storage = (*r_.storage)[t];
    const auto none = std::optional<quant::PackedMatrix>();
    if (spec.kind == TensorKind::kVector) return none;
    quant::PackedMatrix matrix{storage.layout.format, storage.layout.rows, storage.layout.cols};
    const Uses& uses = uses_[t];
    if (spec.recipe.sources[0].storage == SourceStorage::kFp8Block) return fp8_view(t);
    if (!storage.in_file) {
      if (uses.streamed) return none;
      const auto as_is = gguf_view(*r_.checkpoint, spec, storage, !uses.multiplied);
      if (!as_is) return none;
      const FileMapping* const mapping = mapping_of(*as_is->at.file);
      if (mapping == nullptr || as_is->at.offset + as_is->at.bytes > mapping->bytes().size()) return none;
      matrix.planes[0] = mapping->bytes().data() + as_is->at.offset;
      matrix.in_blocks = as_is->in_blocks;
      matrix.interleaved_rows = as_is->interleaved_rows;
      return std::optional(matrix);
    }
    TRY(const FileTensor in_file, FileTensor::in_checkpoint(*r_.checkpoint, spec, storage.layout));
    for (int p = 0; p < quant::kPlaneCount; ++p) {
      const auto plane = static_cast<Plane>(p);
      const quant::PlaneLayout& layout = storage.layout.plane(plane);
      if (layout.count == 0) continue;
      if (const auto number = in_file.nested_offset(); plane == Plane::kNestedOffset && number) {
        store_.numbers_.push_back(std::make_unique<float[]>(1));
        store_.numbers_.back()[0] = *number;
        matrix.planes[static_cast<size_t>(p)] = reinterpret_cast<const std::byte*>(store_.numbers_.back().get());
        continue;
      }
      const auto place = in_file.place(plane);
      if (!place || place->offset % dtype_info(layout.dtype).block_bytes != 0) return none;
      const FileMapping* const mapping = mapping_of(*place->file);
      if (mapping == nullptr || place->offset + place->bytes > mapping->bytes().size()) return none;
      matrix.planes[static_cast<size_t>(p)] = mapping->bytes().data() + place->offset;
    }
    return std::optional(matrix);
  }

  // False: to be copied.
  Result<bool> map_tensor(size_t t) {
    TRY(const auto matrix, view_in_file(t));
    if (!matrix) return false;
    const sizing::TensorStorage& storage = (*r_.storage)[t];
    // Counted as if it were here; whatever the address, it is not written to.
    TRY(device::Buffer counted, r_.devices->cpu().arena().count(const_cast<std::byte*>(matrix->planes[0]),
                                                                storage.layout.total_bytes, device::Tag::kWeights));
    store_.buffers_.push_back(std::move(counted));
    store_.tensors_[t].matrix = *matrix;
    store_.mapped_bytes_ += storage.layout.total_bytes;
    mapped_[t] = true;
    return true;
  }

  // Threads of which some wait for the disk while others compute, where files come from it.
  ThreadPool& pool() const { return waiting_pool_ ? *waiting_pool_ : *r_.pool; }

  // Starts to bring what is needed of cold files into the page cache: mapped weights where they are used, the rest to
  // be read or quantized from there while what comes after it is brought. Not the rest where memory is short: that is
  // read past the page cache.
  void read_ahead_of_cold_files() {
    const auto available = device::host_memory().available_bytes;
    uint64_t cold_bytes = 0;
    for (const File& file : r_.checkpoint->files()) cold_bytes += was_cold(file) ? file.size_bytes() : 0;
    if (cold_bytes == 0 || !r_.map_files) return;
    cached_ = !available || cold_bytes <= *available / 2;
    if (cached_) map_files_to_read();
    std::vector<ReadAhead::Range> ranges;
    std::set<const format::TensorEntry*> known;
    const auto add = [&](size_t t, const std::string& name) {
      const format::TensorEntry* const entry = r_.checkpoint->find(name);
      if (entry == nullptr || entry->size_bytes == 0 || !known.insert(entry).second) return;
      for (const auto& mapping : reading_)
        if (&mapping->file() == &r_.checkpoint->files()[entry->file] && was_cold(mapping->file()))
          ranges.push_back({t, mapping.get(), entry->offset, entry->size_bytes});
    };
    for (size_t t = 0; t < r_.spec->tensors.size(); ++t) {
      if (mapped_[t]) {
        if (uses_[t].multiplied) add_planes(t, ranges);
      } else if (!on_disk_[t] && !r_.spec->tensors[t].tied_to) {
        for (const arch::Source& source : r_.spec->tensors[t].recipe.sources) {
          add(t, source.name);
          for (const std::string& companion : source.companions) add(t, companion);
        }
      }
    }
    if (ranges.empty()) return;
    read_ahead_ = std::make_unique<ReadAhead>(ranges, std::max(ReadAhead::kThreads, 2 * r_.pool->size()),
                                              available ? *available / 4 : uint64_t{1} << 30);
  }

  // Where a mapped tensor's planes are in cold files.
  void add_planes(size_t t, std::vector<ReadAhead::Range>& ranges) {
    const quant::PackedMatrix& matrix = store_.tensors_[t].matrix;
    for (int p = 0; p < quant::kPlaneCount; ++p) {
      const std::byte* const begin = matrix.planes[static_cast<size_t>(p)];
      const FileMapping* const from = begin == nullptr ? nullptr : holding(begin);
      if (from == nullptr || !was_cold(from->file())) continue;
      const quant::PlaneLayout& layout = (*r_.storage)[t].layout.plane(static_cast<Plane>(p));
      const auto offset = static_cast<uint64_t>(begin - from->bytes().data());
      const uint64_t bytes = ceil_div<uint64_t>(layout.count, 32) * mapped_bytes_per_32(matrix, layout);
      ranges.push_back({t, from, offset, std::min(bytes, from->bytes().size() - offset), true});
    }
  }

  // Brings a mapped tensor into memory and looks for NaN, or leaves that to its first use. Not a table of which rows
  // are gathered: they come when they are wanted, and a NaN among them shows in the logits, which fail. Banks of
  // experts are never left, as a pass uses few of them; nor what is copied elsewhere, nor cold files: the disk takes
  // longer.
  Status look_through(size_t t) {
    if (!uses_[t].multiplied) return {};
    const HeldTensor& held = store_.tensors_[t];
    const quant::PackedLayout& layout = (*r_.storage)[t].layout;
    const bool later = r_.look_while_used && !held.bank && !uses_[t].streamed && !in_cold_file(held.matrix);
    TRY_STATUS(bring_mapped({held.matrix, layout, store_.mappings_}, later, *r_.pool, staging_));
    if (later) store_.unseen_->add(static_cast<int32_t>(t), r_.spec->tensors[t].name, held.matrix, layout);
    return {};
  }

  bool in_cold_file(const quant::PackedMatrix& matrix) {
    return std::ranges::any_of(matrix.planes, [&](const std::byte* plane) {
      const FileMapping* const from = plane == nullptr ? nullptr : holding(plane);
      return from != nullptr && was_cold(from->file());
    });
  }

  // Before anything is read: what must be written needs a place.
  Status open_offload_folder() {
    uint64_t bytes = 0;
    const TensorSpec* first = nullptr;
    for (size_t t = 0; t < on_disk_.size(); ++t) {
      if (!on_disk_[t] || (*r_.storage)[t].in_file) continue;
      if (first == nullptr) first = &r_.spec->tensors[t];
      bytes += (*r_.storage)[t].bytes;
    }
    if (first == nullptr) return {};
    if (r_.offload_folder.empty())
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("the plan keeps {} on the disk in another form than the checkpoint has ({} first): that "
                      "needs a folder",
                      format_bytes(bytes), quoted(first->name)),
          {"Name one on a disk with that much room: --offload-folder DIR. It is written once and used again."});
    TRY(offload_, OffloadFolder::open(r_.offload_folder, *r_.checkpoint, r_.quantize_from));
    return {};
  }

  Status load_tensor(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    auto status = on_disk_[t] ? leave_on_disk(t) : mapped_[t] ? look_through(t) : load_planes_and_rows(t);
    if (!status) return status.error().with_context("loading tensor " + quoted(spec.name));
    return {};
  }

  Status load_planes_and_rows(size_t t) {
    TRY_STATUS(load_rows(t));
    return load_planes(t);
  }

  Status leave_on_disk(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const sizing::TensorStorage& storage = (*r_.storage)[t];
    std::optional<FileTensor> made;
    if (storage.in_file) {
      TRY(made, FileTensor::in_checkpoint(*r_.checkpoint, spec, storage.layout));
    } else {
      std::optional<File> image = offload_->find(spec, storage.layout, log_);
      if (!image) {
        TRY(image, offload_->write(spec, storage.layout, [&](std::byte* base) -> Status {
          targets_[t] = quant::bind_planes(storage.layout, base);
          return load_planes_and_rows(t);
        }));
      }
      made = FileTensor::in_image(std::move(*image), OffloadFolder::kHeaderBytes, spec.name, storage.layout);
      store_.offloaded_bytes_ += storage.layout.total_bytes;
    }
    store_.files_.push_back(std::make_unique<FileTensor>(*std::move(made)));
    store_.tensors_[t].file = store_.files_.back().get();
    for (const auto& [alias, target] : aliases_)
      if (target == t) store_.tensors_[alias].file = store_.tensors_[t].file;
    return {};
  }

  // Rows that go through pack_rows, the quantizer, or become a vector.
  Status load_rows(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const sizing::TensorStorage& storage = (*r_.storage)[t];
    if (spec.recipe.sources[0].storage == SourceStorage::kBnb4) return {};  // codes are one plane
    TRY(const RowReader reader, RowReader::create(*r_.checkpoint, spec));
    quant::MutablePackedMatrix to = targets_[t];
    // Vectors of which elements are picked come as a column; in memory they are fp32, one after the other, all the
    // same.
    if (spec.kind == TensorKind::kVector && reader.rows() != to.rows && spec.recipe.sources[0].cols == 1 &&
        reader.rows() == to.rows * to.cols) {
      to.rows = reader.rows();
      to.cols = 1;
    }
    if (reader.rows() != to.rows)
      return Error(ErrorCode::kCorruptData,
                   fmt::format("{} rows were expected, the checkpoint gives {}", to.rows, reader.rows()));
    FillOptions fill;
    fill.quantize = storage.quantized_on_load;
    fill.quantize_from = r_.quantize_from;
    fill.vector = spec.kind == TensorKind::kVector;
    fill.add_one = spec.recipe.add_one;
    fill.round_to = spec.recipe.round_to;
    fill.isa = r_.devices->cpu().isa();
    if (r_.map_files) map_files_to_read();
    fill.mappings = reading_;
    fill.new_memory = device::HostRegions::instance().get();
    TRY_STATUS(fill_matrix(reader, to, fill, pool(), staging_));
    return {};
  }

  // Planes that are tensors of their own: scales of fp8, int8 and mxfp4, everything of bitsandbytes 4 bit.
  Status load_planes(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const arch::Source& source = spec.recipe.sources[0];
    if (source.storage == SourceStorage::kPlain || (*r_.storage)[t].quantized_on_load) return {};
    const bool row_scaled = source.storage == SourceStorage::kMxfp4 || source.storage == SourceStorage::kBnbInt8;
    if (row_scaled && !spec.recipe.segments.empty()) return load_picked_scales(t);
    if (spec.recipe.sources.size() != 1 || !spec.recipe.segments.empty() || source.transposed)
      return load_segment_planes(t);
    const quant::MutablePackedMatrix& to = targets_[t];
    if (source.storage == SourceStorage::kBnb4) {
      TRY_STATUS(load_plane(to, Plane::kCodes, source.name));
      TRY_STATUS(load_plane(to, Plane::kScales, companion(source, ".absmax")));
      if (to.format.nested) {
        TRY_STATUS(load_plane(to, Plane::kNestedAbsmax, companion(source, ".nested_absmax")));
        TRY_STATUS(load_plane(to, Plane::kNestedMap, companion(source, ".nested_quant_map")));
        const float offset = source.nested_offset;
        TRY_STATUS(quant::pack_plane(to, Plane::kNestedOffset, DType::kF32, std::as_bytes(std::span(&offset, 1)), 0));
      }
      return {};
    }
    CHECK(!source.companions.empty());
    return load_plane(to, Plane::kScales, source.companions[0]);
  }

  // Rows picked of sources whose scales belong to rows (mxfp4, int8): the same rows of the scales.
  Status load_picked_scales(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    staging_.resize(std::max<size_t>(staging_.size(), 1));
    std::vector<std::byte>& raw = staging_[0].raw;
    std::vector<std::byte>& picked = staging_[0].scratch;
    uint64_t first = 0;  // element of the plane
    for (const arch::Segment& segment : spec.recipe.segments) {
      const arch::Source& source = spec.recipe.sources[static_cast<size_t>(segment.source)];
      const format::TensorEntry* entry =
          source.companions.empty() ? nullptr : r_.checkpoint->find(source.companions[0]);
      const uint64_t rows = static_cast<uint64_t>(std::max<int64_t>(source.rows, 1));
      if (entry == nullptr || source.transposed || source.slice >= 0 || entry->size_bytes % rows != 0)
        return Error(ErrorCode::kCorruptData,
                     fmt::format("the scales of tensor {} do not fit its {} rows", quoted(source.name), source.rows));
      const uint64_t row_bytes = entry->size_bytes / rows, stride = static_cast<uint64_t>(segment.stride);
      const auto begin = static_cast<uint64_t>(segment.begin), count = static_cast<uint64_t>(segment.count);
      if (count == 0) continue;
      raw.resize(((count - 1) * stride + 1) * row_bytes);
      picked.resize(count * row_bytes);
      TRY_STATUS(r_.checkpoint->read(*entry, begin * row_bytes, raw));
      for (uint64_t r = 0; r < count; ++r)
        std::memcpy(picked.data() + r * row_bytes, raw.data() + r * stride * row_bytes, row_bytes);
      TRY_STATUS(quant::pack_plane(targets_[t], Plane::kScales, entry->dtype, picked, first));
      first += count * row_bytes / dtype_info(entry->dtype).block_bytes;
    }
    return {};
  }

  // Several fp8, int8 or mxfp4 sources under one another: their scales follow in the same order, whole sources only.
  Status load_segment_planes(size_t t) {
    const TensorSpec& spec = r_.spec->tensors[t];
    const quant::MutablePackedMatrix& to = targets_[t];
    uint64_t first = 0;
    for (const arch::Source& source : spec.recipe.sources) {
      const bool whole = spec.recipe.segments.empty() && !source.transposed && source.slice < 0 &&
                         !source.companions.empty() &&
                         (source.storage != SourceStorage::kFp8Block || source.rows % 128 == 0) &&
                         source.storage != SourceStorage::kBnb4;
      if (!whole)
        return Error(ErrorCode::kUnsupported,
                     fmt::format("tensor {} is put together from quantized parts in a way that cannot be loaded",
                                 quoted(spec.name)));
      const format::TensorEntry* entry = r_.checkpoint->find(source.companions[0]);
      TRY_STATUS(load_plane(to, Plane::kScales, source.companions[0], first));
      first += *element_count(entry->shape);
    }
    return {};
  }

  std::string companion(const arch::Source& source, std::string_view suffix) const {
    for (const std::string& name : source.companions)
      if (name.ends_with(suffix)) return name;
    return source.name + std::string(suffix);
  }

  Status load_plane(const quant::MutablePackedMatrix& to, Plane plane, const std::string& name, uint64_t first = 0) {
    const format::TensorEntry* entry = r_.checkpoint->find(name);
    if (entry == nullptr)
      return Error(ErrorCode::kCorruptData, fmt::format("tensor {} is not in the checkpoint", quoted(name)));
    staging_.resize(std::max<size_t>(staging_.size(), 1));
    std::vector<std::byte>& raw = staging_[0].raw;
    const uint64_t e = dtype_info(entry->dtype).block_bytes;
    uint64_t done = 0;
    while (done < entry->size_bytes) {
      const uint64_t n = std::min(entry->size_bytes - done, kMaxChunkBytes);
      raw.resize(n);
      TRY_STATUS(r_.checkpoint->read(*entry, done, raw));
      // Packed bytes may be stored under another type (quant_storage): they stay bytes.
      const bool bytes = plane == Plane::kCodes;
      TRY_STATUS(
          quant::pack_plane(to, plane, bytes ? DType::kU8 : entry->dtype, raw, first + (bytes ? done : done / e)));
      done += n;
    }
    return {};
  }

  const LoadRequest& r_;
  const Log& log_;
  WeightStore store_;
  std::vector<quant::MutablePackedMatrix> targets_;
  std::map<const File*, bool> cold_;
  bool cached_ = false;                             // cold files are brought into the page cache
  std::unique_ptr<ThreadPool> waiting_pool_;        // where they are read past it
  std::vector<Uses> uses_;                          // by tensor
  std::vector<bool> on_disk_, mapped_;              // by tensor
  std::vector<std::pair<size_t, size_t>> aliases_;  // alias, target
  std::optional<OffloadFolder> offload_;
  std::vector<std::unique_ptr<FileMapping>> reading_;
  std::unique_ptr<ReadAhead> read_ahead_;  // ends before its mappings do
  std::vector<Staging> staging_;
};

WeightStore::WeightStore() = default;
WeightStore::WeightStore(WeightStore&&) noexcept = default;
WeightStore& WeightStore::operator=(WeightStore&&) noexcept = default;
WeightStore::~WeightStore() = default;

Result<WeightStore> load_weights(const LoadRequest& request, const Log& log) { return Loader(request, log).load(); }

UnseenWeights* WeightStore::unseen() const { return unseen_ == nullptr || unseen_->empty() ? nullptr : unseen_.get(); }

Status WeightStore::check_mapped() const {
  for (const auto& mapping : mappings_) TRY_STATUS(mapping->check_unchanged());
  return {};
}

const HeldTensor* WeightStore::find(arch::Role role, int32_t layer) const {
  const auto it = index_.find({role, layer});
  return it == index_.end() ? nullptr : &tensors_[static_cast<size_t>(it->second)];
}

}  // namespace berth::load
