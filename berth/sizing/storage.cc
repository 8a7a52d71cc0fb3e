// sizing/storage.cc — see storage.h.
#include "berth/sizing/storage.h"

#include <fmt/format.h>

#include "berth/base/check.h"
#include "berth/base/strings.h"

namespace berth::sizing {
namespace {

using arch::SourceStorage;
using arch::TensorKind;
using arch::TensorSpec;
using quant::Codec;
using quant::StoredFormat;

bool is_plain_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF64;
}

StoredFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {Codec::kF16};
    case DType::kBF16:
      return {Codec::kBF16};
    default:
      return {Codec::kF32};
  }
}

Error mixed(const TensorSpec& tensor, std::string_view a, std::string_view b) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("tensor {} is put together from parts stored as {} and as {}", quoted(tensor.name), a, b),
               {"Use a checkpoint whose parts have one type."});
}

// How the file stores it; the format it would be held in unchanged, or nothing for floats.
struct FileFormat {
  DType dtype = DType::kF32;
  std::optional<StoredFormat> fixed;  // block formats and prequantized ones
};

Result<FileFormat> file_format(const TensorSpec& tensor) {
  CHECK(!tensor.recipe.sources.empty());
  FileFormat out;
  for (size_t i = 0; i < tensor.recipe.sources.size(); ++i) {
    const arch::Source& source = tensor.recipe.sources[i];
    FileFormat here{source.dtype, std::nullopt};
    if (source.storage != SourceStorage::kPlain) {
      CHECK(source.prequantized.has_value());
      here.fixed = source.prequantized;
    } else if (!is_plain_float(source.dtype)) {
      here.fixed = quant::format_for_dtype(source.dtype);
      if (!here.fixed)
        return Error(ErrorCode::kUnsupported,
                     fmt::format("tensor {} is stored as {}, which Berth can plan but not run", quoted(source.name),
                                 dtype_name(source.dtype)),
                     {"Use another quantization of this model, for example Q4_K_M, Q8_0, nf4 or bf16."});
    }
    if (i == 0) {
      out = here;
    } else if (out.fixed != here.fixed) {
      return mixed(tensor, out.fixed ? quant::format_text(*out.fixed) : std::string(dtype_name(out.dtype)),
                   here.fixed ? quant::format_text(*here.fixed) : std::string(dtype_name(here.dtype)));
    } else if (!here.fixed && here.dtype != out.dtype) {
      out.dtype = DType::kF32;  // the wider of two floats
    }
  }
  return out;
}

// A tensor in a format that is counted and never run: the bytes of the file.
std::optional<TensorStorage> counted_storage(const TensorSpec& tensor) {
  TensorStorage out;
  for (const arch::Source& source : tensor.recipe.sources) {
    if (source.storage == SourceStorage::kOther) {
      out.counted_only = true;
      out.bytes += source.other_bytes;
    } else {
      out.bytes += dtype_bytes(source.dtype, static_cast<uint64_t>(source.rows * source.cols)).value_or(0);
    }
  }
  if (!out.counted_only) return std::nullopt;
  out.layout.total_bytes = out.bytes;
  return out;
}

// Whether the checkpoint's own bytes are what memory needs (load/file_tensor.h reads them). Vectors are small: those
// are converted on every read.
bool used_in_file(const TensorSpec& tensor, const TensorStorage& storage) {
  if (tensor.kind == TensorKind::kVector) return true;
  const std::vector<arch::Source>& sources = tensor.recipe.sources;
  if (storage.quantized_on_load || tensor.recipe.add_one) return false;
  for (const arch::Source& s : sources)
    if (s.transposed || s.widens_scales) return false;
  for (const arch::Segment& s : tensor.recipe.segments)
    if (s.stride != 1 && s.count > 1) return false;
  const auto all_plain = [&](DType dtype) {
    for (const arch::Source& s : sources)
      if (s.storage != SourceStorage::kPlain || s.dtype != dtype) return false;
    return true;
  };
  const bool whole = sources.size() == 1 && tensor.recipe.segments.empty() && sources[0].slice < 0;
  switch (storage.layout.format.codec) {
    case Codec::kF32:
      return all_plain(DType::kF32);
    case Codec::kBF16:
      return all_plain(DType::kBF16);
    case Codec::kF16:
      return all_plain(DType::kF16);
    case Codec::kInt8Row:
      return whole && sources[0].storage == SourceStorage::kBnbInt8;
    case Codec::kNF4:
    case Codec::kFP4:
      return whole && sources[0].storage == SourceStorage::kBnb4;
    default:
      return false;
  }
}

Result<TensorStorage> storage_of(const TensorSpec& tensor, const StorageRequest& request) {
  if (auto counted = counted_storage(tensor)) return *counted;
  TensorStorage out;
  StoredFormat format{Codec::kF32};
  TRY(const FileFormat file, file_format(tensor));
  if (tensor.kind != TensorKind::kVector) {
    const bool quantize = request.quantize_to && request.quantizes && request.quantizes(tensor) &&
                          (!file.fixed || tensor.recipe.sources[0].storage == SourceStorage::kPlain);
    if (quantize) {
      format = *request.quantize_to;
      out.quantized_on_load = true;
      out.from_block_format = file.fixed.has_value();
    } else if (file.fixed) {
      format = *file.fixed;
    } else {
      const bool wide = request.dtype && request.keeps_f32 && request.keeps_f32(tensor);
      format = float_format(wide ? DType::kF32 : request.dtype.value_or(file.dtype));
    }
  }
  auto layout = quant::packed_layout(format, tensor.rows * tensor.experts, tensor.cols);
  if (!layout) {
    Error e = layout.error().with_context("laying out tensor " + quoted(tensor.name));
    e.code = ErrorCode::kCorruptData;
    return e;
  }
  out.layout = *std::move(layout);
  out.bytes = out.layout.total_bytes;
  out.in_file = used_in_file(tensor, out);
  return out;
}

}  // namespace

Result<std::vector<TensorStorage>> choose_storage(const arch::ModelSpec& spec, const StorageRequest& request) {
  std::vector<TensorStorage> out(spec.tensors.size());
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    if (spec.tensors[i].tied_to) continue;
    TRY(out[i], storage_of(spec.tensors[i], request));
  }
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const auto& tied = spec.tensors[i].tied_to;
    if (!tied) continue;
    for (size_t j = 0; j < spec.tensors.size(); ++j)
      if (spec.tensors[j].role == *tied && spec.tensors[j].layer == -1 && !spec.tensors[j].tied_to)
        out[i].layout = out[j].layout;
  }
  return out;
}

}  // namespace berth::sizing
