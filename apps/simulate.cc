// pelton simulate: a load played against simulated replicas, faster than real time.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "apps/autoscale_flags.h"
#include "apps/engine_flags.h"
#include "apps/fleet_flags.h"
#include "apps/input.h"
#include "apps/published_table.h"
#include "apps/simulate_fluid.h"
#include "apps/simulate_speech.h"
#include "apps/simulated_adapters.h"
#include "apps/simulated_network.h"
#include "apps/simulated_play.h"
#include "apps/simulated_start.h"
#include "apps/simulated_travel.h"
#include "apps/speculation_flags.h"
#include "apps/speech_plan.h"
#include "apps/verbs.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/terminal_text.h"
#include "planner/load_share.h"
#include "report/goodput.h"
#include "report/percentile.h"
#include "report/serve_result.h"
#include "report/summary.h"
#include "simulator/fleet_figures.h"
#include "simulator/fleet_page.h"
#include "simulator/fleet_text.h"
#include "simulator/fluid_fleet.h"
#include "simulator/fronts.h"
#include "simulator/scenario.h"
#include "simulator/simulation.h"
#include "workload/offered_load.h"

namespace pelton::apps {
namespace {

using simulator::SimulationOptions;
using simulator::SimulationResult;

std::string load_text_of(const HardwareChoice& choice, const SimulationOptions& options,
                         const workload::OfferedLoad& load, double cached_share) {
  return planner::load_words(
      planner::load_share(
          choice.plan.capacity,
          {.load = load, .replicas = options.replica_count, .cached_share = cached_share}),
      options.replica_count);
}

// To be read first.
std::string preamble(const cli::Arguments& arguments, const HardwareChoice& choice) {
  const planner::CapacityOptions& capacity = choice.plan.capacity;
  std::string text = planner::worth_sentence(capacity.memory.hardware, capacity.memory.layout);
  if (choice.calibrated) return text;
  if (!has_hardware(arguments)) {
    text += fmt::format(
        " Of this machine no figures are known: those of {} stand in; give "
        "--calibration.",
        capacity.memory.hardware.title);
  }
  const auto share = [](double value) {
    return planner::format_modelled(value, planner::Unit::kShare);
  };
  return text + fmt::format(" {} of the bandwidth and {} of the {} rate are taken: {}.",
                            share(capacity.efficiency.bandwidth),
                            share(capacity.efficiency.compute),
                            cost_model::arithmetic_name(capacity.arithmetic),
                            choice.plan.efficiency_source);
}

simulator::PlayedFleet played(const cli::Arguments& arguments, std::string name,
                              const SimulationOptions& options, const SimulationResult& result) {
  return simulator::played_fleet(std::move(name), options, result,
                                 arguments.number("--late-seconds"), price_of(arguments, options));
}

// What a scenario stands on, and what the numbers are worth.
std::vector<std::string> notes_of(const simulator::Scenario* scenario, std::string preamble) {
  std::vector<std::string> notes;
  if (scenario != nullptr) {
    notes = {"Source: " + scenario->source, "Published: " + scenario->published,
             "Assumed: " + scenario->assumed};
  }
  notes.push_back(std::move(preamble));
  notes.emplace_back("Modelled, not measured.");
  return notes;
}

// Beside what a published figure is.
std::string compared_text(const simulator::Scenario& scenario, const std::string& json) {
  if (!scenario.compared) return "";
  const Result<Json> result = Json::parse(json);
  const std::optional<double> played =
      result.ok() ? result->number(scenario.compared->figure) : std::nullopt;
  if (!played || *played <= 0) {
    return fmt::format("no figure '{}' was played\n", scenario.compared->figure);
  }
  const double published = scenario.compared->value;
  return fmt::format("{}: published {:.3g}, played {:.3g}; published over played {:.0f} %\n",
                     scenario.compared->figure, published, *played, 100 * published / *played);
}

// What a scaled fleet did, and why.
std::string scaling_text(const simulator::PlayedFleet& fleet, double late_s) {
  constexpr size_t kStepsShown = 20;
  const simulator::FleetFigures& one = fleet.figures;
  std::string text = fmt::format(
      "late (first token after {:g} s) {:.2f} %, lost {}, left {}; {} starts failed; held {:.3g} s "
      "on average\nscaling steps:\n{}",
      late_s,
      100 * static_cast<double>(one.late) / static_cast<double>(std::max<int64_t>(one.requests, 1)),
      one.lost, one.left, one.failed_starts, one.held_mean_s.value_or(0),
      simulator::steps_text(fleet, kStepsShown));
  if (one.cost) text += fmt::format("cost {:.2f}\n", *one.cost);
  return text;
}

// With what only a fleet has, where it is scaled.
std::string with_fleet(std::string json, const simulator::PlayedFleet& fleet) {
  if (fleet.steps_count == 0 && !fleet.figures.held_mean_s) return json;
  json.resize(json.rfind('}'));
  json += ",\"fleet\":{\"figures\":";
  base::JsonWriter w(json);
  simulator::write_figures(w, fleet.figures);
  json += ",\"steps\":";
  base::JsonWriter steps(json);
  simulator::write_steps(steps, fleet.steps);
  return json + "}}\n";
}

// Of a run, beside its result.
struct PlayNotes {
  double took_s = 0;
  bool is_fluid = false;
  std::string checked;             // of --check-fluid
  std::vector<std::string> notes;  // of its fidelity
};

std::string fidelity_text(const PlayNotes& play_notes) {
  std::string text;
  for (const std::string& note : play_notes.notes)
    text += base::wrapped_text(note, output_columns(), 0) + "\n";
  return text + play_notes.checked;
}

Result<void> report_result(const cli::Arguments& arguments, const HardwareChoice& choice,
                           const workload::WorkloadSpec& spec, const workload::OfferedLoad& load,
                           const SimulationOptions& options, const SimulationResult& result,
                           const PlayNotes& play_notes, const simulator::Scenario* scenario) {
  TRY_ASSIGN(const std::vector<report::Objective> objectives,
             report::parse_objectives(arguments.text("--goodput")));
  report::Summary summary = report::summarize(result.records, result.duration_s, objectives);
  if (play_notes.is_fluid) summary.timing = report::TokenTiming::kMeans;
  const planner::MemoryOptions& memory = choice.plan.capacity.memory;
  const report::RunInfo info{
      .date = "00000000-000000",  // so that one seed gives one file
      .backend = "simulated",
      .endpoint = "none",
      .base_url = "none",
      .label = fmt::format("{} {}", memory.hardware.name, cost_model::layout_name(memory.layout)),
      .model = memory.shape.name,
      .tokenizer = "none",
      .dataset = spec.name,
      .num_prompts = spec.count,
      .request_rate = spec.arrivals.rate,
      .burstiness = spec.arrivals.burstiness,
      .max_concurrency = spec.concurrency_max,
      .input_len = spec.lengths.input_tokens,
      .output_len = spec.lengths.output_tokens,
      .hardware = fmt::format("simulated {} x {}, {}", options.replica_count, memory.hardware.title,
                              cost_model::layout_name(memory.layout)),
      .metadata = {{"simulated", "true"},
                   {"simulated_from", preamble(arguments, choice)},
                   {"seed", std::to_string(options.seed)}},
      .generator = {}};
  TRY_ASSIGN(const std::vector<double> percents,
             report::parse_percents(arguments.text("--metric-percentiles"), "metric-percentiles"));
  const report::Shown shown{.metrics = {report::Metric::kTtft, report::Metric::kTpot,
                                        report::Metric::kItl, report::Metric::kE2el},
                            .percents = percents};
  const simulator::PlayedFleet fleet = played(arguments, "this fleet", options, result);
  const std::string json = simulator::with_network(
      simulator::with_travel(
          with_fleet(report::result_json(info, summary, shown, result.records, false), fleet),
          options, result),
      result);
  if (arguments.has("--html")) {
    simulator::FleetPage page{.title = fmt::format("{}: {}", memory.shape.name, spec.name),
                              .notes = notes_of(scenario, preamble(arguments, choice)),
                              .plots = {}};
    if (scenario != nullptr) page.title = scenario->title;
    for (const std::string& note : play_notes.notes) page.notes.push_back(note);
    const std::string travel = simulator::travel_text(options, result);
    if (!travel.empty()) page.notes.push_back(travel);
    const std::string network = simulator::network_text(result);
    if (!network.empty()) page.notes.push_back(network);
    if (!play_notes.checked.empty()) page.notes.push_back(play_notes.checked);
    TRY(base::write_file(arguments.text("--html"), simulator::fleet_page(page, {&fleet, 1})));
  }
  if (arguments.has("--json")) {
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  const std::string scaled =
      options.autoscaling ? scaling_text(fleet, arguments.number("--late-seconds")) : "";
  return write_text(
      base::wrapped_text(preamble(arguments, choice), output_columns(), 0) + "\n" +
      report::result_text(info, summary, shown) +
      simulator::fleet_text(options, result,
                            load_text_of(choice, options, load, simulator::cached_share(result)),
                            play_notes.took_s) +
      scaled + fidelity_text(play_notes) +
      (scenario != nullptr ? compared_text(*scenario, json) : ""));
}

Result<void> run_once(const cli::Arguments& arguments, const std::string& model,
                      const simulator::Scenario* scenario) {
  if (arguments.has("--days")) return run_year(arguments, model, scenario);
  if (arguments.has("--seeds")) return run_seeds(arguments, model, scenario);
  TRY_ASSIGN(Play play, read_play(arguments, model, scenario));
  write_note(play.workload.note);
  std::string facts;
  if (arguments.has("--record-facts")) {
    play.options.autoscaling->record = [&](std::string_view line) {
      facts += line;
      facts += '\n';
    };
  }
  const base::SystemClock clock;
  const int64_t begin_ns = clock.now_ns();
  TRY_ASSIGN(const SimulationResult result, simulate_play(play));
  PlayNotes play_notes{.took_s = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9,
                       .is_fluid = play.is_fluid,
                       .checked = {},
                       .notes = {}};
  if (play.is_fluid) play_notes.notes = simulator::fluid_notes(play.options, result);
  if (arguments.has("--check-fluid")) {
    TRY_ASSIGN(play_notes.checked, check_fluid_text(arguments, play, result));
  }
  if (arguments.has("--record-facts")) {
    TRY(base::write_file(arguments.text("--record-facts"), facts));
  }
  return report_result(arguments, play.choice, play.spec, workload::offered_load(play.workload),
                       play.options, result, play_notes, scenario);
}

// What replicas take, and late, lost and left requests at --late-price each; none: not asked.
Result<std::optional<double>> cost_with_late(const cli::Arguments& arguments,
                                             const simulator::FleetFigures& figures) {
  if (!arguments.has("--late-price")) return std::optional<double>();
  if (!figures.cost) {
    return Error{ErrorCode::kInvalidArgument,
                 "--late-price has no effect: what a replica takes is not known (--price)",
                 "late-price"};
  }
  const auto bad = static_cast<double>(figures.late + figures.lost + figures.left);
  return std::optional(*figures.cost + bad * arguments.number("--late-price"));
}

// The value of a sweep at which least is spent; fewest replica-hours alone would always be at the
// most reckless one.
struct LeastCost {
  std::vector<double> costs;  // empty: late requests have no price
  size_t at = 0;
};
Result<LeastCost> least_cost(const cli::Arguments& arguments,
                             const std::vector<simulator::PlayedFleet>& fleets) {
  LeastCost least;
  for (const simulator::PlayedFleet& one : fleets) {
    TRY_ASSIGN(const std::optional<double> cost, cost_with_late(arguments, one.figures));
    if (!cost) return least;
    least.costs.push_back(*cost);
    if (*cost < least.costs[least.at]) least.at = least.costs.size() - 1;
  }
  return least;
}

report::Plot cost_plot(const simulator::Scenario& scenario, const LeastCost& least) {
  report::PlotSeries series{
      .name = "", .points = {}, .shape = report::PlotSeries::Shape::kLineAndDots};
  for (size_t i = 0; i < least.costs.size(); ++i) {
    series.points.push_back(
        {scenario.sweep->values[i], least.costs[i], i == least.at ? "the least" : ""});
  }
  return {.title = "Money, with what late requests take",
          .x_label = scenario.sweep->flag,
          .y_label = "dollars",
          .series = {std::move(series)}};
}

// What a sweep comes to, in a sentence.
std::string sweep_text(const cli::Arguments& arguments, const simulator::Scenario& scenario,
                       const std::vector<simulator::PlayedFleet>& fleets, const LeastCost& least) {
  const std::string late =
      fmt::format("late: first token after {:g} s; ", arguments.number("--late-seconds"));
  if (!least.costs.empty()) {
    return late + fmt::format(
                      "with {:g} for each that was late, lost or left the least is spent "
                      "at {} {}: {:.2f}\n",
                      arguments.number("--late-price"), scenario.sweep->flag, fleets[least.at].name,
                      least.costs[least.at]);
  }
  const auto fewest = [&](const auto& of) {
    return std::ranges::min_element(
               fleets, {}, [&](const simulator::PlayedFleet& one) { return of(one.figures); })
        ->name;
  };
  return late + fmt::format(
                    "the fewest replica-hours at {} {}, the fewest late, lost or left at "
                    "{}; --late-price says what one of these is worth\n",
                    scenario.sweep->flag, fewest([](const auto& one) { return one.replica_hours; }),
                    fewest([](const auto& one) {
                      return static_cast<double>(one.late + one.lost + one.left);
                    }));
}

// One run for each value, all of the same seed.
Result<void> run_sweep(const cli::Arguments& arguments, const std::string& model,
                       const simulator::Scenario& scenario) {
  std::vector<simulator::PlayedFleet> fleets;
  std::string worth;
  for (const double value : scenario.sweep->values) {
    const std::string text = fmt::format("{:g}", value);
    TRY_ASSIGN(const cli::Arguments changed,
               cli::with_values(simulate_verb().flags, arguments,
                                {{cli::config_name(scenario.sweep->flag), text}}));
    TRY_ASSIGN(const Play play, read_play(changed, model, &scenario));
    TRY_ASSIGN(const SimulationResult result, simulate_play(play));
    fleets.push_back(played(changed, text, play.options, result));
    worth = preamble(changed, play.choice);
  }
  TRY_ASSIGN(const LeastCost least, least_cost(arguments, fleets));
  if (arguments.has("--html")) {
    simulator::FleetPage page{
        .title = scenario.title,
        .notes = notes_of(&scenario, worth),
        .first = scenario.sweep->flag,
        .plots = simulator::sweep_plots(scenario.sweep->flag, scenario.sweep->values, fleets)};
    page.notes.push_back(sweep_text(arguments, scenario, fleets, least));
    if (!least.costs.empty()) page.plots.push_back(cost_plot(scenario, least));
    TRY(base::write_file(arguments.text("--html"), simulator::fleet_page(page, fleets)));
  }
  if (arguments.has("--json")) {
    std::string json;
    base::JsonWriter w(json);
    w.begin_object().key("scenario").string(scenario.name);
    w.key("flag").string(scenario.sweep->flag).key("runs").begin_array();
    for (size_t i = 0; i < fleets.size(); ++i) {
      w.begin_object().key("value").number(scenario.sweep->values[i]).key("figures");
      simulator::write_figures(w, fleets[i].figures);
      if (!least.costs.empty()) w.key("cost_with_late").number(least.costs[i]);
      w.end_object();
    }
    w.end_array();
    if (!least.costs.empty()) w.key("least_at").number(scenario.sweep->values[least.at]);
    w.end_object();
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  return write_text(fmt::format("{}\n{}\n{}modelled, not measured\n",
                                base::wrapped_text(worth, output_columns(), 0),
                                simulator::figures_table(scenario.sweep->flag, fleets),
                                sweep_text(arguments, scenario, fleets, least)));
}

Result<simulator::FrontPoint> play_point(const cli::Arguments& arguments, const std::string& model,
                                         const simulator::Scenario& scenario, double value) {
  TRY_ASSIGN(const Play play, read_play(arguments, model, &scenario));
  TRY_ASSIGN(const SimulationResult result, simulate_play(play));
  TRY_ASSIGN(const std::vector<report::Objective> objectives,
             report::parse_objectives(arguments.text("--goodput")));
  const report::Summary summary = report::summarize(result.records, result.duration_s, objectives);
  const int gpus = play.options.replica_count * play.choice.plan.capacity.memory.layout.devices();
  return simulator::front_point(summary, value, gpus);
}

// Each of several fleets at each value.
Result<void> run_fronts(const cli::Arguments& arguments, const std::string& model,
                        const simulator::Scenario& scenario) {
  constexpr double kWantedRatio = 4;
  std::vector<simulator::PlayedFront> fronts(scenario.fronts.size());
  for (size_t i = 0; i < fronts.size(); ++i) {
    fronts[i].name = scenario.fronts[i].name;
    for (const double value : scenario.sweep->values) {
      std::vector<std::pair<std::string, std::string>> values;
      for (const auto& [flag, text] : scenario.fronts[i].flags) {
        values.emplace_back(cli::config_name(flag), text);
      }
      values.emplace_back(cli::config_name(scenario.sweep->flag), fmt::format("{:g}", value));
      TRY_ASSIGN(const cli::Arguments changed,
                 cli::with_values(simulate_verb().flags, arguments, values));
      TRY_ASSIGN(const simulator::FrontPoint point, play_point(changed, model, scenario, value));
      fronts[i].points.push_back(point);
    }
  }
  const std::string text = simulator::fronts_text(scenario.sweep->flag, fronts, kWantedRatio);
  if (arguments.has("--json")) {
    const std::string json = simulator::fronts_json(scenario.name, scenario.sweep->flag, fronts);
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  if (arguments.has("--html")) {
    simulator::FleetPage page{.title = scenario.title,
                              .notes = notes_of(&scenario, text),
                              .plots = {simulator::fronts_plot(fronts)}};
    TRY(base::write_file(arguments.text("--html"), simulator::fleet_page(page, {})));
  }
  return write_text(text + "modelled, not measured\n");
}

// What is given and would be without effect where a scenario plays several runs, or a table.
Result<void> refuse_words(const cli::Arguments& arguments, const std::string& what,
                          base::FunctionRef<bool(const cli::Flag&)> is_ignored) {
  for (const cli::Flag& flag : simulate_verb().flags) {
    if (arguments.source(flag.name) != cli::Arguments::Source::kWord || !is_ignored(flag)) continue;
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} has no effect: {}", flag.name, what),
                 flag.name};
  }
  return {};
}

Result<void> play_table(const cli::Arguments& arguments, const simulator::Scenario& scenario) {
  const std::string what = fmt::format(
      "{} plays a published table, whose model, hardware and load are given", scenario.name);
  if (arguments.has("MODEL")) {
    return Error{ErrorCode::kInvalidArgument, "MODEL has no effect: " + what, "MODEL"};
  }
  TRY(refuse_words(arguments, what, [](const cli::Flag& flag) {
    return flag.name != "--scenario" && flag.name != "--json" && flag.name != "--html";
  }));
  return run_table(arguments, scenario);
}

// One run for each value, or as many for each front: all with the figures of a fleet. `all`: with
// what the scenario says.
Result<void> play_several(const cli::Arguments& arguments, const cli::Arguments& all,
                          const std::string& model, const simulator::Scenario& scenario) {
  const bool has_fronts = !scenario.fronts.empty();
  constexpr std::string_view kOfOneRun[] = {"--days", "--seeds", "--check-fluid", "--record-facts",
                                            "--metric-percentiles"};
  const auto is_front_flag = [&](const std::string& name) {
    return name == scenario.sweep->flag ||
           std::ranges::any_of(scenario.fronts, [&](const simulator::Front& front) {
             return std::ranges::find(front.flags, name,
                                      &std::pair<std::string, std::string>::first) !=
                    front.flags.end();
           });
  };
  TRY(refuse_words(
      arguments,
      has_fronts
          ? fmt::format("{} sets it for each of its fronts, or says nothing of it", scenario.name)
          : fmt::format("{} plays a run for each {}: give one", scenario.name,
                        scenario.sweep->flag),
      [&](const cli::Flag& flag) {
        if (std::ranges::find(kOfOneRun, flag.name) != std::end(kOfOneRun)) return true;
        if (!has_fronts) return flag.name == "--goodput";
        return flag.name == "--late-seconds" || flag.name == "--price" ||
               flag.name == "--late-price" || is_front_flag(flag.name);
      }));
  return has_fronts ? run_fronts(all, model, scenario) : run_sweep(all, model, scenario);
}

Result<void> list_scenarios() {
  std::string out;
  for (const simulator::Scenario& one : simulator::built_in_scenarios()) {
    out += fmt::format("{:<22} {}\n", one.name, one.title);
  }
  return write_output(out);
}

// What keeps a flag of the command line from having an effect may stand in the scenario. `all`:
// with what that says.
Result<void> check_circumstances(const std::vector<cli::Flag>& flags,
                                 const cli::Arguments& arguments, const cli::Arguments& all) {
  const auto holds = [&](const cli::Circumstance& one) {
    if (!all.knows(one.flag) || !all.has(one.flag)) return false;
    return one.values.empty() ||
           std::ranges::find(one.values, all.text(one.flag)) != one.values.end();
  };
  for (const cli::Flag& flag : flags) {
    if (arguments.source(flag.name) != cli::Arguments::Source::kWord) continue;
    const auto hinders = std::ranges::find_if(flag.not_with, holds);
    if (hinders == flag.not_with.end()) continue;
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no effect with {}, which the scenario gives", flag.name, hinders->flag),
        flag.name};
  }
  return {};
}

// Flags of the command line go before those of the scenario.
Result<cli::Arguments> with_scenario(const cli::Arguments& arguments,
                                     const simulator::Scenario& scenario) {
  std::vector<std::pair<std::string, std::string>> values;
  const std::vector<cli::Flag> flags = simulate_verb().flags;
  const auto is_said = [&](const std::string& name) {
    return arguments.knows(name) && arguments.source(name) == cli::Arguments::Source::kWord;
  };
  for (const auto& [name, value] : scenario.flags) {
    const auto flag = std::ranges::find(flags, name, &cli::Flag::name);
    // What the command line says instead of it.
    const bool yields =
        flag != flags.end() &&
        std::ranges::any_of(flag->not_with, [&](const auto& other) { return is_said(other.flag); });
    if (!is_said(name) && !yields) values.emplace_back(cli::config_name(name), value);
  }
  Result<cli::Arguments> all = cli::with_values(flags, arguments, values);
  if (!all.ok()) {
    Error error = all.error();
    error.message = fmt::format("{}: {}", scenario.name, error.message);
    return error;
  }
  TRY(check_circumstances(flags, arguments, *all));
  return all;
}

Result<void> run_simulate(const cli::Arguments& arguments) {
  if (arguments.has("--list")) return list_scenarios();
  const std::string& model = arguments.text("MODEL");
  if (!arguments.has("--scenario")) {
    if (const auto folder = speech_model_folder(model)) {
      return simulate_speech_model(arguments, model, *folder);
    }
    if (!model.empty()) {
      TRY(refuse_speech_flags(arguments, model));
      return run_once(arguments, model, nullptr);
    }
    return Error{ErrorCode::kInvalidArgument, "MODEL or --scenario says what is simulated",
                 "MODEL"};
  }
  TRY_ASSIGN(const simulator::Scenario scenario,
             simulator::find_scenario(arguments.text("--scenario")));
  if (!arguments.has("--json") || arguments.text("--json") != "-") {
    TRY(write_text(fmt::format(
        "{}\n{}", scenario.title,
        base::wrapped_text(fmt::format("Source: {}. Published: {}. Assumed: {}.\n", scenario.source,
                                       scenario.published, scenario.assumed),
                           output_columns(), 0))));
  }
  if (!scenario.table.empty()) return play_table(arguments, scenario);
  TRY_ASSIGN(const cli::Arguments all, with_scenario(arguments, scenario));
  const std::string& played = model.empty() ? scenario.model : model;
  const bool sweeps =
      scenario.sweep && (!arguments.knows(scenario.sweep->flag) ||
                         arguments.source(scenario.sweep->flag) != cli::Arguments::Source::kWord);
  if (scenario.fronts.empty() && !sweeps) {
    if (arguments.has("--late-price")) {
      return Error{ErrorCode::kInvalidArgument, "--late-price is of a sweep, and one run is played",
                   "late-price"};
    }
    return run_once(all, played, &scenario);
  }
  return play_several(arguments, all, played, scenario);
}

// Some are of this machine alone.
std::vector<cli::Flag> memory_flags_of_here() {
  std::vector<cli::Flag> memory = memory_flags();
  for (cli::Flag& flag : memory) {
    const bool of_here =
        flag.name == "--kernels" || flag.name == "--threads" || flag.name == "--kv-cache-memory";
    if (of_here) flag.not_with = named_hardware();
  }
  return memory;
}

// Who sends requests, and from where.
std::vector<cli::Flag> gateway_flags() {
  return {
      {.name = "--gateways",
       .value = "N",
       .help = "that requests come to, each by what it knows itself",
       .kind = cli::Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64},
      {.name = "--report-interval",
       .value = "MS",
       .help = "from one report of the replicas to the next, as gateways hear of them (100); 0: "
               "they see them as they are",
       .kind = cli::Flag::Kind::kNumber,
       .default_text = "0",
       .most = 10'000},
      {.name = "--zones",
       .value = "N",
       .help = "zones that gateways and replicas stand in, by turns",
       .kind = cli::Flag::Kind::kInteger,
       .default_text = "1",
       .least = 1,
       .most = 64,
       .only_with = {{"--gateways"}}},
      {.name = "--zone-distance",
       .value = "MS",
       .help = "from one zone to another, there and back",
       .kind = cli::Flag::Kind::kNumber,
       .default_text = "50",
       .most = 60'000,
       .only_with = {{"--zones"}}}};
}

// What clients do, and what is played instead of flags.
std::vector<cli::Flag> scenario_flags() {
  return {{.name = "--patience",
           .value = "S",
           .help = "clients leave who have no first token by then; default never",
           .kind = cli::Flag::Kind::kNumber,
           .least = 0.001,
           .most = 86'400},
          {.name = "--client-retries",
           .value = "N",
           .help = "how often clients send a request again that failed",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "0",
           .most = 100},
          {.name = "--client-back-off",
           .value = "S",
           .help = "before the first of these; twice as long each time",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "1",
           .most = 86'400},
          {.name = "--facts",
           .value = "FILE",
           .help = "requests come when they came by an autoscaler's --record-facts, which is "
                   "decided again first",
           .not_with = {{"--request-rate"}, {"--num-prompts"}}},
          {.name = "--requests",
           .value = "FILE",
           .help = "the load that pelton gateway --record-requests wrote, or a trace of Mooncake's "
                   "shape: when requests came, their lengths, what their prompts share",
           .not_with = {{"--workload"},
                        {"--facts"},
                        {"--request-rate"},
                        {"--input-len"},
                        {"--output-len"},
                        {"--random-range-ratio"}}},
          {.name = "--scenario",
           .value = "NAME",
           .help = "one of --list, or a file: model, load, fleet and faults; flags go before what "
                   "it says"},
          {.name = "--list",
           .help = "the scenarios that are compiled in, and end",
           .kind = cli::Flag::Kind::kSwitch}};
}

// What is simulate's own.
std::vector<cli::Flag> fleet_flags() {
  return {{.name = "--replicas",
           .value = "N",
           .help = "copies of the model behind one dispatcher; of a fleet that is scaled, in "
                   "the beginning: also 0",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "1",
           .least = 0,
           .most = 10'000},
          {.name = "--router",
           .value = "HOW",
           .help = "who gets a request; cost: as the gateway; prefix-threshold: as SGLang",
           .default_text = "least-busy",
           .choices = simulator::router_names()},
          {.name = "--faults",
           .value = "FILE",
           .help = "what goes wrong when (docs/formats/workload.md)"},
          {.name = "--duration",
           .value = "SECONDS",
           .help = "stop there; default when all is answered",
           .kind = cli::Flag::Kind::kNumber,
           .least = 0.001,
           .most = 1e9},
          {.name = "--seed",
           .value = "S",
           .help = "of everything that is drawn",
           .kind = cli::Flag::Kind::kInteger,
           .default_text = "0"},
          {.name = "--no-noise",
           .help = "steps take what the model says, not what it left over when it was fitted",
           .kind = cli::Flag::Kind::kSwitch,
           .only_with = {{"--calibration"}}},
          {.name = "--max-concurrency",
           .value = "N",
           .help = "requests under way at once, of all clients",
           .kind = cli::Flag::Kind::kInteger,
           .least = 1,
           .most = 1e6},
          {.name = "--goodput",
           .value = "BOUNDS",
           .help = "objectives, as 'ttft:500 tpot:50', in milliseconds"},
          {.name = "--metric-percentiles",
           .value = "P,P",
           .help = "which percentiles",
           .default_text = "50,90,99"},
          {.name = "--late-seconds",
           .value = "S",
           .help = "a request is late whose first token comes later",
           .kind = cli::Flag::Kind::kNumber,
           .default_text = "2",
           .most = 86'400},
          {.name = "--price",
           .value = "DOLLARS",
           .help = "of a replica for an hour; default what [scale] says, or nobody asks",
           .kind = cli::Flag::Kind::kNumber,
           .most = 1e6},
          {.name = "--late-price",
           .value = "DOLLARS",
           .help = "of a request that is late, lost or left: at which value of a scenario's sweep "
                   "the least is spent",
           .kind = cli::Flag::Kind::kNumber,
           .most = 1e6,
           .only_with = {{"--scenario"}},
           .not_with = {{"--days"}, {"--seeds"}}},
          {.name = "--html",
           .value = "FILE",
           .help = "also write a page: load, replicas, late requests, money over one time axis"},
          {.name = "--json", .value = "FILE", .help = "also write the result; - is stdout"}};
}

}  // namespace

cli::Verb simulate_verb() {
  cli::Verb verb{
      .name = "simulate",
      .summary = "Simulates a workload on replicas, with the shipped scheduler.",
      .about =
          "Virtual time: the scheduler that serves is linked, clock and arithmetic are modelled. "
          "The\n"
          "metrics are bench serve's. One seed replays one run, byte for byte. Without --gpu or\n"
          "--instance the engine of this machine is simulated, with the blocks that serve's flags "
          "give\n"
          "it; a --calibration of this machine makes its times those measured here.",
      .positionals = {{.name = "MODEL",
                       .help = "a folder, a hub id, a published shape or a config.json",
                       .required = false}},
      .flags = fleet_flags(),
      .examples =
          {"pelton simulate gpt-oss-120b --gpu h100 --max-num-seqs 64 --request-rate 4",
           "pelton simulate ./model --calibration c.json --workload conversation",
           "pelton simulate gpt-oss-20b --gpu h100 --autoscale concurrency --max-replicas 4",
           "pelton simulate --scenario spike --html spike.html",
           "pelton simulate gpt-oss-20b --gpu h100 --replicas 2 --router cost --adapters 20 "
           "--max-loras 4",
           "pelton simulate gpt-oss-120b --instance p5.48xlarge --layout tp2 --replicas 4"},
      .run = run_simulate};
  std::vector<cli::Flag> hardware = hardware_flags();
  for (cli::Flag& flag : hardware) {
    if (flag.name == "--devices" || flag.name == "--layout") flag.only_with = named_hardware();
  }
  const std::vector<cli::Flag> memory = memory_flags_of_here();
  const std::vector<cli::Flag> batch = batch_flags();
  for (std::vector<cli::Flag> some :
       {hardware, workload_flags(), memory, batch, queue_flags(), modelled_speculation_flags(),
        autoscale_flags(), gateway_flags(), simulated_adapter_flags(), simulated_travel_flags(),
        simulated_start_flags(), simulated_network_flags(), simulated_speech_flags(),
        scenario_flags(), fluid_flags()}) {
    for (cli::Flag& flag : some) verb.flags.push_back(std::move(flag));
  }
  for (cli::Flag& flag : verb.flags) {
    if (flag.name != "--list") flag.not_with.push_back({"--list"});
  }
  return verb;
}

}  // namespace pelton::apps
