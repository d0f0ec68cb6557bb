#include "kernels/weight_row.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/check.h"
#include "tensor/bits.h"
#include "tensor/npy.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

tensor::NpyArray stored(DType dtype, const char* what) {
  const std::string file = std::string(PELTON_SOURCE_DIR) + "/src/kernels/testdata/ggml_blocks/" +
                           std::string(tensor::dtype_name(dtype)) + "_" + what + ".npy";
  Result<tensor::NpyArray> array = tensor::read_npy(file);
  CHECK(array.ok(), file);
  return std::move(array).value();
}

// Blocks with random codes, and with scales of 0, -0.5, a subnormal number and 1000, and what an
// implementation that is not ours makes of them; equal to ggml's own to the bit.
TEST(WeightRow, GgmlBlocksHaveTheValuesOfGgml) {
  std::vector<DType> types = {DType::kQ8_0};
  for (int t = static_cast<int>(DType::kQ4_0); t <= static_cast<int>(DType::kIq4Xs); ++t) {
    types.push_back(static_cast<DType>(t));
  }
  for (const DType dtype : types) {
    const tensor::NpyArray blocks = stored(dtype, "blocks");
    const tensor::NpyArray values = stored(dtype, "values");
    const int64_t columns = tensor::block_elements(dtype);
    const int64_t rows = blocks.shape[0];
    ASSERT_EQ(blocks.shape[1], tensor::row_bytes(dtype, columns));
    ASSERT_EQ(values.shape, (std::vector<int64_t>{rows, columns}));
    const Format format = dtype == DType::kQ8_0 ? Format::kQ8_0 : ggml_format(dtype);
    const StoredMatrix matrix{
        .data = blocks.bytes.data(), .rows = rows, .cols = columns, .format = format};
    std::vector<float> got(static_cast<size_t>(columns));
    std::vector<float> exact(got.size());
    for (int64_t row = 0; row < rows; ++row) {
      read_weight_row(matrix, row, got.data());
      std::memcpy(exact.data(), values.bytes.data() + row * columns * 4, got.size() * 4);
      EXPECT_EQ(got, exact) << tensor::dtype_name(dtype) << " block " << row;
    }
  }
}

// 200 x 300 codes in blocks of 128 x 128: the last row and column of blocks are cut.
TEST(WeightRow, F8BlocksAreCodesTimesTheirScale) {
  std::vector<uint8_t> codes(200 * 300);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 0x7F);
  const std::vector<float> scales = {1, 2, 3, 4, 5, 6};
  const StoredMatrix matrix{.data = codes.data(),
                            .rows = 200,
                            .cols = 300,
                            .format = Format::kF8Blocks,
                            .block_scales = {.data = scales.data()}};
  std::vector<float> row(300);
  for (const int r : {0, 127, 128, 199}) {
    read_weight_row(matrix, r, row.data());
    for (const int c : {0, 127, 128, 255, 256, 299}) {
      const float code = tensor::e4m3_to_float(codes[static_cast<size_t>(r * 300 + c)]);
      EXPECT_EQ(row[static_cast<size_t>(c)],
                code * scales[static_cast<size_t>(r / 128 * 3 + c / 128)])
          << r << " " << c;
    }
  }
}

}  // namespace
}  // namespace pelton::kernels
