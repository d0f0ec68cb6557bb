// What `pelton serve` does where a request does not say how to sample: the flag and its reading.
#pragma once

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cli/command_line.h"
#include "server/served_model.h"

namespace pelton::apps {

cli::Flag generation_config_flag();

server::SamplingDefaults sampling_defaults(const cli::Arguments& arguments,
                                           const checkpoint::Checkpoint& checkpoint,
                                           base::Log& log);

}  // namespace pelton::apps
