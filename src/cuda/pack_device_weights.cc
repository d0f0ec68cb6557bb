#include "cuda/pack_device_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/weight_row.h"
#include "tensor/bits.h"

namespace pelton::cuda {
namespace {

using kernels::expert_matrix;
using kernels::Experts;
using kernels::ExpertWeights;
using kernels::Format;
using kernels::read_weight_row;
using kernels::StoredMatrix;

// The largest scale whose product with a code the kernels' bf16 arithmetic holds (product.h).
constexpr int kScaleMax = 128;

constexpr int kGroup = tensor::kBlockElements;  // weights that share a scale
constexpr int kCodeBytes = kGroup / 2;          // of a group

// Four words in a register of any machine.
using Words = uint32_t __attribute__((vector_size(16)));

Words load_words(const void* from) {
  Words out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
void store_words(void* to, Words words) {
  std::memcpy(to, &words, sizeof words);
}
// Rows become columns.
struct Square {
  Words row[4];
};
Square turned(const Square& x) {
  const auto first_of = [](Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); };
  const auto last_of = [](Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); };
  const auto fronts = [](Words a, Words b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); };
  const auto backs = [](Words a, Words b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); };
  const Words first[2] = {first_of(x.row[0], x.row[1]), first_of(x.row[2], x.row[3])};
  const Words last[2] = {last_of(x.row[0], x.row[1]), last_of(x.row[2], x.row[3])};
  return {{fronts(first[0], first[1]), backs(first[0], first[1]), fronts(last[0], last[1]),
           backs(last[0], last[1])}};
}

// A row's codes as kMxfp4Pairs has them, and its scales. None: zeros.
struct CodedRow {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};
struct CodeRoom {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  std::vector<float> values;

  explicit CodeRoom(int columns)
      : codes(static_cast<size_t>(columns) / 2), scales(static_cast<size_t>(columns) / kGroup) {}
};

uint8_t code_of(float value, float scale) {
  const float magnitude = std::fabs(value) / scale;
  uint8_t code = 0;
  while (code < 7 && tensor::kFp4Values[code] < magnitude) ++code;
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

// From floats that are MXFP4: a group whose largest magnitude is m 2^e, 1 <= m < 2, has all its
// codes at the scale 2^(e - 2) too, as twice a code below 4 is a code.
void code_group(const float* values, uint8_t* codes, uint8_t& scale) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(values[i]));
  int exponent = 0;
  if (largest > 0) std::frexp(largest, &exponent);  // m in [0.5, 1)
  const int biased = largest > 0 ? std::clamp(exponent - 3 + 127, 0, 254) : 0;
  scale = static_cast<uint8_t>(biased);
  const float step = tensor::e8m0_to_float(scale);
  for (int b = 0; b < kCodeBytes; ++b) {
    codes[b] =
        static_cast<uint8_t>(code_of(values[2 * b], step) | code_of(values[2 * b + 1], step) << 4);
  }
}

CodedRow code_floats(const StoredMatrix& matrix, int64_t row, CodeRoom& room) {
  room.values.resize(static_cast<size_t>(matrix.cols));
  read_weight_row(matrix, row, room.values.data());
  for (size_t group = 0; group < room.scales.size(); ++group) {
    code_group(room.values.data() + kGroup * group, room.codes.data() + kCodeBytes * group,
               room.scales[group]);
  }
  return {room.codes.data(), room.scales.data()};
}

// kMxfp4Blocks: the scale in front, elements j and j + 16 in byte j.
CodedRow read_blocks(const StoredMatrix& matrix, int64_t row, CodeRoom& room) {
  const auto* from =
      static_cast<const uint8_t*>(matrix.data) + row * row_bytes(matrix.format, matrix.cols);
  uint8_t* to = room.codes.data();
  for (uint8_t& scale : room.scales) {
    scale = *from++;
    for (int b = 0; b < kCodeBytes / 2; ++b) {
      const int even = from[2 * b];
      const int odd = from[2 * b + 1];
      to[b] = static_cast<uint8_t>((even & 15) | (odd & 15) << 4);
      to[kCodeBytes / 2 + b] = static_cast<uint8_t>(even >> 4 | (odd & 0xF0));
    }
    from += kCodeBytes;
    to += kCodeBytes;
  }
  return {room.codes.data(), room.scales.data()};
}

// Byte i of each of the four, in this order, is word i of the result.
Square words_of_bytes(Words a, Words b, Words c, Words d) {
  using Bytes = uint8_t __attribute__((vector_size(16)));
  using Halves = uint16_t __attribute__((vector_size(16)));
  const auto of_bytes = [](Words low, Words high) {
    const auto x = std::bit_cast<Bytes>(low);
    const auto y = std::bit_cast<Bytes>(high);
    return std::array{std::bit_cast<Halves>(__builtin_shufflevector(
                          x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)),
                      std::bit_cast<Halves>(__builtin_shufflevector(
                          x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31))};
  };
  const auto of_halves = [](Halves x, Halves y) {
    return std::array{
        std::bit_cast<Words>(__builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)),
        std::bit_cast<Words>(__builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15))};
  };
  const auto low = of_bytes(a, b);
  const auto high = of_bytes(c, d);
  const auto first = of_halves(low[0], high[0]);
  const auto last = of_halves(low[1], high[1]);
  return {{first[0], first[1], last[0], last[1]}};
}

// One chunk's 64 columns of rows g (low) and g + 8 (high): `to` is lane 4g's place in product 0,
// and a product's lanes take 512 bytes.
void pack_bf16_chunk(const uint16_t* low, const uint16_t* high, uint8_t* to) {
  for (int m = 0; m < kChunkColumns / 16; ++m) {
    // Each pair of columns is a word, and lane 4g + t has word t of all four.
    const Square lanes = turned({{load_words(low + 16 * m), load_words(high + 16 * m),
                                  load_words(low + 16 * m + 8), load_words(high + 16 * m + 8)}});
    for (int t = 0; t < 4; ++t) store_words(to + 512 * m + 16 * t, lanes.row[t]);
  }
}

// The same of codes: two groups of each row, 32 bytes. `to` is lane 4g's place.
void pack_code_chunk(const uint8_t* low, const uint8_t* high, uint8_t* to) {
  // In the order of a lane's words: low of columns 0..31, low of 32..63, high, high. Of each of
  // these lane 4g + t has bytes t, t + 4, t + 8 and t + 12.
  const Square x = turned({{load_words(low), load_words(low + kCodeBytes), load_words(high),
                            load_words(high + kCodeBytes)}});
  const Words even = {0x0F0F0F0Fu, 0x0F0F0F0Fu, 0x0F0F0F0Fu, 0x0F0F0F0Fu};
  const Square words = words_of_bytes(
      (x.row[0] & even) | (x.row[1] & even) << 4, (x.row[2] & even) | (x.row[3] & even) << 4,
      (x.row[0] >> 4 & even) | (x.row[1] & ~even), (x.row[2] >> 4 & even) | (x.row[3] & ~even));
  const Square lanes = turned(words);
  for (int t = 0; t < 4; ++t) store_words(to + 16 * t, lanes.row[t]);
}

// Rows g and g + 8 of a tile, of `groups` groups each. `to`, `to_scales`: where they begin in the
// first chunk.
void pack_coded_rows(CodedRow low, CodedRow high, int groups, int shift, uint8_t* to,
                     uint8_t* to_scales) {
  const auto shifted = [shift](uint8_t scale) {
    return static_cast<uint8_t>(std::max(0, scale - shift));
  };
  for (int group = 0; group < groups; group += 2) {
    const uint8_t* const low_codes = low.codes + kCodeBytes * group;
    const uint8_t* const high_codes = high.codes + kCodeBytes * group;
    if (group + 1 < groups) {
      pack_code_chunk(low_codes, high_codes, to);
      to_scales[1] = shifted(low.scales[group + 1]);
      to_scales[3] = shifted(high.scales[group + 1]);
    } else {  // the last chunk is half full
      uint8_t rest[2][2 * kCodeBytes] = {};
      std::copy_n(low_codes, kCodeBytes, rest[0]);
      std::copy_n(high_codes, kCodeBytes, rest[1]);
      pack_code_chunk(rest[0], rest[1], to);
      to_scales[1] = to_scales[3] = 0;
    }
    to_scales[0] = shifted(low.scales[group]);
    to_scales[2] = shifted(high.scales[group]);
    to += kMxfp4ChunkBytes;
    to_scales += kScaleChunkBytes;
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

CodedRow coded_row(const ExpertWeights& weights, ExpertPart part, int expert, int64_t row,
                   CodeRoom& room) {
  const auto [experts, number] = find_row(weights, part, row);
  const StoredMatrix matrix = expert_matrix(*experts, expert);
  switch (experts->format) {
    case Format::kMxfp4Pairs:
      return {static_cast<const uint8_t*>(matrix.data) + number * (matrix.cols / 2),
              matrix.scales + number * (matrix.cols / kGroup)};
    case Format::kMxfp4Blocks:
      return read_blocks(matrix, number, room);
    default:
      return code_floats(matrix, number, room);
  }
}

uint8_t largest_of(const uint8_t* scales, int64_t count) {
  uint8_t largest = 0;  // a loop that becomes vector instructions, unlike std::max_element
  for (int64_t i = 0; i < count; ++i) largest = scales[i] > largest ? scales[i] : largest;
  return largest;
}

// The largest scale of one expert.
int largest_scale(const ExpertWeights& weights, ExpertPart part, int expert) {
  const auto [experts, number] = find_row(weights, part, 0);
  if (experts->format == Format::kMxfp4Pairs) {
    // Gate and up lie together in this layout.
    const StoredMatrix matrix = expert_matrix(*experts, expert);
    return largest_of(matrix.scales, matrix.rows * (matrix.cols / kGroup));
  }
  const TiledShape shape = expert_shape(weights, part);
  CodeRoom room(shape.columns);
  int largest = 0;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const CodedRow coded = coded_row(weights, part, expert, row, room);
    largest = std::max<int>(largest, largest_of(coded.scales, shape.columns / kGroup));
  }
  return largest;
}

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

const uint16_t* bf16_row(const StoredMatrix& matrix, int64_t row, uint16_t* room) {
  if (matrix.format == Format::kBf16) {
    return static_cast<const uint16_t*>(matrix.data) + row * matrix.cols;
  }
  std::vector<float> values(static_cast<size_t>(matrix.cols));
  read_weight_row(matrix, row, values.data());
  for (size_t i = 0; i < values.size(); ++i) room[i] = tensor::float_to_bf16(values[i]);
  return room;
}

void pack_bf16_tiles(const TiledShape& shape, TileRange range,
                     base::FunctionRef<const uint16_t*(int64_t row, uint16_t* room)> row,
                     uint8_t* out) {
  const int chunks = chunk_count(shape.columns);
  const int whole = shape.columns / kChunkColumns;  // chunks that rows fill
  const int rest = shape.columns % kChunkColumns;
  const auto width = static_cast<size_t>(shape.columns);
  std::vector<uint16_t> rooms(kTileRows * width);
  const std::vector<uint16_t> zeros(width, 0);
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    uint8_t* to = out + (tile - range.begin) * chunks * kBf16ChunkBytes;
    const uint16_t* rows[kTileRows];
    for (int i = 0; i < kTileRows; ++i) {
      const int64_t number = row_of_tile(shape, tile, i);
      rows[i] =
          number < 0 ? zeros.data() : row(number, rooms.data() + static_cast<size_t>(i) * width);
    }
    for (int chunk = 0; chunk < whole; ++chunk, to += kBf16ChunkBytes) {
      for (int g = 0; g < 8; ++g) {
        pack_bf16_chunk(rows[g] + chunk * kChunkColumns, rows[g + 8] + chunk * kChunkColumns,
                        to + 64 * g);
      }
    }
    for (int g = 0; g < 8 && rest > 0; ++g) {
      uint16_t tails[2][kChunkColumns] = {};
      std::copy_n(rows[g] + whole * kChunkColumns, rest, tails[0]);
      std::copy_n(rows[g + 8] + whole * kChunkColumns, rest, tails[1]);
      pack_bf16_chunk(tails[0], tails[1], to + 64 * g);
    }
  }
}

TiledShape expert_shape(const ExpertWeights& weights, ExpertPart part) {
  const int inner = weights.down.cols;
  const int hidden = weights.down.rows;
  if (part == ExpertPart::kDown) return {.rows = hidden, .columns = inner};
  return {.rows = 2 * inner, .columns = hidden, .order = RowOrder::kGateUp};
}

Result<int> scale_shift(const ExpertWeights& weights, ExpertPart part, base::ThreadPool& pool) {
  TRY(check_format(weights, part));
  std::atomic<int> largest = 0;
  pool.parallel_for(weights.down.experts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t e = begin; e < end; ++e) {
      const int own = largest_scale(weights, part, static_cast<int>(e));
      for (int seen = largest; own > seen && !largest.compare_exchange_weak(seen, own);) {
      }
    }
  });
  if (largest == 255) {
    return Error{ErrorCode::kBadCheckpoint, "an expert's weights have a scale that is NaN"};
  }
  return std::max(0, largest - kScaleMax);
}

void pack_expert(const ExpertWeights& weights, ExpertPart part, int expert, TileRange range,
                 int shift, uint8_t* out, uint8_t* out_scales) {
  const TiledShape shape = expert_shape(weights, part);
  const int chunks = chunk_count(shape.columns);
  CodeRoom rooms[2] = {CodeRoom(shape.columns), CodeRoom(shape.columns)};
  const CodeRoom zeros(shape.columns);
  const auto row = [&](int64_t number, CodeRoom& room) {
    return number < 0 ? CodedRow{zeros.codes.data(), zeros.scales.data()}
                      : coded_row(weights, part, expert, number, room);
  };
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    const int64_t first = (tile - range.begin) * chunks;
    for (int g = 0; g < 8; ++g) {
      pack_coded_rows(row(row_of_tile(shape, tile, g), rooms[0]),
                      row(row_of_tile(shape, tile, g + 8), rooms[1]), shape.columns / kGroup, shift,
                      out + first * kMxfp4ChunkBytes + 64 * g,
                      out_scales + first * kScaleChunkBytes + 4 * g);
    }
  }
}

void pack_expert_bias(const ExpertWeights& weights, ExpertPart part, int expert, float* out) {
  const int rows = expert_shape(weights, part).rows;
  for (int64_t row = 0; row < rows; ++row) {
    const auto [experts, number] = find_row(weights, part, row);
    out[row] = experts->bias[int64_t{expert} * experts->rows + number];
  }
}

}  // namespace pelton::cuda
