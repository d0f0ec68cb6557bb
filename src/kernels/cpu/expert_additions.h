// What adapters add within `experts`, asked of by the kernels that multiply the base's weights:
// they know assignments (token * k + j), this knows which of them have an adapter and what it adds.
// Made for one call of `experts`; its thread, and the pool's workers each at assignments of their
// own.
#pragma once

#include <cstdint>

namespace pelton::kernels {

class ExpertAdditions {
 public:
  virtual bool adds_to(int64_t assignment) const = 0;

  // Of an assignment that is added to. gate, up: float (count), of the expert's [first, first +
  // count), biases in.
  virtual void add_to_gate_and_up(int64_t assignment, int first, int count, float* gate,
                                  float* up) const = 0;
  // What the GLU made of them.
  virtual void keep_activations(int64_t assignment, int first, int count,
                                const float* activations) const = 0;
  // When all are kept, once.
  virtual void multiply_activations() = 0;
  // out: float (hidden), the assignment's whole output, before the router's weight.
  virtual void add_to_down(int64_t assignment, float* out) const = 0;

 protected:
  ~ExpertAdditions() = default;
};

}  // namespace pelton::kernels
