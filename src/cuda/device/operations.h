// operations.h's operations, started on a stream. Shapes that no kernel takes leave a failure
// (device/runtime.h).
#pragma once

#include "cuda/arena.h"
#include "cuda/device/runtime.h"
#include "cuda/operations.h"
#include "cuda/persistent_step.h"

namespace pelton::cuda {

void embed(Stream stream, const Embed& args);
void norm(Stream stream, const Norm& args);
void choose(Stream stream, const Choose& args);
void group(Stream stream, const Group& args);

void linear(Stream stream, const Linear& args);
void qkv(Stream stream, const Qkv& args);
void store_kv(Stream stream, const StoreKv& args);
void gate_up(Stream stream, const GateUp& args);
void down(Stream stream, const Down& args);

void attention(Stream stream, const Attention& args);

// A whole step of few rows but for drawing, in one launch of so many blocks; 0: not on the current
// device. `arrivals` must be zero when it starts.
int persistent_blocks(const ModelShape& shape, KvType type);
void persistent_step(Stream stream, const ModelShape& shape, KvType type,
                     const PersistentStep& step);

// Leaves in `results` what a row gives, and in `reported` its best as it came.
void sample(Stream stream, const Sample& args);

void randomize(Stream stream, const Randomize& args);

}  // namespace pelton::cuda
