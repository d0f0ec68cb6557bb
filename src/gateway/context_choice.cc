#include "gateway/context_choice.h"

#include <algorithm>

namespace pelton::gateway {

int64_t context_to_ask(int64_t prompt_tokens, int64_t output_max,
                       std::span<const WorkerContext> workers) {
  // An answer has a token at least.
  const int64_t whole = prompt_tokens + std::max<int64_t>(output_max, 1);
  int64_t largest = 0;
  for (const WorkerContext& worker : workers) {
    if (worker.tokens == 0 || worker.tokens >= whole) return whole;
    if (worker.usable) largest = std::max(largest, worker.tokens);
  }
  return largest;
}

}  // namespace pelton::gateway
