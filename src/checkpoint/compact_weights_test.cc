// A checkpoint whose bf16 matrices are held in 12 bits is the same checkpoint.
#include "checkpoint/compact_weights.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "checkpoint/golden_cases.h"
#include "tensor/compact_bf16.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr auto kGoOn = [](int64_t, int64_t) { return true; };

class CompactWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "compact_weights_test_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::vector<GoldenFolder> goldens() {
    return golden_folders(std::string(PELTON_SOURCE_DIR) + "/testdata/golden");
  }
  void write(const std::string& name) {
    std::filesystem::remove_all(folder_);
    for (const GoldenFolder& golden : goldens()) {
      if (golden.name == name) {
        ASSERT_TRUE(write_weights(golden, folder_).ok());
      }
    }
  }
  Checkpoint open() const {
    Result<Checkpoint> opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(*opened);
  }

  std::string folder_;
  base::ThreadPool pool_{{.threads = 2, .pin = false}};
};

std::vector<uint16_t> weights_of(const TensorView& view) {
  std::vector<uint16_t> out(static_cast<size_t>(view.element_count()));
  if (view.dtype != DType::kCompactBf16) {
    std::memcpy(out.data(), view.bytes.data(), out.size() * 2);
    return out;
  }
  const int64_t columns = view.shape[1];
  for (int64_t r = 0; r < view.shape[0]; ++r) {
    tensor::read_compact_row(view.bytes.data() + r * tensor::row_bytes(view.dtype, columns),
                             columns, out.data() + r * columns);
  }
  return out;
}

// Of every family: dense ones, experts apart and in MXFP4, tied heads, latent attention.
TEST_F(CompactWeightsTest, EveryWeightIsWhatItWas) {
  bool has_tied = false;
  for (const GoldenFolder& golden : goldens()) {
    const std::string& name = golden.name;
    if (golden.formula().empty() || name == "outlier") continue;  // stored; as large as mid
    write(name);
    const Checkpoint plain = open();
    Checkpoint compact = open();
    const auto made = compact_weights(compact, pool_, kGoOn);
    ASSERT_TRUE(made.ok()) << made.error().message;
    if (plain.config().hidden_size % tensor::kBlockElements != 0) {  // no row is of whole blocks
      EXPECT_TRUE(name.find("uneven") != std::string::npos && made->tensors == 0) << name;
      continue;
    }
    EXPECT_GT(made->tensors, 0) << name;
    EXPECT_LT(made->bytes, made->file_bytes) << name;
    EXPECT_EQ(compact.weight_bytes(), plain.weight_bytes() + made->bytes - made->file_bytes);
    const auto& embedding = compact.tensors().find("model.embed_tokens.weight")->second;
    has_tied |= embedding.dtype == DType::kCompactBf16;
    EXPECT_EQ(embedding.dtype == DType::kCompactBf16, compact.config().tied_head) << name;
    int seen = 0;
    int64_t bytes = 0;
    for (const families::ExpectedTensor& tensor : compact.expected()) {
      const TensorView& view = compact.tensors().find(tensor.name)->second;
      const TensorView& source = plain.tensors().find(tensor.name)->second;
      if (view.dtype != DType::kCompactBf16) {
        EXPECT_EQ(view.dtype, source.dtype);
        continue;
      }
      ++seen;
      bytes += compact_bytes(tensor);
      EXPECT_EQ(std::ssize(view.bytes), compact_bytes(tensor));
      EXPECT_EQ(weights_of(view), weights_of(source)) << tensor.name;
    }
    EXPECT_EQ(seen, made->tensors);
    EXPECT_EQ(bytes, made->bytes);
    EXPECT_LE(made->file_bytes, compactible_bytes(plain));
  }
  EXPECT_TRUE(has_tied);
}

// The file's pages are not needed any more, and what is read of them is still the file.
TEST_F(CompactWeightsTest, PagesAreGivenBack) {
  write("llama3");
  const Checkpoint plain = open();
  Checkpoint compact = open();
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const TensorView before = compact.tensors().find(name)->second;
  ASSERT_TRUE(compact_weights(compact, pool_, kGoOn).ok());
  EXPECT_NE(compact.tensors().find(name)->second.bytes.data(), before.bytes.data());
  EXPECT_EQ(weights_of(before), weights_of(plain.tensors().find(name)->second));
}

TEST_F(CompactWeightsTest, WhatIsSpreadTooFarStaysAsItIs) {
  write("qwen3-moe");
  const std::string matrix = "model.layers.0.self_attn.q_proj.weight";
  const std::string expert = "model.layers.1.mlp.experts.1.up_proj.weight";
  {
    const Checkpoint plain = open();
    std::fstream file(folder_ + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    for (const std::string& name : {matrix, expert}) {
      const auto found = plain.tensors().find(name);
      ASSERT_NE(found, plain.tensors().end()) << name;
      const std::span<const uint8_t> bytes = found->second.bytes;
      file.seekp(bytes.data() - plain.files()[0].bytes().data());
      for (size_t i = 0; i < bytes.size() / 2; ++i) {
        const auto bits = static_cast<uint16_t>(i * 40503);  // any exponent
        file.write(reinterpret_cast<const char*>(&bits), sizeof bits);
      }
    }
  }
  const Checkpoint plain = open();
  Checkpoint compact = open();
  const auto made = compact_weights(compact, pool_, kGoOn);
  ASSERT_TRUE(made.ok());
  EXPECT_GT(made->tensors, 0);
  // With the one expert all of its layer's.
  EXPECT_GT(made->left, 2);
  for (const auto& [name, view] : compact.tensors()) {
    if (name == matrix || name.starts_with("model.layers.1.mlp.experts.")) {
      EXPECT_EQ(view.dtype, DType::kBf16) << name;
    }
    if (view.dtype == DType::kCompactBf16 || view.dtype == DType::kBf16) {
      EXPECT_EQ(weights_of(view), weights_of(plain.tensors().find(name)->second)) << name;
    }
  }
}

TEST_F(CompactWeightsTest, IsStopped) {
  write("llama3");
  Checkpoint checkpoint = open();
  const auto made = compact_weights(checkpoint, pool_, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace pelton::checkpoint
