#include "kernels/cpu/step_workspace.h"

namespace pelton::kernels {

void StepWorkspace::reserve(const StepCapacity& shape) {
  const auto tokens = static_cast<size_t>(shape.tokens);
  const size_t assignments = tokens * static_cast<size_t>(shape.experts_per_token);
  token_rows_.reserve(tokens);
  sequence_of_row_.reserve(tokens);
  if (shape.reordered) reordered_.reserve(tokens * static_cast<size_t>(shape.widest));
  if (shape.tiled) return;
  grouped_rows_.reserve(assignments);
  inputs_.reserve(tokens * static_cast<size_t>(shape.hidden));
  activations_.reserve(assignments * static_cast<size_t>(shape.inner));
  outputs_.reserve(assignments * static_cast<size_t>(shape.hidden));
}

int64_t StepWorkspace::bytes() const {
  const auto bytes = [](const auto& vector) {
    return static_cast<int64_t>(vector.capacity() * sizeof(vector[0]));
  };
  return bytes(token_rows_) + bytes(grouped_rows_) + bytes(sequence_of_row_) + bytes(inputs_) +
         bytes(activations_) + bytes(outputs_) + bytes(reordered_);
}

const float* const* StepWorkspace::rows_of(const float* x, int tokens, int64_t cols) {
  token_rows_.resize(static_cast<size_t>(tokens));
  for (int t = 0; t < tokens; ++t) token_rows_[t] = x + t * cols;
  return token_rows_.data();
}

const int* StepWorkspace::sequence_of_rows(const SequenceRows* sequences, int count) {
  sequence_of_row_.clear();
  for (int s = 0; s < count; ++s) {
    sequence_of_row_.insert(sequence_of_row_.end(), sequences[s].row_count, s);
  }
  return sequence_of_row_.data();
}

float* StepWorkspace::for_reordered(int64_t count) {
  reordered_.resize(static_cast<size_t>(count));
  return reordered_.data();
}

StepWorkspace::ForExperts StepWorkspace::for_experts(int64_t tokens, int64_t assignments,
                                                     int64_t hidden, int64_t inner) {
  inputs_.resize(static_cast<size_t>(tokens * hidden));
  activations_.resize(static_cast<size_t>(assignments * inner));
  outputs_.resize(static_cast<size_t>(assignments * hidden));
  grouped_rows_.resize(static_cast<size_t>(assignments));
  return {inputs_.data(), activations_.data(), outputs_.data(), grouped_rows_.data()};
}

}  // namespace pelton::kernels
