// pelton whatif: an autoscaler's recorded facts, played with its knobs and with others.
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "apps/autoscale_flags.h"
#include "apps/input.h"
#include "apps/verbs.h"
#include "base/duration.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/terminal_text.h"
#include "simulator/fleet_page.h"
#include "simulator/recorded_hour.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr size_t kFactsBytesMax = size_t{256} << 20;

// The settings in a line, as a name.
std::string settings_text(const std::vector<std::string>& settings) {
  std::string text;
  for (const std::string& one : settings) text += (text.empty() ? "" : ", ") + one;
  return text;
}

Result<simulator::PlayedFleet> play(const simulator::RecordedHour& hour,
                                    const gateway::ScalingConfig& scaling, std::string name,
                                    const cli::Arguments& arguments) {
  simulator::Autoscaling asked = simulator::autoscaling_of(hour);
  asked.policy = scaling.policy;
  asked.held_max = scaling.hold.requests_max;
  asked.hold_s_max = scaling.hold.time_max_s;
  asked.replicas = std::min(asked.replicas, asked.policy.replicas_max);
  simulator::SimulationOptions used;
  TRY_ASSIGN(
      const simulator::SimulationResult result,
      simulator::play_hour(hour, asked, static_cast<uint64_t>(arguments.integer("--seed")), &used));
  return simulator::played_fleet(std::move(name), used, result, arguments.number("--late-seconds"),
                                 asked.policy.price_each);
}

std::string notes_text(const simulator::RecordedHour& hour) {
  return fmt::format(
      "Pool '{}': {} decisions in {:.0f} s, each as it was recorded; {} requests of {:.3g} s on "
      "average; replicas of {} slots, ready after {:.3g} s.",
      hour.pool, hour.decisions, hour.duration_s, hour.at_s.size(), hour.service_mean_s, hour.slots,
      hour.start_s);
}

constexpr const char* kLimits =
    "What requests asked for was not recorded: each takes as long as those of its minute did, "
    "however full its replica is, and a first token comes a 32nd of that after it has begun.";

// Seconds that requests waited in the gateway, which the facts say too.
std::string held_text(const std::vector<simulator::PlayedFleet>& fleets) {
  std::string text = "held in the gateway, s on average:";
  for (const simulator::PlayedFleet& one : fleets) {
    text += fmt::format(" {} {:.3g};", one.name, one.figures.held_mean_s.value_or(0));
  }
  text.back() = '\n';
  return text;
}

Result<void> report(const cli::Arguments& arguments, const simulator::RecordedHour& hour,
                    const std::vector<simulator::PlayedFleet>& fleets) {
  if (arguments.has("--html")) {
    const simulator::FleetPage page{.title = "What if: pool " + hour.pool,
                                    .notes = {notes_text(hour), kLimits, "Modelled, not measured."},
                                    .plots = {}};
    TRY(base::write_file(arguments.text("--html"), simulator::fleet_page(page, fleets)));
  }
  if (arguments.has("--json")) {
    std::string json;
    base::JsonWriter w(json);
    w.begin_object().key("pool").string(hour.pool).key("decisions").integer(hour.decisions);
    w.key("duration_s").number(hour.duration_s).key("runs").begin_array();
    for (const simulator::PlayedFleet& one : fleets) {
      w.begin_object().key("name").string(one.name).key("figures");
      simulator::write_figures(w, one.figures);
      w.key("steps");
      simulator::write_steps(w, one.steps);
      w.end_object();
    }
    w.end_array().end_object();
    if (arguments.text("--json") == "-") return write_output(json + "\n");
    TRY(base::write_file(arguments.text("--json"), json + "\n"));
  }
  return write_text(base::wrapped_text(notes_text(hour) + " " + kLimits, output_columns(), 0) +
                    "\n" + simulator::figures_table("run", fleets) + held_text(fleets) +
                    fmt::format("late: first token after {:g} s; recorded facts know no first "
                                "tokens\nmodelled, not measured\n",
                                arguments.number("--late-seconds")));
}

// 0: all of it.
Result<double> read_last_s(const cli::Arguments& arguments) {
  if (!arguments.has("--last")) return 0.0;
  const std::string& text = arguments.text("--last");
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc{} || end != text.data() + text.size()) {
    seconds = static_cast<double>(base::parse_duration_ns(text).value_or(0)) * 1e-9;
  }
  if (seconds >= 1 && seconds <= 1e9) return seconds;
  return Error{ErrorCode::kInvalidArgument,
               "--last wants a time of at least a second, as 1h, 90m or 3600", "last"};
}

Result<void> run_whatif(const cli::Arguments& arguments) {
  const std::string& file = arguments.text("--facts");
  TRY_ASSIGN(const std::string text, read_input(file, kFactsBytesMax));
  TRY_ASSIGN(const double last_s, read_last_s(arguments));
  TRY_ASSIGN(const simulator::RecordedHour hour,
             simulator::read_recorded_hour(text, file, arguments.text("--pool"), last_s));
  gateway::ScalingConfig scaling{.policy = hour.policy, .hold = {}, .launch = {}};
  std::vector<simulator::PlayedFleet> fleets = {hour.seen};
  TRY_ASSIGN(simulator::PlayedFleet as_it_was, play(hour, scaling, "played", arguments));
  fleets.push_back(std::move(as_it_was));
  const std::vector<std::string>& settings = arguments.list("--set");
  if (!settings.empty()) {
    TRY(set_scale_keys(settings, hour.pool, "--set", scaling));
    if (scaling.is_advised_only) {
      return Error{ErrorCode::kInvalidArgument, "--set mode=advise: nothing would be done", "set"};
    }
    TRY_ASSIGN(simulator::PlayedFleet other,
               play(hour, scaling, settings_text(settings), arguments));
    fleets.push_back(std::move(other));
  }
  return report(arguments, hour, fleets);
}

}  // namespace

cli::Verb whatif_verb() {
  return {.name = "whatif",
          .summary = "Plays an autoscaler's recorded hour with other knobs.",
          .about =
              "Reads what `pelton autoscale --record-facts` wrote, decides all of it again (each "
              "decision\n"
              "must be the recorded one to the byte), and plays its requests in the simulator with "
              "the\n"
              "recorded knobs and with those of --set, side by side.",
          .positionals = {},
          .flags = {{.name = "--facts",
                     .value = "FILE",
                     .help = "of --record-facts",
                     .required = true,
                     .may_be_empty = false},
                    {.name = "--pool", .value = "NAME", .help = "where the file has several"},
                    {.name = "--set",
                     .value = "KEY=VALUE",
                     .help = "a key of [pool.scale], as pool.box.scale_down_delay=120 or "
                             "scale_down_delay=120",
                     .many = true},
                    {.name = "--last",
                     .value = "TIME",
                     .help = "only the end of the file, as 1h, 90m or, in seconds, 3600",
                     .may_be_empty = false},
                    {.name = "--late-seconds",
                     .value = "S",
                     .help = "a request is late whose first token comes later",
                     .kind = Flag::Kind::kNumber,
                     .default_text = "2",
                     .most = 86'400},
                    {.name = "--seed",
                     .value = "S",
                     .help = "of the starts' times",
                     .kind = Flag::Kind::kInteger,
                     .default_text = "0"},
                    {.name = "--html", .value = "FILE", .help = "also write a page"},
                    {.name = "--json",
                     .value = "FILE",
                     .help = "also write the figures and steps; - is stdout"}},
          .examples = {"pelton whatif --facts facts.jsonl --set scale_down_delay=120",
                       "pelton whatif --facts facts.jsonl --last 1h --set max=4 --set backlog=60 "
                       "--html whatif.html"},
          .run = run_whatif};
}

}  // namespace pelton::apps
