// Starts a product in one of the forms that product_form.h lists. Each program that includes this
// makes the forms of its own epilogue.
#pragma once

#include <utility>

#include "cuda/device/launch.h"
#include "cuda/device/product.h"
#include "cuda/device/wide_product.h"
#include "cuda/product_forms.h"

namespace pelton::cuda {

template <WeightType kType, ProductForm kForm, bool kLow, class Epilogue>
void start_form(Stream stream, const ProductArgs& args, int64_t column_blocks,
                const Epilogue& epilogue) {
  const int tiles = tile_count(args.weights.rows);
  const int64_t shared = form_shared_bytes(kForm, chunk_count(args.weights.columns), kLow);
  const auto blocks = [&](int row_tiles) {
    return Grid{.x = (tiles + row_tiles - 1) / row_tiles, .y = column_blocks};
  };
  if constexpr (kForm.kind == FormKind::kWide) {
    static_assert(!kLow);
    if constexpr (kCompilesWideForms) {
      launch_dependent(stream, wide_product<kType, kForm.columns / 8, Epilogue>,
                       blocks(kWideRowTiles), kWideThreads, shared, args, epilogue);
    } else {
      note_failure("a product: the library was not compiled for GPUs with wgmma");
    }
  } else if constexpr (kForm.kind == FormKind::kLarge) {
    static_assert(!kLow);
    constexpr int kColumnWarps = kForm.columns / (8 * kLargeColumnTiles);
    static_assert(kForm.columns == large_product_columns(kColumnWarps));
    launch_dependent(stream, large_product<kType, kColumnWarps, Epilogue>,
                     blocks(kLargeRowWarps * kLargeRowTiles), 32 * kLargeRowWarps * kColumnWarps,
                     shared, args, epilogue);
  } else {
    launch_dependent(stream,
                     small_product<kType, kForm.columns / 8, kForm.row_tiles, kLow, Epilogue>,
                     blocks(kForm.row_tiles), kSmallThreads, shared, args, epilogue);
  }
}

// False: the form is none of the list.
template <WeightType kType, bool kLow, const auto& kForms, class Epilogue, size_t... kIndex>
bool start_one_of(std::index_sequence<kIndex...>, const ProductForm& form, Stream stream,
                  const ProductArgs& args, int64_t column_blocks, const Epilogue& epilogue) {
  return (
      (form == kForms[kIndex] &&
       (start_form<kType, kForms[kIndex], kLow>(stream, args, column_blocks, epilogue), true)) ||
      ...);
}
template <WeightType kType, bool kLow, const auto& kForms, class Epilogue>
void start_one_of(const ProductForm& form, Stream stream, const ProductArgs& args,
                  int64_t column_blocks, const Epilogue& epilogue) {
  const bool started = start_one_of<kType, kLow, kForms>(
      std::make_index_sequence<std::size(kForms)>(), form, stream, args, column_blocks, epilogue);
  if (!started) note_failure("a product: a form that there is not");
}

// The rows of `input`, one after the other, by bf16 weights. kLow: the input has a low part.
// Without a named form by constants, but by mma.sync.
template <bool kLow, class Epilogue>
void start_dense(Stream stream, const Weights& weights, const ProductInput& input,
                 const ProductForm& named, const Epilogue& epilogue) {
  constexpr WeightType kBf16 = WeightType::kBf16;
  const ProductForm form = named.columns != 0
                               ? named
                               : dense_form(input.rows_max, chunk_count(weights.columns), kLow,
                                            {form_device().shared_bytes_max});
  if (weights.type != kBf16 || form.columns == 0 || (input.low != nullptr) != kLow) {
    return note_failure("a product: weights that are not bf16, or too wide for this device");
  }
  const ProductArgs args{.weights = weights, .x = input.x, .low = input.low, .live = input.live};
  const int64_t blocks = (input.rows_max + form.columns - 1) / form.columns;
  if constexpr (kLow) {
    start_one_of<kBf16, true, kLowForms>(form, stream, args, blocks, epilogue);
  } else {
    start_one_of<kBf16, false, kDenseForms>(form, stream, args, blocks, epilogue);
  }
}

// The entries of each expert by its MXFP4 weights.
template <class Epilogue>
void start_grouped(Stream stream, const Weights& weights, const Bf16Bits* x, int rows_of_entry,
                   const Grouping& grouping, const ProductForm& named, const Epilogue& epilogue) {
  constexpr WeightType kMxfp4 = WeightType::kMxfp4;
  if (weights.type != kMxfp4) return note_failure("experts: weights that are not MXFP4");
  const ProductForm form = named.columns != 0 ? named : expert_form_of_width(grouping.columns);
  if (form.columns != grouping.columns) {
    return note_failure("experts: tiles of another width than the form's");
  }
  const ProductArgs args{.weights = weights,
                         .x = x,
                         .live = grouping.tile_count,
                         .tiles = grouping.tiles,
                         .entries = grouping.entries,
                         .rows_of_entry = rows_of_entry};
  start_one_of<kMxfp4, false, kExpertForms>(form, stream, args, grouping.tiles_max, epilogue);
}

}  // namespace pelton::cuda
