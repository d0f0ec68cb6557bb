// Takes a checkpoint's weights to a device, layer by layer: packed on the host's threads into the
// device's order, then copied to their place. Holds one layer's experts at most. The caller's
// thread owns the pool.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "kernels/cuda/device_library.h"
#include "kernels/cuda/pack_device_weights.h"
#include "layers/weights.h"

namespace pelton::models {

class DeviceUpload {
 public:
  DeviceUpload(const checkpoint::Checkpoint& checkpoint, const kernels::gpu::DeviceLibrary& library,
               kernels::gpu::Session* session, const kernels::gpu::ArenaLayout& arena,
               base::ThreadPool& pool);

  // Everything but the rotary table. Gives back the last norm's weight.
  Result<std::vector<float>> run();

 private:
  Result<void> attention(int layer);
  Result<void> experts(int layer);
  Result<void> expert_part(const kernels::ExpertWeights& weights, kernels::gpu::ExpertPart part,
                           const kernels::gpu::LayerPlaces& places, float& factor);
  Result<void> embedding();
  Result<void> vector(const std::string& name, int64_t count, const kernels::gpu::Place& place);
  // One matrix of rows out of several below each other, of which `rows` are asked by number.
  Result<void> matrix(const std::vector<kernels::Matrix>& parts, kernels::gpu::RowOrder order,
                      const kernels::gpu::Place& place);
  Result<void> write(const kernels::gpu::Place& place, int64_t offset, const void* from,
                     int64_t bytes);

  const checkpoint::Checkpoint& checkpoint_;
  const checkpoint::ModelConfig& config_;
  const kernels::gpu::DeviceLibrary& library_;
  kernels::gpu::Session* const session_;
  const kernels::gpu::ArenaLayout& arena_;
  base::ThreadPool& pool_;
  layers::FloatVectors keep_;
  std::vector<uint8_t> packed_;
  std::vector<uint8_t> scales_;
};

}  // namespace pelton::models
