// Which running server a verb measures: flags of its address, and the call that asks it.
#pragma once

#include <vector>

#include "base/result.h"
#include "bench/target.h"
#include "cli/command_line.h"

namespace pelton::apps {

// --base-url, --host, --port, --header, --ca-file.
std::vector<cli::Flag> server_address_flags();

// `options` with the address and the headers that these flags say; $OPENAI_API_KEY is the key.
Result<bench::Target> server_target(const cli::Arguments& arguments, bench::TargetOptions options);

}  // namespace pelton::apps
