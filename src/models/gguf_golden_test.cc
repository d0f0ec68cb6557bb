// A Llama whose GGUF file mixes twelve types of blocks, with exact logits of an implementation that
// is not ours (testdata/golden/README.md); and how far our own code makes the file itself again.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "checkpoint/block_encoder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/family_golden.h"
#include "checkpoint/tensor_file.h"
#include "kernels/kernels.h"
#include "kernels/weight_row.h"
#include "models/sequence_runner.h"
#include "tensor/bits.h"
#include "tensor/npy.h"

namespace pelton::models {
namespace {

using tensor::DType;
using tensor::TensorView;

const std::string kFolder = PELTON_SOURCE_DIR "/testdata/golden/gguf-kquants";
constexpr int kVocab = 512;

struct Exact {
  std::vector<TokenId> tokens;
  size_t prompt = 0;
  std::vector<size_t> positions;
  std::vector<float> logits;
};

Exact read_exact() {
  const Json json = Json::parse(*base::read_file(kFolder + "/tokens.json")).value();
  Exact exact;
  for (const char* part : {"prompt", "continuation"}) {
    exact.prompt = exact.tokens.size();
    for (const Json& id : json.find(part)->as_array()) {
      exact.tokens.push_back(static_cast<TokenId>(id.as_integer()));
    }
  }
  for (const Json& position : json.find("logit_positions")->as_array()) {
    exact.positions.push_back(static_cast<size_t>(position.as_integer()));
  }
  const auto logits = tensor::read_npy(kFolder + "/logits_exact.npy").value();
  const auto* first = reinterpret_cast<const float*>(logits.bytes.data());
  exact.logits.assign(first, first + logits.bytes.size() / sizeof(float));
  return exact;
}

// Logits of all tokens, fed in steps of so many.
std::vector<float> logits_of(kernels::KernelChoice choice, const std::vector<TokenId>& tokens,
                             size_t chunk) {
  base::ThreadPool pool({.threads = 2, .pin = false});
  auto kernels = kernels::make_kernels(choice, pool).value();
  const auto opened = checkpoint::Checkpoint::open(kFolder + "/model.gguf");
  CHECK(opened.ok(), opened.ok() ? "" : opened.error().message);
  const auto count = static_cast<int>(tokens.size());
  auto model = load_model(*opened, *kernels, {.batch_tokens_max = count, .logit_rows_max = count});
  CHECK(model.ok(), model.ok() ? "" : model.error().message);
  auto runner = SequenceRunner::make(**model, kernels->kv_dtype(), count);
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const size_t step = std::min(chunk, tokens.size() - begin);
    std::vector<int> rows(step);
    std::iota(rows.begin(), rows.end(), 0);
    const float* got = runner->step(std::span(tokens).subspan(begin, step), rows, nullptr);
    logits.insert(logits.end(), got, got + step * kVocab);
  }
  return logits;
}

struct Errors {
  double mean = 0;
  double most = 0;
};

Errors errors_of(const std::vector<float>& logits, const Exact& exact) {
  Errors errors;
  for (size_t i = 0; i < exact.positions.size(); ++i) {
    double difference = 0;
    double size = 0;
    for (size_t v = 0; v < kVocab; ++v) {
      const double wanted = exact.logits[i * kVocab + v];
      difference += std::pow(logits[exact.positions[i] * kVocab + v] - wanted, 2);
      size += wanted * wanted;
    }
    const double error = std::sqrt(difference / size);
    errors.mean += error / static_cast<double>(exact.positions.size());
    errors.most = std::max(errors.most, error);
  }
  return errors;
}

TEST(GgufGolden, ReferenceKernelsGiveTheExactLogitsHoweverTheyAreFed) {
  const Exact exact = read_exact();
  for (const size_t chunk : {exact.tokens.size(), size_t{7}, size_t{1}}) {
    const auto logits = logits_of(kernels::KernelChoice::kReference, exact.tokens, chunk);
    const Errors errors = errors_of(logits, exact);
    EXPECT_LE(errors.mean, 1e-5) << chunk;
    EXPECT_LE(errors.most, 5e-5) << chunk;
    for (size_t at = exact.prompt; at < exact.tokens.size(); ++at) {  // greedy, token for token
      const float* row = logits.data() + (at - 1) * kVocab;
      ASSERT_EQ(std::max_element(row, row + kVocab) - row, exact.tokens[at]) << at;
    }
  }
}

TEST(GgufGolden, FastKernelsAreInsideTheirs) {
  const Exact exact = read_exact();
  for (const auto choice : {kernels::KernelChoice::kAvx512, kernels::KernelChoice::kAvx2,
                            kernels::KernelChoice::kNeon}) {
    base::ThreadPool pool({.threads = 1, .pin = false});
    if (!kernels::make_kernels(choice, pool).ok()) continue;  // not of this processor
    for (const size_t chunk : {exact.tokens.size(), size_t{7}, size_t{1}}) {
      EXPECT_LE(errors_of(logits_of(choice, exact.tokens, chunk), exact).mean, 6e-2) << chunk;
    }
  }
}

// The weights that the file was made of: the formula of all families' cases, with seed 701.
class GgufSource : public testing::Test {
 protected:
  GgufSource() {
    const Json config = Json::parse(*base::read_file(kFolder + "/config.json")).value();
    const auto made =
        checkpoint::family_golden_safetensors(config, Json::parse(R"({"seed": 701})").value())
            .value();
    path_ = testing::TempDir() + "gguf_golden_test.safetensors";
    CHECK(base::write_file(path_, {reinterpret_cast<const char*>(made.data()), made.size()}).ok());
    source_ = checkpoint::TensorFile::open(path_).value();
    file_ = checkpoint::Checkpoint::open(kFolder + "/model.gguf").value();
  }
  ~GgufSource() override { std::remove(path_.c_str()); }

  // Row `row` of what the file holds: rows of queries and keys lie in neighbours' order.
  std::vector<float> row_of(const std::string& name, int64_t row) const {
    const TensorView& view = source_->tensors().find(name)->second;
    const int64_t columns = view.shape.back();
    constexpr int64_t kHead = 64;
    const bool turns = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
    if (turns) row = row - row % kHead + row % 2 * (kHead / 2) + row % kHead / 2;
    std::vector<float> values;
    for (int64_t c = 0; c < columns; ++c) {
      values.push_back(tensor::bf16_to_float(view.as<uint16_t>()[row * columns + c]));
    }
    return values;
  }

  std::string path_;
  std::optional<checkpoint::TensorFile> source_;
  std::optional<checkpoint::Checkpoint> file_;
};

// What has one way to be rounded is made again byte for byte: vectors, and blocks of 32.
TEST_F(GgufSource, VectorsAndBlocksOf32AreMadeAgainByteForByte) {
  int compared = 0;
  for (const auto& [name, view] : file_->tensors()) {
    const bool is_vector = view.shape.size() == 1;
    const bool is_short = tensor::is_block_type(view.dtype) && view.dtype != DType::kIq4Nl &&
                          tensor::block_elements(view.dtype) == 32;
    if (!is_vector && !is_short) continue;
    if (source_->tensors().find(name) == source_->tensors().end()) continue;  // rope_freqs
    const int64_t columns = view.shape.back();
    const int64_t rows = view.element_count() / columns;
    const auto bytes = static_cast<size_t>(tensor::row_bytes(view.dtype, columns));
    std::vector<uint8_t> made(bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = row_of(name, r);
      if (is_vector) {
        std::memcpy(made.data(), row.data(), bytes);
      } else {
        checkpoint::encode_row(view.dtype, row, made.data());
      }
      const std::span<const uint8_t> wanted =
          view.bytes.subspan(static_cast<size_t>(r) * bytes, bytes);
      ASSERT_TRUE(std::ranges::equal(made, wanted)) << name << " row " << r;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 7 + 5);  // norms; Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
}

// The others were rounded by ggml's searches, which are not this project's: their values lie as
// near to the formula's weights as such a type can, and what ours rounds them to hardly further.
TEST_F(GgufSource, SuperBlocksAreOfTheSameWeights) {
  int compared = 0;
  for (const auto& [name, view] : file_->tensors()) {
    if (!tensor::is_block_type(view.dtype)) continue;
    const int64_t columns = view.shape.back();
    const int64_t rows = view.element_count() / columns;
    const auto format =
        view.dtype == DType::kQ8_0 ? kernels::Format::kQ8_0 : kernels::ggml_format(view.dtype);
    std::vector<uint8_t> own(static_cast<size_t>(tensor::row_bytes(view.dtype, columns)));
    double theirs = 0;
    double ours = 0;
    double size = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row = row_of(name, r);
      std::vector<float> got(row.size());
      const auto add = [&](const void* data, int64_t of, int64_t at, double& error) {
        kernels::read_weight_row({.data = data, .rows = of, .cols = columns, .format = format}, at,
                                 got.data());
        for (size_t c = 0; c < row.size(); ++c) error += std::pow(got[c] - row[c], 2);
      };
      add(view.bytes.data(), rows, r, theirs);
      for (const float weight : row) size += weight * weight;
      if (!checkpoint::is_encodable(view.dtype)) continue;
      checkpoint::encode_row(view.dtype, row, own.data());
      add(own.data(), 1, 0, ours);
    }
    EXPECT_LT(std::sqrt(theirs / size), 0.3) << name;
    EXPECT_LE(std::sqrt(ours), 1.05 * std::sqrt(theirs)) << tensor::dtype_name(view.dtype);
    ++compared;
  }
  EXPECT_EQ(compared, 2 + 3 * 7);
}

}  // namespace
}  // namespace pelton::models
