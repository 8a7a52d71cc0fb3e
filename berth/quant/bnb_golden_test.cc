// What bitsandbytes 0.50.2 did, case by case (golden/bitsandbytes): every codec case, both directions, byte for byte.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "berth/quant/bnb_4bit.h"
#include "berth/quant/bnb_8bit_blocks.h"
#include "berth/quant/cast.h"
#include "berth/quant/code_books.h"
#include "berth/quant/encode.h"
#include "berth/quant/int8_row.h"
#include "berth/quant/packed.h"
#include "berth/quant/quant_state.h"
#include "berth/quant/test_golden.h"

namespace berth::quant {
namespace {

bool same_float(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}
testing::AssertionResult same_floats(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size())
    return testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (!same_float(got[i], want[i]))
      return testing::AssertionFailure() << "[" << i << "] " << got[i] << ", expected " << want[i];
  }
  return testing::AssertionSuccess();
}
template <typename T>
testing::AssertionResult same_bytes(const std::vector<T>& got, const GoldenTensor& want) {
  if (got.size() * sizeof(T) != want.bytes.size()) {
    return testing::AssertionFailure() << got.size() * sizeof(T) << " bytes, expected " << want.bytes.size();
  }
  if (got.empty() || std::memcmp(got.data(), want.bytes.data(), want.bytes.size()) == 0)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "bytes differ";
}

DType dtype_of(std::string_view short_name) {
  return short_name == "fp32" ? DType::kF32 : short_name == "bf16" ? DType::kBF16 : DType::kF16;
}
const char* const kOutputs[] = {"fp32", "bf16", "fp16"};

// One case of the index with its tensors.
struct Case {
  JsonView json;
  std::string op, name;
  const std::map<std::string, GoldenTensor>* file = nullptr;

  bool has(std::string_view tensor) const { return json["tensors"][tensor].valid(); }
  const GoldenTensor& tensor(std::string_view t) const {
    return file->at(std::string(*json["tensors"][t].as_string()));
  }
  std::vector<float> floats(std::string_view t) const { return tensor(t).floats(); }
  JsonView param(std::string_view p) const { return json["params"][p]; }
  int64_t number(std::string_view p) const { return *param(p).as_int64(); }
  float real(std::string_view p) const { return static_cast<float>(*param(p).as_double()); }
  std::string text(std::string_view p) const { return std::string(*param(p).as_string()); }
  bool flag(std::string_view p) const { return param(p).valid() && *param(p).as_bool(); }
  Shape shape(std::string_view p) const {
    Shape s;
    param(p).for_each_element([&](JsonView d) {
      s.push_back(*d.as_int64());
      return true;
    });
    return s;
  }
};

// Codes and scales of a 4-bit case, made by our encoder.
struct Encoded {
  std::vector<uint8_t> codes, absmax_u8;
  std::vector<float> absmax, nested_absmax;
  float offset = 0;
};

Encoded encode(Codec codec, int32_t blocksize, bool nested, const std::vector<float>& x) {
  Encoded e;
  e.codes.resize((x.size() + 1) / 2);
  e.absmax.resize(ceil_div<size_t>(x.size(), static_cast<size_t>(blocksize)));
  encode_bnb_4bit(codec, blocksize, kBnbCpuRules, x, e.codes.data(), e.absmax.data());
  if (nested) {
    e.absmax_u8.resize(e.absmax.size());
    e.nested_absmax.resize(ceil_div<size_t>(e.absmax.size(), 256));
    auto differences = e.absmax;
    nest_absmax(differences, NearestRule::kCpuBins, e.absmax_u8.data(), e.nested_absmax.data(), &e.offset);
  }
  return e;
}

// absmax as the golden has it stored, restored where nested.
std::vector<float> stored_absmax(const Case& c) {
  if (!c.has("absmax_u8")) return c.floats("absmax");
  const auto q = c.tensor("absmax_u8").as<uint8_t>();
  std::vector<float> absmax(q.size());
  unnest_absmax(q, dynamic_map(), c.floats("nested_absmax").data(), c.floats("nested_offset")[0], absmax.data());
  return absmax;
}

void check_quantize_4bit(const Case& c) {
  const Codec codec = *codec_from_name(c.text("quant_type"));
  const auto blocksize = static_cast<int32_t>(c.number("blocksize"));
  const bool nested = c.flag("nested");
  const std::vector<float> x = c.floats("input");
  const Encoded e = encode(codec, blocksize, nested, x);
  EXPECT_TRUE(same_bytes(e.codes, c.tensor("packed")));
  const auto packed_shape = packed_storage_shape(x.size(), *dtype_from_name(c.text("quant_storage")));
  ASSERT_TRUE(packed_shape);
  EXPECT_EQ(*packed_shape, c.shape("packed_shape"));
  std::vector<float> absmax = stored_absmax(c);
  if (nested) {
    EXPECT_TRUE(same_floats({e.offset}, c.floats("nested_offset")));
    EXPECT_TRUE(same_bytes(e.absmax_u8, c.tensor("absmax_u8")));
    EXPECT_TRUE(same_floats(e.nested_absmax, c.floats("nested_absmax")));
    EXPECT_TRUE(same_floats(absmax, c.floats("absmax_restored")));
    absmax = c.floats("absmax_restored");  // keeps the bits of a NaN
  } else {
    EXPECT_TRUE(same_bytes(e.absmax, c.tensor("absmax")));  // the bits of NaNs too
  }

  const bool odd_rows = c.shape("shape").back() % 2 == 1;
  const auto codes = c.tensor("packed").as<uint8_t>();
  std::vector<float> values(x.size());
  decode_bnb_4bit(codec, blocksize, codes, absmax.data(), !odd_rows, values);
  for (const std::string out : kOutputs) {
    if (!c.has("dequant_" + out)) continue;
    auto rounded = values;
    for (float& v : rounded) {
      v = out == "bf16" && !odd_rows ? bf16_to_f32(bnb_native_bf16(v)) : round_through(dtype_of(out), v);
    }
    EXPECT_TRUE(same_floats(rounded, c.floats("dequant_" + out))) << out;
  }

  if (!c.has("quant_state_json")) return;
  QuantState state{codec, blocksize, dtype_of(c.text("source_dtype")), c.shape("shape"), nested, 256, e.offset};
  const std::string blob = c.tensor("quant_state_json").bytes;
  EXPECT_EQ(quant_state_json(state), blob);
  const auto parsed = parse_quant_state("w", blob);
  if (nested && !std::isfinite(e.offset)) {
    EXPECT_FALSE(parsed);
    return;
  }
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(quant_state_json(*parsed), blob);
  EXPECT_EQ(parsed->format(), (StoredFormat{codec, blocksize, nested}));

  // The engine's road: the stored tensors into planes, a row at a time out of them.
  const Shape shape = c.shape("shape");
  const int64_t cols = shape.back(), rows = static_cast<int64_t>(x.size()) / cols;
  const auto layout = packed_layout(parsed->format(), rows, cols);
  ASSERT_TRUE(layout);
  std::unique_ptr<std::byte, decltype(&std::free)> bytes(
      static_cast<std::byte*>(std::aligned_alloc(64, layout->total_bytes)), &std::free);
  const MutablePackedMatrix m = bind_planes(*layout, bytes.get());
  Status packed = pack_plane(m, Plane::kCodes, DType::kU8, c.tensor("packed").span(), 0);
  ASSERT_TRUE(packed) << packed.error().message;
  if (nested) {
    ASSERT_TRUE(pack_plane(m, Plane::kScales, DType::kU8, c.tensor("absmax_u8").span(), 0));
    ASSERT_TRUE(pack_plane(m, Plane::kNestedAbsmax, DType::kF32, c.tensor("nested_absmax").span(), 0));
    ASSERT_TRUE(pack_plane(m, Plane::kNestedMap, DType::kF32, std::as_bytes(dynamic_map()), 0));
    ASSERT_TRUE(pack_plane(m, Plane::kNestedOffset, DType::kF32, std::as_bytes(std::span(&e.offset, 1)), 0));
  } else {
    packed = pack_plane(m, Plane::kScales, DType::kF32, c.tensor("absmax").span(), 0);
    bool nan = false;
    for (const float a : absmax) nan = nan || a != a;
    ASSERT_EQ(packed.has_value(), !nan);
    if (nan) return;
  }
  std::vector<float> row(static_cast<size_t>(cols));
  decode_bnb_4bit(codec, blocksize, codes, absmax.data(), true, values);
  for (int64_t r = 0; r < rows; ++r) {
    decode_row(m, r, row.data());
    EXPECT_TRUE(same_floats(row, {values.begin() + r * cols, values.begin() + (r + 1) * cols})) << "row " << r;
  }
}

void check_8bit_blocks(const Case& c) {
  const std::vector<float> x = c.floats("input");
  const int64_t block = c.number("blocksize");
  std::vector<uint8_t> codes(x.size());
  std::vector<float> absmax(ceil_div<size_t>(x.size(), static_cast<size_t>(block))), values(x.size());
  encode_8bit_blocks(x, block, NearestRule::kCpuBins, codes.data(), absmax.data());
  EXPECT_TRUE(same_bytes(codes, c.tensor("codes")));
  EXPECT_TRUE(same_floats(absmax, c.floats("absmax")));
  decode_8bit_blocks(c.tensor("codes").as<uint8_t>(), block, dynamic_map(), c.floats("absmax").data(), values.data());
  for (const std::string out : kOutputs) {
    if (!c.has("dequant_" + out)) continue;
    auto rounded = values;
    round_through(dtype_of(out), rounded);
    EXPECT_TRUE(same_floats(rounded, c.floats("dequant_" + out))) << out;
  }
}

void check_int8_rows(const Case& c) {
  const Shape shape = c.shape("shape");
  const float threshold = c.real("threshold");
  std::vector<int8_t> codes(static_cast<size_t>(shape[0] * shape[1]));
  std::vector<float> scb(static_cast<size_t>(shape[0]));
  for (const std::string tag : {"", "direct_"}) {
    if (!c.has(tag + "CB")) continue;
    auto x = c.floats("input");
    if (tag.empty()) round_through(DType::kF16, x);
    const auto columns = encode_int8_rows(x, shape[0], shape[1], threshold, Int8Scale::kCpu, codes.data(), scb.data());
    EXPECT_TRUE(same_bytes(codes, c.tensor(tag + "CB"))) << tag;
    EXPECT_TRUE(same_floats(scb, c.floats(tag + "SCB"))) << tag;
    if (!c.has(tag + "outlier_cols")) continue;
    const GoldenTensor& want = c.tensor(tag + "outlier_cols");
    EXPECT_EQ(columns, want.dtype == DType::kI64
                           ? want.as<int64_t>()
                           : std::vector<int64_t>(want.as<int32_t>().begin(), want.as<int32_t>().end()))
        << tag;
  }
  const auto stored = c.tensor("CB").as<int8_t>();
  const auto scales = c.floats("SCB");
  std::vector<float> values(stored.size());
  for (int64_t r = 0; r < shape[0]; ++r) {
    decode_int8_row(std::span(stored).subspan(static_cast<size_t>(r * shape[1]), static_cast<size_t>(shape[1])),
                    scales[static_cast<size_t>(r)], values.data() + r * shape[1]);
  }
  EXPECT_TRUE(same_floats(values, c.floats("dequant_fp32")));
  for (const std::string out : kOutputs) {  // CB * (SCB * (1/127)), as training computes it
    if (!c.has("mulscale_" + out)) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      const float scale = scales[i / static_cast<size_t>(shape[1])] * (1.0f / 127.0f);
      values[i] = round_through(dtype_of(out), static_cast<float>(stored[i]) * scale);
    }
    EXPECT_TRUE(same_floats(values, c.floats("mulscale_" + out))) << out;
  }
}

// The steps of LLM.int8's matmul that concern weights and the rounding of activations.
void check_int8_linear(const Case& c) {
  const int64_t m = c.number("M"), n = c.number("N"), k = c.number("K");
  auto w = c.floats("w"), x = c.floats("x");
  round_through(DType::kF16, w);
  round_through(DType::kF16, x);
  std::vector<int8_t> cb(w.size()), ca(x.size());
  std::vector<float> scb(static_cast<size_t>(n)), sca(static_cast<size_t>(m));
  encode_int8_rows(w, n, k, 0, Int8Scale::kCpu, cb.data(), scb.data());
  encode_int8_rows(x, m, k, c.real("threshold"), Int8Scale::kCpu, ca.data(), sca.data());
  EXPECT_TRUE(same_bytes(cb, c.tensor("CB")));
  EXPECT_TRUE(same_floats(scb, c.floats("SCB")));
  EXPECT_TRUE(same_bytes(ca, c.tensor("CA")));
  EXPECT_TRUE(same_floats(sca, c.floats("SCA")));
  std::vector<int32_t> product(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t l = 0; l < k; ++l) {
        product[static_cast<size_t>(i * n + j)] +=
            ca[static_cast<size_t>(i * k + l)] * cb[static_cast<size_t>(j * k + l)];
      }
    }
  }
  EXPECT_TRUE(same_bytes(product, c.tensor("matmul_i32")));
}

void check_linear_4bit(const Case& c) {
  const Codec codec = *codec_from_name(c.text("quant_type"));
  const auto blocksize = static_cast<int32_t>(c.number("blocksize"));
  const auto w = c.floats("w");
  const Encoded e = encode(codec, blocksize, c.flag("nested"), w);
  EXPECT_TRUE(same_bytes(e.codes, c.tensor("packed")));
  for (const char* scale : {"absmax", "nested_absmax"}) {
    if (c.has(scale)) EXPECT_TRUE(same_floats(scale[0] == 'a' ? e.absmax : e.nested_absmax, c.floats(scale)));
  }
  if (c.has("absmax_u8")) EXPECT_TRUE(same_bytes(e.absmax_u8, c.tensor("absmax_u8")));
  std::vector<float> values(w.size());
  decode_bnb_4bit(codec, blocksize, e.codes, stored_absmax(c).data(), true, values);
  round_through(dtype_of(c.text("compute_dtype")), values);
  EXPECT_TRUE(same_floats(values, c.floats("w_dequant")));
}

void check_tables(const Case& c) {
  const auto book = [](const float* p) { return std::vector<float>(p, p + 16); };
  EXPECT_TRUE(same_floats(book(kNF4Book), c.floats("nf4")));
  auto stored_fp4 = book(kFP4Book);
  stored_fp4[8] = 0.0f;
  EXPECT_TRUE(same_floats(stored_fp4, c.floats("fp4")));
  EXPECT_TRUE(same_floats({dynamic_map().begin(), dynamic_map().end()}, c.floats("dynamic_signed_8bit")));
}

TEST(BitsandbytesGolden, EveryCodecCaseInBothDirections) {
  const std::string folder = golden_folder("bitsandbytes");
  BERTH_NEED_GOLDEN(folder);
  const auto index = JsonDocument::parse_file(folder + "/codecs_index.json");
  ASSERT_TRUE(index) << index.error().message;
  std::map<std::string, std::map<std::string, GoldenTensor>> files;
  std::map<std::string, int> count;
  int total = 0, refused = 0;
  index->root()["cases"].for_each_element([&](JsonView json) {
    Case c{json, std::string(*json["op"].as_string()), std::string(*json["name"].as_string()), nullptr};
    const std::string file(*json["file"].as_string());
    if (!files.contains(file)) files[file] = read_golden(folder + "/" + file);
    c.file = &files.at(file);
    const testing::ScopedTrace trace(__FILE__, __LINE__, c.name);
    ++total;
    ++count[c.op];
    if (c.param("refused").valid()) {
      EXPECT_FALSE(
          packed_storage_shape(static_cast<uint64_t>(c.number("numel")), *dtype_from_name(c.text("quant_storage"))));
      ++refused;
    } else if (c.op == "quantize_4bit") {
      check_quantize_4bit(c);
    } else if (c.op == "quantize_blockwise_8bit") {
      check_8bit_blocks(c);
    } else if (c.op == "int8_vectorwise_quant") {
      check_int8_rows(c);
    } else if (c.op == "int8_linear") {
      check_int8_linear(c);
    } else if (c.op == "linear_4bit") {
      check_linear_4bit(c);
    } else if (c.op == "mean") {
      EXPECT_TRUE(same_floats({torch_mean(c.floats("input"))}, c.floats("mean")));
    } else if (c.op == "tables") {
      check_tables(c);
    } else {
      ADD_FAILURE() << "unknown op " << c.op;
    }
    return true;
  });
  EXPECT_EQ(total, *index->root()["count"].as_int64());
  EXPECT_GE(total, 398);
  std::printf("%d cases (%d refused by the library, nothing to compare):", total, refused);
  for (const auto& [op, n] : count) std::printf(" %s %d", op.c_str(), n);
  std::printf("\n");
}

// Every quantized module of the golden checkpoints, redone from its source in chunks, equals what save_pretrained
// stored.
TEST(BitsandbytesGolden, EveryQuantizedModuleOfTheCheckpoints) {
  const std::string folder = golden_folder("bitsandbytes/checkpoints");
  BERTH_NEED_GOLDEN(folder);
  const auto read_all = [&](const std::string& name) {
    std::map<std::string, GoldenTensor> all;
    const auto files = list_folder(folder + "/" + name);
    for (const std::string& file : *files) {
      if (file.starts_with("model") && file.ends_with(".safetensors"))
        all.merge(read_golden(folder + "/" + name + "/" + file));
    }
    return all;
  };
  int modules = 0, checkpoints = 0;
  const auto names = list_folder(folder);
  ASSERT_TRUE(names);
  for (const std::string& name : *names) {
    const auto expected = JsonDocument::parse_file(folder + "/" + name + "/expected.json");
    ASSERT_TRUE(expected) << expected.error().message;
    const JsonView info = expected->root();
    if (info["quantized_modules"].size() == 0) continue;
    ++checkpoints;
    const auto got = read_all(name), source = read_all(std::string(*info["source"].as_string()));
    const DType load_dtype = *dtype_from_name(*info["load_dtype"].as_string());
    for (const JsonView module : info["quantized_modules"].elements()) {
      const std::string base(*module.as_string());
      SCOPED_TRACE(name + " " + base);
      ++modules;
      const GoldenTensor& w = source.at(base + ".weight");
      auto values = w.floats();
      int64_t rows = w.shape[0], cols = w.shape[1];
      if (name.starts_with("gpt2")) {  // Conv1D is transposed first
        std::vector<float> transposed(values.size());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t k = 0; k < cols; ++k) {
            transposed[static_cast<size_t>(k * rows + r)] = values[static_cast<size_t>(r * cols + k)];
          }
        }
        values = std::move(transposed);
        std::swap(rows, cols);
      }
      const std::string weight = base + ".weight";
      const bool int8 = got.contains(base + ".SCB");
      StoredFormat format = stored_format(Codec::kInt8Row);
      std::string blob_key;
      if (!int8) {
        for (const Codec codec : {Codec::kNF4, Codec::kFP4}) {
          if (got.contains(weight + "." + quant_state_key(codec))) {
            format = {codec, 64, got.contains(weight + ".nested_absmax")};
            blob_key = weight + "." + quant_state_key(codec);
          }
        }
        ASSERT_NE(blob_key, "");
      }
      const auto layout = packed_layout(format, rows, cols);
      std::unique_ptr<std::byte, decltype(&std::free)> bytes(
          static_cast<std::byte*>(std::aligned_alloc(64, layout->total_bytes)), &std::free);
      const MutablePackedMatrix m = bind_planes(*layout, bytes.get());
      auto encoder = MatrixEncoder::create(m, {.load_dtype = load_dtype});
      ASSERT_TRUE(encoder);
      for (size_t at = 0, n = 1; at < values.size(); at += n, n = n * 2 + 1) {
        n = std::min(n, values.size() - at);
        ASSERT_TRUE(encoder->append(std::span(values).subspan(at, n)));
      }
      ASSERT_TRUE(encoder->finish());
      const auto same_plane = [&](Plane plane, const std::string& key) {
        const GoldenTensor& want = got.at(key);
        EXPECT_EQ(layout->plane(plane).bytes, want.bytes.size()) << key;
        EXPECT_EQ(std::memcmp(m.plane<std::byte>(plane), want.bytes.data(), want.bytes.size()), 0) << key;
      };
      same_plane(Plane::kCodes, weight);
      if (int8) {
        same_plane(Plane::kScales, base + ".SCB");
        continue;
      }
      same_plane(Plane::kScales, weight + ".absmax");
      QuantState state{format.codec, 64, load_dtype, Shape{rows, cols}, format.nested, 256, 0};
      Bnb4Tensors tensors;
      const auto desc = [&](const std::string& key) {
        const GoldenTensor& t = got.at(key);
        return TensorDesc{key, t.dtype, t.shape, t.bytes.size()};
      };
      tensors.packed = desc(weight);
      tensors.absmax = desc(weight + ".absmax");
      tensors.quant_map = desc(weight + ".quant_map");
      if (format.nested) {
        same_plane(Plane::kNestedAbsmax, weight + ".nested_absmax");
        same_plane(Plane::kNestedMap, weight + ".nested_quant_map");
        state.nested_offset = *m.plane<float>(Plane::kNestedOffset);
        tensors.nested_absmax = desc(weight + ".nested_absmax");
        tensors.nested_quant_map = desc(weight + ".nested_quant_map");
      }
      EXPECT_EQ(quant_state_json(state), got.at(blob_key).bytes);
      const auto parsed = parse_quant_state(weight, got.at(blob_key).bytes);
      ASSERT_TRUE(parsed) << parsed.error().message;
      const Status valid = check_bnb_4bit_tensors(*parsed, rows, cols, tensors);
      EXPECT_TRUE(valid) << valid.error().message;
    }
  }
  std::printf("%d modules of %d checkpoints\n", modules, checkpoints);
  EXPECT_EQ(modules, 322);
  EXPECT_EQ(checkpoints, 26);
}

}  // namespace
}  // namespace berth::quant
