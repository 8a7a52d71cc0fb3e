// format/quantization_config_test.cc
#include "berth/format/quantization_config.h"

#include <fmt/format.h>

#include "berth/format/checkpoint.h"
#include "berth/format/test_files.h"

namespace berth::format {
namespace {

Result<std::optional<QuantizationConfig>> parse(std::string_view quantization) {
  auto config = HfConfig::parse(fmt::format("{{\"quantization_config\":{}}}", quantization), "config.json");
  if (!config) return std::move(config).error();
  return config->quantization();
}

TEST(QuantizationConfig, ReadsBitsAndBytesWithItsDefaults) {
  const auto q = parse(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})");
  ASSERT_TRUE(q && *q);
  EXPECT_EQ((*q)->method, QuantMethod::kBitsAndBytes);
  EXPECT_EQ((*q)->bits, 4);
  const BitsAndBytesConfig& b = (*q)->bitsandbytes;
  EXPECT_TRUE(b.load_in_4bit);
  EXPECT_FALSE(b.load_in_8bit);
  EXPECT_EQ(b.bnb_4bit_quant_type, "fp4");
  EXPECT_EQ(b.bnb_4bit_compute_dtype, DType::kF32);
  EXPECT_EQ(b.bnb_4bit_quant_storage, DType::kU8);
  EXPECT_EQ(b.llm_int8_threshold, 6.0);
  EXPECT_FALSE(b.has_skip_modules);
}

TEST(QuantizationConfig, ReadsEveryFieldAndNotesUnknownOnes) {
  const auto q = parse(R"({"_load_in_4bit": true, "_load_in_8bit": false, "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "float32", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
    "llm_int8_enable_fp32_cpu_offload": true, "llm_int8_has_fp16_weight": false, "llm_int8_skip_modules": ["lm_head"],
    "llm_int8_threshold": 0.0, "load_in_4bit": true, "load_in_8bit": false, "quant_method": "bitsandbytes", "novel": 1})");
  ASSERT_TRUE(q && *q);
  const BitsAndBytesConfig& b = (*q)->bitsandbytes;
  EXPECT_EQ(b.bnb_4bit_quant_type, "nf4");
  EXPECT_EQ(b.bnb_4bit_compute_dtype, DType::kBF16);
  EXPECT_EQ(b.bnb_4bit_quant_storage, DType::kF32);
  EXPECT_TRUE(b.bnb_4bit_use_double_quant && b.llm_int8_enable_fp32_cpu_offload);
  EXPECT_EQ(b.llm_int8_threshold, 0.0);
  EXPECT_EQ(b.llm_int8_skip_modules, (std::vector<std::string>{"lm_head"}));
  ASSERT_EQ((*q)->notes.size(), 1u);
  EXPECT_NE((*q)->notes[0].find("novel"), std::string::npos);
}

TEST(QuantizationConfig, ReadsFilesFromBeforeTheMethodWasNamed) {
  EXPECT_EQ((*parse(R"({"load_in_8bit": true})"))->method, QuantMethod::kBitsAndBytes);
  EXPECT_EQ((*parse(R"({"load_in_8bit": true})"))->bits, 8);
  EXPECT_EQ(*parse("null"), std::nullopt);
}

TEST(QuantizationConfig, RefusesContradictionsAndWrongTypes) {
  for (const char* bad :
       {R"({"load_in_4bit": true, "load_in_8bit": true})", R"({"quant_method": "bitsandbytes", "load_in_4bit": 1})",
        R"({"load_in_4bit": true, "bnb_4bit_quant_type": "int4"})",
        R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": "bf17"})",
        R"({"load_in_4bit": true, "bnb_4bit_quant_storage": "int64"})",
        R"({"load_in_8bit": true, "llm_int8_threshold": "6"})",
        R"({"load_in_8bit": true, "llm_int8_skip_modules": "lm_head"})", R"({"quant_method": 4})", "[]",
        R"({"quant_method": "fp8", "weight_block_size": [128]})",
        R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"})
    expect_refused("quantization_config", parse(bad), {"config.json", "quantization_config"});
}

TEST(QuantizationConfig, RecognisesOtherMethodsByName) {
  const auto method = [](std::string_view json) { return (*parse(json))->method; };
  EXPECT_EQ(method(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})"), QuantMethod::kGptq);
  EXPECT_EQ((*parse(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"})"))->group_size, 128);
  const auto fp8 = parse(
      R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate"]})");
  EXPECT_EQ((*fp8)->block_size, (std::vector<int64_t>{128, 128}));
  EXPECT_EQ((*fp8)->format, "e4m3");
  EXPECT_EQ((*fp8)->skip_modules, (std::vector<std::string>{"gate"}));
  EXPECT_EQ(method(R"({"quant_method": "mxfp4"})"), QuantMethod::kMxfp4);
  EXPECT_EQ(method(R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})"),
            QuantMethod::kCompressedTensors);
  EXPECT_EQ(method(R"({"quant_algo": "NVFP4"})"), QuantMethod::kModelopt);
  EXPECT_EQ(method(R"({"quant_method": "HQQ"})"), QuantMethod::kHqq);
  const auto novel = parse(R"({"quant_method": "novel-4"})");
  EXPECT_EQ((*novel)->method, QuantMethod::kUnknown);
  EXPECT_EQ((*novel)->method_name, "novel-4");
  for (const QuantMethod m :
       {QuantMethod::kBitsAndBytes, QuantMethod::kGptq, QuantMethod::kAutoRound, QuantMethod::kSinq})
    EXPECT_EQ(method(fmt::format(R"({{"quant_method": "{}"}})", quant_method_name(m))), m);
}

TEST(QuantizationConfig, ReadsTheTextPartsAndModelopts) {
  const auto nested =
      HfConfig::parse(R"({"text_config": {"quantization_config": {"quant_method": "awq"}}})", "config.json");
  ASSERT_TRUE(nested);
  EXPECT_EQ(nested->quantization()->method, QuantMethod::kAwq);
  const auto modelopt = parse_hf_quant_config(
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}})",
      "hf_quant_config.json");
  ASSERT_TRUE(modelopt && *modelopt);
  EXPECT_EQ((*modelopt)->method, QuantMethod::kModelopt);
  EXPECT_EQ((*modelopt)->format, "NVFP4");
  EXPECT_EQ((*modelopt)->group_size, 16);
}

TEST(QuantizationConfig, ReadsWhatTheGoldensAndPublishedModelsSay) {
  SKIP_WITHOUT_SHARED(shared, "golden/bitsandbytes/checkpoints");
  for (const auto& [name, type, bits] :
       {std::tuple{"tied_nf4_dq", "nf4", 4}, {"untied_fp4", "fp4", 4}, {"bias_int8", "fp4", 8}}) {
    const auto c = Checkpoint::open(path_join(shared, name));
    ASSERT_TRUE(c) << c.error().message;
    ASSERT_TRUE(c->quantization());
    EXPECT_EQ(c->quantization()->bits, bits);
    EXPECT_EQ(c->quantization()->bitsandbytes.bnb_4bit_quant_type, type);
    EXPECT_TRUE(c->quantization()->notes.empty());
  }
  const std::string published = path_join(shared_folder(), "checkpoints");
  for (const auto& [name, method] : {std::pair{"Qwen3-32B-AWQ", QuantMethod::kAwq},
                                     {"DeepSeek-V3", QuantMethod::kFp8},
                                     {"gpt-oss-20b", QuantMethod::kMxfp4},
                                     {"Qwen3-235B-A22B-NVFP4", QuantMethod::kModelopt},
                                     {"gemma-4-31B-it-NVFP4", QuantMethod::kModelopt},
                                     {"Llama-3.1-70B-Instruct-FP8", QuantMethod::kModelopt},
                                     {"Llama-3.1-8B-Instruct-bnb-int8", QuantMethod::kBitsAndBytes}}) {
    const auto c = Checkpoint::open(path_join(published, std::string(name) + "/config.json"));
    ASSERT_TRUE(c) << c.error().message;
    ASSERT_TRUE(c->quantization()) << name;
    EXPECT_EQ(c->quantization()->method, method) << name;
  }
}

}  // namespace
}  // namespace berth::format
