#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

namespace pelton::checkpoint {
namespace {

const std::string kTiny = PELTON_SOURCE_DIR "/testdata/golden/tiny";

TEST(Checkpoint, OpensTheGoldenTinyModel) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(kTiny);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u * 19 + 3);
  EXPECT_EQ(checkpoint->config().layer_count, 2);
  EXPECT_EQ(checkpoint->config().eos_tokens, (std::vector<TokenId>{510, 511}));
  const int64_t shape[] = {512, 128};
  EXPECT_TRUE(checkpoint->tensor("lm_head.weight", tensor::DType::kBf16, shape).ok());
}

}  // namespace
}  // namespace pelton::checkpoint
