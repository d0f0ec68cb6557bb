#include "apps/simulate_fluid.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "apps/input.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/terminal_text.h"
#include "report/confidence.h"
#include "simulator/fleet_page.h"
#include "simulator/fluid_fleet.h"
#include "simulator/fluid_year.h"

namespace pelton::apps {
namespace {

using cli::Flag;
using simulator::FleetFigures;
using simulator::SimulationResult;
using simulator::YearOptions;
using simulator::YearResult;

constexpr double kDay_s = 86'400;
constexpr int64_t kSampled = 1024;  // requests whose lengths stand for a year's
constexpr size_t kClasses = 4;
constexpr double kDecide_s = 60;

struct Row {
  std::string name;
  std::function<double(const FleetFigures&)> of;
};

std::vector<Row> figure_rows() {
  const auto share = [](int64_t count, const FleetFigures& one) {
    return 100 * static_cast<double>(count) /
           static_cast<double>(std::max<int64_t>(one.requests, 1));
  };
  return {{"output tokens/s", [](const FleetFigures& one) { return one.output_tokens_per_s; }},
          {"TTFT p50, s", [](const FleetFigures& one) { return one.ttft_p50_s.value_or(0); }},
          {"TTFT p90, s", [](const FleetFigures& one) { return one.ttft_p90_s.value_or(0); }},
          {"TTFT p99, s", [](const FleetFigures& one) { return one.ttft_p99_s.value_or(0); }},
          {"late, %", [=](const FleetFigures& one) { return share(one.late, one); }},
          {"lost, %", [=](const FleetFigures& one) { return share(one.lost, one); }},
          {"replica-hours", [](const FleetFigures& one) { return one.replica_hours; }}};
}

// One run for each seed from --seed on.
template <typename Play>
Result<void> for_seeds(const cli::Arguments& arguments, const Play& play) {
  const int64_t first = arguments.integer("--seed");
  for (int64_t i = 0; i < arguments.integer("--seeds"); ++i) {
    TRY_ASSIGN(
        const cli::Arguments seeded,
        cli::with_values(simulate_verb().flags, arguments, {{"seed", std::to_string(first + i)}}));
    TRY(play(seeded));
  }
  return {};
}

Result<YearOptions> read_year(const cli::Arguments& arguments, const Play& play,
                              const simulator::Scenario* scenario) {
  YearOptions year{.fleet = play.options, .arrivals = play.spec.arrivals};
  if (year.fleet.autoscaling && !arguments.has("--decision-interval")) {
    year.fleet.autoscaling->tick_s = kDecide_s;
  }
  year.classes =
      simulator::request_classes(play.workload, play.options.output_tokens_otherwise, kClasses);
  // Arrivals are conversations', each turn is a request.
  size_t turns = 0;
  for (const workload::Conversation& one : play.workload.conversations) turns += one.turns.size();
  const double each = static_cast<double>(turns) /
                      static_cast<double>(std::max<size_t>(play.workload.conversations.size(), 1));
  year.arrivals.rate *= each;
  for (workload::Spike& one : year.arrivals.spikes) one.rps *= each;
  year.pools = static_cast<int>(arguments.integer("--pools"));
  year.duration_s = arguments.number("--days") * kDay_s;
  year.tick_s = arguments.number("--fluid-tick");
  year.zones = static_cast<int>(arguments.integer("--failure-zones"));
  year.regions = static_cast<int>(arguments.integer("--failure-regions"));
  year.failover_s = arguments.number("--failover-seconds");
  year.late_s = arguments.number("--late-seconds");
  if (scenario != nullptr && scenario->fault_rates) {
    TRY_ASSIGN(year.faults, simulator::parse_fault_rates(*scenario->fault_rates, scenario->name));
  }
  std::vector<std::string> causes;
  for (const simulator::FaultRate& one : year.faults) causes.push_back(one.cause);
  for (const std::string& cause : arguments.list("--without")) {
    if (std::ranges::find(causes, cause) == causes.end()) {
      const std::optional<std::string> near = cli::nearest(cause, causes);
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--without {}: there is no such cause{}", cause,
                               near ? "; did you mean '" + *near + "'?" : ""),
                   "without"};
    }
    std::erase_if(year.faults, [&](const auto& one) { return one.cause == cause; });
  }
  return year;
}

std::string nines(double availability) {
  return fmt::format("{:.5f} %", 100 * availability);
}

// Of all seeds together.
struct Years {
  std::vector<YearResult> results;
  std::vector<double> availabilities() const {
    std::vector<double> all;
    for (const YearResult& one : results) all.push_back(one.availability);
    return all;
  }
  // A cause's share of all requests, on average; by its name.
  std::vector<simulator::CauseShare> causes() const {
    std::vector<simulator::CauseShare> all = results.front().causes;
    for (simulator::CauseShare& cause : all) {
      cause.incidents = 0;
      cause.requests = cause.share = 0;
      for (const YearResult& one : results) {
        const auto found =
            std::ranges::find(one.causes, cause.cause, &simulator::CauseShare::cause);
        cause.incidents += found->incidents;
        cause.requests += found->requests / static_cast<double>(results.size());
        cause.share += found->share / static_cast<double>(results.size());
      }
    }
    std::ranges::stable_sort(all, std::greater<>(), &simulator::CauseShare::share);
    return all;
  }
};

// What is no count: the mean of all runs; the most replicas: of all runs.
FleetFigures mean_figures(const Years& years) {
  FleetFigures figures = years.results.front().figures;
  const auto mean = [&](const auto& of) {
    double sum = 0;
    for (const YearResult& one : years.results) sum += of(one.figures);
    return sum / static_cast<double>(years.results.size());
  };
  for (double FleetFigures::*const figure :
       {&FleetFigures::output_tokens_per_s, &FleetFigures::replica_hours, &FleetFigures::used_hours,
        &FleetFigures::needed_hours}) {
    figures.*figure = mean([&](const FleetFigures& one) { return one.*figure; });
  }
  for (std::optional<double> FleetFigures::*const figure :
       {&FleetFigures::ttft_p50_s, &FleetFigures::ttft_p90_s, &FleetFigures::ttft_p99_s,
        &FleetFigures::held_mean_s, &FleetFigures::cost}) {
    if (!(figures.*figure)) continue;
    figures.*figure = mean([&](const FleetFigures& one) { return (one.*figure).value_or(0); });
  }
  for (const YearResult& one : years.results)
    figures.most = std::max(figures.most, one.figures.most);
  return figures;
}

std::string causes_table(const Years& years) {
  std::string text = fmt::format("{:<12} {:>10} {:>14} {:>12} {:>16}\n", "cause", "incidents",
                                 "late or lost", "of all, %", "as minutes of it");
  const double minutes = years.results.front().timeline.part_s *
                         static_cast<double>(years.results.front().timeline.requests.size()) / 60;
  for (const simulator::CauseShare& one : years.causes()) {
    text += fmt::format("{:<12} {:>10} {:>14.0f} {:>12.5f} {:>16.1f}\n", one.cause, one.incidents,
                        one.requests, 100 * one.share, minutes * one.share);
  }
  return text;
}

std::string year_text(const Years& years, const YearOptions& options, double took_s) {
  const report::Interval interval = report::mean_interval(years.availabilities());
  const FleetFigures figures = mean_figures(years);
  double requests = 0;
  for (const YearResult& one : years.results) requests += one.requests;
  const auto runs = static_cast<double>(years.results.size());
  std::string text = fmt::format(
      "{:g} days of {} pool{}{}, {}: {:.3g} requests, {:.2f} replicas on average and {} at "
      "most\navailability (first token within {:g} s) {}",
      options.duration_s / kDay_s, options.pools, options.pools == 1 ? "" : "s",
      options.regions == 1 ? "" : fmt::format(" in {} regions", options.regions),
      runs == 1 ? std::string("1 run") : fmt::format("{} runs, their means", runs), requests / runs,
      figures.replica_hours * 3600 / options.duration_s, figures.most, options.late_s,
      nines(interval.mean));
  if (interval.has_bounds) {
    text += fmt::format(", 95 % interval {} to {}", nines(std::max(interval.low, 0.0)),
                        nines(std::min(interval.high, 1.0)));
  }
  text += fmt::format(
      "\nTTFT p50 {:.3g}, p90 {:.3g}, p99 {:.3g} s; {:.0f} replica-hours: {:.0f} busy, "
      "{:.0f} needed\n\n{}",
      figures.ttft_p50_s.value_or(0), figures.ttft_p90_s.value_or(0),
      figures.ttft_p99_s.value_or(0), figures.replica_hours, figures.used_hours,
      figures.needed_hours, causes_table(years));
  if (figures.cost) text += fmt::format("cost {:.2f}\n", *figures.cost);
  const std::vector<simulator::CauseShare> causes = years.causes();
  const auto worst = std::ranges::find_if(
      causes, [](const simulator::CauseShare& one) { return one.incidents > 0; });
  if (worst != causes.end()) {
    text += fmt::format("without '{}' it would be {} (--without {})\n", worst->cause,
                        nines(interval.mean + worst->share), worst->cause);
  }
  return text + fmt::format("modelled, not measured; took {:.1f} s\n", took_s);
}

std::string year_json(const Years& years) {
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("availability").begin_array();
  for (const double one : years.availabilities()) w.number(one);
  w.end_array().key("causes").begin_array();
  for (const simulator::CauseShare& one : years.causes()) {
    w.begin_object().key("cause").string(one.cause).key("incidents").integer(one.incidents);
    w.key("requests").number(one.requests).key("share").number(one.share).end_object();
  }
  w.end_array().key("figures");
  simulator::write_figures(w, mean_figures(years));
  w.end_object();
  return json + "\n";
}

report::Plot causes_plot(const Years& years) {
  report::Plot plot{.title = "Late or lost by cause, the largest first",
                    .x_label = "cause",
                    .y_label = "minutes a year of all requests",
                    .series = {}};
  const std::vector<simulator::CauseShare> causes = years.causes();
  for (size_t i = 0; i < causes.size(); ++i) {
    const double x = static_cast<double>(i);
    const double minutes = causes[i].share * 365 * 24 * 60;
    plot.series.push_back({.name = causes[i].cause,
                           .points = {{x, 0, {}}, {x, minutes, {}}},
                           .shape = report::PlotSeries::Shape::kLineAndDots,
                           .colour = static_cast<int>(i) % 8});
  }
  return plot;
}

Result<void> write_year_page(const cli::Arguments& arguments, const Years& years,
                             const std::string& title, const std::string& text) {
  const YearResult& first = years.results.front();
  const simulator::PlayedFleet fleet{
      .name = "first run", .figures = first.figures, .timeline = first.timeline, .steps = {}};
  const simulator::FleetPage page{
      .title = title,
      .notes = {text,
                fmt::format("Replica-hours: {:.0f} paid, {:.0f} busy, {:.0f} needed if replicas "
                            "were there at once. Replicas and held requests over time are the "
                            "first pool's.",
                            first.figures.replica_hours, first.figures.used_hours,
                            first.figures.needed_hours)},
      .plots = {causes_plot(years)}};
  return base::write_file(arguments.text("--html"), simulator::fleet_page(page, {&fleet, 1}));
}

// What fails as a whole.
std::vector<Flag> failure_flags() {
  return {
      {.name = "--failure-zones",
       .value = "N",
       .help = "zones that replicas stand in, evenly, and that fail as a whole",
       .kind = Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64,
       .only_with = {{"--days"}}},
      {.name = "--failure-regions",
       .value = "N",
       .help = "regions with an equal part of the load, replicas of their own that are scaled "
               "apart, and days that begin at other hours; a lost one's requests go to the others",
       .kind = Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64,
       .only_with = {{"--days"}}},
      {.name = "--failover-seconds",
       .value = "S",
       .help = "until a lost region's clients ask the others; what they send before is lost",
       .kind = Flag::Kind::kNumber,
       .default_text = "5",
       .least = 0,
       .most = 3600,
       .only_with = {{"--days"}}}};
}

}  // namespace

double price_of(const cli::Arguments& arguments, const simulator::SimulationOptions& options) {
  if (arguments.has("--price")) return arguments.number("--price");
  return options.autoscaling ? options.autoscaling->policy.price_each : 0;
}

bool is_of_whole_run(std::string_view flag) {
  return flag == "--check-fluid" || flag == "--seeds" || flag == "--days" || flag == "--pools" ||
         flag == "--fluid-tick" || flag == "--failure-zones" || flag == "--failure-regions" ||
         flag == "--failover-seconds" || flag == "--without" || flag == "--late-price";
}

std::vector<Flag> fluid_flags() {
  std::vector<Flag> flags = {
      {.name = "--fidelity",
       .value = "HOW",
       .help = "steps: every step of every replica; fluid: rates and amounts, for long times and "
               "large fleets",
       .default_text = "steps",
       .choices = {"steps", "fluid"}},
      {.name = "--check-fluid",
       .help = "also play the other fidelity, and say how far the two are apart on this load",
       .kind = Flag::Kind::kSwitch,
       .not_with = {{"--days"}, {"--seeds"}}},
      {.name = "--seeds",
       .value = "N",
       .help = "that many runs, of the seeds from --seed on: means with 95 % intervals",
       .kind = Flag::Kind::kInteger,
       .least = 2,
       .most = 1000},
      {.name = "--days",
       .value = "N",
       .help = "so many days of the load's rate at the fluid fidelity, with faults that are drawn "
               "(fault_rates of a scenario)",
       .kind = Flag::Kind::kNumber,
       .least = 0.01,
       .most = 3660,
       .not_with = {{"--facts"}, {"--requests"}, {"--duration"}, {"--record-facts"}}},
      {.name = "--pools",
       .value = "N",
       .help = "pools of such replicas, whose days begin at other hours",
       .kind = Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 1000,
       .only_with = {{"--days"}}},
      {.name = "--fluid-tick",
       .value = "S",
       .help = "of a year",
       .kind = Flag::Kind::kNumber,
       .default_text = "10",
       .least = 0.1,
       .most = 600,
       .only_with = {{"--days"}}},
      {.name = "--without",
       .value = "CAUSE",
       .help = "leave that kind of fault_rates out",
       .many = true,
       .only_with = {{"--days"}}}};
  for (Flag& flag : failure_flags()) flags.push_back(std::move(flag));
  return flags;
}

Result<std::string> check_fluid_text(const cli::Arguments& arguments, const Play& play,
                                     const SimulationResult& result) {
  Play other = play;
  other.is_fluid = !play.is_fluid;
  other.options.autoscaling = play.options.autoscaling;
  if (other.options.autoscaling) other.options.autoscaling->record = {};
  const Result<SimulationResult> second = simulate_play(other);
  if (!second.ok()) {
    Error error = second.error();
    error.message = "--check-fluid: " + error.message;
    return error;
  }
  const simulator::FluidCheck check = simulator::compare_fidelities(
      play.options, play.is_fluid ? *second : result, play.is_fluid ? result : *second,
      arguments.number("--late-seconds"));
  return fmt::format(
      "fluid against steps on this load: throughput {:+.1f} %, TTFT p50 {:+.1f} %, p90 {:+.1f} %, "
      "replica-hours {:+.1f} %, late requests {:+}\n",
      100 * check.throughput, 100 * check.ttft_p50, 100 * check.ttft_p90, 100 * check.replica_hours,
      check.late_by);
}

Result<void> run_year(const cli::Arguments& arguments, const std::string& model,
                      const simulator::Scenario* scenario) {
  if (arguments.source("--fidelity") == cli::Arguments::Source::kWord &&
      arguments.text("--fidelity") == "steps") {
    return Error{ErrorCode::kInvalidArgument, "--days is played at the fluid fidelity only",
                 "fidelity"};
  }
  for (const char* const flag : {"--num-prompts", "--metric-percentiles", "--goodput"}) {
    if (arguments.source(flag) != cli::Arguments::Source::kWord) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has no effect with --days: its requests are amounts, as many as "
                             "the rate makes",
                             flag),
                 flag};
  }
  Years years;
  YearOptions options;
  const base::SystemClock clock;
  const int64_t begin_ns = clock.now_ns();
  const auto play_one = [&](const cli::Arguments& seeded) -> Result<void> {
    TRY_ASSIGN(const cli::Arguments sampled,
               cli::with_values(simulate_verb().flags, seeded,
                                {{"num-prompts", std::to_string(kSampled)}}));
    TRY_ASSIGN(const Play play, read_play(sampled, model, scenario));
    TRY_ASSIGN(options, read_year(sampled, play, scenario));
    if (options.fleet.autoscaling) {
      options.fleet.autoscaling->policy.price_each = price_of(arguments, options.fleet);
    }
    TRY_ASSIGN(const cost_model::StepTimeModel times, times_of(play));
    TRY_ASSIGN(YearResult result, simulator::simulate_year(options, times));
    years.results.push_back(std::move(result));
    return {};
  };
  if (arguments.has("--seeds")) {
    TRY(for_seeds(arguments, play_one));
  } else {
    TRY(play_one(arguments));
  }
  const double took_s = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
  const std::string text = year_text(years, options, took_s);
  if (arguments.has("--html")) {
    TRY(write_year_page(arguments, years, scenario != nullptr ? scenario->title : model, text));
  }
  if (arguments.has("--json")) {
    if (arguments.text("--json") == "-") return write_output(year_json(years));
    TRY(base::write_file(arguments.text("--json"), year_json(years)));
  }
  return write_text(text);
}

Result<void> run_seeds(const cli::Arguments& arguments, const std::string& model,
                       const simulator::Scenario* scenario) {
  std::vector<simulator::PlayedFleet> fleets;
  const auto play_one = [&](const cli::Arguments& seeded) -> Result<void> {
    TRY_ASSIGN(const Play play, read_play(seeded, model, scenario));
    if (fleets.empty()) write_note(play.workload.note);
    TRY_ASSIGN(const SimulationResult result, simulate_play(play));
    fleets.push_back(simulator::played_fleet(
        fmt::format("seed {}", seeded.integer("--seed")), play.options, result,
        arguments.number("--late-seconds"), price_of(arguments, play.options)));
    return {};
  };
  TRY(for_seeds(arguments, play_one));
  std::string text = simulator::figures_table("run", fleets) +
                     fmt::format("\n{:<18} {:>12} {:>28}\n", "figure", "mean", "95 % interval");
  std::string json;
  base::JsonWriter w(json);
  w.begin_object().key("seeds").integer(std::ssize(fleets)).key("figures").begin_object();
  for (const Row& row : figure_rows()) {
    std::vector<double> values;
    for (const simulator::PlayedFleet& one : fleets) values.push_back(row.of(one.figures));
    report::Interval interval = report::mean_interval(values);
    interval.low = std::max(interval.low, 0.0);  // of what cannot be less
    text += fmt::format("{:<18} {:>12.4g} {:>13.4g} to {:>11.4g}\n", row.name, interval.mean,
                        interval.low, interval.high);
    w.key(row.name)
        .begin_object()
        .key("mean")
        .number(interval.mean)
        .key("low")
        .number(interval.low);
    w.key("high").number(interval.high).end_object();
  }
  w.end_object().end_object();
  if (arguments.has("--html")) {
    const simulator::FleetPage page{.title = scenario != nullptr ? scenario->title : model,
                                    .notes = {text, "Modelled, not measured."},
                                    .first = "run",
                                    .plots = {}};
    TRY(base::write_file(arguments.text("--html"), simulator::fleet_page(page, fleets)));
  }
  if (arguments.has("--json")) {
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  return write_text(text + "modelled, not measured\n");
}

}  // namespace pelton::apps
