#include "kernels/cuda/pack_device_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::kernels::gpu {
namespace {

// The largest scale whose product with a code the kernels' bf16 arithmetic holds (product.h).
constexpr int kScaleMax = 128;

// One row's codes in the order of a device's words (four to each 32 columns), and its scales.
struct CodedRow {
  std::vector<uint32_t> words;
  std::vector<uint8_t> scales;

  explicit CodedRow(int columns)
      : words(static_cast<size_t>(columns) / 8), scales(static_cast<size_t>(columns) / 32) {}
};

// Nibbles 0, 2, 4, 6 into the lower half, 1, 3, 5, 7 into the upper.
uint32_t even_and_odd(uint32_t nibbles) {
  const auto gather = [](uint32_t spread) {  // nibbles at 0, 8, 16, 24
    const uint32_t pairs = (spread | spread >> 4) & 0x00FF00FFu;
    return (pairs | pairs >> 8) & 0xFFFFu;
  };
  return gather(nibbles & 0x0F0F0F0Fu) | gather(nibbles >> 4 & 0x0F0F0F0Fu) << 16;
}

void read_pairs(const StoredMatrix& matrix, int64_t row, CodedRow& out) {
  const int64_t blocks = matrix.cols / 32;
  const uint8_t* from = static_cast<const uint8_t*>(matrix.data) + row * blocks * 16;
  for (int64_t i = 0; i < blocks * 4; ++i) {
    uint32_t nibbles = 0;
    std::memcpy(&nibbles, from + 4 * i, 4);
    out.words[static_cast<size_t>(i)] = even_and_odd(nibbles);
  }
  std::memcpy(out.scales.data(), matrix.scales + row * blocks, static_cast<size_t>(blocks));
}

uint32_t code_of(float value, float scale) {
  const float magnitude = std::fabs(value) / scale;
  uint32_t code = 0;
  while (code < 7 && tensor::kFp4Values[code] < magnitude) ++code;
  return code | (std::signbit(value) ? 8u : 0u);
}

// From floats that are MXFP4: a block whose largest magnitude is m 2^e, 1 <= m < 2, has all its
// codes at the scale 2^(e - 2) too, as twice a code below 4 is a code.
void code_block(const float* values, uint32_t* words, uint8_t& scale) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[i]));
  int exponent = 0;
  if (largest > 0) std::frexp(largest, &exponent);  // m in [0.5, 1)
  const int biased = largest > 0 ? std::clamp(exponent - 3 + 127, 0, 254) : 0;
  scale = static_cast<uint8_t>(biased);
  const float step = tensor::e8m0_to_float(scale);
  for (int t = 0; t < 4; ++t) {
    uint32_t nibbles = 0;
    for (int i = 0; i < 8; ++i) {
      nibbles |= code_of(values[8 * t + i], step) << (4 * i);
    }
    words[t] = even_and_odd(nibbles);
  }
}

void read_floats(const StoredMatrix& matrix, int64_t row, std::vector<float>& room, CodedRow& out) {
  room.resize(static_cast<size_t>(matrix.cols));
  read_weight_row(matrix, row, room.data());
  for (size_t block = 0; block < out.scales.size(); ++block) {
    code_block(room.data() + 32 * block, out.words.data() + 4 * block, out.scales[block]);
  }
}

bool is_mxfp4(Format format) {
  return format == Format::kMxfp4Pairs || format == Format::kMxfp4Blocks ||
         format == Format::kMxfp4Tiles;
}

// The matrix that logical row `row` is in, and its number there.
std::pair<const Experts*, int64_t> find_row(const ExpertWeights& weights, ExpertPart part,
                                            int64_t row) {
  if (part == ExpertPart::kDown) return {&weights.down, row};
  const int inner = weights.down.cols;
  const bool is_up = row >= inner;
  const auto i = static_cast<int>(is_up ? row - inner : row);
  if (weights.interleaved()) {
    return {&weights.gate, is_up ? weights.up_row(i) : weights.gate_row(i)};
  }
  return {is_up ? &weights.up : &weights.gate, i};
}

Result<void> check_format(const ExpertWeights& weights, ExpertPart part) {
  const Experts& first = part == ExpertPart::kDown ? weights.down : weights.gate;
  if (is_mxfp4(first.format)) return {};
  return Error{ErrorCode::kUnsupported,
               "the experts' weights are not MXFP4; a device computes with no others"};
}

class ExpertReader {
 public:
  ExpertReader(const ExpertWeights& weights, ExpertPart part, int expert)
      : weights_(weights), part_(part), expert_(expert) {}

  void read(int64_t row, CodedRow& out) {
    const auto [experts, number] = find_row(weights_, part_, row);
    const StoredMatrix matrix = expert_matrix(*experts, expert_);
    if (experts->format == Format::kMxfp4Pairs) return read_pairs(matrix, number, out);
    read_floats(matrix, number, room_, out);
  }

 private:
  const ExpertWeights& weights_;
  const ExpertPart part_;
  const int expert_;
  std::vector<float> room_;
};

}  // namespace

int64_t row_of_tile(const TiledShape& shape, int64_t tile, int row) {
  const int64_t g = row % 8;
  const bool is_high = row >= 8;
  switch (shape.order) {
    case RowOrder::kHeads: {
      const int64_t each = shape.head_size / kTileRows;
      const int64_t i = 8 * (tile % each) + g;
      return tile / each * shape.head_size + i + (is_high ? shape.head_size / 2 : 0);
    }
    case RowOrder::kGateUp: {
      const int64_t inner = shape.rows / 2;
      const int64_t i = 8 * tile + g;
      return i >= inner ? -1 : is_high ? inner + i : i;
    }
    case RowOrder::kPlain:
      break;
  }
  const int64_t plain = kTileRows * tile + row;
  return plain < shape.rows ? plain : -1;
}

int64_t tiles_bytes(WeightType type, const TiledShape& shape) {
  return int64_t{tile_count(shape.rows)} * chunk_count(shape.columns) * chunk_bytes(type);
}

int64_t scales_bytes(const TiledShape& shape) {
  return int64_t{tile_count(shape.rows)} * chunk_count(shape.columns) * kScaleChunkBytes;
}

void pack_bf16_tiles(const TiledShape& shape, TileRange range,
                     base::FunctionRef<void(int64_t row, float* out)> read_row, uint8_t* out) {
  const int chunks = chunk_count(shape.columns);
  std::vector<float> values(static_cast<size_t>(padded_columns(shape.columns)), 0.0f);
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    for (int row = 0; row < kTileRows; ++row) {
      const int64_t from = row_of_tile(shape, tile, row);
      if (from >= 0) {
        read_row(from, values.data());
      } else {
        std::fill(values.begin(), values.end(), 0.0f);
      }
      const int g = row % 8;
      const int high = row / 8;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int m = 0; m < 4; ++m) {
          for (int t = 0; t < 4; ++t) {
            const float* const four =
                values.data() + kChunkColumns * chunk + 32 * (m / 2) + 8 * t + 4 * (m % 2);
            uint16_t bits[4];
            for (int i = 0; i < 4; ++i) bits[i] = tensor::float_to_bf16(four[i]);
            uint8_t* const to = out + ((tile - range.begin) * chunks + chunk) * kBf16ChunkBytes +
                                (m * 32 + 4 * g + t) * 16 + high * 4;
            std::memcpy(to, bits, 4);
            std::memcpy(to + 8, bits + 2, 4);
          }
        }
      }
    }
  }
}

TiledShape expert_shape(const ExpertWeights& weights, ExpertPart part) {
  const int inner = weights.down.cols;
  const int hidden = weights.down.rows;
  if (part == ExpertPart::kDown) return {.rows = hidden, .columns = inner};
  return {.rows = 2 * inner, .columns = hidden, .order = RowOrder::kGateUp};
}

Result<void> pack_expert(const ExpertWeights& weights, ExpertPart part, int expert, int shift,
                         uint8_t* out, uint8_t* out_scales) {
  TRY(check_format(weights, part));
  const TiledShape shape = expert_shape(weights, part);
  const int chunks = chunk_count(shape.columns);
  std::fill_n(out, tiles_bytes(WeightType::kMxfp4, shape), uint8_t{0});
  std::fill_n(out_scales, scales_bytes(shape), uint8_t{0});
  ExpertReader reader(weights, part, expert);
  CodedRow coded(shape.columns);
  for (int64_t tile = 0; tile < tile_count(shape.rows); ++tile) {
    for (int row = 0; row < kTileRows; ++row) {
      const int64_t from = row_of_tile(shape, tile, row);
      if (from < 0) continue;
      reader.read(from, coded);
      const int g = row % 8;
      const int high = row / 8;
      for (size_t block = 0; block < coded.scales.size(); ++block) {
        const int64_t index = tile * chunks + static_cast<int64_t>(block) / 2;
        const int word = 2 * high + static_cast<int>(block % 2);
        for (int t = 0; t < 4; ++t) {
          std::memcpy(out + index * kMxfp4ChunkBytes + (4 * g + t) * 16 + word * 4,
                      &coded.words[4 * block + static_cast<size_t>(t)], 4);
        }
        out_scales[index * kScaleChunkBytes + g * 4 + word] =
            static_cast<uint8_t>(std::max(0, coded.scales[block] - shift));
      }
    }
  }
  return {};
}

Result<int> scale_shift(const ExpertWeights& weights, ExpertPart part) {
  TRY(check_format(weights, part));
  const TiledShape shape = expert_shape(weights, part);
  int highest = 0;
  CodedRow coded(shape.columns);
  for (int expert = 0; expert < weights.down.experts; ++expert) {
    const auto [experts, number] = find_row(weights, part, 0);
    if (experts->format == Format::kMxfp4Pairs) {
      // Gate and up lie together in this layout.
      const StoredMatrix matrix = expert_matrix(*experts, expert);
      const uint8_t* const end = matrix.scales + matrix.rows * (matrix.cols / 32);
      highest = std::max<int>(highest, *std::max_element(matrix.scales, end));
      continue;
    }
    ExpertReader reader(weights, part, expert);
    for (int64_t row = 0; row < shape.rows; ++row) {
      reader.read(row, coded);
      highest = std::max<int>(highest, *std::max_element(coded.scales.begin(), coded.scales.end()));
    }
  }
  if (highest == 255) {
    return Error{ErrorCode::kBadCheckpoint, "an expert's weights have a scale that is NaN"};
  }
  return std::max(0, highest - kScaleMax);
}

void pack_expert_bias(const ExpertWeights& weights, ExpertPart part, float* out) {
  const TiledShape shape = expert_shape(weights, part);
  for (int64_t expert = 0; expert < weights.down.experts; ++expert) {
    for (int64_t row = 0; row < shape.rows; ++row) {
      const auto [experts, number] = find_row(weights, part, row);
      out[expert * shape.rows + row] = experts->bias[expert * experts->rows + number];
    }
  }
}

}  // namespace pelton::kernels::gpu
