#include "layers/int_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "tensor/bits.h"

namespace pelton::layers {
namespace {

using families::IntWeights;
using tensor::DType;
using tensor::TensorView;

// A matrix of integers, whatever the order of its words. Row o, column i, group g along a row.
class IntMatrix {
 public:
  IntMatrix(const checkpoint::Checkpoint& checkpoint, const std::string& base, int rows, int cols)
      : checkpoint_(checkpoint),
        config_(checkpoint.config().int_weights),
        kind_(checkpoint.config().quantization),
        base_(base),
        rows_(rows),
        cols_(cols),
        group_(config_.group_size > 0 ? config_.group_size : cols),
        groups_((cols + group_ - 1) / group_) {}

  Result<void> open() {
    // The last group of a row may be smaller than the others.
    if (cols_ % 32 != 0 || group_ % 32 != 0 || rows_ % 8 != 0) {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("tensors {}*: groups of {} in {} rows of {}; supported: groups and rows of a "
                      "multiple of 32, a multiple of 8 rows",
                      base_, group_, rows_, cols_)};
    }
    switch (kind_) {
      case families::WeightQuantization::kGptq:
        return open_gptq();
      case families::WeightQuantization::kAwq:
        return open_awq();
      default:
        return open_packed();
    }
  }

  int code(int64_t o, int64_t i) const {
    switch (kind_) {
      case families::WeightQuantization::kGptq:
        return field(codes_[i * config_.bits / 32 * rows_ + o], i);
      case families::WeightQuantization::kAwq:
        return interleaved(codes_[i * (rows_ / 8) + o / 8], o);
      default:
        if (config_.in_bytes) return bytes_[o * cols_ + i] + 128;  // as the words have it
        return field(codes_[(o * cols_ + i) * config_.bits / 32], i);
    }
  }

  // In the middle where there are none.
  int zero(int64_t o, int64_t g) const {
    if (zeros_ == nullptr) return 1 << (config_.bits - 1);
    switch (kind_) {
      case families::WeightQuantization::kGptq:
        return field(zeros_[g * (rows_ * config_.bits / 32) + o * config_.bits / 32], o) + plus_;
      case families::WeightQuantization::kAwq:
        return interleaved(zeros_[g * (rows_ / 8) + o / 8], o);
      default:
        return field(zeros_[o / 8 * groups_ + g], o);
    }
  }

  float scale(int64_t o, int64_t g) const {
    const bool by_row = kind_ == families::WeightQuantization::kCompressedInts;
    const int64_t at = by_row ? o * groups_ + g : g * rows_ + o;
    switch (scales_.dtype) {
      case DType::kF32:
        return scales_.as<float>()[at];
      case DType::kF16:
        return tensor::f16_to_float(scales_.as<uint16_t>()[at]);
      default:
        return tensor::bf16_to_float(scales_.as<uint16_t>()[at]);
    }
  }

  int64_t group() const { return group_; }

  // Where columns are not in the order of their groups: the column that comes i-th then, `cols` of
  // them; else empty. With groups of 2 and g_idx 1 0 0 1: 1 2 0 3.
  const std::vector<int32_t>& order() const { return order_; }

 private:
  // The integer at `index` of a word that holds 32 / bits of them, the lowest first.
  int field(uint32_t word, int64_t index) const {
    const int per_word = 32 / config_.bits;
    return static_cast<int>(word >> (index % per_word * config_.bits) & ((1u << config_.bits) - 1));
  }
  // AWQ: nibble n of a word belongs to column 0, 2, 4, 6, 1, 3, 5, 7 of eight.
  static int interleaved(uint32_t word, int64_t column) {
    constexpr int kNibble[] = {0, 4, 1, 5, 2, 6, 3, 7};
    return static_cast<int>(word >> (4 * kNibble[column % 8]) & 15);
  }

  Result<const uint32_t*> words(const char* name, std::array<int64_t, 2> shape) const {
    TRY_ASSIGN(const TensorView view, checkpoint_.tensor(base_ + name, DType::kI32, shape));
    return view.as<uint32_t>();
  }

  Result<void> open_gptq() {
    const int64_t per_word = 32 / config_.bits;
    TRY_ASSIGN(codes_, words("qweight", {cols_ / per_word, rows_}));
    TRY_ASSIGN(zeros_, words("qzeros", {groups_, rows_ / per_word}));
    TRY_ASSIGN(scales_,
               checkpoint_.tensor(base_ + "scales", std::array<int64_t, 2>{groups_, rows_}));
    TRY(sort_columns());
    plus_ = config_.zeros_minus_one ? 1 : 0;
    // Newer writers store 8 for symmetric weights, and still call the format the older one.
    const int64_t words = groups_ * rows_ / per_word;
    bool all_middle = config_.symmetric && config_.bits == 4;
    for (int64_t i = 0; i < words && all_middle; ++i) all_middle = zeros_[i] == 0x88888888u;
    if (all_middle) plus_ = 0;
    return {};
  }

  Result<void> sort_columns() {
    TRY_ASSIGN(const TensorView view,
               checkpoint_.tensor(base_ + "g_idx", DType::kI32, std::array<int64_t, 1>{cols_}));
    const auto* const groups = view.as<int32_t>();
    bool in_order = true;
    for (int64_t i = 0; i < cols_ && in_order; ++i) in_order = groups[i] == i / group_;
    if (in_order) return {};
    const auto bad = [&](ErrorCode code, const std::string& what) {
      return Error{code, fmt::format("tensor {}g_idx: {}", base_, what)};
    };
    if (!config_.reordered) {
      return bad(ErrorCode::kBadCheckpoint,
                 "groups are not one after the other, but quantization_config has no desc_act with "
                 "groups");
    }
    std::vector<int64_t> filled(static_cast<size_t>(groups_));
    order_.resize(static_cast<size_t>(cols_));
    for (int64_t i = 0; i < cols_; ++i) {
      const int32_t g = groups[i];
      if (g < 0 || g >= groups_) {
        return bad(ErrorCode::kBadCheckpoint,
                   fmt::format("element {} is {}, but there are {} groups", i, g, groups_));
      }
      int64_t& place = filled[static_cast<size_t>(g)];
      const int64_t size = std::min(group_, cols_ - g * group_);
      if (place == size) {
        return bad(ErrorCode::kUnsupported,
                   fmt::format("group {} has more than {} inputs; supported: groups of one size, "
                               "but for the last",
                               g, size));
      }
      order_[static_cast<size_t>(g * group_ + place++)] = static_cast<int32_t>(i);
    }
    return {};  // as many columns as places: all are filled
  }

  Result<void> open_awq() {
    TRY_ASSIGN(codes_, words("qweight", {cols_, rows_ / 8}));
    TRY_ASSIGN(zeros_, words("qzeros", {groups_, rows_ / 8}));
    TRY_ASSIGN(scales_,
               checkpoint_.tensor(base_ + "scales", std::array<int64_t, 2>{groups_, rows_}));
    return {};
  }

  Result<void> open_packed() {
    if (config_.in_bytes) return open_bytes();
    TRY_ASSIGN(codes_, words("weight_packed", {rows_, cols_ * config_.bits / 32}));
    if (!config_.symmetric) {
      TRY_ASSIGN(zeros_, words("weight_zero_point", {rows_ / 8, groups_}));
    }
    TRY_ASSIGN(scales_,
               checkpoint_.tensor(base_ + "weight_scale", std::array<int64_t, 2>{rows_, groups_}));
    TRY_ASSIGN(const TensorView shape,
               checkpoint_.tensor(base_ + "weight_shape", DType::kI64, std::array<int64_t, 1>{2}));
    const auto* const sizes = shape.as<int64_t>();
    if (sizes[0] == rows_ && sizes[1] == cols_) return {};
    return Error{ErrorCode::kBadCheckpoint,
                 fmt::format("tensor {}weight_shape: is [{}, {}], expected [{}, {}]", base_,
                             sizes[0], sizes[1], rows_, cols_)};
  }

  Result<void> open_bytes() {
    TRY_ASSIGN(const TensorView view, checkpoint_.tensor(base_ + "weight", DType::kI8,
                                                         std::array<int64_t, 2>{rows_, cols_}));
    bytes_ = view.as<int8_t>();
    TRY_ASSIGN(scales_,
               checkpoint_.tensor(base_ + "weight_scale", std::array<int64_t, 2>{rows_, groups_}));
    return {};
  }

  const checkpoint::Checkpoint& checkpoint_;
  const IntWeights config_;
  const families::WeightQuantization kind_;
  const std::string base_;
  const int64_t rows_;
  const int64_t cols_;
  const int64_t group_;
  const int64_t groups_;
  const uint32_t* codes_ = nullptr;
  const int8_t* bytes_ = nullptr;    // in place of codes_
  const uint32_t* zeros_ = nullptr;  // null: all in the middle
  TensorView scales_;
  std::vector<int32_t> order_;
  int plus_ = 0;  // to a stored zero point
};

// 32 codes less their zero point as a Q4_0 or Q8_0 block.
void write_block(const int* codes, uint16_t scale, bool nibbles, uint8_t* to) {
  std::memcpy(to, &scale, sizeof scale);
  if (!nibbles) {
    for (int j = 0; j < 32; ++j) to[2 + j] = static_cast<uint8_t>(static_cast<int8_t>(codes[j]));
    return;
  }
  for (int j = 0; j < 16; ++j) {
    to[2 + j] = static_cast<uint8_t>((codes[j] + 8) | (codes[j + 16] + 8) << 4);
  }
}

}  // namespace

Result<kernels::Matrix> load_int_weight(const checkpoint::Checkpoint& checkpoint,
                                        const std::string& base, int rows, int cols,
                                        FloatVectors& keep) {
  IntMatrix matrix(checkpoint, base, rows, cols);
  TRY(matrix.open());
  const bool nibbles = families::int_weight_type(checkpoint.config()) == DType::kQ4_0;
  const int64_t block_bytes = nibbles ? 18 : 34;
  const int64_t row_bytes = cols / 32 * block_bytes;
  uint8_t* const to = keep.add_bytes(rows * row_bytes);
  const int middle = nibbles ? 8 : 128;
  int32_t* kept_order = nullptr;
  if (checkpoint.config().int_weights.reordered) {  // kept by every matrix: so they can be counted
    kept_order = keep.add_integers(cols);
    std::copy(matrix.order().begin(), matrix.order().end(), kept_order);
  }
  const bool in_order = matrix.order().empty();
  for (int64_t i = 0; i < cols; i += 32) {  // outside: words of one column lie side by side
    const int64_t g = i / matrix.group();
    for (int64_t o = 0; o < rows; ++o) {
      const int zero = matrix.zero(o, g);
      const float scale = matrix.scale(o, g);
      const uint16_t half = tensor::float_to_f16(scale);
      const bool fits = tensor::f16_to_float(half) == scale;
      if (!fits || (nibbles && zero != middle)) {
        return Error{
            ErrorCode::kUnsupported,
            fmt::format("tensors {}*: row {}, group {} has the scale {} and the zero point "
                        "{}; supported: scales that float16 holds, zero points as the "
                        "configuration says",
                        base, o, g, scale, zero)};
      }
      int codes[32];
      for (int64_t j = 0; j < 32; ++j) {
        codes[j] = matrix.code(o, in_order ? i + j : kept_order[i + j]) - zero;
      }
      write_block(codes, half, nibbles, to + o * row_bytes + i / 32 * block_bytes);
    }
  }
  return kernels::Matrix{.data = to,
                         .rows = rows,
                         .cols = cols,
                         .format = nibbles ? kernels::Format::kQ4_0 : kernels::Format::kQ8_0,
                         .input_order = in_order ? nullptr : kept_order};
}

}  // namespace pelton::layers
