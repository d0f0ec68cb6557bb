// Takes a checkpoint's weights to a device, layer by layer: pieces of them are packed on the host's
// threads into the device's order, in pinned memory, and a piece is copied to its place while the
// next is packed. The library holds a few such pieces, and nothing else grows with the weights. The
// caller's thread owns the pool. After an error the session is good for being closed alone.
#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "cuda/device_library.h"
#include "cuda/pack_device_weights.h"
#include "layers/weights.h"

namespace pelton::models {

class DeviceUpload {
 public:
  DeviceUpload(const checkpoint::Checkpoint& checkpoint, const cuda::DeviceLibrary& library,
               cuda::Session* session, const cuda::ArenaLayout& arena, base::ThreadPool& pool);

  // Everything, the rotary table of so many positions too. Gives back the last norm's weight.
  Result<std::vector<float>> run(int positions_max);

 private:
  Result<void> attention(int layer);
  Result<void> experts(int layer);
  Result<void> expert_part(const kernels::ExpertWeights& weights, cuda::ExpertPart part,
                           const cuda::LayerPlaces& places, float& factor);
  Result<void> embedding();
  Result<void> turns(int positions_max);
  Result<void> vector(const std::string& name, int64_t count, const cuda::Place& place);
  // One matrix of the rows of several, below each other.
  Result<void> matrix(const std::vector<kernels::Matrix>& parts, cuda::RowOrder order,
                      const cuda::Place& place);
  Result<void> write(const float* values, int64_t count, const cuda::Place& place);

  // What is packed in pieces: units of `bytes`, one after the other at `place`; and if `side`, for
  // each some more there.
  struct Units {
    int64_t count;
    int64_t grain;  // for a thread at a time
    int64_t bytes;
    const cuda::Place& place;
    int64_t side_bytes = 0;
    const cuda::Place* side = nullptr;
  };
  // Writes units [begin, end) to `out`, and what belongs to them to `side`.
  using PackUnits =
      base::FunctionRef<void(int64_t begin, int64_t end, uint8_t* out, uint8_t* side)>;
  Result<void> pack(const Units& units, PackUnits pack_units);
  void send(const cuda::Place& place, int64_t offset, const void* staged, int64_t bytes);

  const checkpoint::Checkpoint& checkpoint_;
  const families::ModelConfig& config_;
  const cuda::DeviceLibrary& library_;
  cuda::Session* const session_;
  const cuda::ArenaLayout& arena_;
  base::ThreadPool& pool_;
  layers::FloatVectors keep_;  // of one layer
};

}  // namespace pelton::models
