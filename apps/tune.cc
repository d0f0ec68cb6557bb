// pelton tune: settings of serve and of the fleet, swept in the simulator; the best within the
// objectives becomes a configuration file.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/simulate_fluid.h"
#include "apps/simulated_play.h"
#include "apps/tune_confirm.h"
#include "apps/tune_knobs.h"
#include "apps/tune_play.h"
#include "apps/tune_point.h"
#include "apps/variations.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/terminal_text.h"
#include "cli/config_file.h"
#include "cli/progress.h"
#include "cost_model/hardware.h"
#include "planner/halving.h"
#include "report/goodput.h"
#include "simulator/fleet.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kPointsMax = 10'000;
constexpr size_t kSeededMax = 16;  // points of a front that --seeds plays again

// What all points are played and judged by.
struct Sweep {
  cli::Arguments arguments;
  std::vector<report::Objective> objectives;
  BestBy best_by = BestBy::kReplica;
};

// The one with the most value among those within the objectives.
const Point* best_of(const std::vector<Point>& points) {
  const Point* best = nullptr;
  for (const Point& one : points) {
    if (!one.why_not.empty() || !one.keeps) continue;
    if (best == nullptr || one.value > best->value) best = &one;
  }
  return best;
}

// What keeps the objectives before what does not, and of the latter what misses them least.
double score_of(const Point& point) {
  constexpr double kCannot = -1e18;
  if (!point.why_not.empty()) return kCannot;
  return point.keeps ? point.value : -1 - std::max(point.excess, 0.0);
}

// By successive halving; all with one seed. Those that were played at the whole length.
Result<std::vector<Point>> search(const Sweep& sweep, PointPlayer& player,
                                  const std::vector<Variation>& axes, std::string& text) {
  const cli::Arguments& arguments = sweep.arguments;
  constexpr double kPromptsLeast = 40;
  const auto prompts = static_cast<double>(arguments.integer("--num-prompts"));
  planner::Halving options;
  for (const Variation& one : axes) options.axes.push_back(one.values.size());
  options.share_least = std::clamp(kPromptsLeast / prompts, options.share_least, 1.0);
  std::map<size_t, Point> whole;
  const auto play = [&](size_t number, double share) -> Result<double> {
    const std::string length = std::to_string(std::llround(prompts * share));
    TRY_ASSIGN(const cli::Arguments shorter,
               cli::with_values(player.flags(), arguments, {{"num-prompts", length}}));
    TRY_ASSIGN(Point point,
               player.judge(shorter, combination(axes, number), sweep.objectives, sweep.best_by));
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

// --seeds: those of the front with an interval, and how much the best one gains over the settings
// that the flags give without any --vary; seed by seed, so that the load is the same for both.
Result<std::string> play_seeds(const Sweep& sweep, PointPlayer& player,
                               std::vector<Point>& points) {
  const cli::Arguments& arguments = sweep.arguments;
  const int64_t first = arguments.integer("--seed");
  const int64_t count = arguments.integer("--seeds");
  std::string why_not;
  const auto play = [&](const Settings& settings) -> Result<std::vector<double>> {
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) {
      TRY_ASSIGN(
          const cli::Arguments seeded,
          cli::with_values(player.flags(), arguments, {{"seed", std::to_string(first + i)}}));
      TRY_ASSIGN(const Point point,
                 player.judge(seeded, settings, sweep.objectives, sweep.best_by));
      if (!point.why_not.empty()) why_not = point.why_not;
      values.push_back(point.value);
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
    one.value_seeds = report::mean_interval(values);
    one.value_seeds.low = std::max(one.value_seeds.low, 0.0);  // of what cannot be less
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
      "gain of the best over the flags as they stand: {:+.1f} % {}, 95 % interval {:+.1f} to "
      "{:+.1f} % ({} seeds)\n",
      gain.mean, best_by_text(sweep.best_by), gain.low, gain.high, count);
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
Result<void> ablate(const cli::Arguments& arguments, PointPlayer& player) {
  constexpr double kNoBound = std::numeric_limits<double>::infinity();
  const std::vector<report::Objective> metrics = {{report::Metric::kTtft, kNoBound},
                                                  {report::Metric::kItl, kNoBound}};
  TRY_ASSIGN(const Play play, read_play(arguments, arguments.text("MODEL"), nullptr));
  TRY_ASSIGN(const Point whole, player.judge(arguments, {}, metrics, BestBy::kReplica));
  std::string out = fmt::format("{:<26} {:>12} {:>8} {:>12} {:>8} {:>12} {:>8}\n", "off",
                                "tokens/s", "", "TTFT p90 ms", "", "ITL p90 ms", "");
  std::string json;
  base::JsonWriter w(json);
  w.begin_array();
  const auto add = [&](const std::string& name, const Point& point) {
    const auto change = [](double value, double before) {
      return before > 0 ? fmt::format("{:+.1f} %", 100 * (value / before - 1)) : std::string("-");
    };
    const bool is_same = &point != &whole && point.tokens_per_s == whole.tokens_per_s &&
                         point.p90_ms == whole.p90_ms;
    out += fmt::format("{:<26} {:>12.1f} {:>8} {:>12.1f} {:>8} {:>12.2f} {:>8}{}\n", name,
                       point.tokens_per_s, change(point.tokens_per_s, whole.tokens_per_s),
                       point.p90_ms[0], change(point.p90_ms[0], whole.p90_ms[0]), point.p90_ms[1],
                       change(point.p90_ms[1], whole.p90_ms[1]),
                       is_same ? "  changes nothing on this load" : "");
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
    TRY_ASSIGN(const Point point, player.judge(arguments, one.off, metrics, BestBy::kReplica));
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

// What `serve --config` reads: the best settings, and the flags that all were played with; settings
// that it does not know, or that are the fleet's (of one process `serve` means others by replicas),
// stand behind a #.
std::string config_text(const Point& best, const Settings& given, const std::string& model,
                        const std::string& load, const std::vector<std::string>& notes) {
  const std::vector<Flag> flags = serve_verb().flags;
  const std::string worth =
      best.measured ? fmt::format("measured: {:.1f} tokens/s, TTFT p90 {:.1f} ms",
                                  best.measured->tokens_per_s, best.measured->ttft_p90_ms)
                    : "modelled, not measured";
  std::string out = fmt::format("# pelton tune: {} under {}; {}\n", model, load, worth);
  for (const std::string& note : notes) out += "# " + note + "\n";
  Settings all = best.settings;
  all.insert(all.end(), given.begin(), given.end());
  for (const auto& [name, value] : all) {
    // By what serve calls it.
    if (name == "layout" && value.starts_with("tp") && value.find_first_of("ep", 2) == value.npos) {
      out += fmt::format("tensor-parallel-size = {}\n", value.substr(2));
      continue;
    }
    const auto flag = std::ranges::find(flags, "--" + name, &Flag::name);
    const bool is_number = !value.empty() && std::isdigit(value.front()) != 0 &&
                           std::isdigit(value.back()) != 0 && std::ranges::count(value, '.') <= 1 &&
                           value.find_first_not_of("0123456789.") == std::string::npos;
    const bool is_bare = value == "true" || value == "false" || is_number;
    const bool is_serves = flag != flags.end() && name != "replicas";
    out += fmt::format("{}{} = {}\n", is_serves ? "" : "# ", name,
                       is_bare ? value : cli::toml_quoted(value));
  }
  return out;
}

// Of what the command line leaves open.
std::vector<Variation> default_axes(const cli::Arguments& arguments) {
  std::vector<Variation> axes = {
      {.key = "max-num-seqs", .values = {"16", "32", "64", "128", "256"}},
      {.key = "max-num-batched-tokens", .values = {"512", "2048", "8192"}}};
  std::erase_if(axes, [&](const Variation& one) {
    return arguments.source("--" + one.key) > cli::Arguments::Source::kDefault;
  });
  return axes;
}

// What is varied: --hardware and --vary.
Result<std::vector<Variation>> read_axes(const cli::Arguments& arguments) {
  TRY_ASSIGN(std::vector<Variation> axes,
             read_variations(arguments.list("--vary"), "max-num-seqs=16,64", kPointsMax));
  const bool is_of_url = arguments.has("--confirm") && arguments.text("--confirm") != "local";
  if (axes.empty() && !is_of_url) axes = default_axes(arguments);
  TRY_ASSIGN(std::optional<Variation> hardware, read_hardware_axis(arguments));
  for (const Variation& axis : axes) {
    if (axis.key != kHardwareKey && axis.key != "gpu" && axis.key != "instance") continue;
    return Error{ErrorCode::kInvalidArgument, "machine types are varied by --hardware LIST",
                 "vary"};
  }
  TRY_ASSIGN(axes, named_knobs(std::move(axes), tune_verb().flags, is_of_url));
  for (const Variation& axis : axes) {
    const std::string name = "--" + axis.key;
    if (!arguments.knows(name) || !arguments.has(name)) continue;
    if (arguments.source(name) == cli::Arguments::Source::kDefault) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("--{} is varied: give one of them, it or a --vary of something else", axis.key),
        axis.key};
  }
  TRY(check_effects(axes, tune_verb().flags, arguments));
  if (hardware) axes.insert(axes.begin(), *std::move(hardware));
  if (combination_count(axes) > kPointsMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--hardware and --vary: more than {} combinations", kPointsMax),
                 "hardware"};
  }
  return axes;
}

// Of several kinds of hardware a replica of eight devices is not to be compared with one of one.
Result<BestBy> read_best_by(const cli::Arguments& arguments, const std::vector<Variation>& axes) {
  std::string unpriced;
  bool is_priced = false;
  for (const Variation& axis : axes) {
    if (axis.key != kHardwareKey) continue;
    is_priced = true;
    for (const std::string& value : axis.values) {
      TRY_ASSIGN(const NamedHardware one, parse_named_hardware(value));
      const auto instance = cost_model::find_instance(one.name);
      const bool is_known = one.dollars || (instance.ok() && instance->price_per_hour > 0);
      if (!is_known && unpriced.empty()) unpriced = one.name;
    }
  }
  if (!is_priced && arguments.has("--instance")) {
    const auto instance = cost_model::find_instance(arguments.text("--instance"));
    is_priced = instance.ok() && instance->price_per_hour > 0;
  }
  const std::string& asked = arguments.text("--best-by");
  if (asked == "replica") return BestBy::kReplica;
  if (asked == "device") return BestBy::kDevice;
  if (asked == "cost" && (!is_priced || !unpriced.empty())) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--best-by cost: no price of {} is known; give --hardware {}@DOLLARS "
                             "for an hour",
                             unpriced.empty() ? "this hardware" : unpriced,
                             unpriced.empty() ? "NAME" : unpriced),
                 "best-by"};
  }
  if (asked == "cost") return BestBy::kCost;
  if (!arguments.has("--hardware")) return BestBy::kReplica;
  return unpriced.empty() ? BestBy::kCost : BestBy::kDevice;
}

Result<std::vector<Point>> play_all(const Sweep& sweep, PointPlayer& player,
                                    const std::vector<Variation>& axes) {
  const base::SystemClock clock;
  const auto count = static_cast<int64_t>(combination_count(axes));
  cli::Progress progress("playing", cli::Progress::Unit::kCount, clock);
  std::vector<Point> points;
  for (int64_t i = 0; i < count; ++i) {
    TRY_ASSIGN(Point point, player.judge(sweep.arguments, combination(axes, static_cast<size_t>(i)),
                                         sweep.objectives, sweep.best_by));
    points.push_back(std::move(point));
    progress.update(i + 1, count);
  }
  return points;
}

std::string best_text(const Point* best, const Sweep& sweep) {
  if (best == nullptr) return "none is within the objectives\n";
  std::string text = fmt::format("best: {}", settings_text(best->settings));
  if (sweep.best_by != BestBy::kReplica || best->per_million > 0) {
    text += fmt::format(" (by {})", best_by_text(sweep.best_by));
  }
  if (best->per_million > 0)
    text += fmt::format(", {:.3f} dollars a million tokens", best->per_million);
  return text + "\n";
}

// What its figures do not say.
std::vector<std::string> caveats_of(const cli::Arguments& arguments, const Point* best) {
  if (best == nullptr) return {};
  std::vector<std::string> all = {quality_note(arguments, best->settings),
                                  speculation_note(arguments, best->settings)};
  std::erase(all, "");
  return all;
}

// Where --html and --out say.
Result<void> write_files(const Sweep& sweep, const std::vector<Point>& points, const Point* best,
                         const std::vector<std::string>& notes,
                         const std::vector<std::string>& caveats) {
  const cli::Arguments& arguments = sweep.arguments;
  if (arguments.has("--html")) {
    TRY(base::write_file(arguments.text("--html"),
                         tune_page("pelton tune: " + arguments.text("MODEL"), notes, points,
                                   sweep.objectives, sweep.best_by)));
  }
  if (!arguments.has("--out") || best == nullptr) return {};
  const std::string load =
      arguments.has("--workload") ? arguments.text("--workload") : std::string("these flags");
  return base::write_file(
      arguments.text("--out"),
      config_text(*best, given_settings(arguments, tune_verb().flags, best->settings),
                  arguments.text("MODEL"), load, caveats));
}

Result<void> search_best(Sweep sweep, PointPlayer& player, const std::vector<Variation>& axes) {
  std::unique_ptr<Confirmation> confirmation;
  const cli::Arguments given = sweep.arguments;
  if (given.has("--confirm")) {
    TRY_ASSIGN(confirmation, Confirmation::make(given, axes));
    TRY_ASSIGN(sweep.arguments, confirmation->calibrated(player, axes));
  }
  const cli::Arguments& arguments = sweep.arguments;
  std::string searched;
  std::vector<Point> points;
  if (arguments.text("--search") == "halving") {
    TRY_ASSIGN(points, search(sweep, player, axes, searched));
  } else {
    TRY_ASSIGN(points, play_all(sweep, player, axes));
  }
  mark_front(points);
  if (arguments.has("--seeds")) {
    TRY_ASSIGN(const std::string gain, play_seeds(sweep, player, points));
    searched += gain;
  }
  if (arguments.has("--history")) {
    searched += fmt::format("{} runs played, {} of {} again\n", player.played(), player.reused(),
                            base::one_line(arguments.text("--history")));
  }
  const Point* best = best_of(points);
  std::vector<std::string> caveats = caveats_of(arguments, best);
  std::string text = points_table(points, sweep.objectives) + searched + best_text(best, sweep);
  for (const std::string& one : caveats) text += base::wrapped_text(one, output_columns(), 0);
  text += "modelled, not measured\n";
  std::vector<std::string> notes = {best_text(best, sweep), searched, "Modelled, not measured."};
  notes.insert(notes.begin() + 1, caveats.begin(), caveats.end());
  if (confirmation != nullptr && best != nullptr) {
    TRY_ASSIGN(const std::string measured,
               confirmation->measure(player, arguments, sweep.objectives, sweep.best_by, points));
    best = best_measured(points);
    caveats = caveats_of(arguments, best);
    text += "\n" + measured;
    notes.back() = measured;
  }
  TRY(write_files(sweep, points, best, notes, caveats));
  const bool to_output = arguments.text("--json") == "-";
  if (arguments.has("--json")) {
    for (const std::string& one : caveats) {
      if (to_output) write_note(one);
    }
    const std::string json = points_json(points, sweep.objectives);
    TRY(to_output ? write_output(json) : base::write_file(arguments.text("--json"), json));
  }
  if (!to_output) TRY(write_text(text));
  if (best != nullptr) return {};
  return Error{ErrorCode::kDoesNotFit, "no combination is within the objectives", "objectives"};
}

Result<void> run_tune(const cli::Arguments& arguments) {
  if (arguments.has("--list")) {
    if (!arguments.has("--history")) {
      return Error{ErrorCode::kInvalidArgument, "--list wants --history FILE: what it lists",
                   "list"};
    }
    TRY_ASSIGN(const std::string text, history_list(arguments.text("--history")));
    return write_text(text);
  }
  if (!arguments.has("MODEL")) {
    return Error{ErrorCode::kInvalidArgument, "tune wants a MODEL, or --list with --history FILE",
                 "MODEL"};
  }
  TRY_ASSIGN(PointPlayer player, PointPlayer::make(arguments, tune_verb().flags));
  if (arguments.has("--ablate")) return ablate(arguments, player);
  TRY_ASSIGN(const std::vector<Variation> axes, read_axes(arguments));
  TRY_ASSIGN(std::vector<report::Objective> objectives,
             report::parse_objectives(arguments.text("--objectives")));
  if (objectives.empty()) {
    constexpr double kNoBound = std::numeric_limits<double>::infinity();
    objectives = {{report::Metric::kTtft, kNoBound}, {report::Metric::kTpot, kNoBound}};
  }
  TRY_ASSIGN(const BestBy best_by, read_best_by(arguments, axes));
  return search_best({.arguments = arguments, .objectives = objectives, .best_by = best_by}, player,
                     axes);
}

// Those of the search; those of the simulator and of --confirm come behind.
std::vector<Flag> search_flags() {
  return {{.name = "--vary",
           .value = "FLAG=V,V",
           .help = "values of a flag of simulate, as max-num-seqs=16,64 or "
                   "kv-cache-dtype=auto,int8; default slots and tokens a step",
           .many = true,
           .not_with = {{"--ablate"}}},
          {.name = "--hardware",
           .value = "LIST",
           .help = "also vary the machine type: GPUs and instances, each with dollars for an "
                   "hour of a device or instance, as l4@0.7,h100@2.5,p5.48xlarge",
           .may_be_empty = false,
           .not_with = {{"--gpu"}, {"--instance"}, {"--ablate"}}},
          {.name = "--best-by",
           .value = "WHAT",
           .help = "the most tokens/s of a replica, of a device, or for a dollar (cost); "
                   "default replica, with --hardware cost where all prices are known",
           .choices = {"replica", "device", "cost"},
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
          {.name = "--history",
           .value = "FILE",
           .help = "keep what was played in this SQLite file, and play nothing twice"},
          {.name = "--list",
           .help = "what --history FILE has kept, and no search",
           .kind = Flag::Kind::kSwitch,
           .in_config = false},
          {.name = "--json",
           .value = "FILE",
           .help = "also write every combination's figures; - is stdout"}};
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
          "the objectives. As many runs as there are combinations, or with --search halving "
          "fewer.\n"
          "--confirm measures the best few on a real server.",
      .positionals = {{"MODEL", "a folder, a hub id, a published shape or a config.json", false}},
      .flags = search_flags(),
      .examples =
          {"pelton tune gpt-oss-20b --gpu h100 --request-rate 20 --num-prompts 500 "
           "--objectives 'ttft:1000 tpot:30' --out serve.toml",
           "pelton tune gpt-oss-20b --gpu l4 --vary max-num-seqs=8,16,32 --vary "
           "kv-cache-dtype=auto,int8 --request-rate 4 --num-prompts 200",
           "pelton tune gpt-oss-20b --hardware l4@0.7,l40s@1.1,p5.48xlarge --request-rate 4 "
           "--num-prompts 200 --history tune.db",
           "pelton tune ./model --vary max-num-seqs=4,16 --max-concurrency 16 --num-prompts 100 "
           "--confirm local",
           "pelton tune gpt-oss-20b --gpu h100 --request-rate 20 --num-prompts 500 --ablate"},
      .run = run_tune};
  for (Flag& flag : simulate_verb().flags) {
    const bool is_other = flag.name == "--json" || flag.name == "--html" ||
                          flag.name == "--goodput" || flag.name == "--metric-percentiles" ||
                          flag.name == "--late-seconds" || flag.name == "--scenario" ||
                          flag.name == "--list" || flag.name == "--price" ||
                          is_of_whole_run(flag.name) || flag.name == "--record-facts";
    if (is_other) continue;
    // --hardware names some, too.
    for (std::vector<cli::Circumstance>* const where : {&flag.only_with, &flag.not_with}) {
      if (flag.name == "--gpu" || flag.name == "--instance") continue;
      if (std::ranges::find(*where, "--gpu", &cli::Circumstance::flag) != where->end()) {
        where->push_back({"--hardware"});
      }
    }
    // An axis of --vary may be what a flag needs: check_effects() looks which.
    if (!flag.only_with.empty()) flag.only_with.push_back({"--vary"});
    verb.flags.push_back(std::move(flag));
  }
  for (Flag& flag : confirm_flags()) verb.flags.push_back(std::move(flag));
  return verb;
}

}  // namespace pelton::apps
