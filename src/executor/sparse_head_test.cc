// Files of testdata/sparse_head, which tests/torch_state.py has written: weights of four, as
// torch.save() has them.
#include "executor/sparse_head.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace pelton::executor {
namespace {

using testing::HasSubstr;

Result<std::optional<SparseHead>> load(const std::string& name) {
  const std::string folder = testing::TempDir() + "sparse_head_test_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file =
      base::read_file(PELTON_SOURCE_DIR "/src/executor/testdata/sparse_head/" + name + ".pt", 65536)
          .value();
  EXPECT_TRUE(base::write_file(folder + "/sparse_linear.pt", file).ok());
  Result<std::optional<SparseHead>> head = SparseHead::load(folder, 4);
  std::filesystem::remove_all(folder);
  return head;
}

TEST(SparseHead, AWeightIsTheReluOfAProduct) {
  for (const char* name : {"half", "full"}) {
    const auto head = load(name);
    ASSERT_TRUE(head.ok()) << head.error().message;
    ASSERT_TRUE(head->has_value());
    const auto weight = [&](std::array<float, 4> state) { return (*head)->weight_of(state); };
    EXPECT_EQ(weight({2, 1, 0.5f, 4}), 1.5f);  // 1 - 1 + 1 + 1 - 0.5
    EXPECT_EQ(weight({0, 1, 0, 0}), 0.0f);     // -1.5
    EXPECT_EQ(weight({0, 0, 0, 0}), 0.0f);
    EXPECT_TRUE(std::isnan(weight({0, std::numeric_limits<float>::quiet_NaN(), 0, 0})));
  }
}

TEST(SparseHead, AFolderWithoutTheFileHasNone) {
  const auto head = SparseHead::load(testing::TempDir() + "no_such_folder", 4);
  ASSERT_TRUE(head.ok());
  EXPECT_FALSE(head->has_value());
}

TEST(SparseHead, OtherTensorsAreRefusedByName) {
  const auto refused = [](const std::string& name, ErrorCode code,
                          std::initializer_list<const char*> words) {
    const auto head = load(name);
    ASSERT_FALSE(head.ok()) << name;
    EXPECT_EQ(head.error().code, code) << name;
    EXPECT_THAT(head.error().message, HasSubstr("sparse_linear.pt"));
    for (const char* word : words) EXPECT_THAT(head.error().message, HasSubstr(word));
  };
  refused("wide", ErrorCode::kBadCheckpoint, {"weight", "5", "4"});
  refused("no_bias", ErrorCode::kBadCheckpoint, {"bias"});
  refused("long_bias", ErrorCode::kBadCheckpoint, {"bias", "2", "1"});
  refused("more", ErrorCode::kUnsupported, {"0.weight"});
  refused("integers", ErrorCode::kUnsupported, {"weight"});
}

}  // namespace
}  // namespace pelton::executor
