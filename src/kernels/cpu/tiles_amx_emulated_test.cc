// Tile instructions emulated (tiles_amx_emulated.h). Compiled for VNNI and VBMI, and so without
// tests in it: those are in tiles_test.cc.
#include "kernels/cpu/tiles_amx_emulated.h"

#include <atomic>
#include <vector>

#include <immintrin.h>

#include "base/check.h"
#include "kernels/cpu/expert_groups.h"
#include "kernels/tiles.h"
#include "tensor/tile.h"

namespace pelton::kernels {
namespace {

#include "kernels/cpu/tiles_amx_inl.h"

struct UnitState {
  TileConfig config;
  bool configured = false;
  uint8_t tiles[8][16][64] = {};
};
thread_local UnitState unit;
std::atomic<bool> wrong_product{false};
std::atomic<int64_t> products{0};

struct EmulatedUnit {
  static void configure(const TileConfig& config) {
    CHECK(config.palette == 1 && config.start_row == 0);
    for (const uint8_t byte : config.reserved) CHECK(byte == 0);
    for (int i = 0; i < 16; ++i) {
      CHECK(config.rows[i] <= 16, "too many rows");
      CHECK(config.row_bytes[i] <= 64, "too wide");
      CHECK((config.rows[i] == 0) == (config.row_bytes[i] == 0), "half a tile");
      CHECK(i < 8 || config.rows[i] == 0, "no such tile");
    }
    CHECK(!unit.configured, "tiles of somebody else");
    unit.config = config;
    unit.configured = true;
    __builtin_memset(unit.tiles, 0, sizeof unit.tiles);
  }
  static void release() { unit.configured = false; }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    check_tile<kTile>();
    __builtin_memset(unit.tiles[kTile], 0, sizeof unit.tiles[kTile]);
    for (int row = 0; row < unit.config.rows[kTile]; ++row) {
      __builtin_memcpy(unit.tiles[kTile][row], static_cast<const char*>(from) + row * stride,
                       unit.config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    check_tile<kTile>();
    for (int row = 0; row < unit.config.rows[kTile]; ++row) {
      __builtin_memcpy(static_cast<char*>(to) + row * stride, unit.tiles[kTile][row],
                       unit.config.row_bytes[kTile]);
    }
  }
  template <int kTile>
  static void zero() {
    check_tile<kTile>();
    __builtin_memset(unit.tiles[kTile], 0, sizeof unit.tiles[kTile]);
  }
  template <int kSums, int kLeft, int kRight>
  static void multiply_add() {
    check_tile<kSums>();
    check_tile<kLeft>();
    check_tile<kRight>();
    CHECK(kSums != kLeft && kSums != kRight && kLeft != kRight, "a tile used twice");
    const TileConfig& config = unit.config;
    CHECK(config.rows[kSums] == config.rows[kLeft] &&
              config.row_bytes[kSums] == config.row_bytes[kRight] &&
              config.row_bytes[kLeft] == 4 * config.rows[kRight] &&
              config.row_bytes[kSums] % 4 == 0,
          "shapes do not fit");
    for (int m = 0; m < config.rows[kSums]; ++m) {
      for (int n = 0; n < config.row_bytes[kSums] / 4; ++n) {
        int32_t sum;
        __builtin_memcpy(&sum, unit.tiles[kSums][m] + 4 * n, sizeof sum);
        for (int k = 0; k < config.row_bytes[kLeft]; ++k) {
          sum += static_cast<int8_t>(unit.tiles[kLeft][m][k]) *
                 static_cast<int8_t>(unit.tiles[kRight][k / 4][4 * n + k % 4]);
        }
        if (m == 15 && n == 7 && wrong_product.load(std::memory_order_relaxed)) ++sum;
        __builtin_memcpy(unit.tiles[kSums][m] + 4 * n, &sum, sizeof sum);
      }
    }
    products.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  template <int kTile>
  static void check_tile() {
    static_assert(kTile >= 0 && kTile < 8);
    CHECK(unit.configured, "tiles are not configured");
    CHECK(unit.config.rows[kTile] != 0, "this tile is not configured");
  }
};

}  // namespace

std::unique_ptr<TileKernels> make_emulated_amx_tiles(base::ThreadPool& pool, UnitFault fault) {
  wrong_product = fault == UnitFault::kWrongProduct;
  std::unique_ptr<TileKernels> made = make_unit_tiles<EmulatedUnit>(pool);
  wrong_product = false;
  return made;
}

int64_t emulated_products() {
  return products.load();
}

bool emulated_tiles_are_released() {
  return !unit.configured;
}

void misuse_emulated_unit(UnitMisuse misuse) {
  TileConfig config;
  switch (misuse) {
    case UnitMisuse::kNotConfigured:
      return EmulatedUnit::zero<0>();
    case UnitMisuse::kReleased: {
      {
        const ConfiguredTiles<EmulatedUnit> configured;
      }
      return EmulatedUnit::zero<0>();
    }
    case UnitMisuse::kTooManyRows:
      config.rows[3] = 17;
      config.row_bytes[3] = 64;
      return EmulatedUnit::configure(config);
    case UnitMisuse::kTooWide:
      config.rows[3] = 16;
      config.row_bytes[3] = 65;
      return EmulatedUnit::configure(config);
    case UnitMisuse::kShapesDoNotFit: {
      const ConfiguredTiles<EmulatedUnit> configured;
      return EmulatedUnit::multiply_add<kSumTiles, kWeightTiles, kActivationTiles>();
    }
    case UnitMisuse::kSameTile: {
      const ConfiguredTiles<EmulatedUnit> configured;
      return EmulatedUnit::multiply_add<kSumTiles, kWeightTiles, kWeightTiles>();
    }
  }
}

}  // namespace pelton::kernels
