// Working memory of a step for the kernels over plain weights. Apart from them and compiled for any
// processor: a std::vector that grows in a file compiled for AVX-512 may leave its code, under a
// name that the whole program shares, to processors that cannot run it (tests/isa_test.py looks).
// Owned by the kernels; their thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace pelton::kernels {

class StepWorkspace {
 public:
  // Pointers stay valid until the next call of the same name.
  struct ForExperts {
    float* inputs;       // (tokens, hidden), as gate reads them
    float* activations;  // (assignments, inner), as down reads them
    float* outputs;      // (assignments, hidden)
    const float** rows;  // (assignments)
  };

  void reserve(const StepCapacity& shape);
  int64_t bytes() const;

  // Where each row of x, (tokens, cols), begins.
  const float* const* rows_of(const float* x, int tokens, int64_t cols);
  // For each row of all sequences, one after the other, the sequence: of 2 rows and 1 row, 0 0 1.
  const int* sequence_of_rows(const SequenceRows* sequences, int count);
  ForExperts for_experts(int64_t tokens, int64_t assignments, int64_t hidden, int64_t inner);
  // Inputs of a matrix with an input_order, so many elements.
  float* for_reordered(int64_t count);

 private:
  std::vector<const float*> token_rows_;
  std::vector<const float*> grouped_rows_;
  std::vector<int> sequence_of_row_;
  std::vector<float> inputs_;
  std::vector<float> activations_;
  std::vector<float> outputs_;
  std::vector<float> reordered_;
};

}  // namespace pelton::kernels
