// How a served model's states become vectors and scores: --pooling, --rerank-by, and what the
// model's own files say.
#pragma once

#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "node/loaded_model.h"
#include "server/served_model.h"

namespace pelton::apps {

std::vector<cli::Flag> vector_flags();

// Fills served.pooling and served.vectors. Errors: kInvalidArgument naming the flag, and those of
// the model's files.
Result<void> read_vector_use(const cli::Arguments& arguments, const node::LoadedModel& model,
                             server::ServedModel& served, base::Log& log);

}  // namespace pelton::apps
