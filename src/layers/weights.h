// Finds a layer's tensors in a checkpoint and gives them to the kernels as typed matrices, whatever
// the checkpoint's layout: large ones stay where they are mapped, small ones become float32 here.
// What is missing or of another shape or type is a kBadCheckpoint or kUnsupported naming the
// tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"

namespace pelton::layers {

// Norm weights, biases and sinks of a layer, and where its experts lie that have a tensor each;
// owned. Moving it leaves the arrays where they are.
class FloatVectors {
 public:
  float* add(int64_t count);
  kernels::ExpertMatrix* add_matrices(int64_t count);
  uint8_t* add_bytes(int64_t count);
  int32_t* add_integers(int64_t count);
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<std::unique_ptr<float[]>> arrays_;
  std::vector<std::unique_ptr<kernels::ExpertMatrix[]>> matrices_;
  std::vector<std::unique_ptr<uint8_t[]>> blocks_;
  std::vector<std::unique_ptr<int32_t[]>> integers_;
  int64_t bytes_ = 0;
};

// (count), of float32, float16 or bf16
Result<const float*> load_vector(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                                 int64_t count, FloatVectors& keep);
// The gains of an RMS norm: as load_vector, or 1 + what the file holds (norm_adds_one).
Result<const float*> load_norm(const checkpoint::Checkpoint& checkpoint, const std::string& name,
                               int64_t count, FloatVectors& keep);
// (rows, cols), of float32, float16, bf16, GGUF's blocks, or integers of 8 or 4 bits in tiles
Result<kernels::Matrix> load_matrix(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols);
// The same, or FP8 with its scales, or integers (int_weights.h): the weight of a product in a
// layer.
Result<kernels::Matrix> load_weight(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols,
                                    FloatVectors& keep);
// `name`.weight (rows, cols) and, if it has one, `name`.bias (rows)
enum class Bias : uint8_t { kNone, kAdded };
Result<kernels::Linear> load_linear(const checkpoint::Checkpoint& checkpoint,
                                    const std::string& name, int rows, int cols, Bias bias,
                                    FloatVectors& keep);

// Of a tensor that is at hand already, of a file that is no whole model: a matrix (rows, cols), a
// vector; of the types that load_matrix and load_vector take. `name` is for messages.
Result<kernels::Matrix> matrix_of(const tensor::TensorView& view, const std::string& name);
Result<const float*> vector_of(const tensor::TensorView& view, const std::string& name,
                               FloatVectors& keep);

struct ExpertSizes {
  int experts = 0;
  int inner = 0;
  int hidden = 0;
};
// All experts of the layer whose tensors' names begin with `prefix`
// ("model.layers.0.mlp.experts."), in whichever layout of families/expected_tensors.h they are.
Result<kernels::ExpertWeights> load_experts(const checkpoint::Checkpoint& checkpoint,
                                            const std::string& prefix, const ExpertSizes& sizes,
                                            FloatVectors& keep);

// What the checkpoint's tiled matrices, if there are any, are multiplied with.
kernels::Activations activations_of(const checkpoint::Checkpoint& checkpoint);

int64_t matrix_bytes(const kernels::Matrix& matrix);
int64_t expert_bytes(const kernels::Experts& experts);  // of one expert, with its biases

}  // namespace pelton::layers
