#include "apps/tool_flags.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/version.h"
#include "net/http_client.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using server::ToolServers;

constexpr std::string_view kStdio = "stdio:";

// Between blanks. No shell reads them.
std::vector<std::string> command_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

// One NAME=URL, or NAME=stdio:PROGRAM ARGUMENTS.
Result<void> add_server(std::string_view text, ToolServers::Options& options) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--tool-server '{}': {}; it is browser=URL or python=URL, such as "
                             "python=http://127.0.0.1:8001/mcp, or python=stdio:PROGRAM",
                             text.substr(0, 200), why),
                 "tool-server"};
  };
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos) return bad("it names no tool");
  const bool is_browser = name == ToolServers::kToolNames[0];
  if (!is_browser && name != ToolServers::kToolNames[1]) return bad("no such tool");
  ToolServers::Options::Place& place = is_browser ? options.browser : options.python;
  if (!place.empty()) return bad("that tool has one already");
  const std::string_view where = text.substr(equals + 1);
  if (where.starts_with(kStdio)) {
    place.command = command_of(where.substr(kStdio.size()));
    return place.command.empty() ? Result<void>(bad("it names no program")) : Result<void>();
  }
  place.url = where;
  if (const auto call = net::make_http_call("POST", place.url); !call.ok()) {
    return bad(call.error().message);
  }
  return {};
}

void check(ToolServers& servers, ToolServers::Tool tool, base::Log& log) {
  const std::string_view name = ToolServers::kToolNames[static_cast<size_t>(tool)];
  if (const Result<void> checked = servers.check(tool); !checked.ok()) {
    return log.warning(
        fmt::format("--tool-server {}: {}; until it is there, calls of it fail, and models hear so",
                    name, checked.error().message));
  }
  log.info(fmt::format("the tool server of '{}' answers", name));
}

}  // namespace

std::vector<Flag> tool_flags() {
  return {{.name = "--tool-server",
           .value = "NAME=URL",
           .help = "run a tool that models were trained to call by themselves, in /v1/responses "
                   "(web_search: browser, code_interpreter: python), on this MCP server over "
                   "streamable HTTP; stdio:PROGRAM in place of a URL starts one for each response",
           .many = true,
           .may_be_empty = false},
          {.name = "--tool-timeout",
           .value = "SECONDS",
           .help = "that one call of a tool may take",
           .kind = Flag::Kind::kInteger,
           .default_text = "30",
           .least = 1,
           .most = 3600,
           .only_with = {{"--tool-server"}}},
          {.name = "--max-tool-calls",
           .value = "N",
           .help = "that are run for one response; 'max_tool_calls' may ask for fewer",
           .kind = Flag::Kind::kInteger,
           .default_text = "16",
           .least = 1,
           .most = 1024,
           .only_with = {{"--tool-server"}}}};
}

Result<std::unique_ptr<ToolServers>> open_tool_servers(const cli::Arguments& arguments,
                                                       base::Log& log) {
  if (!arguments.has("--tool-server")) return std::unique_ptr<ToolServers>();
  ToolServers::Options options{
      .version = std::string(kVersion),
      .time_max = std::chrono::seconds(arguments.integer("--tool-timeout")),
      .calls_max = static_cast<int>(arguments.integer("--max-tool-calls"))};
  for (const std::string& one : arguments.list("--tool-server")) TRY(add_server(one, options));
  auto servers = std::make_unique<ToolServers>(std::move(options));
  const api::BuiltinTools offered = servers->offered();
  if (offered.browser) check(*servers, ToolServers::Tool::kBrowser, log);
  if (offered.python) check(*servers, ToolServers::Tool::kPython, log);
  return servers;
}

}  // namespace pelton::apps
