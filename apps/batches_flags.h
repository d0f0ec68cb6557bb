// What `pelton serve` says of files and batches (/v1/files, /v1/batches): the flags, and the folder
// that they name.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "server/batches.h"
#include "store/batch_store.h"

namespace pelton::apps {

// --batches --batches-bytes --batches-age --max-batch-requests --max-batch-lines
// --max-batch-line-bytes.
std::vector<cli::Flag> batches_flags();

// Null: the flags name no folder. Errors: kBadConfig, kIo.
Result<std::unique_ptr<store::BatchStore>> open_batch_store(const cli::Arguments& arguments,
                                                            const base::Clock& clock,
                                                            base::Log& log);
server::Batches::Options batches_options(const cli::Arguments& arguments);

}  // namespace pelton::apps
