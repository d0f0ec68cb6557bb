// What the verbs that run a model share: its flags, and loading it with a word to the user.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "executor/ranked_model.h"
#include "node/loaded_model.h"
#include "server/fault_injection.h"

namespace pelton::apps {

// --kernels, --threads: of every verb that computes.
cli::Flag kernels_flag();
// Of a model that several processes on this host compute: how many, how they share it and by what
// they speak. Errors: kInvalidArgument.
std::vector<cli::Flag> parallel_flags();
Result<void> read_parallel_flags(const cli::Arguments& arguments, executor::RankOptions& ranks);
cli::Flag threads_flag();
cli::Flag load_mode_flag();
// --weights where nothing is packed: shipped or mapped.
cli::Flag unpacked_weights_flag();
// --kv-cache-dtype; tensor::parse_kv_type reads its text.
cli::Flag kv_type_flag();

// engine_flags.h's memory_flags, --executor and --speculative-config: every verb that generates has
// them.
std::vector<cli::Flag> model_flags();

// LoadedModel's options from those flags. `clock` outlives the model.
Result<node::LoadedModel::Options> model_options(const cli::Arguments& arguments,
                                                 const base::Clock& clock);

// --executor modelled:FILE as LoadedModel takes it; empty: the model computes. `clock` and `faults`
// (null: none can be injected) outlive the model.
using MakeExecutor = decltype(node::LoadedModel::Options::make_executor);
MakeExecutor modelled_executor(const cli::Arguments& arguments, const base::Clock& clock,
                               const server::FaultInjection* faults);

// Loads the model, fetched first if it is a hub's and not here, with a progress bar on a terminal
// and log lines elsewhere. Ends with kCancelled once `stopped`, which is asked often, says so.
using Stopped = std::function<bool()>;
inline Stopped stopped_by(const cli::Interrupt& interrupt) {
  return [&interrupt] { return interrupt.pending(); };
}
Result<std::unique_ptr<node::LoadedModel>> load_model(const std::string& model,
                                                      node::LoadedModel::Options options,
                                                      const Stopped& stopped,
                                                      const base::Clock& clock, base::Log& log);

// --temperature --top-p --top-k --min-p --seed, with the given default temperature.
std::vector<cli::Flag> sampling_flags(const std::string& temperature);

// A seed for whoever gives none.
uint64_t system_seed();

request::SamplingParams sampling_params(const cli::Arguments& arguments);

}  // namespace pelton::apps
