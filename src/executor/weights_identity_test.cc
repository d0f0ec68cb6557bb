// Other weights have another identity wherever they differ.
#include "executor/weights_identity.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace pelton::executor {
namespace {

// A copy of a small model that may be changed.
class WeightsIdentity : public testing::Test {
 protected:
  WeightsIdentity() {
    const std::string from = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/qwen3";
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(from, folder_, std::filesystem::copy_options::recursive);
  }
  ~WeightsIdentity() override { std::filesystem::remove_all(folder_); }

  struct Seen {
    std::string identity;
    std::string digest;
    int64_t bytes = 0;
  };
  Seen look(const WeightsSampling& sampling) const {
    const auto model = checkpoint::Checkpoint::open(folder_);
    EXPECT_TRUE(model.ok());
    Seen seen{.identity = weights_identity(*model, sampling), .digest = model_digest(*model)};
    for (const auto& [name, view] : model->tensors()) seen.bytes += std::ssize(view.bytes);
    return seen;
  }
  // One bit of each of so many bytes from there on, counted from the file's end.
  void change(int64_t from_end, int64_t count) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(-from_end, std::ios::end);
      std::string bytes(static_cast<size_t>(count), '\0');
      file.read(bytes.data(), count);
      ASSERT_TRUE(file.good());
      for (char& byte : bytes) byte = static_cast<char>(byte ^ 1);
      file.seekp(-from_end, std::ios::end);
      file.write(bytes.data(), count);
    }
  }

  const std::string folder_ = testing::TempDir() + "weights_identity";
};

TEST_F(WeightsIdentity, one_bit_makes_another_model) {
  const Seen before = look({});
  EXPECT_EQ(look({}).identity, before.identity);
  change(1000, 1);
  const Seen after = look({});
  EXPECT_NE(after.identity, before.identity);
}

TEST_F(WeightsIdentity, of_many_weights_any_part_is_found_that_is_not_small) {
  const WeightsSampling few{.whole_max = 0, .pages = 8};
  const Seen before = look(few);
  const int64_t part = before.bytes / few.pages + kSampledPageBytes;
  for (int64_t end = part; end + part < before.bytes; end += part / 2 + 77) {
    SCOPED_TRACE(end);
    change(end, part);
    EXPECT_NE(look(few).identity, before.identity);
    change(end, part);  // back
  }
  EXPECT_EQ(look(few).identity, before.identity);
}

TEST(ModelDigest, sees_other_weights) {
  const std::string golden = std::string(PELTON_SOURCE_DIR) + "/testdata/golden/";
  const auto qwen = checkpoint::Checkpoint::open(golden + "qwen3");
  const auto llama = checkpoint::Checkpoint::open(golden + "llama3");
  ASSERT_TRUE(qwen.ok() && llama.ok());
  EXPECT_EQ(model_digest(*qwen), model_digest(*checkpoint::Checkpoint::open(golden + "qwen3")));
  EXPECT_NE(model_digest(*qwen), model_digest(*llama));
}

}  // namespace
}  // namespace pelton::executor
