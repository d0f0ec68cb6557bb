// A model that is named by its hub id and is not on this machine yet: fetched before it is loaded,
// as `pelton pull` does. One thread, the verb's.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "hub/pull.h"

namespace pelton::apps {

// What the environment says of the hub, for this model; a short name becomes its hub id.
// `endpoint`: of a flag, may be empty.
Result<hub::PullOptions> hub_pull_options(const std::string& model, const std::string& endpoint);

// "--offline": whoever has it sets HF_HUB_OFFLINE before anything else runs.
cli::Flag offline_flag();

// For PullOptions::retry: says what failed and when it is tried again. Several connections fail
// together, which is one line. `clock` outlives it.
std::function<void(const hub::RetryNote&)> retry_lines(
    const base::Clock& clock, std::function<void(const std::string& line)> say);

// Does nothing for a folder, for a model that is here, and where HF_HUB_OFFLINE forbids it: what is
// missing then is said by who loads it. Ends with kCancelled once `stopped`, which is asked often,
// says so.
// `revision`: empty: main.
Result<void> fetch_if_missing(const std::string& model, const std::string& revision,
                              const std::function<bool()>& stopped, const base::Clock& clock,
                              base::Log& log);

}  // namespace pelton::apps
