// The flags that say how much a model may take and how its engine works, shared by `serve`, which
// obeys them, and `plan`, which foretells what they come to.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "node/loaded_model.h"

namespace pelton::apps {

// --kernels --threads --max-model-len --kv-cache-memory --memory-utilization --block-size
// --kv-cache-dtype: of every verb that generates, and of `plan`.
std::vector<cli::Flag> memory_flags();
Result<void> read_memory_flags(const cli::Arguments& arguments,
                               executor::LocalExecutor::Options& options);

// --max-num-seqs --max-num-batched-tokens --swap-space --enable-prefix-caching and its negation: of
// `serve` and `plan`.
std::vector<cli::Flag> batch_flags();
Result<void> read_batch_flags(const cli::Arguments& arguments, node::LoadedModel::Options& options);

// --pin-prefix --jump-ahead-tokens: of `serve`. After read_batch_flags.
std::vector<cli::Flag> prompt_flags();
Result<void> read_prompt_flags(const cli::Arguments& arguments,
                               node::LoadedModel::Options& options);

// --max-num-queued-reqs --max-num-queued-tokens --scheduling-policy --prompt-tokens-beside-decodes
// --steps-in-flight: of `serve` and `simulate`.
std::vector<cli::Flag> queue_flags();
Result<void> read_queue_flags(const cli::Arguments& arguments, node::LoadedModel::Options& options);

// How the engine works, for the log.
std::string engine_line(const engine::Engine::Options& options,
                        const engine::ExecutorCapacity& capacity);

}  // namespace pelton::apps
