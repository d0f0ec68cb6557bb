// Where `pelton serve` keeps responses: its flags, and the store that they ask for.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "store/response_store.h"

namespace pelton::apps {

std::vector<cli::Flag> response_store_flags();

// Null if none is wanted. `clock` outlives the store. Errors: kBadConfig, kInvalidArgument.
Result<std::unique_ptr<store::ResponseStore>> open_response_store(const cli::Arguments& arguments,
                                                                  const base::Clock& clock);

}  // namespace pelton::apps
