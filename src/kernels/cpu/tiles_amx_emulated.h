// The AMX tile kernels over emulated tile instructions, for tests: the same code but for the
// instructions themselves, which CHECK what the processor would fault at. Needs VBMI. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cpu/tile_kernels.h"

namespace pelton::kernels {

enum class UnitFault : uint8_t { kNone, kWrongProduct };

// As make_amx_tiles. The fault is there from the beginning.
std::unique_ptr<TileKernels> make_emulated_amx_tiles(base::ThreadPool& pool,
                                                     UnitFault fault = UnitFault::kNone);
int64_t emulated_products();         // tile products so far, of all threads
bool emulated_tiles_are_released();  // of this thread

enum class UnitMisuse : uint8_t {
  kNotConfigured,
  kReleased,
  kTooManyRows,
  kTooWide,
  kShapesDoNotFit,
  kSameTile,
};
// Ends the process.
void misuse_emulated_unit(UnitMisuse misuse);

}  // namespace pelton::kernels
