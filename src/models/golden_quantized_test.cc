// Linear layers as AWQ, GPTQ, compressed-tensors and DeepSeek's FP8 publish them, beside the
// float32 that other implementations make of them: within one unit in the last place. The file is
// not this project's: the test is skipped unless PELTON_GOLDEN_QUANTIZED names the folder of
// layers.safetensors.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "layers/weights.h"

namespace pelton::models {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr const char* kLayer = "model.layers.0.self_attn.k_proj.";

// A format, and what a configuration says of it.
struct Format {
  const char* name;
  const char* config;
};

constexpr Format kFormats[] = {
    {"awq",
     R"({"quant_method":"awq","bits":4,"group_size":128,"version":"gemm","zero_point":true})"},
    {"gptq", R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":false,"desc_act":false})"},
    {"gptq_desc_act",
     R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":false,"desc_act":true})"},
    {"gptq_v2", R"({"quant_method":"gptq","bits":4,"group_size":128,"sym":false,"desc_act":false,
                    "checkpoint_format":"gptq_v2"})"},
    {"ct_int4", R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                    "ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],
                    "weights":{"type":"int","num_bits":4,"strategy":"group","group_size":128,
                    "symmetric":true}}}})"},
    {"ct_int4_asym", R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                    "ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],
                    "weights":{"type":"int","num_bits":4,"strategy":"group","group_size":128,
                    "symmetric":false}}}})"},
    {"ct_fp8", R"({"quant_method":"compressed-tensors","format":"float-quantized",
                    "ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],
                    "weights":{"type":"float","num_bits":8,"strategy":"channel","symmetric":true}}}})"},
    {"fp8_block", R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128],
                      "activation_scheme":"dynamic"})"},
};

std::ostream& operator<<(std::ostream& out, const Format& format) {
  return out << format.name;
}

class GoldenQuantized : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    const char* const golden = std::getenv("PELTON_GOLDEN_QUANTIZED");
    if (golden == nullptr) GTEST_SKIP() << "PELTON_GOLDEN_QUANTIZED is not set";
    layers_ = checkpoint::TensorFile::open(std::string(golden) + "/layers.safetensors").value();
    folder_ = testing::TempDir() + "golden_quantized_" + std::to_string(getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A model of one layer whose k_proj is the golden one, the others' tensors are zeros.
  checkpoint::Checkpoint model_of(const Format& format, int64_t rows, int64_t cols) {
    Json config = Json::parse(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",
        "hidden_act":"silu","num_hidden_layers":1,"num_key_value_heads":1,
        "vocab_size":32,"max_position_embeddings":64,"rms_norm_eps":1e-05,
        "tie_word_embeddings":false})")
                      .value();
    config.set("hidden_size", cols).set("intermediate_size", cols).set("head_dim", rows);
    config.set("num_attention_heads", std::max<int64_t>(2, cols / rows));
    const auto plain =
        checkpoint::family_golden_safetensors(config, Json::parse(R"({"seed":1})").value()).value();
    put("/plain", config, {reinterpret_cast<const char*>(plain.data()), plain.size()});
    const auto source = checkpoint::Checkpoint::open(folder_ + "/plain").value();
    for (const auto& [name, view] : source.tensors()) {
      if (!name.ends_with("_proj.weight")) {
        add(name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
        continue;
      }
      const std::string base = name.substr(0, name.size() - std::strlen("weight"));
      add_layer(format.name, base, view.shape, {rows, cols}, base == kLayer);
    }
    config.set("quantization_config", Json::parse(format.config).value());
    put("/quantized", config, checkpoint::safetensors_header(plan_) + data_);
    auto opened = checkpoint::Checkpoint::open(folder_ + "/quantized");
    CHECK(opened.ok(), opened.ok() ? "" : opened.error().message);
    return std::move(opened).value();
  }

  // Sizes of the golden layer become those of this one: its rows, its columns and their parts.
  void add_layer(const std::string& format, const std::string& base,
                 const std::vector<int64_t>& shape, const std::vector<int64_t>& golden_shape,
                 bool is_golden) {
    for (const auto& [name, view] : layers_->tensors()) {
      if (!name.starts_with(format + ".") || name.ends_with(".expected")) continue;
      const std::string part = name.substr(format.size() + 1);
      if (is_golden) {
        add(base + part, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
        continue;
      }
      if (part == "weight_shape") {
        std::vector<uint8_t> bytes(16);
        std::memcpy(bytes.data(), shape.data(), 16);
        add(base + part, view.dtype, view.shape, std::move(bytes));
        continue;
      }
      const std::vector<int64_t> own = scaled(view.shape, part, shape, golden_shape);
      std::vector<uint8_t> zeros;
      zeros.resize(static_cast<size_t>(TensorView{view.dtype, own, {}}.element_count() *
                                       view.bytes.size() / view.element_count()));
      add(base + part, view.dtype, own, std::move(zeros));
    }
  }

  // The shape of a tensor `part` of a matrix of `shape`, as it is `of` one of `golden`, which has
  // as many columns unless its weights are FP8.
  static std::vector<int64_t> scaled(std::vector<int64_t> of, const std::string& part,
                                     const std::vector<int64_t>& shape,
                                     const std::vector<int64_t>& golden) {
    if (part == "weight") return shape;
    if (part == "weight_scale_inv") return {(shape[0] + 127) / 128, (shape[1] + 127) / 128};
    for (int64_t& size : of) {
      if (size == golden[0]) {
        size = shape[0];
      } else if (size == golden[0] / 8) {
        size = shape[0] / 8;
      }
    }
    return of;
  }

  void add(const std::string& name, DType dtype, std::vector<int64_t> shape,
           std::vector<uint8_t> bytes) {
    plan_.push_back({name, dtype, std::move(shape)});
    data_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  void put(const std::string& to, const Json& config, std::string_view tensors) {
    std::filesystem::create_directories(folder_ + to);
    CHECK(base::write_file(folder_ + to + "/config.json", config.dump()).ok());
    CHECK(base::write_file(folder_ + to + "/model.safetensors", tensors).ok());
  }

  std::optional<checkpoint::TensorFile> layers_;
  std::string folder_;
  std::vector<checkpoint::PlannedTensor> plan_;
  std::string data_;
};

TEST_P(GoldenQuantized, WeightsAreWithinOneUnitInTheLastPlace) {
  const Format& format = GetParam();
  const TensorView& expected = layers_->tensors().at(std::string(format.name) + ".expected");
  const int64_t rows = expected.shape[0];
  const int64_t cols = expected.shape[1];
  const checkpoint::Checkpoint checkpoint = model_of(format, rows, cols);
  layers::FloatVectors keep;
  const auto matrix = layers::load_weight(checkpoint, std::string(kLayer) + "weight",
                                          static_cast<int>(rows), static_cast<int>(cols), keep);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  base::ThreadPool pool({.threads = 1});
  for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAuto}) {
    const auto kernels = kernels::make_kernels(choice, pool).value();
    // Inputs that are 1 in one place bring the weights out.
    std::vector<float> x(static_cast<size_t>(cols * cols));
    for (int64_t c = 0; c < cols; ++c) x[static_cast<size_t>(c * cols + c)] = 1.0f;
    std::vector<float> got(static_cast<size_t>(cols * rows));
    kernels->linear(got.data(), x.data(), {*matrix, nullptr}, static_cast<int>(cols),
                    kernels::Kernels::Output::kOverwrite);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const float exact = expected.as<float>()[r * cols + c];
        const float value = got[static_cast<size_t>(c * rows + r)];
        const float above = std::nextafter(exact, INFINITY);
        const float below = std::nextafter(exact, -INFINITY);
        ASSERT_TRUE(value >= below && value <= above)
            << format.name << " row " << r << " column " << c << ": " << value << " for " << exact;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenQuantized, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pelton::models
