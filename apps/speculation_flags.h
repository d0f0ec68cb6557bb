// --speculative-config: of the verbs that run a model, and of those that say what it takes.
#pragma once

#include <vector>

#include "base/result.h"
#include "cli/command_line.h"
#include "executor/local_executor.h"
#include "planner/capacity_plan.h"

namespace pelton::apps {

cli::Flag speculation_flag();

// --speculative-tokens, --speculative-acceptance, --speculative-draft-ms: of verbs that model it.
std::vector<cli::Flag> modelled_speculation_flags();
// Errors: DraftAcceptance::parse's.
Result<planner::Speculation> read_modelled_speculation(const cli::Arguments& arguments);

// Nothing where the flag is not given. Errors: parse_config's.
Result<void> read_speculation_flag(const cli::Arguments& arguments,
                                   executor::LocalExecutor::Options& options);

}  // namespace pelton::apps
