// arch/presumed_sources.cc — recipes for a bare config: names, types and storage such a model would be published with.
//
// Planning only: nothing is read by these recipes. Quantized configs say their method; which tensors it covers follows
// from the tree (Linear modules and experts) and the config's own skip list.
#include <algorithm>

#include "berth/arch/quantize_rules.h"
#include "berth/arch/sources.h"
#include "berth/base/bytes.h"

namespace berth::arch {
namespace {

using format::QuantizationConfig;
using format::QuantMethod;

bool skipped(const QuantizationConfig& q, const WantedTensor& w) {
  if (w.spec.role == Role::kHead || w.spec.role == Role::kRouter || w.spec.role == Role::kSharedRouter) return true;
  const auto& keys = q.method == QuantMethod::kBitsAndBytes ? q.bitsandbytes.llm_int8_skip_modules : q.skip_modules;
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
    const auto matches = skip_key_matches(key, w.spec.module);
    return matches && *matches;
  });
}

// Bytes of one Linear's tensors under a method that is sized and not run; 0 where its layout is not known.
// specs of the formats: docs/formats.
uint64_t other_bytes(const QuantizationConfig& q, int64_t rows, int64_t cols) {
  const auto n = static_cast<uint64_t>(rows * cols);
  const auto out = static_cast<uint64_t>(rows), in = static_cast<uint64_t>(cols);
  const auto bits = static_cast<uint64_t>(q.bits.value_or(4));
  const auto group = q.group_size.value_or(128) > 0 ? static_cast<uint64_t>(q.group_size.value_or(128)) : in;
  switch (q.method) {
    case QuantMethod::kAwq:  // qweight, qzeros (packed along the outputs), scales in fp16
      return n * bits / 8 + in / group * out * bits / 8 + in / group * out * 2;
    case QuantMethod::kGptq:  // and the group of every input
      return n * bits / 8 + ceil_div(in, group) * out * bits / 8 + ceil_div(in, group) * out * 2 + in * 4;
    case QuantMethod::kModelopt:
      if (q.format == "NVFP4") return n / 2 + n / 16 + 4 + 4;  // e2m1, e4m3 scales, two fp32 scalars
      if (q.format == "FP8") return n + 4 + 4;
      return 0;
    default:
      return 0;
  }
}

// The storage of one quantized weight; plain where this method's layout is not known.
void store(const QuantizationConfig& q, Source& source) {
  if (const uint64_t bytes = other_bytes(q, source.rows, source.cols); bytes > 0) {
    source.storage = SourceStorage::kOther;
    source.other_bytes = bytes;
    return;
  }
  switch (q.method) {
    case QuantMethod::kFp8:
      source.storage = SourceStorage::kFp8Block;
      source.dtype = DType::kF8E4M3;
      source.prequantized = quant::StoredFormat{quant::Codec::kFP8Block, 0, false};
      source.companions = {source.name + "_scale_inv"};
      return;
    case QuantMethod::kBitsAndBytes: {
      const std::string module = source.name.substr(0, source.name.rfind('.'));
      if (q.bitsandbytes.load_in_8bit) {
        source.storage = SourceStorage::kBnbInt8;
        source.dtype = DType::kI8;
        source.prequantized = quant::StoredFormat{quant::Codec::kInt8Row, 0, false};
        source.companions = {module + ".SCB"};
        return;
      }
      const bool nf4 = q.bitsandbytes.bnb_4bit_quant_type == "nf4";
      source.storage = SourceStorage::kBnb4;
      source.dtype = DType::kU8;
      source.prequantized = quant::StoredFormat{nf4 ? quant::Codec::kNF4 : quant::Codec::kFP4, 64,
                                                q.bitsandbytes.bnb_4bit_use_double_quant};
      source.companions = {source.name + ".absmax"};
      if (source.prequantized->nested) {
        source.companions.push_back(source.name + ".nested_absmax");
        source.companions.push_back(source.name + ".nested_quant_map");
      }
      return;
    }
    default:
      return;
  }
}

WantedForm choose_form(const WantedTensor& w, bool mxfp4) {
  for (const WantedForm& form : w.forms)
    if (form.sources.front().mxfp4 == mxfp4) return form;
  if (!w.forms.empty()) return w.forms.front();
  const bool vector = w.spec.kind == TensorKind::kVector && w.rows.value == 1;
  return {{{w.spec.name, vector ? Shape{w.cols.value} : Shape{w.rows.value, w.cols.value}}}, {}};
}

Source presumed(const WantedSource& wanted, DType dtype) {
  Source source;
  source.name = wanted.name;
  source.dtype = dtype;
  source.transposed = wanted.transposed;
  source.slice = wanted.slice;
  const Shape& s = wanted.shape;
  source.cols = s.empty() ? 1 : s.back();
  source.rows = s.size() < 2 ? 1 : s[s.size() - 2];
  if (wanted.column) {
    source.rows = static_cast<int64_t>(element_count(s).value_or(0));
    source.cols = 1;
    return source;
  }
  if (wanted.transposed) std::swap(source.rows, source.cols);
  if (wanted.slice < 0)
    for (size_t i = 0; i + 2 < s.size(); ++i) source.rows *= s[i];
  if (wanted.mxfp4) {
    source.storage = SourceStorage::kMxfp4;
    source.dtype = DType::kU8;
    source.prequantized = quant::StoredFormat{quant::Codec::kMXFP4, 0, false};
    source.companions = {wanted.name + "_scales"};
    source.name += "_blocks";
  }
  return source;
}

}  // namespace

void presume_sources(const format::HfConfig& config, Builder& builder, ModelSpec& spec) {
  const auto& q = config.quantization();
  const bool mxfp4 = q && q->method == QuantMethod::kMxfp4;
  spec.tensors.reserve(builder.wanted().size());
  for (const WantedTensor& w : builder.wanted()) {
    TensorSpec tensor = w.spec;
    if (w.spec.role == Role::kHead && spec.tied_head) {
      tensor.tied_to = Role::kEmbedding;
      spec.tensors.push_back(std::move(tensor));
      continue;
    }
    const WantedForm form = choose_form(w, mxfp4);
    tensor.recipe.segments = form.segments;
    const bool weight = w.spec.kind == TensorKind::kMatrix || w.spec.kind == TensorKind::kBank;
    const bool quantized = q && weight && !skipped(*q, w);
    for (const WantedSource& wanted : form.sources) {
      tensor.recipe.sources.push_back(presumed(wanted, spec.dtype));
      if (quantized && tensor.recipe.sources.back().storage == SourceStorage::kPlain)
        store(*q, tensor.recipe.sources.back());
    }
    spec.tensors.push_back(std::move(tensor));
  }
  const bool runs = !q || q->method == QuantMethod::kFp8 || q->method == QuantMethod::kMxfp4 ||
                    q->method == QuantMethod::kBitsAndBytes;
  if (!runs) spec.unsupported = "weights stored as " + q->method_name;
}

}  // namespace berth::arch
