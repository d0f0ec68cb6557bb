// Where `pelton serve` keeps responses, and what it encrypts of them: its flags, and what they ask
// for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "store/response_store.h"

namespace pelton::apps {

std::vector<cli::Flag> response_store_flags();

// Of --reasoning-key-file; empty without it. Errors: kBadConfig.
Result<std::string> reasoning_key(const cli::Arguments& arguments);

// Of --store-key-file, the one to use first; empty without it. Errors: kBadConfig.
Result<std::vector<std::string>> store_secrets(const cli::Arguments& arguments);

// Null if none is wanted. `clock` and `log` outlive the store. Errors: kBadConfig,
// kInvalidArgument.
Result<std::unique_ptr<store::ResponseStore>> open_response_store(const cli::Arguments& arguments,
                                                                  const base::Clock& clock,
                                                                  base::Log& log);

}  // namespace pelton::apps
