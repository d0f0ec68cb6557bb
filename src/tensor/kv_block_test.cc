#include "tensor/kv_block.h"

#include <gtest/gtest.h>

namespace pelton::tensor {
namespace {

// gpt-oss: 8 kv heads of 64. 24 layers, half of them full: 24 KiB a token in 16 bits.
constexpr KvBlockShape kGptOss{.kv_heads = 8, .head_size = 64, .block_tokens = 16};

TEST(KvBlock, BytesOfEachType) {
  EXPECT_EQ(kv_block_bytes(DType::kF32, kGptOss), 16 * 4096);
  EXPECT_EQ(kv_block_bytes(DType::kF16, kGptOss), 16 * 2048);
  EXPECT_EQ(kv_block_bytes(DType::kBf16, kGptOss), 16 * 2048);
  // A byte an element, and two bytes for each key's and value's scale.
  EXPECT_EQ(kv_block_bytes(DType::kI8, kGptOss), 16 * 8 * 2 * (64 + 2));
  EXPECT_EQ(kv_block_bytes(DType::kF8E4m3, kGptOss), 16 * 8 * 2 * (64 + 2));
  EXPECT_EQ(kv_head_bytes(DType::kI8, kGptOss) * 8, kv_block_bytes(DType::kI8, kGptOss));
}

TEST(KvBlock, NamesReadBack) {
  for (const DType dtype : {DType::kF16, DType::kBf16, DType::kF8E4m3, DType::kI8}) {
    const Result<std::optional<DType>> read = parse_kv_type(kv_type_name(dtype));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, dtype);
  }
  EXPECT_FALSE(parse_kv_type("auto")->has_value());
}

TEST(KvBlock, AnUnknownNameListsTheKnown) {
  for (const char* name : {"", "int4", "F16", "float16", "fp8_e5m2", "f32"}) {
    const Result<std::optional<DType>> read = parse_kv_type(name);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(read.error().message.find("auto, f16, bf16, fp8, int8"), std::string::npos);
  }
}

}  // namespace
}  // namespace pelton::tensor
