// An adapter's weights as requests carry them to the executor, which computes with them. Immutable;
// any thread.
#pragma once

#include <utility>

#include "lora/adapter.h"
#include "request/adapter.h"

namespace pelton::executor {

class LoadedAdapter final : public request::AdapterWeights {
 public:
  explicit LoadedAdapter(lora::Adapter adapter) : adapter_(std::move(adapter)) {}

  const lora::Adapter& adapter() const { return adapter_; }

 private:
  const lora::Adapter adapter_;
};

}  // namespace pelton::executor
