// A LoRA adapter as a request names it. Held by the request from its arrival to its end, and so by
// whatever of it is in a step: an adapter's weights live as long as anybody is answered with them.
#pragma once

#include <cstdint>
#include <memory>

namespace pelton::request {

// The weights, which whoever computes knows: the executor's (executor/loaded_adapter.h).
class AdapterWeights {
 public:
  virtual ~AdapterWeights() = default;
};

struct AdapterRef {
  // A digest of the weights and of what they are to do: what is computed with one adapter is found
  // again by requests of the same alone. 0: the model itself.
  int64_t identity = 0;
  std::shared_ptr<const AdapterWeights> weights;
};

}  // namespace pelton::request
