// pelton ps, pelton stop: the servers that run on this machine.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/input.h"
#include "apps/running_servers.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "cli/human_size.h"

namespace pelton::apps {
namespace {

std::string models_of(const RunningServer& server) {
  std::vector<std::string> models;
  for (size_t i = 0; i < server.models.size(); ++i) {
    const std::string& state = server.states[i];
    models.push_back(state.empty() ? server.models[i]
                                   : fmt::format("{} ({})", server.models[i], state));
  }
  if (!models.empty()) return fmt::format("{}", fmt::join(models, ", "));
  return server.note.empty() ? "no model" : server.note;
}

Json json_of(const RunningServer& server) {
  Json::Array models(server.models.begin(), server.models.end());
  Json::Array ports;
  for (const int port : server.ports) ports.emplace_back(int64_t{port});
  Json json;
  json.set("pid", int64_t{server.pid});
  json.set("url", server.url);
  json.set("models", std::move(models));
  json.set("states", Json::Array(server.states.begin(), server.states.end()));
  json.set("ports", std::move(ports));
  json.set("seconds", server.seconds);
  json.set("memory_bytes", server.memory_bytes);
  return json;
}

Result<void> list(const cli::Arguments& arguments) {
  const std::vector<RunningServer> servers = running_servers();
  if (arguments.has("--json")) {
    Json::Array all;
    for (const RunningServer& server : servers) all.push_back(json_of(server));
    return write_output(Json(std::move(all)).dump() + "\n");
  }
  if (servers.empty()) return write_text("no server runs\n");
  std::string out =
      fmt::format("{:<9} {:<24} {:>10} {:>10}  {}\n", "PID", "URL", "MEMORY", "SINCE", "MODELS");
  for (const RunningServer& server : servers) {
    out += fmt::format(
        "{:<9} {:<24} {:>10} {:>10}  {}\n", server.pid, server.url.empty() ? "-" : server.url,
        cli::format_bytes(static_cast<double>(server.memory_bytes)),
        cli::format_duration(static_cast<double>(server.seconds)), models_of(server));
  }
  return write_text(out);
}

// `which`: a PID, a model, or a URL as `pelton ps` prints it, perhaps with a slash at its end.
bool is_meant(const RunningServer& server, std::string_view which) {
  if (which == std::to_string(server.pid)) return true;
  const std::string_view url = which.ends_with('/') ? which.substr(0, which.size() - 1) : which;
  return (!server.url.empty() && url == server.url) ||
         std::ranges::find(server.models, which) != server.models.end();
}

Result<void> stop(const cli::Arguments& arguments) {
  const bool all = arguments.has("--all");
  if (!all && !arguments.has("WHICH")) {
    return Error{ErrorCode::kInvalidArgument, "name a model, a PID or a URL, or say --all"};
  }
  int count = 0;
  for (const RunningServer& server : running_servers()) {
    if (!all && !is_meant(server, arguments.text("WHICH"))) continue;
    TRY(stop_server(server.pid, arguments.integer("--wait")));
    fmt::print(stderr, "{} ({}) has ended\n", server.pid, models_of(server));
    ++count;
  }
  if (count > 0 || all) return {};
  return Error{ErrorCode::kNotFound,
               fmt::format("no server that runs here is {}, serves a model of that name or "
                           "listens there; 'pelton ps' lists them",
                           arguments.text("WHICH")),
               "which"};
}

}  // namespace

cli::Verb ps_verb() {
  return {.name = "ps",
          .summary = "Lists the servers that run on this machine, and their models.",
          .positionals = {},
          .flags = {{.name = "--json",
                     .help = "a JSON array instead of a table",
                     .kind = cli::Flag::Kind::kSwitch}},
          .examples = {"pelton ps"},
          .run = list};
}

cli::Verb stop_verb() {
  return {
      .name = "stop",
      .summary = "Ends servers that run on this machine; running answers have their time to end.",
      .about = "As SIGTERM does: what is being answered has the server's --drain-seconds to end.",
      .positionals = {{.name = "WHICH",
                       .help =
                           "a model that it serves, its PID or its URL, as 'pelton ps' lists them",
                       .required = false}},
      .flags = {{.name = "--all",
                 .help = "every server on this machine",
                 .kind = cli::Flag::Kind::kSwitch},
                {.name = "--wait",
                 .value = "SECONDS",
                 .help = "how long its end is waited for",
                 .kind = cli::Flag::Kind::kInteger,
                 .default_text = "60",
                 .most = 86'400}},
      .exclusive = {{"WHICH", "--all"}},
      .examples = {"pelton stop openai/gpt-oss-20b", "pelton stop --all"},
      .run = stop};
}

}  // namespace pelton::apps
