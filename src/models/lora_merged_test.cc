// Adapters on the golden models of other families than gpt-oss: what an adapter adds against
// weights that it was merged into, in float32, by a few lines of their own.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/golden_cases.h"
#include "checkpoint/safetensors.h"
#include "lora/adapter.h"
#include "lora/random_adapter.h"
#include "models/sequence_runner.h"
#include "tensor/bits.h"

namespace pelton::models {
namespace {

std::vector<float> widened(const std::string& file, const checkpoint::StoredTensor& tensor) {
  const size_t size = tensor::dtype_bytes(tensor.dtype);
  std::vector<float> values((tensor.end - tensor.begin) / size);
  for (size_t i = 0; i < values.size(); ++i) {
    const char* const at = file.data() + tensor.begin + i * size;
    if (tensor.dtype == tensor::DType::kF32) {
      std::memcpy(&values[i], at, sizeof(float));
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    values[i] = tensor.dtype == tensor::DType::kBf16 ? tensor::bf16_to_float(bits)
                                                     : tensor::f16_to_float(bits);
  }
  return values;
}

// weight (out, in) += s B A, of an adapter that is held as float32.
void merge(std::vector<float>& weight, const kernels::LowRank& matrix) {
  const auto* const a = static_cast<const float*>(matrix.a);
  const auto* const b = static_cast<const float*>(matrix.b);
  for (int64_t o = 0; o < matrix.rows; ++o) {
    for (int64_t i = 0; i < matrix.cols; ++i) {
      double sum = 0;
      for (int64_t r = 0; r < matrix.rank; ++r) {
        sum += double{b[r * matrix.rows + o]} * a[r * matrix.cols + i];
      }
      float& to = weight[static_cast<size_t>(o * matrix.cols + i)];
      to = static_cast<float>(to + matrix.scale * sum);
    }
  }
}

// What adds to a tensor of the base, by its published name; nothing: null rank.
kernels::LowRank adding_to(const std::string& name, const lora::Adapter& adapter) {
  for (int layer = 0; layer < adapter.layer_count(); ++layer) {
    const lora::Adapter::Layer& of = adapter.layer(layer);
    const size_t at = name.find(fmt::format("layers.{}.", layer));
    if (at == std::string::npos) continue;
    for (int i = 0; i < lora::kLinearCount; ++i) {
      if (name.ends_with(fmt::format(".{}.weight", lora::kLinearNames[i]))) return of.linear[i];
    }
    const size_t experts = name.find(".experts.");
    if (experts == std::string::npos) return {};
    const int e = std::stoi(name.substr(experts + std::strlen(".experts.")));
    if (name.ends_with("gate_proj.weight") || name.ends_with("w1.weight")) {
      return of.experts.gate.of_expert(e);
    }
    if (name.ends_with("up_proj.weight") || name.ends_with("w3.weight")) {
      return of.experts.up.of_expert(e);
    }
    return of.experts.down.of_expert(e);
  }
  return {};
}

// Makes `folder` with the weights of `source` in float32 and the adapter in them. How many of them
// it changed.
int write_merged(const std::string& source, const lora::Adapter& adapter,
                 const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(source + "/config.json", folder + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  const std::string file = *base::read_file(source + "/model.safetensors");
  const auto tensors = *checkpoint::parse_safetensors(
      {reinterpret_cast<const uint8_t*>(file.data()), file.size()}, source);
  std::vector<checkpoint::PlannedTensor> planned;
  std::string bytes;
  int merged = 0;
  for (const checkpoint::StoredTensor& tensor : tensors) {
    std::vector<float> values = widened(file, tensor);
    if (const kernels::LowRank matrix = adding_to(tensor.name, adapter); matrix.adds()) {
      merge(values, matrix);
      ++merged;
    }
    planned.push_back({tensor.name, tensor::DType::kF32, tensor.shape});
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << checkpoint::safetensors_header(planned) << bytes;
  return merged;
}

std::vector<float> logits_of(const checkpoint::Checkpoint& checkpoint, kernels::Kernels& kernels,
                             std::span<const TokenId> tokens, const lora::Adapter* adapter) {
  const int count = static_cast<int>(tokens.size());
  auto model = load_model(checkpoint, kernels,
                          {.batch_tokens_max = count,
                           .logit_rows_max = count,
                           .adapter_rank_max = adapter != nullptr ? adapter->rank_max() : 0,
                           .expert_adapters = true});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  auto runner = SequenceRunner::make(**model, tensor::DType::kF32, count);
  runner->use_adapter(adapter);
  std::vector<int> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const float* const got = runner->step(tokens, rows, nullptr);
  return {got, got + int64_t{count} * checkpoint.config().vocab_size};
}

double relative_error(std::span<const float> got, std::span<const float> exact) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    size += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / size);
}

class LoraMerged : public testing::TestWithParam<const char*> {};

TEST_P(LoraMerged, IsTheSameAsApplied) {
  const std::string name = GetParam();
  const std::string own = testing::TempDir() + "lora_merged_" + name;
  std::string source = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + name;
  const Json json = *Json::parse(*base::read_file(source + "/tokens.json"));
  std::vector<TokenId> tokens;
  for (const Json& token : json.find("prompt")->as_array()) {
    if (tokens.size() < 24) tokens.push_back(static_cast<TokenId>(token.as_integer()));
  }
  if (!std::filesystem::exists(source + "/model.safetensors")) {
    for (const auto& golden : checkpoint::golden_folders(PELTON_SOURCE_DIR "/testdata/golden")) {
      if (golden.name != name) continue;
      ASSERT_TRUE(write_weights(golden, own + "_base").ok());
    }
    source = own + "_base";
  }
  const auto checkpoint = checkpoint::Checkpoint::open(source);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const lora::RandomAdapter random{.seed = 11,
                                   .dtype = tensor::DType::kF32,
                                   .parts = {"q", "k", "v", "o", "gate", "up", "down"},
                                   .rank = 3,
                                   .alpha = 1.5};
  const auto layout =
      checkpoint->config().has_experts() ? lora::WrittenLayout::kApart : lora::WrittenLayout::kPeft;
  ASSERT_TRUE(write_random_adapter(random, checkpoint->config(), layout, own + "_adapter").ok());
  const auto adapter = lora::Adapter::load(own + "_adapter", checkpoint->config(), {});
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_GE(write_merged(source, *adapter, own + "_merged"),
            7 * checkpoint->config().layer_count());
  const auto merged = checkpoint::Checkpoint::open(own + "_merged");
  ASSERT_TRUE(merged.ok()) << merged.error().message;

  base::ThreadPool pool({.threads = 2, .pin = false});
  for (const auto choice : {kernels::KernelChoice::kReference, kernels::KernelChoice::kAuto}) {
    const auto kernels = *kernels::make_kernels(choice, pool);
    const std::vector<float> base = logits_of(*checkpoint, *kernels, tokens, nullptr);
    const std::vector<float> applied = logits_of(*checkpoint, *kernels, tokens, &*adapter);
    const std::vector<float> exact = logits_of(*merged, *kernels, tokens, nullptr);
    EXPECT_LT(relative_error(applied, exact), 1e-5) << kernels->name();
    EXPECT_GT(relative_error(base, exact), 1e-2) << kernels->name();
  }
  for (const char* end : {"_base", "_adapter", "_merged"}) {
    std::filesystem::remove_all(own + end);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, LoraMerged,
                         testing::Values("llama3", "qwen2", "qwen3", "gemma3", "mistral", "granite",
                                         "qwen3-moe", "mixtral"),
                         [](const testing::TestParamInfo<const char*>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace pelton::models
