// Starts a product in one of the configs that kernel_config.h lists. Each program that includes
// this makes the configs of its own epilogue.
#pragma once

#include <utility>

#include "cuda/device/launch.h"
#include "cuda/device/product.h"
#include "cuda/device/wide_product.h"
#include "cuda/kernel_configs.h"

namespace pelton::cuda {

template <WeightType kType, KernelConfig kConfig, bool kLow, class Epilogue>
void start_config(Stream stream, const ProductArgs& args, int64_t column_blocks,
                  const Epilogue& epilogue) {
  const int tiles = tile_count(args.weights.rows);
  const int64_t shared = config_shared_bytes(kConfig, chunk_count(args.weights.columns), kLow);
  const auto blocks = [&](int row_tiles) {
    return Grid{.x = (tiles + row_tiles - 1) / row_tiles, .y = column_blocks};
  };
  if constexpr (kConfig.kind == KernelKind::kWide) {
    static_assert(!kLow);
    if constexpr (kCompilesWideConfigs) {
      launch_dependent(stream, wide_product<kType, kConfig.columns / 8, Epilogue>,
                       blocks(kWideRowTiles), kWideThreads, shared, args, epilogue);
    } else {
      note_failure("a product: the library was not compiled for GPUs with wgmma");
    }
  } else if constexpr (kConfig.kind == KernelKind::kLarge) {
    static_assert(!kLow);
    constexpr int kColumnWarps = kConfig.columns / (8 * kLargeColumnTiles);
    static_assert(kConfig.columns == large_product_columns(kColumnWarps));
    launch_dependent(stream, large_product<kType, kColumnWarps, Epilogue>,
                     blocks(kLargeRowWarps * kLargeRowTiles), 32 * kLargeRowWarps * kColumnWarps,
                     shared, args, epilogue);
  } else {
    launch_dependent(stream,
                     small_product<kType, kConfig.columns / 8, kConfig.row_tiles, kLow, Epilogue>,
                     blocks(kConfig.row_tiles), kSmallThreads, shared, args, epilogue);
  }
}

// False: the config is none of the list.
template <WeightType kType, bool kLow, const auto& kConfigs, class Epilogue, size_t... kIndex>
bool start_one_of(std::index_sequence<kIndex...>, const KernelConfig& config, Stream stream,
                  const ProductArgs& args, int64_t column_blocks, const Epilogue& epilogue) {
  return ((config == kConfigs[kIndex] &&
           (start_config<kType, kConfigs[kIndex], kLow>(stream, args, column_blocks, epilogue),
            true)) ||
          ...);
}
template <WeightType kType, bool kLow, const auto& kConfigs, class Epilogue>
void start_one_of(const KernelConfig& config, Stream stream, const ProductArgs& args,
                  int64_t column_blocks, const Epilogue& epilogue) {
  const bool started =
      start_one_of<kType, kLow, kConfigs>(std::make_index_sequence<std::size(kConfigs)>(), config,
                                          stream, args, column_blocks, epilogue);
  if (!started) note_failure("a product: a config that there is not");
}

// The rows of `input`, one after the other, by bf16 weights. kLow: the input has a low part.
// Without a named config by constants, but by mma.sync.
template <bool kLow, class Epilogue>
void start_dense(Stream stream, const Weights& weights, const ProductInput& input,
                 const KernelConfig& named, const Epilogue& epilogue) {
  constexpr WeightType kBf16 = WeightType::kBf16;
  const KernelConfig config = named.columns != 0
                                  ? named
                                  : dense_config(input.rows_max, chunk_count(weights.columns), kLow,
                                                 {config_device().shared_bytes_max});
  if (weights.type != kBf16 || config.columns == 0 || (input.low != nullptr) != kLow) {
    return note_failure("a product: weights that are not bf16, or too wide for this device");
  }
  const ProductArgs args{.weights = weights, .x = input.x, .low = input.low, .live = input.live};
  const int64_t blocks = (input.rows_max + config.columns - 1) / config.columns;
  if constexpr (kLow) {
    start_one_of<kBf16, true, kLowConfigs>(config, stream, args, blocks, epilogue);
  } else {
    start_one_of<kBf16, false, kDenseConfigs>(config, stream, args, blocks, epilogue);
  }
}

// The entries of each expert by its MXFP4 weights.
template <class Epilogue>
void start_grouped(Stream stream, const Weights& weights, const Bf16Bits* x, int rows_of_entry,
                   const Grouping& grouping, const KernelConfig& named, const Epilogue& epilogue) {
  constexpr WeightType kMxfp4 = WeightType::kMxfp4;
  if (weights.type != kMxfp4) return note_failure("experts: weights that are not MXFP4");
  const KernelConfig config = named.columns != 0 ? named : expert_config_of_width(grouping.columns);
  if (config.columns != grouping.columns) {
    return note_failure("experts: tiles of another width than the config's");
  }
  const ProductArgs args{.weights = weights,
                         .x = x,
                         .live = grouping.tile_count,
                         .tiles = grouping.tiles,
                         .entries = grouping.entries,
                         .rows_of_entry = rows_of_entry};
  start_one_of<kMxfp4, false, kExpertConfigs>(config, stream, args, grouping.tiles_max, epilogue);
}

}  // namespace pelton::cuda
