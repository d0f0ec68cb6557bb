// The same weights in every layout give the same logits: to the bit where nothing was rounded.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"
#include "checkpoint/describe.h"
#include "checkpoint/gguf.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/synthetic.h"
#include "families/gpt_oss.h"
#include "kernels/weight_row.h"
#include "models/sequence_runner.h"
#include "tensor/bits.h"

namespace pelton::models {
namespace {

using checkpoint::Checkpoint;
using kernels::KernelChoice;

const std::string kTiny = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/tiny";
constexpr int kTokens = 40;

constexpr auto ignore_progress = [](int64_t, int64_t) {};

class FormatsTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<kernels::Kernels>> made = kernels::make_kernels(GetParam(), pool_);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    kernels_ = std::move(made).value();
    root_ = testing::TempDir() + "formats_test_" + std::to_string(::getpid()) + "_" +
            std::to_string(static_cast<int>(GetParam()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    config_ = *Json::parse(*base::read_file(kTiny + "/config.json"));
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::vector<float> logits(const std::string& model) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(model);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    if (!checkpoint.ok()) return {};
    EXPECT_FALSE(checkpoint::describe(*checkpoint).empty());
    auto loaded = load_model(*checkpoint, *kernels_,
                             {.batch_tokens_max = kTokens, .logit_rows_max = kTokens});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    if (!loaded.ok()) return {};
    auto runner = SequenceRunner::make(**loaded, tensor::DType::kF32, kTokens);
    std::vector<TokenId> tokens;
    std::vector<int> rows;
    for (int i = 0; i < kTokens; ++i) {
      tokens.push_back((i * 37 + 11) % 500);
      rows.push_back(i);
    }
    const float* got = runner->step(tokens, rows, nullptr);
    return {got, got + int64_t{kTokens} * checkpoint->config().vocab_size};
  }

  // Copies from an opened model.
  static auto bytes_of(const Checkpoint& source) {
    return
        [&source](const families::ExpectedTensor& tensor, int64_t begin, std::span<uint8_t> out) {
          const auto from = source.tensors().find(tensor.name)->second.bytes;
          std::copy_n(from.begin() + begin, out.size(), out.begin());
        };
  }

  // The published layout with its experts as transformers unpacks them: bf16, transposed.
  void write_bf16(const Checkpoint& source, const std::string& folder);

  base::ThreadPool pool_{{.threads = 2, .pin = false}};
  std::unique_ptr<kernels::Kernels> kernels_;
  std::string root_;
  Json config_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (double{got[i]} - exact[i]) * (double{got[i]} - exact[i]);
    norm += double{exact[i]} * exact[i];
  }
  return std::sqrt(difference / norm);
}

void FormatsTest::write_bf16(const Checkpoint& source, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::vector<checkpoint::PlannedTensor> planned;
  std::string data;
  for (const families::ExpectedTensor& wanted :
       families::expected_tensors(source.config(), families::WeightLayout::kBf16Experts)) {
    planned.push_back({wanted.name, wanted.dtype, wanted.shape});
    const auto found = source.tensors().find(wanted.name);
    if (found != source.tensors().end()) {
      const auto bytes = found->second.bytes;
      data.append(bytes.begin(), bytes.end());
      continue;
    }
    const int64_t experts = wanted.shape[0];
    const int64_t cols = wanted.shape[1];
    const int64_t rows = wanted.shape[2];
    const kernels::StoredMatrix matrix{
        source.tensors().find(wanted.name + "_blocks")->second.bytes.data(),
        source.tensors().find(wanted.name + "_scales")->second.bytes.data(), experts * rows, cols,
        kernels::Format::kMxfp4Pairs};
    std::vector<uint16_t> out(static_cast<size_t>(experts * rows * cols));
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < experts * rows; ++r) {
      kernels::read_weight_row(matrix, r, row.data());
      for (int64_t c = 0; c < cols; ++c) {
        out[static_cast<size_t>((r / rows * cols + c) * rows + r % rows)] =
            tensor::float_to_bf16(row[static_cast<size_t>(c)]);
      }
    }
    data.append(reinterpret_cast<const char*>(out.data()), out.size() * sizeof(uint16_t));
  }
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << checkpoint::safetensors_header(planned) << data;
  Json config = config_;
  config.set("quantization_config", Json());
  std::ofstream(folder + "/config.json") << config.dump();
}

TEST_P(FormatsTest, TheGoldenModelConvertedGivesEqualLogits) {
  const Result<Checkpoint> source = Checkpoint::open(kTiny);
  ASSERT_TRUE(source.ok());
  const std::vector<float> exact = logits(kTiny);

  auto bytes = bytes_of(*source);
  ASSERT_TRUE(
      checkpoint::write_original(config_, bytes, root_ + "/original", pool_, ignore_progress).ok());
  EXPECT_TRUE(same_bits(logits(root_), exact));
  EXPECT_TRUE(same_bits(logits(root_ + "/original"), exact));

  const std::string gguf = root_ + "/bf16.gguf";
  ASSERT_TRUE(checkpoint::write_gguf(config_, {}, bytes, gguf, pool_, ignore_progress).ok());
  EXPECT_TRUE(same_bits(logits(gguf), exact));

  const std::string q8 = root_ + "/q8.gguf";
  const checkpoint::GgufOptions options{.matrices = tensor::DType::kQ8_0, .vocabulary = {}};
  ASSERT_TRUE(checkpoint::write_gguf(config_, options, bytes, q8, pool_, ignore_progress).ok());
  const std::vector<float> rounded = logits(q8);
  EXPECT_FALSE(same_bits(rounded, exact));
  EXPECT_LT(relative_error(rounded, exact), 0.06);

  write_bf16(*source, root_ + "/bf16");
  const double error = relative_error(logits(root_ + "/bf16"), exact);
  EXPECT_LT(error, 1e-5);
}

struct RawTensor {
  std::string name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// Writes some tensors as a GGUF file whose metadata `describe` gives.
void write_raw_gguf(const std::string& path, std::span<const RawTensor> tensors,
                    const std::function<void(checkpoint::GgufHeader&)>& describe) {
  checkpoint::GgufHeader header;
  describe(header);
  std::string data;
  for (const RawTensor& tensor : tensors) {
    header.tensor(tensor.name, tensor.dtype, tensor.shape);
    data += tensor.bytes;
    data.resize(checkpoint::gguf_padded(data.size()), '\0');
  }
  std::ofstream(path, std::ios::binary) << header.bytes() << data;
}

// blk.N.ffn_gate_exps and ffn_up_exps as one tensor: of each expert the gate rows, then the up
// rows.
std::vector<RawTensor> fused(const Checkpoint& source) {
  std::vector<RawTensor> tensors;
  for (const auto& [name, view] : source.tensors()) {
    RawTensor tensor{checkpoint::name_to_gguf(families::kGptOss, name), view.dtype, view.shape,
                     std::string(view.bytes.begin(), view.bytes.end())};
    if (name.find("up_exps") != std::string::npos) continue;
    const size_t gate = name.find("gate_exps");
    if (gate != std::string::npos) {
      std::string other = name;
      const auto up = source.tensors().find(other.replace(gate, 4, "up"))->second.bytes;
      const size_t each = view.bytes.size() / static_cast<size_t>(view.shape[0]);
      tensor.bytes.clear();
      for (size_t at = 0; at < up.size(); at += each) {
        tensor.bytes.append(view.bytes.begin() + at, view.bytes.begin() + at + each);
        tensor.bytes.append(up.begin() + at, up.begin() + at + each);
      }
      tensor.shape[1] *= 2;
      tensor.name.replace(tensor.name.find("gate_exps"), 4, "gate_up");
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

TEST_P(FormatsTest, FusedAndSplitGgufFilesGiveEqualLogits) {
  const Result<Checkpoint> source = Checkpoint::open(kTiny);
  ASSERT_TRUE(source.ok());
  const std::vector<float> exact = logits(kTiny);
  auto bytes = bytes_of(*source);
  const std::string whole = root_ + "/whole.gguf";
  ASSERT_TRUE(checkpoint::write_gguf(config_, {}, bytes, whole, pool_, ignore_progress).ok());
  const std::vector<RawTensor> tensors = fused(Checkpoint::open(whole).value());
  const auto describe = [&](checkpoint::GgufHeader& header) {
    checkpoint::config_to_gguf(families::kGptOss, config_, header);
  };
  write_raw_gguf(root_ + "/fused.gguf", tensors, describe);
  EXPECT_TRUE(same_bits(logits(root_ + "/fused.gguf"), exact));

  const auto part = [&](uint16_t number, size_t begin, size_t end) {
    write_raw_gguf(root_ + "/split-0000" + std::to_string(number + 1) + "-of-00003.gguf",
                   std::span(tensors).subspan(begin, end - begin),
                   [&](checkpoint::GgufHeader& header) {
                     if (number == 0) describe(header);
                     header.u16("split.no", number);
                     header.u16("split.count", 3);
                     header.i32("split.tensors.count", static_cast<int32_t>(tensors.size()));
                   });
  };
  part(0, 0, 5);
  part(1, 5, 20);
  part(2, 20, tensors.size());
  EXPECT_TRUE(same_bits(logits(root_ + "/split-00001-of-00003.gguf"), exact));
  std::filesystem::remove(root_ + "/split-00003-of-00003.gguf");
  const Result<Checkpoint> torn = Checkpoint::open(root_ + "/split-00001-of-00003.gguf");
  ASSERT_FALSE(torn.ok());
  EXPECT_THAT(torn.error().message, testing::HasSubstr("part 3 of 3 is missing"));
}

TEST_P(FormatsTest, SyntheticModelsAreTheSameInEveryLayout) {
  checkpoint::SyntheticOptions options = checkpoint::synthetic_tiny(512);
  options.seed = 3;
  ASSERT_TRUE(checkpoint::write_synthetic(options, root_ + "/hf", pool_, ignore_progress).ok());
  ASSERT_TRUE(
      checkpoint::write_synthetic_original(options, root_ + "/o", pool_, ignore_progress).ok());
  ASSERT_TRUE(
      checkpoint::write_synthetic_gguf(options, {}, root_ + "/g/model.gguf", pool_, ignore_progress)
          .ok());
  const std::vector<float> exact = logits(root_ + "/hf");
  EXPECT_TRUE(same_bits(logits(root_ + "/o"), exact));
  EXPECT_TRUE(same_bits(logits(root_ + "/g"), exact));
}

// Of tied heads: an embedding that is scaled on its way in is not louder than the layers.
TEST_P(FormatsTest, SyntheticModelsDoNotSayTheirLastTokenAgain) {
  for (const char* family : {"gemma3", "qwen3"}) {
    auto options = checkpoint::synthetic_like(
        std::string(PELTON_SOURCE_DIR) + "/testdata/golden/" + family + "/config.json", 0);
    ASSERT_TRUE(options.ok()) << options.error().message;
    options->config.set("tie_word_embeddings", true);
    const std::string folder = root_ + "/" + family;
    ASSERT_TRUE(checkpoint::write_synthetic(*options, folder, pool_, ignore_progress).ok());
    const std::vector<float> all = logits(folder);
    const size_t vocab = all.size() / kTokens;
    int repeated = 0;
    for (int i = 0; i < kTokens; ++i) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(vocab) * i;
      const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row;
      repeated += best == (i * 37 + 11) % 500 ? 1 : 0;
    }
    EXPECT_LT(repeated, kTokens / 4) << family;
  }
}

std::string kernels_name(const ::testing::TestParamInfo<KernelChoice>& info) {
  static constexpr const char* kNames[] = {"auto", "reference", "avx512", "avx2"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(All, FormatsTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kAvx512,
                                           KernelChoice::kAvx2),
                         kernels_name);

}  // namespace
}  // namespace pelton::models
