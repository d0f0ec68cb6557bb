// Starts the form of a product that a plan names. Each program that includes this makes the forms
// of its own epilogue.
#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/product.h"
#include "kernels/cuda/product_plan.h"

namespace pelton::kernels::gpu {

static_assert(small_shared_bytes(45, 16, true) >=
              small_product_shared_bytes(WeightType::kBf16, 45, 2, true));
static_assert(small_shared_bytes(45, 32, false) ==
              small_product_shared_bytes(WeightType::kMxfp4, 45, 4, false));

template <WeightType kType, int kColumnTiles, bool kLow, class Epilogue>
void start_small(Stream stream, const ProductArgs& args, int64_t column_blocks,
                 const Epilogue& epilogue) {
  constexpr int kRowTiles = small_row_tiles(kType);
  const int tiles = tile_count(args.weights.rows);
  launch(stream, small_product<kType, kColumnTiles, kLow, Epilogue>,
         {.x = (tiles + kRowTiles - 1) / kRowTiles, .y = column_blocks}, kSmallThreads,
         small_product_shared_bytes(kType, chunk_count(args.weights.columns), kColumnTiles, kLow),
         args, epilogue);
}

template <WeightType kType, int kColumnWarps, class Epilogue>
void start_large(Stream stream, const ProductArgs& args, int64_t column_blocks,
                 const Epilogue& epilogue) {
  constexpr int kRowTiles = kLargeRowWarps * kLargeRowTiles;
  const int tiles = tile_count(args.weights.rows);
  launch(stream, large_product<kType, kColumnWarps, Epilogue>,
         {.x = (tiles + kRowTiles - 1) / kRowTiles, .y = column_blocks},
         32 * kLargeRowWarps * kColumnWarps, large_product_shared_bytes(kColumnWarps), args,
         epilogue);
}

// The rows of `input`, one after the other, by bf16 weights.
template <class Epilogue>
void start_dense(Stream stream, const Weights& weights, const ProductInput& input,
                 const Epilogue& epilogue) {
  constexpr WeightType kBf16 = WeightType::kBf16;
  const ProductPlan plan = plan_product(input.rows_max, chunk_count(weights.columns),
                                        input.low != nullptr, shared_bytes_max());
  if (weights.type != kBf16 || plan.columns == 0 || input.low != nullptr) {
    return note_failure("a product: weights that are not bf16, or too wide for this device");
  }
  const ProductArgs args{.weights = weights, .x = input.x, .live = input.live};
  const int64_t blocks = (input.rows_max + plan.columns - 1) / plan.columns;
  if (!plan.small && plan.columns == 64)
    return start_large<kBf16, 1>(stream, args, blocks, epilogue);
  if (!plan.small) return start_large<kBf16, 2>(stream, args, blocks, epilogue);
  if (plan.columns == 8) return start_small<kBf16, 1, false>(stream, args, blocks, epilogue);
  if (plan.columns == 16) return start_small<kBf16, 2, false>(stream, args, blocks, epilogue);
  start_small<kBf16, 4, false>(stream, args, blocks, epilogue);
}

// The entries of each expert by its MXFP4 weights.
template <class Epilogue>
void start_grouped(Stream stream, const Weights& weights, const Bf16Bits* x, int rows_of_entry,
                   const Grouping& grouping, const Epilogue& epilogue) {
  constexpr WeightType kMxfp4 = WeightType::kMxfp4;
  if (weights.type != kMxfp4) return note_failure("experts: weights that are not MXFP4");
  const ProductArgs args{.weights = weights,
                         .x = x,
                         .live = grouping.tile_count,
                         .tiles = grouping.tiles,
                         .entries = grouping.entries,
                         .rows_of_entry = rows_of_entry};
  const int64_t blocks = grouping.tiles_max;
  switch (grouping.columns) {
    case 8:
      return start_small<kMxfp4, 1, false>(stream, args, blocks, epilogue);
    case 32:
      return start_small<kMxfp4, 4, false>(stream, args, blocks, epilogue);
    case 64:
      return start_large<kMxfp4, 1>(stream, args, blocks, epilogue);
    default:
      return note_failure("experts: tiles of another width than 8, 32 or 64");
  }
}

}  // namespace pelton::kernels::gpu
