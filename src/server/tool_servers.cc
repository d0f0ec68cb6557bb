#include "server/tool_servers.h"

#include <algorithm>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"

namespace pelton::server {
namespace {

using Tool = ToolServers::Tool;

constexpr std::chrono::seconds kCheckTimeMax{5};
constexpr std::chrono::milliseconds kDrainLook{5};
constexpr std::string_view kBrowserPrefix = "browser.";
constexpr std::array<std::string_view, 3> kBrowserTools = {"search", "open", "find"};

std::optional<Tool> tool_of(std::string_view recipient) {
  if (recipient == "python") return Tool::kPython;
  return recipient.starts_with(kBrowserPrefix) ? std::optional(Tool::kBrowser) : std::nullopt;
}

// The name at its server, and what it is called with. Python's text is the program itself.
struct ToolCall {
  std::string name;
  Json arguments;
};
Result<ToolCall> tool_call(Tool tool, std::string_view recipient, const std::string& text) {
  if (tool == Tool::kPython) {
    Json arguments;
    arguments.set("code", Json(text));
    return ToolCall{.name = "python", .arguments = std::move(arguments)};
  }
  const std::string_view name = recipient.substr(kBrowserPrefix.size());
  if (std::ranges::find(kBrowserTools, name) == kBrowserTools.end()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the browser has no '{}', only {}", name.substr(0, 64),
                             fmt::join(kBrowserTools, ", "))};
  }
  Result<Json> arguments = text.empty() ? Json(Json::Object{}) : Json::parse(text);
  if (!arguments.ok() || !arguments->is_object()) {
    return Error{ErrorCode::kInvalidArgument, "the arguments must be a JSON object"};
  }
  return ToolCall{.name = std::string(name), .arguments = *std::move(arguments)};
}

// At a character's end.
std::string shortened(std::string text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  const size_t left_out = text.size() - bytes_max;
  text.resize(base::valid_utf8_prefix(std::string_view(text).substr(0, bytes_max)));
  return text + fmt::format("\n[{} more bytes were left out]", left_out);
}

}  // namespace

ToolServers::ToolServers(Options options) : options_(std::move(options)), client_({}) {}

mcp::Session::Options ToolServers::session_options(Tool tool) const {
  const Options::Place& place = tool == Tool::kBrowser ? options_.browser : options_.python;
  return {.url = place.url,
          .command = place.command,
          .client_version = options_.version,
          .time_max = options_.time_max};
}

Result<void> ToolServers::check(Tool tool) {
  mcp::Session::Options options = session_options(tool);
  options.time_max = std::min<std::chrono::milliseconds>(options.time_max, kCheckTimeMax);
  const auto session = mcp::Session::make(client_, processes_, std::move(options));
  const auto listed = std::make_shared<std::promise<Result<std::vector<mcp::Tool>>>>();
  session->list_tools(
      [listed](Result<std::vector<mcp::Tool>> tools) { listed->set_value(std::move(tools)); });
  const Result<std::vector<mcp::Tool>> tools = listed->get_future().get();
  session->close();
  if (!tools.ok()) return tools.error();
  const auto has = [&](std::string_view name) {
    return std::ranges::find(*tools, name, &mcp::Tool::name) != tools->end();
  };
  const std::vector<std::string_view> needed =
      tool == Tool::kPython
          ? std::vector<std::string_view>{"python"}
          : std::vector<std::string_view>(kBrowserTools.begin(), kBrowserTools.end());
  for (const std::string_view name : needed) {
    if (!has(name)) return Error{ErrorCode::kNotFound, fmt::format("it has no tool '{}'", name)};
  }
  return {};
}

ToolServers::Session::Outcome ToolServers::outcome_of(Tool tool, Result<mcp::ToolResult> result) {
  if (!result.ok()) {
    count(tool, End::kFailed);
    return {.text = fmt::format("The tool failed: {}", result.error().message), .failed = true};
  }
  count(tool, result->is_error ? End::kToolError : End::kDone);
  return {.text = shortened(std::move(result->text), options_.result_bytes_max),
          .failed = result->is_error};
}

ToolServers::Session::~Session() {
  for (const auto& session : open_) {
    if (session == nullptr) continue;
    session->close();
    servers_.sessions_.fetch_sub(1);
  }
  servers_.responses_.fetch_sub(1);
}

void ToolServers::drain(std::chrono::milliseconds time_max) const {
  const auto end = std::chrono::steady_clock::now() + time_max;
  while (responses_.load() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kDrainLook);
  }
}

// Null: too many are open.
std::shared_ptr<mcp::Session> ToolServers::Session::session_of(Tool tool) {
  std::shared_ptr<mcp::Session>& open = open_[static_cast<size_t>(tool)];
  if (open != nullptr) return open;
  if (servers_.sessions_.fetch_add(1) >= servers_.options_.sessions_max) {
    servers_.sessions_.fetch_sub(1);
    return nullptr;
  }
  return open = mcp::Session::make(servers_.client_, servers_.processes_,
                                   servers_.session_options(tool));
}

void ToolServers::Session::run(std::string_view recipient, const std::string& text,
                               const Done& done) {
  const std::optional<Tool> tool = tool_of(recipient);
  const api::BuiltinTools there = servers_.offered();
  const bool is_there = tool && (*tool == Tool::kPython ? there.python && wanted_.python
                                                        : there.browser && wanted_.browser);
  if (!is_there) return done({.text = "There is no such tool.", .failed = true});
  Result<ToolCall> call = tool_call(*tool, recipient, text);
  const auto session = call.ok() ? session_of(*tool) : nullptr;
  if (!call.ok() || session == nullptr) {
    servers_.count(*tool, End::kFailed);
    return done({.text = call.ok() ? "The tool is busy with others; go on without it."
                                   : fmt::format("The call is none: {}", call.error().message),
                 .failed = true});
  }
  session->call_tool(std::move(call->name), std::move(call->arguments),
                     [&servers = servers_, tool = *tool, done](Result<mcp::ToolResult> result) {
                       done(servers.outcome_of(tool, std::move(result)));
                     });
}

}  // namespace pelton::server
