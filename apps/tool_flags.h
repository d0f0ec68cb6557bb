// Which servers run the tools that models call by themselves: flags of `pelton serve`, and what
// they ask for.
#pragma once

#include <memory>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cli/command_line.h"
#include "server/tool_servers.h"

namespace pelton::apps {

std::vector<cli::Flag> tool_flags();

// Null if none is named. One that does not answer, or lacks a tool, is warned of: it may come
// later. Waits for them, some seconds at most. Errors: kInvalidArgument.
Result<std::unique_ptr<server::ToolServers>> open_tool_servers(const cli::Arguments& arguments,
                                                               base::Log& log);

}  // namespace pelton::apps
