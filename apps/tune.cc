// pelton tune: settings of serve and of the fleet, swept in the simulator; the best within the
// objectives becomes a configuration file.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/simulate_fluid.h"
#include "apps/simulated_play.h"
#include "apps/tune_point.h"
#include "apps/variations.h"
#include "apps/verbs.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/terminal_text.h"
#include "cli/config_file.h"
#include "planner/halving.h"
#include "report/goodput.h"
#include "report/percentile.h"
#include "report/summary.h"
#include "simulator/fleet.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kPointsMax = 10'000;
constexpr size_t kSeededMax = 16;  // points of a front that --seeds plays again

// Settings that are no flag's value are an error; those that fit on no machine are a row that says
// so.
Result<Point> play_point(const cli::Arguments& arguments, const std::vector<Flag>& flags,
                         Settings settings, const std::vector<report::Objective>& objectives) {
  TRY_ASSIGN(const cli::Arguments changed, cli::with_values(flags, arguments, settings));
  Point point{.settings = std::move(settings)};
  const Result<Play> play = read_play(changed, arguments.text("MODEL"), nullptr);
  if (!play.ok() && play.error().code == ErrorCode::kDoesNotFit) {
    point.why_not = play.error().message;
    return point;
  }
  if (!play.ok()) return play.error();
  TRY_ASSIGN(const simulator::SimulationResult result, simulate_play(*play));
  // Of a metric without a bound only the percentile counts.
  std::vector<report::Objective> bounds;
  std::ranges::copy_if(objectives, std::back_inserter(bounds),
                       [](const report::Objective& one) { return std::isfinite(one.bound_ms); });
  const report::Summary summary = report::summarize(result.records, result.duration_s, bounds);
  point.tokens_per_s = summary.output_tokens_per_s;
  const double replicas = result.scaling
                              ? result.scaling->replica_s / std::max(result.duration_s, 1e-9)
                              : play->options.replica_count;
  point.per_replica = point.tokens_per_s / std::max(replicas, 1e-9);
  point.keeps = summary.failed == 0 && result.unfinished == 0 && summary.completed > 0;
  for (const report::Objective& one : objectives) {
    const auto values = summary.values_ms.find(one.metric);
    const double p90_ms =
        values == summary.values_ms.end() ? 0 : report::percentile(values->second, 90);
    point.p90_ms.push_back(p90_ms);
    point.keeps = point.keeps && p90_ms <= one.bound_ms;
    point.excess = std::max(point.excess, p90_ms / std::max(one.bound_ms, 1e-9) - 1);
  }
  return point;
}

// The most tokens a second of a replica among those within the objectives.
const Point* best_of(const std::vector<Point>& points) {
  const Point* best = nullptr;
  for (const Point& one : points) {
    if (!one.why_not.empty() || !one.keeps) continue;
    if (best == nullptr || one.per_replica > best->per_replica) best = &one;
  }
  return best;
}

// What keeps the objectives before what does not, and of the latter what misses them least.
double score_of(const Point& point) {
  constexpr double kCannot = -1e18;
  if (!point.why_not.empty()) return kCannot;
  return point.keeps ? point.per_replica : -1 - std::max(point.excess, 0.0);
}

// By successive halving; all with one seed. Those that were played at the whole length.
Result<std::vector<Point>> search(const cli::Arguments& arguments, const std::vector<Flag>& flags,
                                  const std::vector<Variation>& axes,
                                  const std::vector<report::Objective>& objectives,
                                  std::string& text) {
  constexpr double kPromptsLeast = 40;
  const auto prompts = static_cast<double>(arguments.integer("--num-prompts"));
  planner::Halving options;
  for (const Variation& one : axes) options.axes.push_back(one.values.size());
  options.share_least = std::clamp(kPromptsLeast / prompts, options.share_least, 1.0);
  std::map<size_t, Point> whole;
  const auto play = [&](size_t number, double share) -> Result<double> {
    const std::string length = std::to_string(std::llround(prompts * share));
    TRY_ASSIGN(const cli::Arguments shorter,
               cli::with_values(flags, arguments, {{"num-prompts", length}}));
    TRY_ASSIGN(Point point, play_point(shorter, flags, combination(axes, number), objectives));
    const double score = score_of(point);
    if (share >= 1) whole.insert_or_assign(number, std::move(point));
    return score;
  };
  TRY_ASSIGN(const planner::HalvingResult found, planner::search_halving(options, play));
  text =
      fmt::format("{} of {} combinations played whole, {:.1f} % of the work of all\n", whole.size(),
                  found.combinations, 100 * found.work / static_cast<double>(found.combinations));
  std::vector<Point> points;
  for (auto& [number, point] : whole) points.push_back(std::move(point));
  return points;
}

std::string table(const std::vector<Point>& points,
                  const std::vector<report::Objective>& objectives) {
  size_t width = 8;
  for (const Point& one : points) width = std::max(width, settings_text(one.settings).size());
  std::string out =
      fmt::format("{:<{}} {:>10} {:>12}", "settings", width, "tokens/s", "per replica");
  for (const report::Objective& one : objectives) {
    out += fmt::format(" {:>12}", fmt::format("{} p90 ms", report::info(one.metric).label));
  }
  out += "  within\n";
  for (const Point& one : points) {
    out += fmt::format("{:<{}}", settings_text(one.settings), width);
    if (!one.why_not.empty()) {
      out += " " + one.why_not + "\n";
      continue;
    }
    out += fmt::format(" {:>10.1f} {:>12.1f}", one.tokens_per_s, one.per_replica);
    for (const double ms : one.p90_ms) out += fmt::format(" {:>12.1f}", ms);
    out += one.keeps ? "  yes" : "  no";
    out += one.is_front ? "  front\n" : "\n";
  }
  return out;
}

// --seeds: those of the front with an interval, and how much the best one gains over the settings
// that the flags give without any --vary; seed by seed, so that the load is the same for both.
Result<std::string> play_seeds(const cli::Arguments& arguments, const std::vector<Flag>& flags,
                               const std::vector<report::Objective>& objectives,
                               std::vector<Point>& points) {
  const int64_t first = arguments.integer("--seed");
  const int64_t count = arguments.integer("--seeds");
  std::string why_not;
  const auto play = [&](const Settings& settings) -> Result<std::vector<double>> {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) {
      TRY_ASSIGN(const cli::Arguments seeded,
                 cli::with_values(flags, arguments, {{"seed", std::to_string(first + i)}}));
      TRY_ASSIGN(const Point point, play_point(seeded, flags, settings, objectives));
      if (!point.why_not.empty()) why_not = point.why_not;
      values.push_back(point.per_replica);
    }
    return values;
  };
  const Point* const best = best_of(points);
  std::vector<double> best_values;
  size_t played = 0;
  for (Point& one : points) {
    const bool is_best = &one == best;
    if (!is_best && (!one.is_front || ++played > kSeededMax)) continue;
    TRY_ASSIGN(const std::vector<double> values, play(one.settings));
    one.per_replica_seeds = report::mean_interval(values);
    if (is_best) best_values = values;
  }
  if (best == nullptr) return std::string();
  why_not.clear();
  TRY_ASSIGN(const std::vector<double> otherwise, play({}));
  if (!why_not.empty()) {
    return fmt::format("no gain over the flags as they stand, which cannot be played: {}\n",
                       why_not);
  }
  std::vector<double> gains;
  for (size_t i = 0; i < best_values.size(); ++i) {
    gains.push_back(100 * (best_values[i] / std::max(otherwise[i], 1e-9) - 1));
  }
  const report::Interval gain = report::mean_interval(gains);
  return fmt::format(
      "gain of the best over the flags as they stand: {:+.1f} % tokens/s of a replica, 95 % "
      "interval {:+.1f} to {:+.1f} % ({} seeds)\n",
      gain.mean, gain.low, gain.high, count);
}

struct Feature {
  std::string name;
  Settings off;
  bool is_on = true;
};

std::vector<Feature> features_of(const cli::Arguments& arguments, const Play& play) {
  const simulator::SimulationOptions& options = play.options;
  return {
      {"prefix cache", {{"enable-prefix-caching", "false"}}, options.replica.prefix_cache},
      {"asynchronous scheduling",
       {{"steps-in-flight", "1"}},
       options.replica.steps_in_flight_max > 1},
      {"speculation", {{"speculative-tokens", "0"}}, arguments.integer("--speculative-tokens") > 0},
      {"router",
       {{"router", "round-robin"}},
       simulator::replicas_max(options) > 1 && arguments.text("--router") != "round-robin"},
      {"prefills first",
       {{"scheduling-policy", "decode-first"}},
       arguments.text("--scheduling-policy") == "prefill-first"},
      {"KV cache in fewer bits",
       {{"kv-cache-dtype", "auto"}},
       arguments.text("--kv-cache-dtype") == "int8" ||
           arguments.text("--kv-cache-dtype") == "fp8"}};
}

// --ablate: each feature off, one at a time, on the same load with the same seed.
Result<void> ablate(const cli::Arguments& arguments, const std::vector<Flag>& flags) {
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  const std::vector<report::Objective> metrics = {{report::Metric::kTtft, kNoBound},
                                                  {report::Metric::kItl, kNoBound}};
  TRY_ASSIGN(const Play play, read_play(arguments, arguments.text("MODEL"), nullptr));
  TRY_ASSIGN(const Point whole, play_point(arguments, flags, {}, metrics));
  std::string out = fmt::format("{:<26} {:>12} {:>8} {:>12} {:>8} {:>12} {:>8}\n", "off",
                                "tokens/s", "", "TTFT p90 ms", "", "ITL p90 ms", "");
  std::string json;
  base::JsonWriter w(json);
  w.begin_array();
  const auto add = [&](const std::string& name, const Point& point) {
    const auto change = [](double value, double before) {
      return before > 0 ? fmt::format("{:+.1f} %", 100 * (value / before - 1)) : std::string("-");
    };
    out += fmt::format("{:<26} {:>12.1f} {:>8} {:>12.1f} {:>8} {:>12.2f} {:>8}\n", name,
                       point.tokens_per_s, change(point.tokens_per_s, whole.tokens_per_s),
                       point.p90_ms[0], change(point.p90_ms[0], whole.p90_ms[0]), point.p90_ms[1],
                       change(point.p90_ms[1], whole.p90_ms[1]));
    w.begin_object().key("off").string(name).key("output_throughput").number(point.tokens_per_s);
    w.key("p90_ttft_ms").number(point.p90_ms[0]).key("p90_itl_ms").number(point.p90_ms[1]);
    w.end_object();
  };
  add("nothing", whole);
  for (const Feature& one : features_of(arguments, play)) {
    if (!one.is_on) {
      out += fmt::format("{:<26} is off\n", one.name);
      continue;
    }
    TRY_ASSIGN(const Point point, play_point(arguments, flags, one.off, metrics));
    if (point.why_not.empty()) {
      add(one.name, point);
    } else {
      out += fmt::format("{:<26} {}\n", one.name, point.why_not);
    }
  }
  w.end_array();
  if (arguments.has("--json")) {
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  return write_text(out + "modelled, not measured\n");
}

// What `serve --config` reads; settings that it does not know stand behind a #.
std::string config_text(const Point& best, const std::string& model, const std::string& load) {
  const std::vector<Flag> flags = serve_verb().flags;
  std::string out =
      fmt::format("# pelton tune: {} under {}; modelled, not measured\n", model, load);
  for (const auto& [name, value] : best.settings) {
    // By what serve calls it.
    if (name == "layout" && value.starts_with("tp") && value.find_first_of("ep", 2) == value.npos) {
      out += fmt::format("tensor-parallel-size = {}\n", value.substr(2));
      continue;
    }
    const auto flag = std::ranges::find(flags, "--" + name, &Flag::name);
    const bool is_bare = value == "true" || value == "false" ||
                         value.find_first_not_of("0123456789") == std::string::npos;
    out += fmt::format("{}{} = {}\n", flag == flags.end() ? "# " : "", name,
                       is_bare ? value : cli::toml_quoted(value));
  }
  return out;
}

std::string points_json(const std::vector<Point>& points,
                        const std::vector<report::Objective>& objectives) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_array();
  for (const Point& one : points) {
    w.begin_object().key("settings").begin_object();
    for (const auto& [flag, value] : one.settings) w.key(flag).string(value);
    w.end_object();
    if (!one.why_not.empty()) {
      w.key("why_not").string(one.why_not).end_object();
      continue;
    }
    w.key("output_throughput").number(one.tokens_per_s);
    w.key("per_replica").number(one.per_replica);
    for (size_t i = 0; i < objectives.size(); ++i) {
      w.key(fmt::format("p90_{}_ms", report::info(objectives[i].metric).key)).number(one.p90_ms[i]);
    }
    w.key("keeps").boolean(one.keeps).key("front").boolean(one.is_front).end_object();
  }
  w.end_array();
  return json + "\n";
}

Result<void> run(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::vector<Variation> axes,
             read_variations(arguments.list("--vary"), "max-num-seqs=16,64", kPointsMax));
  if (axes.empty()) {
    axes = {{.key = "max-num-seqs", .values = {"16", "32", "64", "128", "256"}},
            {.key = "max-num-batched-tokens", .values = {"512", "2048", "8192"}}};
  }
  for (const Variation& axis : axes) {
    const std::string name = "--" + axis.key;
    // A name that is no flag is an error of the combinations.
    if (!arguments.knows(name) || !arguments.has(name)) continue;
    if (arguments.source(name) == cli::Arguments::Source::kDefault) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--{} is varied: give one of them, it or a --vary of something else", axis.key),
        axis.key};
  }
  TRY_ASSIGN(std::vector<report::Objective> objectives,
             report::parse_objectives(arguments.text("--objectives")));
  if (objectives.empty()) {
    constexpr double kNoBound = std::numeric_limits<double>::infinity();
    objectives = {{report::Metric::kTtft, kNoBound}, {report::Metric::kTpot, kNoBound}};
  }
  const std::vector<Flag> flags = tune_verb().flags;
  if (arguments.has("--ablate")) return ablate(arguments, flags);
  std::vector<Point> points;
  std::string searched;
  if (arguments.text("--search") == "halving") {
    TRY_ASSIGN(points, search(arguments, flags, axes, objectives, searched));
  } else {
    for (size_t i = 0; i < combination_count(axes); ++i) {
      TRY_ASSIGN(Point point, play_point(arguments, flags, combination(axes, i), objectives));
      points.push_back(std::move(point));
    }
  }
  mark_front(points);
  if (arguments.has("--seeds")) {
    TRY_ASSIGN(const std::string gain, play_seeds(arguments, flags, objectives, points));
    searched += gain;
  }
  const Point* const best = best_of(points);
  if (arguments.has("--html")) {
    const std::string chosen = best == nullptr ? "none is within the objectives"
                                               : "best: " + settings_text(best->settings);
    TRY(base::write_file(
        arguments.text("--html"),
        tune_page("pelton tune: " + arguments.text("MODEL"),
                  {chosen, searched, "Modelled, not measured."}, points, objectives)));
  }
  if (arguments.has("--out") && best != nullptr) {
    const std::string load =
        arguments.has("--workload") ? arguments.text("--workload") : std::string("these flags");
    TRY(base::write_file(arguments.text("--out"),
                         config_text(*best, arguments.text("MODEL"), load)));
  }
  const bool to_output = arguments.text("--json") == "-";
  if (arguments.has("--json")) {
    const std::string json = points_json(points, objectives);
    TRY(to_output ? write_output(json) : base::write_file(arguments.text("--json"), json));
  }
  if (!to_output) {
    TRY(write_text(table(points, objectives) + searched +
                   (best == nullptr ? std::string("none is within the objectives\n")
                                    : fmt::format("best: {}\n", settings_text(best->settings))) +
                   "modelled, not measured\n"));
  }
  if (best != nullptr) return {};
  return Error{ErrorCode::kDoesNotFit, "no combination is within the objectives", "objectives"};
}

}  // namespace

cli::Verb tune_verb() {
  cli::Verb verb{
      .name = "tune",
      .summary = "Tries settings of serve on a load in the simulator, and writes the best ones.",
      .about =
          "Plays every combination of the values that --vary gives, on the same load with the same "
          "seed,\n"
          "and takes the one with the most tokens a second for each replica whose 90th percentiles "
          "keep\n"
          "the objectives. As many runs as there are combinations, or with --search halving fewer.",
      .positionals = {{"MODEL", "a folder, a hub id, a published shape or a config.json"}},
      .flags = {{.name = "--vary",
                 .value = "FLAG=V,V",
                 .help = "values of a flag of simulate, as max-num-seqs=16,64 or "
                         "kv-cache-dtype=auto,int8; default slots and tokens a step",
                 .many = true,
                 .not_with = {{"--ablate"}}},
                {.name = "--objectives",
                 .value = "BOUNDS",
                 .help = "for 90th percentiles, as 'ttft:500 tpot:30', in milliseconds",
                 .not_with = {{"--ablate"}}},
                {.name = "--search",
                 .value = "HOW",
                 .help = "all: every combination; halving: all of them shortly, the better eighth "
                         "longer, then the best one's neighbours",
                 .default_text = "all",
                 .choices = {"all", "halving"},
                 .not_with = {{"--requests"}, {"--facts"}, {"--ablate"}}},
                {.name = "--out",
                 .value = "FILE",
                 .help = "the best settings, for serve --config",
                 .may_be_empty = false,
                 .not_with = {{"--ablate"}}},
                {.name = "--seeds",
                 .value = "N",
                 .help = "so many seeds of the front and of the flags without --vary: intervals, "
                         "and what the best gains",
                 .kind = Flag::Kind::kInteger,
                 .least = 2,
                 .most = 1000,
                 .not_with = {{"--ablate"}}},
                {.name = "--ablate",
                 .help = "no search: each feature off, one at a time, and what that does to TTFT "
                         "and ITL",
                 .kind = Flag::Kind::kSwitch},
                {.name = "--html",
                 .value = "FILE",
                 .help = "also write a page with the fronts",
                 .may_be_empty = false,
                 .not_with = {{"--ablate"}}},
                {.name = "--json",
                 .value = "FILE",
                 .help = "also write every combination's figures; - is stdout"}},
      .examples =
          {"pelton tune gpt-oss-20b --gpu h100 --request-rate 20 --num-prompts 500 "
           "--objectives 'ttft:1000 tpot:30' --out serve.toml",
           "pelton tune gpt-oss-20b --gpu l4 --vary max-num-seqs=8,16,32 --vary "
           "kv-cache-dtype=auto,int8 --request-rate 4 --num-prompts 200",
           "pelton tune gpt-oss-20b --gpu h100 --request-rate 20 --num-prompts 500 --ablate"},
      .run = run};
  for (Flag& flag : simulate_verb().flags) {
    const bool is_other = flag.name == "--json" || flag.name == "--html" ||
                          flag.name == "--goodput" || flag.name == "--metric-percentiles" ||
                          flag.name == "--late-seconds" || flag.name == "--scenario" ||
                          flag.name == "--list" || flag.name == "--price" ||
                          is_of_whole_run(flag.name) || flag.name == "--record-facts";
    if (!is_other) verb.flags.push_back(std::move(flag));
  }
  return verb;
}

}  // namespace pelton::apps
