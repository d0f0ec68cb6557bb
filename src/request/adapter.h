// A LoRA adapter as a request names it. Held by the request from its arrival to its end, and so by
// whatever of it is in a step: an adapter's weights live as long as anybody is answered with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/token_id.h"

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
  // The first position that it acts on; those before it are the model's own, as all requests of the
  // model have them.
  int32_t acts_from = 0;
};

// Of an activated adapter: where the last invocation in the prompt begins; nothing: the prompt has
// none, and the adapter does not act. Of an adapter without invocation: 0. With the invocation 7 8
// the prompt 1 7 8 2 7 8 3 gives 4.
inline std::optional<int32_t> acts_from(std::span<const TokenId> invocation,
                                        std::span<const TokenId> prompt) {
  if (invocation.empty()) return 0;
  const auto last =
      std::find_end(prompt.begin(), prompt.end(), invocation.begin(), invocation.end());
  if (last == prompt.end()) return std::nullopt;
  return static_cast<int32_t>(last - prompt.begin());
}

}  // namespace pelton::request
