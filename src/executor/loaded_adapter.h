// An adapter's weights as requests carry them to the executor, which computes with them. Immutable;
// any thread.
#pragma once

#include <utility>

#include "lora/adapter.h"
#include "request/adapter.h"

namespace pelton::executor {

// What is planned for one that is kept in memory: an adapter of the highest rank on every allowed
// matrix, in 16 bits. One in float32 may take as much as two.
inline int64_t adapter_place_bytes(const families::ModelConfig& base, const lora::Limits& limits) {
  return lora::adapter_bytes_max(base, limits) / 2;
}

class LoadedAdapter final : public request::AdapterWeights {
 public:
  explicit LoadedAdapter(lora::Adapter adapter) : adapter_(std::move(adapter)) {}

  const lora::Adapter& adapter() const { return adapter_; }

 private:
  const lora::Adapter adapter_;
};

}  // namespace pelton::executor
