// A packed model holds the same weights, and a file of tiles that is not as it should be is refused
// by name.
#include "layers/pack_weights.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "kernels/weight_row.h"
#include "layers/weights.h"

namespace pelton::layers {
namespace {

using testing::HasSubstr;

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny";

class PackTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "pack_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(kTiny + "/config.json", folder_ + "/config.json");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void pack(MatrixWeights matrices) {
    const auto source = checkpoint::Checkpoint::open(kTiny);
    ASSERT_TRUE(source.ok());
    base::ThreadPool pool({.threads = 2, .pin = false});
    const Result<void> done = pack_weights(
        *source,
        {.matrices = matrices, .activations = kernels::Activations::kInt16, .source = "tiny"},
        file(), pool, [](int64_t, int64_t) { return true; });
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  std::string file() const { return folder_ + "/model.safetensors"; }

  // Replaces the first `from` in the file by `to`, of the same length.
  void change(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = *base::read_file(file());
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    std::ofstream(file(), std::ios::binary) << bytes;
  }
  std::string refusal() const {
    const auto opened = checkpoint::Checkpoint::open(folder_);
    return opened.ok() ? "" : opened.error().message;
  }

  std::string folder_;
};

std::vector<float> row_of(const kernels::StoredMatrix& matrix, int64_t row) {
  std::vector<float> out(static_cast<size_t>(matrix.cols));
  kernels::read_weight_row(matrix, row, out.data());
  return out;
}

TEST_F(PackTest, ExpertsStayTheSameToTheBit) {
  pack(MatrixWeights::kInt8);
  const auto source = checkpoint::Checkpoint::open(kTiny);
  const auto packed = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const auto& config = source->config();
  const ExpertSizes sizes{config.expert_count, config.expert_intermediate_size, config.hidden_size};
  for (int layer = 0; layer < config.layer_count(); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    FloatVectors keep;
    const auto from = load_experts(*source, prefix, sizes, keep);
    const auto to = load_experts(*packed, prefix, sizes, keep);
    ASSERT_TRUE(from.ok() && to.ok());
    for (int e = 0; e < sizes.experts; ++e) {
      const auto up_from = kernels::expert_matrix(from->gate, e);
      const auto up_to = kernels::expert_matrix(to->gate, e);
      for (int i = 0; i < sizes.inner; ++i) {
        ASSERT_EQ(row_of(up_from, from->gate_row(i)), row_of(up_to, to->gate_row(i)));
        ASSERT_EQ(row_of(up_from, from->up_row(i)), row_of(up_to, to->up_row(i)));
        const int64_t first = int64_t{e} * 2 * sizes.inner;
        ASSERT_EQ(from->gate.bias[first + from->up_row(i)], to->gate.bias[first + to->up_row(i)]);
      }
      for (int i = 0; i < sizes.hidden; ++i) {
        ASSERT_EQ(row_of(kernels::expert_matrix(from->down, e), i),
                  row_of(kernels::expert_matrix(to->down, e), i));
      }
    }
  }
}

TEST_F(PackTest, QueriesKeysAndValuesAreOneMatrixInThatOrder) {
  pack(MatrixWeights::kAsShipped);
  const auto source = checkpoint::Checkpoint::open(kTiny);
  const auto packed = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const auto& config = source->config();
  const int q = config.head_count * config.head_size;
  const int kv = config.kv_head_count * config.head_size;
  const std::string prefix = "model.layers.1.self_attn.";
  FloatVectors keep;
  const auto all =
      load_linear(*packed, prefix + "qkv_proj", q + 2 * kv, config.hidden_size, Bias::kAdded, keep);
  ASSERT_TRUE(all.ok()) << all.error().message;
  const auto stored = [](const kernels::Matrix& m) {
    return kernels::StoredMatrix{m.data, nullptr, m.rows, m.cols, m.format};
  };
  int first = 0;
  for (const auto& [name, rows] : {std::pair("q_proj", q), {"k_proj", kv}, {"v_proj", kv}}) {
    const auto part =
        load_linear(*source, prefix + name, rows, config.hidden_size, Bias::kAdded, keep);
    for (int row = 0; row < rows; ++row) {
      ASSERT_EQ(row_of(stored(part->weight), row), row_of(stored(all->weight), first + row));
      ASSERT_EQ(part->bias[row], all->bias[first + row]);
    }
    first += rows;
  }
}

TEST_F(PackTest, AnotherVersionIsRefused) {
  pack(MatrixWeights::kInt8);
  change(R"("pelton.tiles":"2")", R"("pelton.tiles":"9")");
  EXPECT_THAT(refusal(), HasSubstr("tiles of version \"9\""));
}

TEST_F(PackTest, ActivationsMustBeKnown) {
  pack(MatrixWeights::kInt8);
  change(R"("pelton.activations":"int16")", R"("pelton.activations":"int61")");
  EXPECT_THAT(refusal(), HasSubstr("pelton.activations must be int8 or int16, found \"int61\""));
}

TEST_F(PackTest, TilesOfAnotherShapeAreRefused) {
  pack(MatrixWeights::kInt8);
  // 8 experts of 16 tiles become 16 of 8: as many bytes.
  change("[8,16,", "[16,8,");
  EXPECT_THAT(refusal(), HasSubstr("experts.gate_up.weight"));
}

TEST_F(PackTest, ATruncatedFileIsRefused) {
  pack(MatrixWeights::kInt8);
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 64);
  EXPECT_THAT(refusal(), HasSubstr("truncated"));
}

TEST_F(PackTest, ExpertsThatAreNotMxfp4AreRefused) {
  pack(MatrixWeights::kInt8);
  const auto packed = checkpoint::Checkpoint::open(folder_);
  ASSERT_TRUE(packed.ok());
  base::ThreadPool pool({.threads = 1, .pin = false});
  const Result<void> again =
      pack_weights(*packed, {}, folder_ + "/again", pool, [](int64_t, int64_t) { return true; });
  EXPECT_FALSE(again.ok());
}

}  // namespace
}  // namespace pelton::layers
