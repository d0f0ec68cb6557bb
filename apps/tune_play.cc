#include "apps/tune_play.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "apps/input.h"
#include "apps/own_server.h"
#include "apps/simulate_fluid.h"
#include "apps/simulated_play.h"
#include "apps/verbs.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/terminal_text.h"
#include "cost_model/hardware.h"
#include "report/metric.h"
#include "report/percentile.h"
#include "report/summary.h"

namespace pelton::apps {
namespace {

namespace fs = std::filesystem;

constexpr int kDevicesOfCopy = 8;  // as many as a GPU's copy may need, where nobody says otherwise
constexpr size_t kFileBytesMax = size_t{1} << 30;
constexpr int64_t kListed = 200;
// What a replica takes in an hour: its share of an instance, or its devices; 0: not known.
double dollars_of(const Settings& settings, const Play& play) {
  const planner::CapacityOptions& capacity = play.choice.plan.capacity;
  const int used = capacity.memory.layout.devices();
  std::optional<double> named;
  for (const auto& [key, value] : settings) {
    if (key != kHardwareKey) continue;
    const Result<NamedHardware> hardware = parse_named_hardware(value);
    if (hardware.ok()) named = hardware->dollars;
  }
  if (play.choice.plan.machine.empty()) return named.value_or(0) * used;
  return named.value_or(capacity.price_per_hour) * used / std::max(capacity.devices, 1);
}

PlayedRun run_of(const Settings& settings, const Play& play,
                 const simulator::SimulationResult& result) {
  const report::Summary summary = report::summarize(result.records, result.duration_s, {});
  PlayedRun run{.requests = summary.completed + summary.failed + result.unfinished,
                .failed = summary.failed + result.unfinished};
  const auto most =
      std::ranges::max_element(summary.errors, {}, [](const auto& one) { return one.second; });
  if (most != summary.errors.end()) run.failure = most->first;
  if (run.failure.empty() && result.unfinished > 0) run.failure = "not done at the end";
  run.duration_s = result.duration_s;
  run.tokens_per_s = summary.output_tokens_per_s;
  run.replicas = result.scaling ? result.scaling->replica_s / std::max(result.duration_s, 1e-9)
                                : play.options.replica_count;
  run.devices = play.choice.plan.capacity.memory.layout.devices();
  run.dollars_per_hour = dollars_of(settings, play);
  for (const auto& [metric, values] : summary.values_ms) {
    run.p90_ms[std::string(report::info(metric).key)] = report::percentile(values, 90);
  }
  return run;
}

// That --history's results are of: this very program.
Result<std::string> program_digest() {
  TRY_ASSIGN(const std::string program, own_program());
  TRY_ASSIGN(const std::string bytes, base::read_file(program, kFileBytesMax));
  return base::sha256(bytes);
}

}  // namespace

Result<NamedHardware> parse_named_hardware(const std::string& text) {
  NamedHardware hardware;
  const size_t at = text.find('@');
  hardware.name = text.substr(0, at);
  if (at != std::string::npos) {
    const std::string price = text.substr(at + 1);
    double dollars = 0;
    const auto [end, failure] = std::from_chars(price.data(), price.data() + price.size(), dollars);
    if (failure != std::errc{} || end != price.data() + price.size() || !(dollars > 0) ||
        dollars > 1e6) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--hardware {}: behind @ stand dollars for an hour, as h100@2.5",
                               base::one_line(text)),
                   "hardware"};
    }
    hardware.dollars = dollars;
  }
  if (cost_model::find_instance(hardware.name).ok()) return hardware;
  const Result<cost_model::Hardware> found = cost_model::find_hardware(hardware.name);
  if (found.ok()) return hardware;
  Error error = found.error();
  error.message = "--hardware: " + error.message + "; or an instance, as p5.48xlarge";
  error.field = "hardware";
  return error;
}

Result<std::optional<Variation>> read_hardware_axis(const cli::Arguments& arguments) {
  if (!arguments.has("--hardware")) return std::optional<Variation>();
  TRY_ASSIGN(std::vector<Variation> axes,
             read_variations({std::string(kHardwareKey) + "=" + arguments.text("--hardware")},
                             "l4,h100@2.5,p5.48xlarge", 1000));
  std::vector<std::string> names;
  for (const std::string& value : axes.front().values) {
    TRY_ASSIGN(NamedHardware one, parse_named_hardware(value));
    if (std::ranges::find(names, one.name) != names.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--hardware has {} twice", base::one_line(one.name)), "hardware"};
    }
    names.push_back(std::move(one.name));
  }
  return std::optional<Variation>(std::move(axes.front()));
}

Result<PointPlayer> PointPlayer::make(const cli::Arguments& arguments,
                                      std::vector<cli::Flag> flags) {
  PointPlayer player;
  player.flags_ = std::move(flags);
  if (!arguments.has("--history")) return player;
  TRY_ASSIGN(player.history_, store::PlayedPoints::open(arguments.text("--history")));
  return player;
}

Result<cli::Arguments> PointPlayer::with_settings(const cli::Arguments& arguments,
                                                  const Settings& settings) const {
  Settings flags;
  const auto is_set = [&](const char* key) {
    return std::ranges::any_of(settings, [&](const auto& one) { return one.first == key; }) ||
           arguments.has(fmt::format("--{}", key));
  };
  for (const auto& [key, value] : settings) {
    if (key != kHardwareKey) {
      flags.emplace_back(key, value);
      continue;
    }
    TRY_ASSIGN(const NamedHardware hardware, parse_named_hardware(value));
    const bool is_instance = cost_model::find_instance(hardware.name).ok();
    flags.emplace_back(is_instance ? "instance" : "gpu", hardware.name);
    if (!is_instance && !is_set("devices") && !is_set("layout")) {
      flags.emplace_back("devices", std::to_string(kDevicesOfCopy));
    }
  }
  return cli::with_values(flags_, arguments, flags);
}

Result<std::string> PointPlayer::digest_of_file(const std::string& file) {
  const auto found = digests_.find(file);
  if (found != digests_.end()) return found->second;
  TRY_ASSIGN(const std::string bytes, base::read_file(file, kFileBytesMax));
  return digests_[file] = base::sha256(bytes);
}

// All that the result depends on: this program, the model's files (the weights by their size), each
// flag's value or its file's bytes, and where no hardware is named this machine's.
Result<std::string> PointPlayer::key_of(const cli::Arguments& changed, const Settings& settings) {
  std::string all;
  const auto add = [&](std::string_view name, std::string_view value) {
    all += fmt::format("{}:{}={}:{};", name.size(), name, value.size(), value);
  };
  if (!digests_.contains("")) {
    TRY_ASSIGN(digests_[""], program_digest());
  }
  add("program", digests_[""]);
  const std::string& model = changed.text("MODEL");
  std::error_code unknown;
  if (fs::is_directory(model, unknown)) {
    std::vector<std::string> files;
    for (const fs::directory_entry& one : fs::directory_iterator(model, unknown)) {
      if (!one.is_regular_file(unknown)) continue;
      files.push_back(fmt::format("{} {}", one.path().filename().string(), one.file_size(unknown)));
    }
    std::ranges::sort(files);
    for (const std::string& one : files) add("file", one);
    const std::string config = (fs::path(model) / "config.json").string();
    if (fs::is_regular_file(config, unknown)) {
      TRY_ASSIGN(const std::string digest, digest_of_file(config));
      add("config", digest);
    }
  } else {
    add("model", model);
  }
  for (const cli::Flag& flag : simulate_verb().flags) {
    const bool is_other =
        flag.name == "--json" || flag.name == "--html" || is_of_whole_run(flag.name);
    if (is_other || !changed.knows(flag.name)) continue;
    std::string value = changed.has(flag.name) ? changed.text(flag.name) : "-";
    if (flag.kind == cli::Flag::Kind::kSwitch) value = changed.has(flag.name) ? "on" : "off";
    for (const std::string& one : changed.list(flag.name)) value += "\n" + one;
    if (flag.kind == cli::Flag::Kind::kText && fs::is_regular_file(value, unknown)) {
      TRY_ASSIGN(value, digest_of_file(value));
    }
    add(flag.name, value);
  }
  for (const auto& [key, value] : settings) {
    if (key == kHardwareKey) add(key, value);  // its price
  }
  if (!changed.has("--gpu") && !changed.has("--instance")) {
    add("memory", std::to_string(base::memory_limit_bytes()));
    add("processors", std::to_string(base::usable_cpus().size()));
  }
  return base::sha256(all);
}

void PointPlayer::keep(const std::string& key, const cli::Arguments& changed,
                       const Settings& settings, const PlayedRun& run) {
  if (!keeps_) return;
  const std::string load = fmt::format(
      "{}, {} prompts, rate {}",
      changed.has("--workload") ? changed.text("--workload") : std::string("random"),
      changed.has("--num-prompts") ? changed.text("--num-prompts") : std::string("-"),
      changed.has("--request-rate") ? changed.text("--request-rate") : std::string("-"));
  const Result<void> added = history_->add({.key = key,
                                            .played_at = std::time(nullptr),
                                            .model = changed.text("MODEL"),
                                            .load = load,
                                            .settings = settings_text(settings),
                                            .json = to_json(run)});
  if (added.ok()) return;
  keeps_ = false;
  fmt::print(stderr, "pelton: {}; nothing more is kept\n", base::one_line(added.error().message));
}

Result<PlayedRun> PointPlayer::play(const cli::Arguments& arguments, const Settings& settings) {
  TRY_ASSIGN(const cli::Arguments changed, with_settings(arguments, settings));
  std::string key;
  if (history_) {
    TRY_ASSIGN(key, key_of(changed, settings));
    TRY_ASSIGN(const std::optional<std::string> kept, history_->find(key));
    if (kept) {
      Result<PlayedRun> run = parse_played_run(*kept);
      if (!run.ok()) {
        return Error{ErrorCode::kBadConfig,
                     fmt::format("{}: an entry is damaged: {}; name another file, or remove it",
                                 arguments.text("--history"), run.error().message),
                     "history"};
      }
      ++reused_;
      return run;
    }
  }
  ++played_;
  const Result<Play> play = read_play(changed, changed.text("MODEL"), nullptr);
  if (!play.ok() && play.error().code == ErrorCode::kDoesNotFit) {
    return PlayedRun{.why_not = play.error().message};
  }
  if (!play.ok()) return play.error();
  if (!std::exchange(is_noted_, true)) write_note(play->workload.note);
  TRY_ASSIGN(const simulator::SimulationResult result, simulate_play(*play));
  const PlayedRun run = run_of(settings, *play, result);
  if (history_) keep(key, changed, settings, run);
  return run;
}

Result<Point> PointPlayer::judge(const cli::Arguments& arguments, Settings settings,
                                 const std::vector<report::Objective>& objectives, BestBy best_by) {
  TRY_ASSIGN(const PlayedRun run, play(arguments, settings));
  return judged(std::move(settings), run, objectives, best_by);
}

Result<std::string> history_list(const std::string& file) {
  TRY_ASSIGN(const store::PlayedPoints history, store::PlayedPoints::open_existing(file));
  TRY_ASSIGN(const std::vector<store::PlayedPoint> points, history.newest(kListed));
  base::TextTable table{
      .headers = {"played", "model", "load", "settings", "tokens/s", "TTFT p90 ms", "failed"},
      .rows = {}};
  for (auto one = points.rbegin(); one != points.rend(); ++one) {
    const Result<PlayedRun> run = parse_played_run(one->json);
    if (!run.ok()) {
      return Error{ErrorCode::kBadConfig,
                   fmt::format("{}: an entry is damaged: {}", file, run.error().message),
                   "history"};
    }
    const auto ttft = run->p90_ms.find("ttft");
    table.rows.push_back(
        {fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(one->played_at))),
         base::one_line(one->model), base::one_line(one->load), base::one_line(one->settings),
         fmt::format("{:.1f}", run->tokens_per_s),
         ttft == run->p90_ms.end() ? "-" : fmt::format("{:.1f}", ttft->second),
         std::to_string(run->failed)});
  }
  return base::text_table(table, output_columns(), 0) +
         fmt::format("{} of the newest; modelled, not measured\n", points.size());
}

}  // namespace pelton::apps
