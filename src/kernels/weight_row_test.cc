#include "kernels/weight_row.h"

#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/bits.h"
#include "tensor/npy.h"

namespace pelton::kernels {
namespace {

using tensor::DType;

// PELTON_GOLDEN_BLOCKS names another folder of such files.
tensor::NpyArray stored(DType dtype, const char* what) {
  const char* const given = std::getenv("PELTON_GOLDEN_BLOCKS");
  const std::string folder =
      given != nullptr ? given
                       : std::string(PELTON_SOURCE_DIR) + "/src/kernels/testdata/ggml_blocks";
  const std::string file =
      folder + "/" + std::string(tensor::dtype_name(dtype)) + "_" + what + ".npy";
  Result<tensor::NpyArray> array = tensor::read_npy(file);
  CHECK(array.ok(), file);
  return std::move(array).value();
}

std::vector<DType> block_types() {
  std::vector<DType> types = {DType::kQ8_0};
  for (int t = static_cast<int>(DType::kQ4_0); t <= static_cast<int>(DType::kIq4Xs); ++t) {
    types.push_back(static_cast<DType>(t));
  }
  return types;
}

// Blocks with random codes, and with scales of 0, -0.5, a subnormal number and 1000, one a row, and
// what an implementation that is not ours makes of them; equal to ggml's own to the bit.
struct GgmlBlocks {
  explicit GgmlBlocks(DType dtype)
      : blocks(stored(dtype, "blocks")),
        values(stored(dtype, "values")),
        matrix{.data = blocks.bytes.data(),
               .rows = blocks.shape[0],
               .cols = tensor::block_elements(dtype),
               .format = dtype == DType::kQ8_0 ? Format::kQ8_0 : ggml_format(dtype)} {
    CHECK(blocks.shape[1] == tensor::row_bytes(dtype, matrix.cols));
    CHECK(values.shape == (std::vector<int64_t>{matrix.rows, matrix.cols}));
  }
  std::vector<float> row(int64_t r) const {
    std::vector<float> exact(static_cast<size_t>(matrix.cols));
    std::memcpy(exact.data(), values.bytes.data() + r * matrix.cols * 4, exact.size() * 4);
    return exact;
  }

  const tensor::NpyArray blocks;
  const tensor::NpyArray values;
  const StoredMatrix matrix;
};

TEST(WeightRow, GgmlBlocksHaveTheValuesOfGgml) {
  for (const DType dtype : block_types()) {
    const GgmlBlocks blocks(dtype);
    std::vector<float> got(static_cast<size_t>(blocks.matrix.cols));
    for (int64_t r = 0; r < blocks.matrix.rows; ++r) {
      read_weight_row(blocks.matrix, r, got.data());
      EXPECT_EQ(got, blocks.row(r)) << tensor::dtype_name(dtype) << " block " << r;
    }
  }
}

// Inputs that are 1 in one place and 0 elsewhere bring each weight out as it is, side by side and
// one by one.
TEST(WeightRow, ProductsHaveTheBitsOfGgmlBlocks) {
  base::ThreadPool pool({.threads = 1});
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kAvx512,
                                    KernelChoice::kAvx2, KernelChoice::kNeon}) {
    const auto kernels = make_kernels(choice, pool);
    if (!kernels.ok()) continue;  // not of this processor
    for (const DType dtype : block_types()) {
      const GgmlBlocks blocks(dtype);
      const auto rows = static_cast<int>(blocks.matrix.rows);
      const auto cols = static_cast<int>(blocks.matrix.cols);
      const Matrix matrix{blocks.matrix.data, rows, cols, blocks.matrix.format};
      std::vector<float> x(size_t(cols) * size_t(cols));
      for (int c = 0; c < cols; ++c) x[size_t(c) * size_t(cols + 1)] = 1.0f;
      std::vector<float> got(size_t(cols) * size_t(rows));
      std::vector<float> single(got.size());
      (*kernels)->linear(got.data(), x.data(), {matrix, nullptr}, cols,
                         Kernels::Output::kOverwrite);
      for (int64_t c = 0; c < cols; ++c) {
        (*kernels)->linear(single.data() + c * rows, x.data() + c * cols, {matrix, nullptr}, 1,
                           Kernels::Output::kOverwrite);
      }
      EXPECT_EQ(got, single) << tensor::dtype_name(dtype);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<float> exact = blocks.row(r);
        for (int64_t c = 0; c < cols; ++c) {
          ASSERT_EQ(got[size_t(c * rows + r)], exact[size_t(c)])
              << (*kernels)->name() << " " << tensor::dtype_name(dtype) << " row " << r
              << " column " << c;
        }
      }
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
