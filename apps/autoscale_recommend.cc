// pelton autoscale recommend: a load played with knobs of [pool.scale], what each costs and how
// many requests it makes late; the cheapest that keeps few enough late becomes a configuration
// file.
#include <algorithm>

#include <fmt/format.h>

#include "apps/autoscale_flags.h"
#include "apps/input.h"
#include "apps/serve_words.h"
#include "apps/simulate_fluid.h"
#include "apps/simulated_play.h"
#include "apps/variations.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "gateway/config.h"
#include "gateway/config_text.h"
#include "simulator/fleet_figures.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kRunsMax = 1000;
constexpr const char* kAsItIs = "default";  // a value: the key stays as it is without --vary
constexpr int kMaxOtherwise = 8;
constexpr int kAdminPort = 8091;

struct Run {
  Settings settings;
  gateway::ScalingConfig scaling;
  simulator::FleetFigures figures;
  double late_share = 0;  // late, lost or left
  bool keeps = false;
  // No other run is better in one of lateness and replica-hours, and no worse in the other.
  bool is_efficient = false;
};

// What a file says, or the defaults; flags go before both.
Result<gateway::ScalingConfig> base_scaling(const cli::Arguments& arguments, const Play& play) {
  gateway::ScalingConfig scaling;
  if (arguments.has("--scale-config")) {
    TRY_ASSIGN(scaling,
               read_scale_config(arguments.text("--scale-config"), arguments.text("--pool")));
  } else {
    scaling.launch.emplace();
    scaling.launch->serve = serve_words(arguments, play.options.replica.capacity.sequences_max);
    scaling.launch->serve.insert(scaling.launch->serve.begin(), arguments.text("MODEL"));
  }
  scaling.policy = play.options.autoscaling->policy;
  if (scaling.launch) scaling.launch->start_s = play.options.autoscaling->start_seconds();
  return scaling;
}

Result<gateway::ScalingConfig> with_settings(gateway::ScalingConfig scaling,
                                             const Settings& settings, const std::string& pool) {
  std::vector<std::string> words;
  for (const auto& [key, value] : settings) {
    if (value != kAsItIs) words.push_back(fmt::format("{}={}", key, value));
  }
  TRY(set_scale_keys(words, pool, "--vary", scaling));
  if (!scaling.is_advised_only) return scaling;
  return Error{ErrorCode::kInvalidArgument, "mode = advise: nothing would be done", "vary"};
}

Result<Run> play_run(Play play, gateway::ScalingConfig scaling, Settings settings, double late_s) {
  simulator::Autoscaling& asked = *play.options.autoscaling;
  asked.policy = scaling.policy;
  asked.held_max = scaling.hold.requests_max;
  asked.hold_s_max = scaling.hold.time_max_s;
  asked.replicas = std::min(asked.replicas, asked.policy.replicas_max);
  asked.prefill_replicas = std::min(asked.prefill_replicas, asked.prefill_max());
  play.options.keeps_pieces = false;
  TRY_ASSIGN(const simulator::SimulationResult result, simulate_play(play));
  Run run{.settings = std::move(settings), .scaling = std::move(scaling)};
  run.figures = simulator::figures_of(play.options, result, late_s, asked.policy.price_each);
  const int64_t bad = run.figures.late + run.figures.lost + run.figures.left;
  run.late_share =
      static_cast<double>(bad) / static_cast<double>(std::max<int64_t>(run.figures.requests, 1));
  return run;
}

void judge(std::vector<Run>& runs, double late_share) {
  for (Run& one : runs) {
    one.keeps = one.late_share <= late_share;
    one.is_efficient = std::ranges::none_of(runs, [&](const Run& other) {
      const double hours = other.figures.replica_hours - one.figures.replica_hours;
      const double late = other.late_share - one.late_share;
      return hours <= 0 && late <= 0 && (hours < 0 || late < 0);
    });
  }
}

// The fewest replica-hours among those that keep it.
const Run* best_of(const std::vector<Run>& runs) {
  const Run* best = nullptr;
  for (const Run& one : runs) {
    if (!one.keeps) continue;
    const auto rank = [](const Run& run) {
      return std::pair(run.figures.replica_hours, run.late_share);
    };
    if (best == nullptr || rank(one) < rank(*best)) best = &one;
  }
  return best;
}

std::string table(const std::vector<Run>& runs, double late_s) {
  size_t width = 8;
  for (const Run& one : runs) width = std::max(width, settings_text(one.settings).size());
  std::string out =
      fmt::format("{:<{}} {:>9} {:>14} {:>5} {:>8} {:>8}  within  efficient\n", "settings", width,
                  "late", "replica-hours", "most", "changes", "TTFT p99");
  for (const Run& one : runs) {
    out += fmt::format("{:<{}} {:>7.2f} % {:>14.3f} {:>5} {:>8} {:>8}  {:<6}  {}\n",
                       settings_text(one.settings), width, 100 * one.late_share,
                       one.figures.replica_hours, one.figures.most, one.figures.direction_changes,
                       one.figures.ttft_p99_s ? fmt::format("{:.2f} s", *one.figures.ttft_p99_s)
                                              : std::string("none"),
                       one.keeps ? "yes" : "no", one.is_efficient ? "yes" : "");
  }
  return out + fmt::format(
                   "late: lost, left, or the first token after {:g} s; efficient: nothing else has "
                   "fewer of both\n",
                   late_s);
}

std::string runs_json(const std::vector<Run>& runs, const Run* best) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("runs").begin_array();
  for (const Run& one : runs) {
    w.begin_object().key("settings").begin_object();
    for (const auto& [key, value] : one.settings) w.key(key).string(value);
    w.end_object().key("late_share").number(one.late_share);
    w.key("keeps").boolean(one.keeps).key("efficient").boolean(one.is_efficient).key("figures");
    simulator::write_figures(w, one.figures);
    w.end_object();
  }
  w.end_array().key("recommended");
  best == nullptr ? w.null() : w.integer(best - runs.data());
  w.end_object();
  return json + "\n";
}

// As `pelton autoscale --config` reads it: the file that was given with the pool's new keys, or a
// whole one of this machine.
Result<std::string> config_of(const cli::Arguments& arguments, const Play& play, const Run& best) {
  gateway::GatewayConfig config;
  if (arguments.has("--scale-config")) {
    TRY_ASSIGN(config, gateway::read_gateway_config(arguments.text("--scale-config"),
                                                    {.allows_empty = true, .open = true}));
    for (gateway::PoolConfig& pool : config.pools) {
      const bool is_it = arguments.has("--pool") ? pool.name == arguments.text("--pool")
                                                 : pool.scaling.has_value();
      if (is_it) pool.scaling = best.scaling;
    }
  } else {
    config.admin_port = kAdminPort;
    config.autoscaler.gateways = {fmt::format("http://127.0.0.1:{}", kAdminPort)};
    gateway::PoolConfig pool;
    pool.name = "main";
    pool.models = {play.choice.plan.capacity.memory.shape.name};
    pool.scaling = best.scaling;
    config.pools.push_back(std::move(pool));
  }
  return fmt::format(
      "# pelton autoscale recommend: {}: {}.\n# {:.2f} % of {} requests late, {:.3f} "
      "replica-hours; modelled, not measured.\n{}",
      play.spec.name, settings_text(best.settings), 100 * best.late_share, best.figures.requests,
      best.figures.replica_hours, gateway::config_text(config));
}

std::vector<Variation> usual_variations() {
  return {{.key = "target_utilization", .values = {kAsItIs, "50", "70", "90"}},
          {.key = "scale_down_delay", .values = {kAsItIs, "60", "300"}}};
}

Result<void> run_autoscale_recommend(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::vector<Variation> varied,
             read_variations(arguments.list("--vary"), "scale_down_delay=60,300", kRunsMax));
  if (varied.empty()) varied = usual_variations();
  simulator::Scenario otherwise;
  otherwise.scaling.emplace().policy.replicas_max = kMaxOtherwise;
  TRY_ASSIGN(const Play play, read_play(arguments, arguments.text("MODEL"), &otherwise));
  write_note(play.workload.note);
  TRY_ASSIGN(const gateway::ScalingConfig scaling, base_scaling(arguments, play));
  const double late_s = arguments.number("--late-seconds");
  std::vector<Run> runs;
  for (size_t i = 0; i < combination_count(varied); ++i) {
    Settings settings = combination(varied, i);
    TRY_ASSIGN(gateway::ScalingConfig changed,
               with_settings(scaling, settings, arguments.text("--pool")));
    TRY_ASSIGN(Run one, play_run(play, std::move(changed), std::move(settings), late_s));
    runs.push_back(std::move(one));
  }
  judge(runs, arguments.number("--late-share"));
  const Run* const best = best_of(runs);
  if (arguments.has("--out") && best != nullptr) {
    TRY_ASSIGN(const std::string config, config_of(arguments, play, *best));
    TRY(base::write_file(arguments.text("--out"), config));
  }
  const bool to_output = arguments.text("--json") == "-";
  if (arguments.has("--json")) {
    const std::string json = runs_json(runs, best);
    TRY(to_output ? write_output(json) : base::write_file(arguments.text("--json"), json));
  }
  if (!to_output) {
    TRY(write_text(table(runs, late_s) +
                   (best == nullptr
                        ? std::string("none keeps so few late\n")
                        : fmt::format("recommended: {}\n", settings_text(best->settings))) +
                   "modelled, not measured\n"));
  }
  if (best != nullptr) return {};
  return Error{ErrorCode::kDoesNotFit, "no combination keeps so few requests late", "late-share"};
}

// Simulate's, of a fleet that is scaled in any case.
std::vector<Flag> played_flags() {
  std::vector<Flag> flags;
  for (Flag& flag : simulate_verb().flags) {
    const bool is_other = is_of_whole_run(flag.name) || flag.name == "--json" ||
                          flag.name == "--html" || flag.name == "--goodput" ||
                          flag.name == "--metric-percentiles" || flag.name == "--scenario" ||
                          flag.name == "--list" || flag.name == "--price" ||
                          flag.name == "--record-facts" || flag.name == "--autoscale";
    if (is_other) continue;
    const bool is_of_scaling = std::ranges::find(flag.only_with, "--autoscale",
                                                 &cli::Circumstance::flag) != flag.only_with.end();
    if (is_of_scaling) flag.only_with.clear();
    std::erase_if(flag.not_with, [](const auto& other) { return other.flag == "--list"; });
    flags.push_back(std::move(flag));
  }
  return flags;
}

}  // namespace

cli::Verb autoscale_recommend_verb() {
  cli::Verb verb{
      .name = "autoscale recommend",
      .summary =
          "Plays a load with knobs of [pool.scale]: what each costs, and what it makes late.",
      .about =
          "Plays every combination of the values that --vary gives on the same load with the same "
          "seed,\n"
          "by the shipped autoscaler, and takes the one with the fewest replica-hours that makes "
          "few\n"
          "enough requests late. `pelton autoscale --config` reads what --out writes.",
      .positionals = {{"MODEL", "a folder, a hub id, a published shape or a config.json"}},
      .flags = {{.name = "--vary",
                 .value = "KEY=V,V",
                 .help = "values of a key of [pool.scale], as scale_down_delay=default,60,300; "
                         "default: target_utilization and scale_down_delay",
                 .many = true},
                {.name = "--late-share",
                 .value = "SHARE",
                 .help = "of requests that may be late, at most",
                 .kind = Flag::Kind::kNumber,
                 .default_text = "0.01",
                 .most = 1},
                {.name = "--out",
                 .value = "FILE",
                 .help = "the recommended settings, for autoscale --config",
                 .may_be_empty = false},
                {.name = "--json",
                 .value = "FILE",
                 .help = "also write every combination's figures; - is stdout"}},
      .examples = {"pelton autoscale recommend gpt-oss-20b --gpu h100 --workload day.json "
                   "--max-replicas 16 --start-seconds 60 --out gateway.toml",
                   "pelton autoscale recommend ./model --scale-config gateway.toml --workload "
                   "day.json --vary min=0,1,2 --vary backlog=15,30,60"},
      .run = run_autoscale_recommend};
  for (Flag& flag : played_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
