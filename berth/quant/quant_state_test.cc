#include "berth/quant/quant_state.h"

#include <gtest/gtest.h>

namespace berth::quant {
namespace {

std::string why(std::string_view blob) {
  const auto state = parse_quant_state("layers.0.q_proj.weight", blob);
  return state ? "" : state.error().message;
}

TEST(QuantState, WritesWhatItReads) {
  const std::string nested =
      R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [75, 256], "nested_blocksize": 256, )"
      R"("nested_dtype": "float32", "nested_offset": 0.04993503540754318})";
  EXPECT_EQ(nested.size(), 169u);
  const auto state = parse_quant_state("w", nested);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(std::bit_cast<uint32_t>(state->nested_offset), 0x3d4c88aeu);
  EXPECT_EQ(state->shape, (Shape{75, 256}));
  EXPECT_EQ(quant_state_json(*state), nested);
  const std::string plain = R"({"quant_type": "fp4", "blocksize": 4096, "dtype": "float16", "shape": null})";
  ASSERT_TRUE(parse_quant_state("w", plain));
  EXPECT_EQ(quant_state_json(*parse_quant_state("w", plain)), plain);
}

TEST(QuantState, PrintsFloatsAsPythonDoes) {
  const std::pair<double, const char*> kCases[] = {{0.0, "0.0"},
                                                   {-0.0, "-0.0"},
                                                   {1.0, "1.0"},
                                                   {100.0, "100.0"},
                                                   {1e15, "1000000000000000.0"},
                                                   {1e16, "1e+16"},
                                                   {1.5e16, "1.5e+16"},
                                                   {123456.75, "123456.75"},
                                                   {1e-4, "0.0001"},
                                                   {1.25e-4, "0.000125"},
                                                   {1e-5, "1e-05"},
                                                   {-2.5e-7, "-2.5e-07"},
                                                   {1e100, "1e+100"},
                                                   {5e-324, "5e-324"},
                                                   {0.1, "0.1"},
                                                   {static_cast<double>(0.1f), "0.10000000149011612"},
                                                   {1.7976931348623157e308, "1.7976931348623157e+308"}};
  for (const auto& [value, text] : kCases) EXPECT_EQ(python_float(value), text);
}

TEST(QuantState, RefusesWhatCannotBeUsed) {
  EXPECT_NE(why("{").find("layers.0.q_proj.weight"), std::string::npos);
  EXPECT_EQ(why("[]"), "reading the quant_state of \"layers.0.q_proj.weight\": expected a JSON object, found a list");
  EXPECT_NE(why(R"({"quant_type": "int4", "blocksize": 64, "dtype": "float16", "shape": [1]})").find("found \"int4\""),
            std::string::npos);
  EXPECT_NE(why(R"({"quant_type": "nf4", "dtype": "float16", "shape": [1]})")
                .find("blocksize to be a block size, found nothing"),
            std::string::npos);
  EXPECT_NE(why(R"({"quant_type": "nf4", "blocksize": 48, "dtype": "float16", "shape": [1]})").find("found 48"),
            std::string::npos);
  EXPECT_NE(why(R"({"quant_type": "nf4", "blocksize": 99999999999, "dtype": "float16", "shape": [1]})"), "");
  EXPECT_NE(why(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "int8", "shape": [1]})").find("dtype"),
            std::string::npos);
  EXPECT_NE(why(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [-1]})").find("shape"),
            std::string::npos);
  EXPECT_NE(
      why(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [1099511627776, 1099511627776]})"),
      "");
  EXPECT_NE(why(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": 5})").find("shape"),
            std::string::npos);
  const std::string head =
      R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [1], "nested_blocksize": )";
  EXPECT_NE(why(head + R"(128, "nested_dtype": "float32", "nested_offset": 0.1})").find("to be 256, found 128"),
            std::string::npos);
  EXPECT_NE(why(head + R"(256, "nested_dtype": "float32", "nested_offset": NaN})").find("writes NaN"),
            std::string::npos);
  EXPECT_NE(why(head + R"(256, "nested_dtype": "float32", "nested_offset": 1e300})").find("finite"), std::string::npos);
  EXPECT_NE(why(head + R"(256, "nested_dtype": "float32"})").find("nested_offset"), std::string::npos);
}

TEST(QuantState, TensorSizesAreCheckedByName) {
  const QuantState plain{Codec::kNF4, 64, DType::kBF16, Shape{10, 100}, false, 256, 0};
  Bnb4Tensors t;
  t.packed = {"a.weight", DType::kU8, {500, 1}, 500};
  t.absmax = TensorDesc{"a.weight.absmax", DType::kF32, {16}, 64};
  t.quant_map = TensorDesc{"a.weight.quant_map", DType::kF32, {16}, 64};
  EXPECT_TRUE(check_bnb_4bit_tensors(plain, 10, 100, t));
  t.packed.dtype = DType::kBF16;  // quant_storage
  EXPECT_TRUE(check_bnb_4bit_tensors(plain, 10, 100, t));
  EXPECT_EQ(check_bnb_4bit_tensors(plain, 10, 90, t).error().message,
            "checking the 4-bit weight \"a.weight\": expected a shape of [10, 90], found [10, 100] in its quant_state");
  auto bad = t;
  bad.packed.size_bytes = 499;
  EXPECT_EQ(check_bnb_4bit_tensors(plain, 10, 100, bad).error().message,
            "checking the 4-bit weight \"a.weight\": expected 500 bytes of codes for [10, 100], found 499");
  bad = t;
  bad.absmax->shape = {15};
  EXPECT_EQ(check_bnb_4bit_tensors(plain, 10, 100, bad).error().message,
            "checking \"a.weight.absmax\": expected 16 F32 elements, found F32 [15]");
  bad = t;
  bad.absmax.reset();
  EXPECT_NE(check_bnb_4bit_tensors(plain, 10, 100, bad).error().message.find("\"a.weight.absmax\", found none"),
            std::string::npos);
  bad = t;
  bad.nested_absmax = TensorDesc{"a.weight.nested_absmax", DType::kF32, {1}, 4};
  EXPECT_FALSE(check_bnb_4bit_tensors(plain, 10, 100, bad));

  QuantState nested = plain;
  nested.nested = true;
  EXPECT_FALSE(check_bnb_4bit_tensors(nested, 10, 100, t));  // absmax must be U8
  t.absmax->dtype = DType::kU8;
  EXPECT_FALSE(check_bnb_4bit_tensors(nested, 10, 100, t));
  t.nested_absmax = TensorDesc{"a.weight.nested_absmax", DType::kF32, {1}, 4};
  t.nested_quant_map = TensorDesc{"a.weight.nested_quant_map", DType::kF32, {256}, 1024};
  EXPECT_TRUE(check_bnb_4bit_tensors(nested, 10, 100, t));
  EXPECT_FALSE(check_bnb_4bit_tensors(nested, INT64_MAX, 100, t));
}

TEST(QuantState, StorageDtypesNeedWholeElements) {
  EXPECT_EQ(*packed_storage_shape(67, DType::kBF16), (Shape{17, 1}));
  EXPECT_FALSE(packed_storage_shape(66, DType::kBF16));
  EXPECT_EQ(*packed_storage_shape(66, DType::kU8), (Shape{33, 1}));
  EXPECT_EQ(quant_state_key(Codec::kFP4), "quant_state.bitsandbytes__fp4");
}

}  // namespace
}  // namespace berth::quant
