#include "apps/autoscale_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/config_file.h"
#include "cli/toml_tree.h"
#include "gateway/config.h"
#include "gateway/config_table.h"

namespace pelton::apps {
namespace {

using autoscaler::PoolPolicy;

const std::vector<cli::Circumstance> kScaled = {
    {"--autoscale"}, {"--scale-config"}, {"--scenario"}};

cli::Flag number_flag(std::string name, std::string value, std::string help, double least,
                      double most) {
  return {.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .kind = cli::Flag::Kind::kNumber,
          .least = least,
          .most = most,
          .only_with = kScaled};
}

}  // namespace

std::vector<cli::Flag> autoscale_flags() {
  std::vector<cli::Flag> flags = {
      {.name = "--autoscale",
       .value = "RULE",
       .help =
           "replicas start and stop: Pelton's autoscaler, or Knative's arithmetic; --replicas are "
           "ready at the beginning",
       .choices = {"concurrency", "knative"}},
      {.name = "--scale-config",
       .value = "FILE",
       .help = "replicas start and stop as the gateway's file says in [pool.scale], as for "
               "pelton autoscale"},
      {.name = "--pool",
       .value = "NAME",
       .help = "whose, where several pools have one",
       .only_with = {{"--scale-config"}, {"--facts"}}},
      {.name = "--record-facts",
       .value = "FILE",
       .help = "keep what the autoscaler is given and decides, for pelton autoscale --replay",
       .may_be_empty = false,
       .only_with = kScaled},
      number_flag("--min-replicas", "N", "never fewer; default 1", 0, 10'000),
      number_flag("--max-replicas", "N", "never more; default 8", 1, 10'000),
      number_flag("--start-seconds", "S", "from an order until a replica is ready; default 30",
                  0.001, 86'400),
      {.name = "--start-phases",
       .value = "NAME:S,...",
       .help = "what a start goes through, as provision:20,weights:30~60; behind ~ the 90th "
               "percentile, otherwise it always takes as long",
       .only_with = kScaled,
       .not_with = {{"--start-seconds"}}},
      number_flag("--scale-down-delay", "S", "how long a load must be gone; default by the start",
                  0, 3600),
      number_flag("--decision-interval", "S",
                  "from one decision to the next; default 2, in a year (--days) 60", 0.1, 3600),
      number_flag("--assumed-service-seconds", "S",
                  "of a request, until the autoscaler has seen some: a gateway that begins assumes "
                  "10; default by the model of a step's time",
                  0.001, 3600),
      number_flag("--concurrency-target", "N", "requests at a replica; default --max-num-seqs",
                  0.01, 1e6),
      number_flag("--target-utilization", "SHARE",
                  "of that; default: more is kept free in small fleets", 0.01, 1)};
  for (cli::Flag& flag : flags) {
    if (flag.name == "--min-replicas" || flag.name == "--max-replicas") {
      flag.kind = cli::Flag::Kind::kInteger;
    }
  }
  return flags;
}

Result<std::vector<simulator::StartPhase>> parse_start_phases(const std::string& text) {
  constexpr size_t kPhasesMax = 32;
  constexpr double kDay_s = 86'400;
  const auto bad = [&](const std::string& what) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--start-phases '{}' {}; as in provision:20,weights:30~60", text, what),
        "start-phases"};
  };
  const auto number = [](std::string_view word) -> std::optional<double> {
    double value = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool is_whole = failure == std::errc{} && end == word.data() + word.size();
    return is_whole && value >= 0 && value <= kDay_s ? std::optional(value) : std::nullopt;
  };
  std::vector<simulator::StartPhase> phases;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos || colon == 0) return bad("has a phase without a time");
    const size_t tilde = std::min(word.find('~'), word.size());
    const std::optional<double> seconds = number(word.substr(colon + 1, tilde - colon - 1));
    const std::optional<double> p90_s =
        tilde < word.size() ? number(word.substr(tilde + 1)) : std::optional(0.0);
    if (!seconds || !p90_s) return bad("has a time that is none, from 0 to 86400 seconds");
    if (tilde < word.size() && *p90_s < *seconds) return bad("has a range that is reversed");
    phases.push_back(
        {.name = std::string(word.substr(0, colon)), .seconds = *seconds, .p90_s = *p90_s});
  }
  if (phases.size() <= kPhasesMax) return phases;
  return bad(fmt::format("has more than {} phases", kPhasesMax));
}

Result<gateway::ScalingConfig> read_scale_config(const std::string& file, const std::string& pool) {
  TRY_ASSIGN(const gateway::GatewayConfig config,
             gateway::read_gateway_config(file, {.allows_empty = true, .open = true}));
  std::vector<std::string> names;
  const gateway::ScalingConfig* found = nullptr;
  for (const gateway::PoolConfig& one : config.pools) {
    if (!one.scaling) continue;
    names.push_back(one.name);
    if (pool.empty() || one.name == pool) found = &*one.scaling;
  }
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, what), "pool"};
  };
  if (names.empty()) return bad("no pool has a [pool.scale]");
  if (pool.empty() && names.size() > 1) {
    return bad(fmt::format("--pool says which of {}", fmt::join(names, ", ")));
  }
  if (found != nullptr) return *found;
  const std::optional<std::string> near = cli::nearest(pool, names);
  return bad(fmt::format("no pool '{}' has a [pool.scale]{}", pool,
                         near ? "; did you mean '" + *near + "'?" : ""));
}

namespace {

// One of them as the key of [pool.scale] that it is.
Result<cli::TomlMember> read_scale_key(const std::string& setting, const std::string& pool,
                                       const std::string& flag,
                                       const gateway::ScalingConfig& scaling) {
  const auto bad = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} {} {}", flag, setting, what),
                 flag.substr(2)};
  };
  const size_t equals = setting.find('=');
  if (equals == std::string::npos) return bad("has no value, as in scale_down_delay=120");
  std::string key = setting.substr(0, equals);
  const std::string value = setting.substr(equals + 1);
  if (key.starts_with("pool.")) {
    const size_t dot = key.rfind('.');
    const std::string name = key.substr(5, std::max<size_t>(dot, 5) - 5);
    if (name != pool) return bad(fmt::format("is about another pool than '{}'", pool));
    key = key.substr(dot + 1);
  }
  const bool is_name = !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
  if (!is_name) return bad("names no key of [pool.scale]");
  if (key.starts_with("prefill_") && !scaling.policy.prefill) {
    return bad("is of a pool whose requests are split");
  }
  if (key == "priority") return bad("is of several pools, and one is played");
  if (key == "hold_bytes" || key == "hold_keepalive" || key == "hold_keepalive_seconds") {
    return bad("changes nothing that is played");
  }
  // Words need no quotes here.
  Result<cli::TomlNode> tree = cli::parse_toml(key + " = " + value, flag);
  if (!tree.ok()) tree = cli::parse_toml(key + " = " + cli::toml_quoted(value), flag);
  if (!tree.ok() || tree->members.size() != 1) return bad("has a value that is none");
  return std::move(tree->members.front());
}

}  // namespace

Result<void> set_scale_keys(const std::vector<std::string>& settings, const std::string& pool,
                            const std::string& flag, gateway::ScalingConfig& scaling) {
  if (settings.empty()) return {};
  cli::TomlNode tree;
  tree.kind = cli::TomlNode::Kind::kTable;
  tree.line = 1;
  std::string file = flag;  // its place in messages
  for (const std::string& setting : settings) {
    TRY_ASSIGN(cli::TomlMember member, read_scale_key(setting, pool, flag, scaling));
    std::erase_if(tree.members, [&](const auto& one) { return one.name == member.name; });
    if (member.name == "schedules") scaling.policy.schedules.clear();
    file += " " + setting;
    tree.members.push_back(std::move(member));
  }
  // Read at once: what one of them allows may need another.
  const Result<void> read =
      gateway::read_scale(gateway::ConfigTable(tree, "[pool.scale]", file), scaling);
  if (read.ok()) return {};
  return Error{ErrorCode::kInvalidArgument, read.error().message, flag.substr(2)};
}

namespace {

// Flags that were given go before what a file says.
void read_policy_flags(const cli::Arguments& arguments, PoolPolicy& policy) {
  if (arguments.knows("--autoscale") && arguments.has("--autoscale")) {
    const bool knative = arguments.text("--autoscale") == "knative";
    policy.rule = knative ? PoolPolicy::Rule::kKnative : PoolPolicy::Rule::kConcurrency;
  }
  if (arguments.has("--min-replicas")) {
    policy.replicas_min = static_cast<int>(arguments.integer("--min-replicas"));
  }
  if (arguments.has("--max-replicas")) {
    policy.replicas_max = static_cast<int>(arguments.integer("--max-replicas"));
  }
  const auto put = [&](const char* flag, std::optional<double>& into) {
    if (arguments.has(flag)) into = arguments.number(flag);
  };
  put("--concurrency-target", policy.concurrency_target);
  put("--target-utilization", policy.target_utilization);
  put("--scale-down-delay", policy.scale_down_delay_s);
}

// By the names that the user wrote, where a flag and what a file, a scenario or the defaults say do
// not go together; what a file alone has wrong its own check names.
Result<void> check_bounds(const cli::Arguments& arguments, const PoolPolicy& policy) {
  const int least = policy.replicas_min + policy.standby;
  if (least <= policy.replicas_max) return {};
  for (const char* const flag : {"--max-replicas", "--min-replicas"}) {
    if (!arguments.has(flag)) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} {}: the pool has at least {} replicas, standby ones among them, "
                             "and at most {} (--min-replicas and --max-replicas, or 'min' and "
                             "'max' of its [scale])",
                             flag, arguments.integer(flag), least, policy.replicas_max),
                 flag};
  }
  return {};
}

}  // namespace

Result<std::optional<simulator::Autoscaling>> read_autoscaling(
    const cli::Arguments& arguments, int replicas, const engine::ExecutorCapacity& capacity,
    const std::optional<gateway::ScalingConfig>& otherwise) {
  std::optional<gateway::ScalingConfig> scaling = otherwise;
  if (arguments.has("--scale-config")) {
    TRY_ASSIGN(scaling,
               read_scale_config(arguments.text("--scale-config"), arguments.text("--pool")));
  }
  if (!scaling && !arguments.has("--autoscale")) {
    // A scenario may be of a fleet that is not scaled.
    for (const cli::Flag& flag : autoscale_flags()) {
      const bool is_of_scaling = flag.only_with.size() == kScaled.size();
      if (!is_of_scaling || !arguments.knows(flag.name) || !arguments.has(flag.name)) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has an effect only where a fleet is scaled", flag.name),
                   flag.name};
    }
    return std::optional<simulator::Autoscaling>();
  }
  constexpr int kMaxOtherwise = 8;
  simulator::Autoscaling asked{.replicas = replicas, .record = {}};
  if (scaling) {
    asked.policy = scaling->policy;
    asked.held_max = scaling->hold.requests_max;
    asked.hold_s_max = scaling->hold.time_max_s;
    if (scaling->launch) asked.start_s = scaling->launch->start_s;
  } else {
    asked.policy.replicas_min = 1;
    asked.policy.replicas_max = kMaxOtherwise;
    asked.policy.concurrency_target = capacity.sequences_max;
  }
  read_policy_flags(arguments, asked.policy);
  TRY(check_bounds(arguments, asked.policy));
  // What a file or the defaults begin with need not fit into what flags allow.
  if (arguments.source("--replicas") != cli::Arguments::Source::kWord) {
    asked.replicas = std::clamp(replicas, 0, asked.policy.replicas_max);
  }
  if (arguments.knows("--decision-interval") && arguments.has("--decision-interval")) {
    asked.tick_s = arguments.number("--decision-interval");
  }
  if (arguments.knows("--assumed-service-seconds") && arguments.has("--assumed-service-seconds")) {
    asked.service_s_assumed = arguments.number("--assumed-service-seconds");
  }
  if (arguments.has("--start-seconds")) asked.start_s = arguments.number("--start-seconds");
  if (arguments.has("--start-phases")) {
    TRY_ASSIGN(asked.phases, parse_start_phases(arguments.text("--start-phases")));
  }
  if (asked.replicas > asked.policy.replicas_max) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--replicas {}: the pool has at most {} (--max-replicas, or 'max' in "
                             "the file of --scale-config)",
                             asked.replicas, asked.policy.replicas_max),
                 "--replicas"};
  }
  TRY(asked.check());
  return std::optional(std::move(asked));
}

}  // namespace pelton::apps
