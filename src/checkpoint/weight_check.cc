#include "checkpoint/weight_check.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "tensor/dtype.h"
#include "tensor/tile.h"

namespace pelton::checkpoint {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr int64_t kPiecesPerReport = 32;

// How a tensor's bytes are looked at: units of so many bytes, one number in each.
struct Unit {
  int64_t bytes = 1;
  enum class Kind { kF32, kF16, kBf16, kF8, kE8M0, kHalves, kHalfScales, kMxfp4Tile };
  Kind kind = Kind::kE8M0;
  tensor::HalfPlaces halves{};  // of kHalves: a GGUF block's
  tensor::TileShape tile{};     // of a tile, and how many blocks it has
  int64_t blocks = 0;
};

Unit unit_of_tile(const TensorView& view) {
  const bool halves = view.dtype != DType::kMxfp4Tiles;  // scales are float16
  return {.bytes = tensor::tile_bytes(view.dtype, view.shape.back()),
          .kind = halves ? Unit::Kind::kHalfScales : Unit::Kind::kMxfp4Tile,
          .tile = tensor::tile_shape(view.dtype),
          .blocks = view.shape.back() / tensor::kBlockElements};
}

// False for tensors without numbers that could be wrong (MXFP4's blocks: any nibble is a number).
bool unit_of(const std::string& name, const TensorView& view, Unit& unit) {
  switch (view.dtype) {
    case DType::kF32:
      unit = {4, Unit::Kind::kF32};
      return true;
    case DType::kF16:
      unit = {2, Unit::Kind::kF16};
      return true;
    case DType::kBf16:
      unit = {2, Unit::Kind::kBf16};
      return true;
    case DType::kQ8_0:  // its scale
      unit = {tensor::kQ8_0BlockBytes, Unit::Kind::kF16};
      return true;
    case DType::kMxfp4:  // its scale
      unit = {tensor::kMxfp4BlockBytes, Unit::Kind::kE8M0};
      return true;
    case DType::kInt8Tiles:
    case DType::kMxfp4Tiles:
    case DType::kInt4Tiles:
      unit = unit_of_tile(view);
      return true;
    case DType::kF8E4m3:
      unit = {1, Unit::Kind::kF8};
      return true;
    default:
      if (tensor::is_ggml_block_type(view.dtype)) {
        unit = {.bytes = tensor::row_bytes(view.dtype, tensor::block_elements(view.dtype)),
                .kind = Unit::Kind::kHalves,
                .halves = tensor::ggml_scales_at(view.dtype)};
        return true;
      }
      unit = {1, Unit::Kind::kE8M0};
      return name.ends_with("_scales");
  }
}

bool is_faulty_half(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & 0x7C00u) == 0x7C00u;
}

bool is_faulty(const Unit& unit, const uint8_t* at) {
  uint32_t word = 0;
  switch (unit.kind) {
    case Unit::Kind::kF32:
      std::memcpy(&word, at, 4);
      return (word & 0x7F800000u) == 0x7F800000u;
    case Unit::Kind::kF16:
      return is_faulty_half(at);
    case Unit::Kind::kBf16:
      std::memcpy(&word, at, 2);
      return (word & 0x7F80u) == 0x7F80u;
    case Unit::Kind::kF8:
      return (at[0] & 0x7F) == 0x7F;
    case Unit::Kind::kHalves:
      return is_faulty_half(at + unit.halves.first) ||
             (unit.halves.second >= 0 && is_faulty_half(at + unit.halves.second));
    case Unit::Kind::kE8M0:
      return at[0] == 255;
    case Unit::Kind::kMxfp4Tile:
      for (int64_t b = 0; b < unit.blocks; ++b) {
        const uint8_t* scales = at + unit.tile.scales_at(b);
        if (std::memchr(scales, 255, tensor::kTileRows) != nullptr) return true;
      }
      return false;
    case Unit::Kind::kHalfScales:
      for (int64_t i = 0; i < unit.blocks * tensor::kTileRows; ++i) {
        const uint8_t* scales = at + unit.tile.scales_at(i / tensor::kTileRows);
        std::memcpy(&word, scales + i % tensor::kTileRows * 2, 2);
        if ((word & 0x7C00u) == 0x7C00u) return true;
      }
      return false;
  }
  return false;
}

struct Piece {
  size_t tensor;
  int64_t begin;  // units
  int64_t end;
};

struct Checked {
  const std::string* name;
  const TensorView* view;
  Unit unit;
  int64_t count = 0;
  int64_t first = std::numeric_limits<int64_t>::max();
};

void check_piece(const Piece& piece, Checked& checked, std::mutex& mutex) {
  const Unit unit = checked.unit;
  const uint8_t* bytes = checked.view->bytes.data();
  int64_t count = 0;
  int64_t first = -1;
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    if (!is_faulty(unit, bytes + i * unit.bytes)) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return;
  const std::lock_guard<std::mutex> lock(mutex);
  checked.count += count;
  checked.first = std::min(checked.first, first);
}

}  // namespace

std::vector<WeightFault> check_weights(const Checkpoint& checkpoint, base::ThreadPool& pool,
                                       base::FunctionRef<void(int64_t, int64_t)> progress) {
  std::vector<Checked> tensors;
  std::vector<Piece> pieces;
  int64_t total = 0;
  for (const auto& [name, view] : checkpoint.tensors()) {
    Checked checked{.name = &name, .view = &view};
    if (!unit_of(name, view, checked.unit)) continue;
    const int64_t units = static_cast<int64_t>(view.bytes.size()) / checked.unit.bytes;
    const int64_t step = std::max<int64_t>(1, kPieceBytes / checked.unit.bytes);
    for (int64_t begin = 0; begin < units; begin += step) {
      pieces.push_back({tensors.size(), begin, std::min(units, begin + step)});
    }
    total += static_cast<int64_t>(view.bytes.size());
    tensors.push_back(checked);
  }
  std::mutex mutex;
  int64_t done = 0;
  const auto count = static_cast<int64_t>(pieces.size());
  for (int64_t first = 0; first < count; first += kPiecesPerReport) {
    const int64_t last = std::min(count, first + kPiecesPerReport);
    pool.parallel_for(last - first, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& piece = pieces[static_cast<size_t>(first + i)];
        check_piece(piece, tensors[piece.tensor], mutex);
      }
    });
    for (int64_t i = first; i < last; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      done += (piece.end - piece.begin) * tensors[piece.tensor].unit.bytes;
    }
    progress(done, total);
  }
  std::vector<WeightFault> faults;
  for (const Checked& checked : tensors) {
    if (checked.count == 0) continue;
    const bool scale =
        checked.unit.kind == Unit::Kind::kE8M0 || checked.unit.kind == Unit::Kind::kMxfp4Tile;
    faults.push_back({*checked.name, scale ? "E8M0 scale 255 (NaN)" : "NaN or infinity",
                      checked.count, checked.first});
  }
  return faults;
}

}  // namespace pelton::checkpoint
