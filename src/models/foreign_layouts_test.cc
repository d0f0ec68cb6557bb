// A GGUF file of each architecture, written by our own converter, computes what the safetensors
// that it was made from compute, although rows, norms and experts lie in other ways.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/golden_cases.h"
#include "checkpoint/safetensors.h"
#include "families/family.h"
#include "models/sequence_runner.h"
#include "tensor/bits.h"

namespace pelton::models {
namespace {

std::vector<float> logits_of(const std::string& model) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(kernels::KernelChoice::kReference, pool).value();
  const auto checkpoint = checkpoint::Checkpoint::open(model);
  CHECK(checkpoint.ok(), checkpoint.ok() ? "" : checkpoint.error().message);
  std::vector<TokenId> tokens;
  std::vector<int> rows;
  for (int i = 0; i < 48; ++i) {
    tokens.push_back(i * 37 % checkpoint->config().vocab_size);
    rows.push_back(i);
  }
  auto loaded = load_model(*checkpoint, *kernels, {.batch_tokens_max = 48, .logit_rows_max = 48});
  CHECK(loaded.ok(), loaded.ok() ? "" : loaded.error().message);
  auto runner = SequenceRunner::make(**loaded, tensor::DType::kF32, 48);
  CHECK(runner.ok());
  const float* got = runner->step(tokens, rows, nullptr);
  return {got, got + 48 * checkpoint->config().vocab_size};
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  CHECK(got.size() == exact.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += std::pow(double{got[i]} - exact[i], 2);
    size += std::pow(double{exact[i]}, 2);
  }
  return std::sqrt(difference / size);
}

// Floats that bf16 can hold, as the converter takes its source to be: the correction biases of a
// safetensors file, which are float32.
void round_corrections(std::vector<uint8_t>& file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  const Json header = Json::parse(text).value();
  for (const Json::Member& tensor : header.as_object()) {
    if (!tensor.key.ends_with("e_score_correction_bias")) continue;
    const Json::Array& offsets = tensor.value.find("data_offsets")->as_array();
    for (int64_t at = offsets[0].as_integer(); at < offsets[1].as_integer(); at += 4) {
      std::memset(file.data() + 8 + header_bytes + at, 0, 2);  // of each the lower half
    }
  }
}

// A configuration whose GGUF file is compared with its source: a golden case's own, or, as GGUF
// files are of bf16 and say less, what its case.json makes of it ("gguf": name -> keys).
struct GgufCase {
  std::string name;
  Json config;
  Json facts;
};
void PrintTo(const GgufCase& gguf, std::ostream* out) {
  *out << gguf.name;
}

std::vector<GgufCase> gguf_cases() {
  std::vector<GgufCase> cases;
  for (const auto& golden : checkpoint::family_folders(PELTON_SOURCE_DIR "/testdata/golden")) {
    const auto parsed = families::parse_model_config(golden.config, nullptr, golden.path);
    CHECK(parsed.ok(), parsed.ok() ? "" : parsed.error().message);
    if (parsed->family->gguf == nullptr) continue;
    Json variants;
    variants.set(golden.name, Json::Object{});
    if (const Json* given = golden.facts.find("gguf")) variants = *given;
    for (const Json::Member& variant : variants.as_object()) {
      Json config = golden.config;
      for (const Json::Member& key : variant.value.as_object()) config.set(key.key, key.value);
      cases.push_back({variant.key, std::move(config), golden.facts});
    }
  }
  return cases;
}

void write_source(const GgufCase& gguf, const std::string& folder) {
  auto made = checkpoint::family_golden_safetensors(gguf.config, gguf.facts);
  ASSERT_TRUE(made.ok()) << made.error().message;
  round_corrections(*made);
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(base::write_file(folder + "/config.json", gguf.config.dump()).ok());
  const std::string_view bytes(reinterpret_cast<const char*>(made->data()), made->size());
  ASSERT_TRUE(base::write_file(folder + "/model.safetensors", bytes).ok());
}

class GgufFamilies : public testing::TestWithParam<GgufCase> {};

TEST_P(GgufFamilies, ComputeWhatTheirSourceComputes) {
  const std::string folder = testing::TempDir() + "foreign_layouts_test_" + GetParam().name;
  std::filesystem::remove_all(folder);
  write_source(GetParam(), folder);
  const std::string file = folder + "/model.gguf";
  {
    const auto source = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto bytes = [&](const families::ExpectedTensor& tensor, int64_t begin,
                           std::span<uint8_t> out) {
      const auto& view = source->tensors().find(tensor.name)->second;
      if (view.dtype == tensor.dtype) {
        std::memcpy(out.data(), view.bytes.data() + begin, out.size());
        return;
      }
      for (size_t i = 0; i < out.size(); i += 2) {  // float32 that bf16 can hold
        const size_t element = static_cast<size_t>(begin) / 2 + i / 2;
        std::memcpy(out.data() + i, view.bytes.data() + 4 * element + 2, 2);
      }
    };
    base::ThreadPool pool({.threads = 2, .pin = false});
    const auto quiet = [](int64_t, int64_t) {};
    const Result<void> written =
        checkpoint::write_gguf(GetParam().config, {}, bytes, file, pool, quiet);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
  EXPECT_LT(relative_error(logits_of(file), logits_of(folder)), 2e-6);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(All, GgufFamilies, testing::ValuesIn(gguf_cases()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// GGUF says less than config.json: a file that would be computed otherwise is not written.
TEST(Gguf, WhatAFileCannotSayIsRefused) {
  const std::pair<const char*, const char*> kCases[] = {
      {"shape-llama-longrope", "a part of each head"},
      {"shape-llama-yarn", "scaling"},
      {"shape-mistral", "slide"},
      {"shape-qwen2", "slide"},
      {"shape-qwen3-moe", "experts"},
      {"shape-gemma3", "slide"}};
  base::ThreadPool pool({.threads = 1, .pin = false});
  const auto nothing = [](const families::ExpectedTensor&, int64_t, std::span<uint8_t>) {};
  const auto quiet = [](int64_t, int64_t) {};
  for (const auto& [name, words] : kCases) {
    const std::string file = testing::TempDir() + "foreign_layouts_test_refused.gguf";
    const Json config = Json::parse(*base::read_file(std::string(PELTON_SOURCE_DIR) +
                                                     "/testdata/golden/" + name + "/config.json"))
                            .value();
    const Result<void> written = checkpoint::write_gguf(config, {}, nothing, file, pool, quiet);
    ASSERT_FALSE(written.ok()) << name;
    EXPECT_EQ(written.error().code, ErrorCode::kUnsupported) << name;
    EXPECT_THAT(written.error().message, testing::HasSubstr(words)) << name;
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

// By hand: other names, and rows of each head of q and k so that neighbours rotate together.
void write_mistral_original(const checkpoint::Checkpoint& source, const std::string& folder) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"input_layernorm", "attention_norm"},
      {"self_attn.q_proj", "attention.wq"},
      {"self_attn.k_proj", "attention.wk"},
      {"self_attn.v_proj", "attention.wv"},
      {"self_attn.o_proj", "attention.wo"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "feed_forward.w1"},
      {"mlp.down_proj", "feed_forward.w2"},
      {"mlp.up_proj", "feed_forward.w3"},
      {"model.embed_tokens", "tok_embeddings"},
      {"model.norm", "norm"},
      {"lm_head", "output"},
      {"model.layers", "layers"},
  };
  std::vector<checkpoint::PlannedTensor> plan;
  std::string data;
  const int half = source.config().head_size / 2;
  for (const auto& [name, view] : source.tensors()) {
    std::string own = name;
    for (const auto& [ours, theirs] : kNames) {
      if (const size_t at = own.find(ours); at != std::string::npos) {
        own.replace(at, std::strlen(ours), theirs);
      }
    }
    plan.push_back({own, view.dtype, view.shape});
    const auto row_bytes = static_cast<int64_t>(view.bytes.size()) / view.shape[0];
    const bool rotates = own.find("wq") != std::string::npos || own.find("wk") != std::string::npos;
    for (int64_t row = 0; row < view.shape[0]; ++row) {
      const int64_t within = row % (2 * half);
      const int64_t from = rotates ? row - within + within % 2 * half + within / 2 : row;
      data.append(reinterpret_cast<const char*>(view.bytes.data()) + from * row_bytes,
                  static_cast<size_t>(row_bytes));
    }
  }
  CHECK(base::write_file(folder + "/consolidated.safetensors",
                         checkpoint::safetensors_header(plan) + data)
            .ok());
  CHECK(base::write_file(folder + "/params.json", R"({"dim": 128, "n_layers": 3, "head_dim": 32,
    "hidden_dim": 320, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-05, "vocab_size": 512,
    "rope_theta": 10000.0, "sliding_window": 24})")
            .ok());
}

TEST(MistralOriginal, ComputesWhatTheOtherLayoutComputes) {
  const std::string folder = testing::TempDir() + "mistral_original_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder + "/own");
  const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/mistral";
  ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
  {
    const auto source = checkpoint::Checkpoint::open(folder);
    ASSERT_TRUE(source.ok()) << source.error().message;
    write_mistral_original(*source, folder + "/own");
  }
  EXPECT_LT(relative_error(logits_of(folder + "/own"), logits_of(folder)), 2e-6);

  ASSERT_TRUE(base::write_file(folder + "/own/params.json", R"({"dim": 128, "moe": {}})").ok());
  const auto refused = checkpoint::Checkpoint::open(folder + "/own");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("moe"), std::string::npos) << refused.error().message;
  std::filesystem::remove_all(folder);
}

// How scales of FP8 lie, all in bf16; and what a configuration says of it.
struct F8Scales {
  enum class Of { kRows, kBlocks, kTensor };
  const char* name;
  Of of;
  const char* suffix;
  const char* config;
  bool flat = false;  // of rows: (rows), not (rows, 1)

  int64_t rows(int64_t rows) const { return of == Of::kRows ? 1 : of == Of::kBlocks ? 128 : rows; }
  int64_t cols(int64_t cols) const { return of == Of::kBlocks ? 128 : cols; }
};
constexpr F8Scales kF8Scales[] = {
    {"rows", F8Scales::Of::kRows, "_scale", R"({"quant_method": "compressed-tensors",
      "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}})"},
    {"rows, flat", F8Scales::Of::kRows, "_scale", R"({"quant_method": "compressed-tensors",
      "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}})",
     true},
    {"rows, said by the file alone", F8Scales::Of::kRows, "_scale",
     R"({"quant_method": "fp8", "activation_scheme": "dynamic"})"},
    {"rows, said by the file alone, flat", F8Scales::Of::kRows, "_scale",
     R"({"quant_method": "fp8", "activation_scheme": "dynamic"})", true},
    {"tensor", F8Scales::Of::kTensor, "_scale",
     R"({"quant_method": "fp8", "activation_scheme": "dynamic"})"},
    // Qwen 3's: DeepSeek's, but for the scales' type.
    {"blocks", F8Scales::Of::kBlocks, "_scale_inv",
     R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
         "weight_block_size": [128, 128]})"},
    {"blocks of compressed-tensors", F8Scales::Of::kBlocks, "_scale",
     R"({"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
         "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8,
         "type": "float", "strategy": "block", "block_structure": [128, 128]}}}})"}};

// A copy of the source with the products of its layers in FP8, or in float32 with the same values.
void write_f8(const checkpoint::Checkpoint& source, const F8Scales& kind, bool widened,
              const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::vector<checkpoint::PlannedTensor> plan;
  std::string data;
  const auto append = [&](const void* from, size_t bytes) {
    data.append(static_cast<const char*>(from), bytes);
  };
  for (const auto& [name, view] : source.tensors()) {
    if (!name.ends_with("_proj.weight")) {
      plan.push_back({name, view.dtype, view.shape});
      append(view.bytes.data(), view.bytes.size());
      continue;
    }
    const int64_t rows = view.shape[0];
    const int64_t cols = view.shape[1];
    const auto* weights = reinterpret_cast<const uint16_t*>(view.bytes.data());
    const int64_t down = (rows + kind.rows(rows) - 1) / kind.rows(rows);
    const int64_t across = (cols + kind.cols(cols) - 1) / kind.cols(cols);
    std::vector<uint16_t> scales;  // bf16
    for (int64_t i = 0; i < down * across; ++i) {
      scales.push_back(tensor::float_to_bf16(0.002f * static_cast<float>(1 + i % 7)));
    }
    std::vector<uint8_t> codes;
    std::vector<float> values;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const int64_t block = i / cols / kind.rows(rows) * across + i % cols / kind.cols(cols);
      const float scale = tensor::bf16_to_float(scales[static_cast<size_t>(block)]);
      codes.push_back(tensor::float_to_e4m3(tensor::bf16_to_float(weights[i]) / scale));
      values.push_back(tensor::e4m3_to_float(codes.back()) * scale);
    }
    if (widened) {
      plan.push_back({name, tensor::DType::kF32, view.shape});
      append(values.data(), values.size() * sizeof(float));
      continue;
    }
    plan.push_back({name, tensor::DType::kF8E4m3, view.shape});
    append(codes.data(), codes.size());
    std::vector<int64_t> shape;  // of one: a scalar
    if (kind.of != F8Scales::Of::kTensor) shape = {down, across};
    if (kind.flat) shape = {down};
    plan.push_back({name + kind.suffix, tensor::DType::kBf16, shape});
    append(scales.data(), scales.size() * 2);
  }
  Json config = Json::parse(*base::read_file(source.folder() + "/config.json")).value();
  if (!widened) config.set("quantization_config", Json::parse(kind.config).value());
  CHECK(base::write_file(folder + "/config.json", config.dump()).ok());
  CHECK(base::write_file(folder + "/model.safetensors", checkpoint::safetensors_header(plan) + data)
            .ok());
}

TEST(Fp8, ScalesOfAnyKindGiveTheValuesTheyStandFor) {
  const std::string folder = testing::TempDir() + "fp8_layouts_test";
  for (const char* name : {"llama3", "qwen3"}) {
    for (const F8Scales& kind : kF8Scales) {
      std::filesystem::remove_all(folder);
      const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
      ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
      const auto source = checkpoint::Checkpoint::open(folder);
      ASSERT_TRUE(source.ok()) << source.error().message;
      write_f8(*source, kind, false, folder + "/f8");
      write_f8(*source, kind, true, folder + "/f32");
      EXPECT_LT(relative_error(logits_of(folder + "/f8"), logits_of(folder + "/f32")), 1e-6)
          << name << " by " << kind.name;
    }
  }
  std::filesystem::remove_all(folder);
}

// Integer weights by hand, as a formula of row and column: words as each format orders them, and
// the float32 that they stand for.
struct Integers {
  const char* name;
  const char* config;
  bool symmetric;
  int stored_less;  // zero points are stored less this

  static int code(int64_t o, int64_t i) { return static_cast<int>((o * 7 + i * 5 + o * i) % 16); }
  int zero(int64_t o, int64_t g) const {
    return symmetric ? 8 : static_cast<int>(1 + (o * 3 + g) % 14);
  }
  static float scale(int64_t o, int64_t g) {
    return tensor::bf16_to_float(
        tensor::float_to_bf16(0.004f * static_cast<float>(1 + (o + g) % 5)));
  }
};
constexpr int kGroup = 32;

template <typename Value>
std::vector<uint32_t> packed(int64_t rows, int64_t cols, const Value& value) {
  std::vector<uint32_t> words(static_cast<size_t>(rows * cols / 8));
  for (int64_t i = 0; i < rows * cols; ++i) {
    words[static_cast<size_t>(i / 8)] |= static_cast<uint32_t>(value(i / cols, i % cols))
                                         << (4 * (i % 8));
  }
  return words;
}

class IntegerFile {
 public:
  explicit IntegerFile(const Integers& integers) : integers_(integers) {}

  template <typename T>
  void add(const std::string& name, tensor::DType dtype, std::vector<int64_t> shape,
           const std::vector<T>& values) {
    plan.push_back({name, dtype, std::move(shape)});
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  void add_matrix(const std::string& base, int64_t rows, int64_t cols, bool widened) {
    const int64_t groups = cols / kGroup;
    const auto scales_of = [&](int64_t outer, int64_t inner, bool by_row) {
      std::vector<uint16_t> scales;
      for (int64_t a = 0; a < outer; ++a) {
        for (int64_t b = 0; b < inner; ++b) {
          const float scale = by_row ? Integers::scale(a, b) : Integers::scale(b, a);
          scales.push_back(by_row ? tensor::float_to_bf16(scale) : tensor::float_to_f16(scale));
        }
      }
      return scales;
    };
    if (widened) return add_values(base, rows, cols);
    const std::string name = integers_.name;
    if (name == "packed") {
      add(base + "weight_packed", tensor::DType::kI32, {rows, cols / 8},
          packed(rows, cols, Integers::code));
      add(base + "weight_scale", tensor::DType::kBf16, {rows, groups},
          scales_of(rows, groups, true));
      add(base + "weight_shape", tensor::DType::kI64, {2}, std::vector<int64_t>{rows, cols});
      if (integers_.symmetric) return;
      // Along the outputs: word (o / 8, g).
      std::vector<uint32_t> zeros(static_cast<size_t>(rows / 8 * groups));
      for (int64_t o = 0; o < rows; ++o) {
        for (int64_t g = 0; g < groups; ++g) {
          zeros[static_cast<size_t>(o / 8 * groups + g)] |=
              static_cast<uint32_t>(integers_.zero(o, g)) << (4 * (o % 8));
        }
      }
      return add(base + "weight_zero_point", tensor::DType::kI32, {rows / 8, groups}, zeros);
    }
    // AWQ: nibble n of a word is column 0, 2, 4, 6, 1, 3, 5, 7 of eight.
    constexpr int kColumn[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const bool awq = name == "awq";
    const auto column = [&](int64_t n) { return awq ? n / 8 * 8 + kColumn[n % 8] : n; };
    if (awq) {
      add(base + "qweight", tensor::DType::kI32, {cols, rows / 8},
          packed(cols, rows, [&](int64_t i, int64_t n) { return Integers::code(column(n), i); }));
    } else {
      std::vector<uint32_t> words(static_cast<size_t>(cols / 8 * rows));
      for (int64_t i = 0; i < cols; ++i) {
        for (int64_t o = 0; o < rows; ++o) {
          words[static_cast<size_t>(i / 8 * rows + o)] |=
              static_cast<uint32_t>(Integers::code(o, i)) << (4 * (i % 8));
        }
      }
      add(base + "qweight", tensor::DType::kI32, {cols / 8, rows}, words);
      std::vector<int32_t> order;
      for (int32_t i = 0; i < cols; ++i) order.push_back(i / kGroup);
      add(base + "g_idx", tensor::DType::kI32, {cols}, order);
    }
    add(base + "qzeros", tensor::DType::kI32, {groups, rows / 8},
        packed(groups, rows, [&](int64_t g, int64_t n) {
          return integers_.zero(column(n), g) - integers_.stored_less;
        }));
    add(base + "scales", tensor::DType::kF16, {groups, rows}, scales_of(groups, rows, false));
  }

  std::vector<checkpoint::PlannedTensor> plan;
  std::string data;

 private:
  void add_values(const std::string& base, int64_t rows, int64_t cols) {
    std::vector<float> values;
    for (int64_t o = 0; o < rows; ++o) {
      for (int64_t i = 0; i < cols; ++i) {
        const int64_t g = i / kGroup;
        values.push_back(Integers::scale(o, g) *
                         static_cast<float>(Integers::code(o, i) - integers_.zero(o, g)));
      }
    }
    add(base + "weight", tensor::DType::kF32, {rows, cols}, values);
  }

  const Integers& integers_;
};

constexpr Integers kIntegers[] = {
    {"gptq", R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false,
               "desc_act": false, "checkpoint_format": "gptq"})",
     false, 1},
    {"gptq_v2", R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true,
               "desc_act": false, "format": "gptq_v2"})",
     true, 0},
    {"awq", R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true,
               "version": "gemm"})",
     false, 0},
    {"packed", R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
               "ignore": ["lm_head"], "config_groups": {"group_0": {"weights": {"type": "int",
               "num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": true}}}})",
     true, 0},
    {"packed", R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
               "ignore": ["lm_head"], "config_groups": {"group_0": {"weights": {"type": "int",
               "num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false}}}})",
     false, 0},
};

class IntegerLayouts : public testing::TestWithParam<size_t> {};

TEST_P(IntegerLayouts, ComputeWhatTheirFormulaSays) {
  const Integers& integers = kIntegers[GetParam()];
  const std::string folder =
      testing::TempDir() + "integer_layouts_test_" + std::to_string(GetParam());
  std::filesystem::remove_all(folder);
  const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/qwen3";
  ASSERT_TRUE(checkpoint::write_family_golden(golden, folder).ok());
  const auto source = checkpoint::Checkpoint::open(folder);
  ASSERT_TRUE(source.ok()) << source.error().message;
  for (const bool widened : {false, true}) {
    IntegerFile file(integers);
    for (const auto& [name, view] : source->tensors()) {
      if (name.ends_with("_proj.weight")) {
        const std::string base = name.substr(0, name.size() - std::strlen("weight"));
        file.add_matrix(base, view.shape[0], view.shape[1], widened);
        // As AutoGPTQ writes models that have none.
        if (!widened && GetParam() == 0) {
          file.add(base + "bias", tensor::DType::kF32, {view.shape[0]},
                   std::vector<float>(static_cast<size_t>(view.shape[0])));
        }
      } else {
        file.add(name, view.dtype, view.shape,
                 std::vector<uint8_t>(view.bytes.begin(), view.bytes.end()));
      }
    }
    Json config = Json::parse(*base::read_file(folder + "/config.json")).value();
    if (!widened) config.set("quantization_config", Json::parse(integers.config).value());
    const std::string to = folder + (widened ? "/f32" : "/integers");
    std::filesystem::create_directories(to);
    ASSERT_TRUE(base::write_file(to + "/config.json", config.dump()).ok());
    ASSERT_TRUE(base::write_file(to + "/model.safetensors",
                                 checkpoint::safetensors_header(file.plan) + file.data)
                    .ok());
  }
  EXPECT_LT(relative_error(logits_of(folder + "/integers"), logits_of(folder + "/f32")), 1e-6);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Formats, IntegerLayouts, testing::Range<size_t>(0, std::size(kIntegers)));

}  // namespace
}  // namespace pelton::models
