// Which workers are asked for a prompt and its answer, where their contexts differ. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace pelton::gateway {

struct WorkerContext {
  int64_t tokens = 0;  // 0: it is not known, and nothing is too long for it
  bool usable = true;  // it takes requests now
};

// What a worker's context has to be. Where none of them, usable or not, holds the prompt and the
// bound of its answer (0: it has none), the largest that is usable: what that one says of it is as
// true as it gets.
int64_t context_to_ask(int64_t prompt_tokens, int64_t output_max,
                       std::span<const WorkerContext> workers);

}  // namespace pelton::gateway
