#include "apps/tune_confirm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "apps/bench_lock.h"
#include "apps/fleet_flags.h"
#include "apps/input.h"
#include "apps/listener_flags.h"
#include "apps/load_result.h"
#include "apps/load_test.h"
#include "apps/own_server.h"
#include "apps/serve_words.h"
#include "apps/simulated_play.h"
#include "apps/tune_knobs.h"
#include "base/file.h"
#include "base/terminal_text.h"
#include "bench/token_words.h"
#include "cost_model/hardware.h"
#include "cost_model/parameters.h"
#include "report/percentile.h"

namespace pelton::apps {
namespace {

using cli::Flag;

constexpr const char* kLocal = "local";
constexpr int kStreams[] = {2, 6, 12};  // of closed loops that are calibrated on
constexpr int64_t kOneStream = 12;      // requests of the first look
constexpr double kStart_s = 3;          // what a server's start is taken to take
constexpr double kAlike = 1.01;         // tokens a second that are no further apart are alike
constexpr uint64_t kOtherSeed = 1'000'003;

double middle(std::vector<double> values) {
  std::ranges::sort(values);
  return report::percentile(values, 50);
}

double half_spread(const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return (most - least) / 2;
}

Error refused(std::string why) {
  return {ErrorCode::kInvalidArgument, "--confirm " + std::move(why), "confirm"};
}

std::string name_of(const Settings& settings) {
  return settings.empty() ? "the flags as they stand" : settings_text(settings);
}

// Signals are ours only while something is measured: a sweep ends at once.
class Listening {
 public:
  explicit Listening(std::optional<cli::Interrupt>& interrupt) : interrupt_(interrupt) {
    interrupt_.emplace();
  }
  ~Listening() { interrupt_.reset(); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  std::optional<cli::Interrupt>& interrupt_;
};

std::string percent(double simulated, double measured) {
  if (measured <= 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (simulated / measured - 1));
}

}  // namespace

// Of one load on one server.
struct Confirmation::Run {
  double duration_s = 0;
  double tokens_per_s = 0;
  std::map<report::Metric, double> p90_ms = {};
  int64_t failed = 0;
  std::string failure;
  std::vector<cost_model::MeasuredRequest> requests;
};

// One of those that are measured: a point's place, and its runs.
struct Confirmation::Candidate {
  size_t point = 0;
  std::vector<double> tokens_per_s = {};
  std::vector<double> ttft_p90_ms = {};
  int64_t failed = 0;
  int64_t kept = 0;  // rounds in which all objectives were
};

std::vector<Flag> confirm_flags() {
  Flag confirm{.name = "--confirm",
               .value = "WHERE",
               .help =
                   "measure the best few: local, on `pelton serve MODEL` of this machine, or "
                   "the URL of a server, whose own settings stay as they are",
               .may_be_empty = false,
               .not_with = {{"--ablate"}, {"--requests"}, {"--facts"}, {"--hardware"}}};
  std::vector<Flag> flags = {
      {.name = "--confirm-best",
       .value = "N",
       .help = "so many of the best, and the flags as they stand",
       .kind = Flag::Kind::kInteger,
       .default_text = "3",
       .least = 1,
       .most = 20},
      {.name = "--confirm-rounds",
       .value = "N",
       .help = "each is measured once a round; medians are taken",
       .kind = Flag::Kind::kInteger,
       .default_text = "3",
       .least = 1,
       .most = 100},
      {.name = "--confirm-seconds",
       .value = "S",
       .help = "what all measuring may take",
       .kind = Flag::Kind::kNumber,
       .default_text = "600",
       .least = 1,
       .most = 864'000},
      {.name = "--calibration-out",
       .value = "FILE",
       .help = "the calibration that the measured steps give, with --confirm local",
       .may_be_empty = false}};
  for (Flag& flag : flags) flag.only_with = {{"--confirm"}};
  flags.insert(flags.begin(), std::move(confirm));
  return flags;
}

Confirmation::Confirmation(const cli::Arguments& arguments)
    : arguments_(arguments), is_local_(arguments.text("--confirm") == kLocal) {}

Confirmation::~Confirmation() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Result<std::unique_ptr<Confirmation>> Confirmation::make(const cli::Arguments& arguments,
                                                         const std::vector<Variation>& axes) {
  std::unique_ptr<Confirmation> made(new Confirmation(arguments));
  const std::string& where = arguments.text("--confirm");
  const bool is_url = where.starts_with("http://") || where.starts_with("https://");
  if (!made->is_local_ && !is_url) {
    return refused(fmt::format("{} is neither 'local' nor a URL, as http://127.0.0.1:8000",
                               base::one_line(where)));
  }
  if (arguments.integer("--replicas") != 1 || arguments.has("--autoscale")) {
    return refused("measures one server: --replicas 1, without --autoscale");
  }
  const std::string& model = arguments.text("MODEL");
  std::error_code unknown;
  const bool is_here = std::filesystem::exists(model, unknown) && !model.ends_with(".json");
  if (made->is_local_ && has_hardware(arguments)) {
    return refused("local is about this machine: leave --gpu and --instance out");
  }
  if (made->is_local_ && !is_here) {
    return refused(fmt::format("local serves MODEL, and {} is no folder of weights here",
                               base::one_line(model)));
  }
  for (const Variation& one : axes) {
    if (made->is_local_ || is_load_knob(one.key)) continue;
    return refused(fmt::format(
        "URL: --{} is the server's own and cannot be changed from here; vary the load's "
        "(max-concurrency, request-rate), or give --confirm local",
        one.key));
  }
  if (is_here) {
    TRY_ASSIGN(tokenizer::Tokenizer tokenizer, load_tokenizer(model));
    made->tokenizer_ = std::make_unique<tokenizer::Tokenizer>(std::move(tokenizer));
    TRY_ASSIGN(made->vocabulary_, bench::token_words(*made->tokenizer_));
  }
  std::string pattern =
      (std::filesystem::temp_directory_path(unknown) / "pelton-tune-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return Error{ErrorCode::kIo, fmt::format("{}: no folder can be made", pattern), "confirm"};
  }
  made->folder_ = pattern;
  allow_many_connections();
  made->deadline_ns_ =
      made->clock_.now_ns() + static_cast<int64_t>(arguments.number("--confirm-seconds") * 1e9);
  return made;
}

double Confirmation::seconds_left() const {
  return static_cast<double>(deadline_ns_ - clock_.now_ns()) * 1e-9;
}

// The load as the simulator plays it.
Result<workload::WorkloadSpec> Confirmation::spec_of(const cli::Arguments& arguments) const {
  TRY_ASSIGN(const Play play, read_play(arguments, arguments.text("MODEL"), nullptr));
  return play.spec;
}

// Before what counts a few others of the same kind: a first one pays for what is not there yet.
Result<Confirmation::Run> Confirmation::ask(const std::string& url,
                                            const workload::WorkloadSpec& spec) {
  LoadPlan plan;
  bench::TargetOptions target{.base_url = url};
  const char* const key = std::getenv("OPENAI_API_KEY");
  if (!is_local_ && key != nullptr && *key != '\0') {
    TRY(check_key(key, "$OPENAI_API_KEY"));
    target.headers.emplace_back("Authorization", fmt::format("Bearer {}", key));
  }
  TRY_ASSIGN(plan.target, bench::make_target(target));
  plan.question.ignore_eos = true;
  plan.load.quiet_time_max = std::chrono::milliseconds(
      static_cast<int64_t>(std::clamp(seconds_left(), 1.0, 600.0) * 1000));
  const auto fill = [&](const workload::WorkloadSpec& wanted) -> Result<void> {
    TRY_ASSIGN(workload::Workload made, workload::make_workload(wanted, vocabulary_));
    plan.conversations = std::move(made.conversations);
    for (size_t i = 0; i < plan.conversations.size(); ++i) {
      plan.conversations[i].at_s = made.at_s[i];
    }
    plan.load.max_concurrency = wanted.concurrency_max;
    return {};
  };
  workload::WorkloadSpec first = spec;
  first.count = std::min<int64_t>(spec.count, 4);
  first.seed += kOtherSeed;
  first.arrivals.rate = std::numeric_limits<double>::infinity();
  TRY(fill(first));
  TRY(prepare(plan, *interrupt_, clock_));
  TRY(run_load_test(plan, *interrupt_, clock_));
  TRY(fill(spec));
  TRY_ASSIGN(const LoadTest test, run_load_test(plan, *interrupt_, clock_));
  if (interrupt_->pending()) return Error{ErrorCode::kCancelled, "interrupted", {}};
  Run run{.duration_s = test.outcome.duration_s,
          .tokens_per_s = test.summary.output_tokens_per_s,
          .failed = test.summary.failed};
  if (!test.summary.errors.empty()) run.failure = test.summary.errors.begin()->first;
  for (const auto& [metric, values] : test.summary.values_ms) {
    run.p90_ms[metric] = report::percentile(values, 90);
  }
  for (const report::RequestRecord& one : test.outcome.records) {
    if (!one.ok || one.pieces.empty()) continue;
    run.requests.push_back({.start_ns = test.outcome.origin_ns + one.start_ns,
                            .first_token_ns = test.outcome.origin_ns + one.pieces.front().at_ns});
  }
  return run;
}

// `step_log`: of a server of our own.
Result<Confirmation::Run> Confirmation::measure_once(PointPlayer& player,
                                                     const cli::Arguments& arguments,
                                                     const Settings& settings,
                                                     const std::string& step_log) {
  TRY_ASSIGN(const cli::Arguments changed, player.with_settings(arguments, settings));
  TRY_ASSIGN(const workload::WorkloadSpec spec, spec_of(changed));
  if (!is_local_) return ask(arguments.text("--confirm"), spec);
  std::vector<std::string> words =
      serve_words(changed, static_cast<int>(changed.integer("--max-num-seqs")));
  for (const char* word : {"--log-level", "error", "--step-log"}) words.emplace_back(word);
  words.push_back(step_log);
  TRY_ASSIGN(const OwnServer server, OwnServer::start(changed.text("MODEL"), words, *interrupt_));
  return ask(server.url(), spec);
}

Result<void> Confirmation::fit(const std::string& model, const std::vector<std::string>& logs,
                               const std::string& out) const {
  TRY_ASSIGN(const families::ModelConfig shape, cost_model::find_model_config(model));
  // The hardware that stands in for this machine, as `pelton calibrate` has it by default.
  TRY_ASSIGN(const cost_model::Hardware hardware, cost_model::find_hardware("cpu-zen4-2"));
  const auto read = [&](const std::string& log) -> Result<std::vector<cost_model::MeasuredStep>> {
    TRY_ASSIGN(const std::string text, read_input(log));
    return cost_model::parse_step_log(text, log, cost_model::windows_of(shape));
  };
  std::vector<cost_model::MeasuredStep> steps;
  for (const std::string& log : logs) {
    TRY_ASSIGN(const std::vector<cost_model::MeasuredStep> some, read(log));
    steps.insert(steps.end(), some.begin(), some.end());
  }
  TRY_ASSIGN(
      cost_model::Calibration calibration,
      cost_model::calibrate(
          {.hardware = hardware, .shape = shape, .arithmetic = cost_model::Arithmetic::kInt8},
          steps));
  if (!idle_.empty()) {
    TRY_ASSIGN(const std::vector<cost_model::MeasuredStep> of_idle, read(idle_log_));
    Result<cost_model::RequestOverhead> overhead = cost_model::request_overhead(of_idle, idle_);
    if (overhead.ok()) {
      calibration.overhead = *std::move(overhead);
    } else {
      fmt::print(stderr, "what a request costs around its steps is taken as nothing: {}\n",
                 base::one_line(overhead.error().message));
    }
  } else if (arguments_.has("--calibration")) {
    // What requests cost around the steps stays as it was given: no stream ran alone here.
    TRY_ASSIGN(const std::string text, read_input(arguments_.text("--calibration")));
    TRY_ASSIGN(const Json json, Json::parse(text));
    TRY_ASSIGN(const cost_model::Calibration given,
               cost_model::Calibration::from_json(json, arguments_.text("--calibration")));
    calibration.overhead = given.overhead;
  }
  return base::write_file(out, calibration.to_json().dump() + "\n");
}

Result<cli::Arguments> Confirmation::calibrated(PointPlayer& player,
                                                const std::vector<Variation>& axes) {
  if (!is_local_ || arguments_.has("--calibration")) return arguments_;
  const Listening listening(interrupt_);
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&*interrupt_));
  Settings largest;
  for (const Variation& axis : axes) {
    if (axis.key != "max-num-seqs" && axis.key != "max-num-batched-tokens") continue;
    largest.emplace_back(axis.key, *std::ranges::max_element(axis.values, {}, [](const auto& one) {
                           return std::strtoll(one.c_str(), nullptr, 10);
                         }));
  }
  TRY_ASSIGN(const cli::Arguments changed, player.with_settings(arguments_, largest));
  TRY_ASSIGN(workload::WorkloadSpec spec, spec_of(changed));
  if (spec.dataset == workload::WorkloadSpec::Dataset::kTrace) {
    return refused("local needs --calibration for a trace, which says itself when it asks");
  }
  const int slots = static_cast<int>(changed.integer("--max-num-seqs"));
  std::vector<std::string> words = serve_words(changed, slots);
  idle_log_ = file("calibration-steps.jsonl");
  for (const char* word : {"--log-level", "error", "--step-log"}) words.emplace_back(word);
  words.push_back(idle_log_);
  TRY_ASSIGN(const OwnServer server, OwnServer::start(changed.text("MODEL"), words, *interrupt_));
  const double each_s = std::clamp(arguments_.number("--confirm-seconds") / 60, 0.5, 5.0);
  spec.arrivals.rate = std::numeric_limits<double>::infinity();
  spec.seed += 2 * kOtherSeed;
  double one_s = 0;  // of a request alone
  const auto look = [&](int streams, int64_t count) -> Result<void> {
    spec.concurrency_max = streams;
    spec.count = count;
    TRY_ASSIGN(Run run, ask(server.url(), spec));
    if (run.failed > 0) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} of {} requests failed while calibrating: {}", run.failed, count,
                               run.failure),
                   "confirm"};
    }
    fmt::print(stderr, "calibrating: {} stream{}, {} requests, {:.1f} tokens/s\n", streams,
               streams == 1 ? "" : "s", count, run.tokens_per_s);
    if (streams == 1) {
      one_s = run.duration_s / static_cast<double>(count);
      idle_ = std::move(run.requests);
    }
    return {};
  };
  TRY(look(1, kOneStream));
  if (one_s * 200 > seconds_left()) {
    return refused(
        fmt::format("local: a request alone takes {:.1f} s, so that --confirm-seconds "
                    "{:g} are too few to calibrate and measure; give more, shorter "
                    "answers, or --calibration",
                    one_s, arguments_.number("--confirm-seconds")));
  }
  TRY(look(1, std::clamp<int64_t>(std::llround(each_s / one_s), kOneStream, 5000)));
  std::vector<int> streams(std::begin(kStreams), std::end(kStreams));
  if (slots > 12) streams.push_back(std::min(slots, 128));
  for (const int count : streams) {
    if (count > std::max(slots, 2)) continue;
    const auto wanted = std::llround(each_s / one_s * std::min(count, 4));
    TRY(look(count, std::clamp<int64_t>(wanted, int64_t{3} * count, 20'000)));
  }
  const std::string out = file("calibration.json");
  TRY(fit(changed.text("MODEL"), {idle_log_}, out));
  return player.with_settings(arguments_, {{"calibration", out}});
}

Result<void> Confirmation::check_time(const std::vector<Point>& points,
                                      const std::vector<Candidate>& candidates,
                                      int64_t rounds) const {
  double all_s = 0;
  for (const Candidate& one : candidates) all_s += points[one.point].duration_s + kStart_s;
  const double each_s = all_s / static_cast<double>(candidates.size()) - kStart_s;
  all_s *= static_cast<double>(rounds);
  if (all_s <= seconds_left()) return {};
  return refused(fmt::format(
      "would take about {:.0f} s ({} of {:.1f} s in {} rounds), and of --confirm-seconds {:g} "
      "{:.0f} are left: give more, fewer --num-prompts, --confirm-best 1 or --confirm-rounds 1",
      all_s, candidates.size(), each_s, rounds, arguments_.number("--confirm-seconds"),
      std::max(seconds_left(), 0.0)));
}

// With what the measured steps give, which are of these very runs: how well the model of a step can
// be made to say what was seen.
Result<void> Confirmation::forecast_again(PointPlayer& player, const cli::Arguments& arguments,
                                          const std::vector<report::Objective>& objectives,
                                          std::vector<Point>& points,
                                          std::vector<Candidate>& candidates) {
  const std::string out = file("recalibration.json");
  TRY(fit(arguments.text("MODEL"), logs_, out));
  if (arguments_.has("--calibration-out")) {
    TRY_ASSIGN(const std::string text, read_input(out));
    TRY(base::write_file(arguments_.text("--calibration-out"), text));
  }
  TRY_ASSIGN(const cli::Arguments again, player.with_settings(arguments, {{"calibration", out}}));
  for (const Candidate& one : candidates) {
    Point& point = points[one.point];
    TRY_ASSIGN(const Point forecast,
               player.judge(again, point.settings, objectives, BestBy::kReplica));
    point.measured->again_tokens_per_s = forecast.tokens_per_s;
    point.measured->again_ttft_p90_ms = forecast.ttft_p90_ms;
  }
  return {};
}

Result<void> Confirmation::play_rounds(PointPlayer& player, const cli::Arguments& arguments,
                                       const std::vector<report::Objective>& objectives,
                                       const std::vector<Point>& points,
                                       std::vector<Candidate>& candidates) {
  const int64_t rounds = arguments.integer("--confirm-rounds");
  for (int64_t round = 0; round < rounds; ++round) {
    // Every other round the other way round: a machine that drifts favours nobody.
    for (size_t i = 0; i < candidates.size(); ++i) {
      Candidate& one = candidates[round % 2 == 0 ? i : candidates.size() - 1 - i];
      const Settings& settings = points[one.point].settings;
      if (seconds_left() <= 0) {
        return refused(
            fmt::format("took longer than --confirm-seconds {:g}, in round {} of {}; "
                        "give more, or fewer --num-prompts",
                        arguments_.number("--confirm-seconds"), round + 1, rounds));
      }
      const std::string log = file(fmt::format("steps-{}-{}.jsonl", round, i));
      TRY_ASSIGN(const Run run, measure_once(player, arguments, settings, log));
      if (is_local_) logs_.push_back(log);
      one.tokens_per_s.push_back(run.tokens_per_s);
      const auto p90_of = [&](report::Metric metric) {
        const auto found = run.p90_ms.find(metric);
        return found == run.p90_ms.end() ? 0 : found->second;
      };
      const double ttft_p90_ms = p90_of(report::Metric::kTtft);
      one.ttft_p90_ms.push_back(ttft_p90_ms);
      one.failed += run.failed;
      const bool keeps = run.failed == 0 && std::ranges::all_of(objectives, [&](const auto& bound) {
                           return p90_of(bound.metric) <= bound.bound_ms;
                         });
      one.kept += keeps ? 1 : 0;
      fmt::print(stderr, "round {} of {}, {}: {:.1f} tokens/s, TTFT p90 {:.1f} ms{}\n", round + 1,
                 rounds, name_of(settings), run.tokens_per_s, ttft_p90_ms,
                 run.failed > 0
                     ? fmt::format(", {} failed: {}", run.failed, base::one_line(run.failure))
                     : "");
    }
  }
  return {};
}

namespace {

std::string confirmed_table(const std::vector<Point>& points) {
  base::TextTable table{.headers = {"settings", "tokens/s", "+-", "forecast", "recalibrated",
                                    "TTFT p90 ms", "+-", "forecast", "recalibrated"},
                        .rows = {}};
  double worst[4] = {};
  bool is_again = false;
  for (const Point& one : points) {
    if (!one.measured) continue;
    const Measured& m = *one.measured;
    is_again = is_again || m.again_tokens_per_s > 0;
    const std::array<std::pair<double, double>, 4> pairs = {{{one.tokens_per_s, m.tokens_per_s},
                                                             {m.again_tokens_per_s, m.tokens_per_s},
                                                             {one.ttft_p90_ms, m.ttft_p90_ms},
                                                             {m.again_ttft_p90_ms, m.ttft_p90_ms}}};
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].second <= 0) continue;
      worst[i] = std::max(worst[i], std::abs(pairs[i].first / pairs[i].second - 1));
    }
    const auto again = [&](double value, double measured) {
      return m.again_tokens_per_s > 0 ? percent(value, measured) : std::string("-");
    };
    table.rows.push_back(
        {name_of(one.settings), fmt::format("{:.1f}", m.tokens_per_s),
         fmt::format("{:.1f}", m.tokens_spread), percent(one.tokens_per_s, m.tokens_per_s),
         again(m.again_tokens_per_s, m.tokens_per_s), fmt::format("{:.1f}", m.ttft_p90_ms),
         fmt::format("{:.1f}", m.ttft_spread), percent(one.ttft_p90_ms, m.ttft_p90_ms),
         again(m.again_ttft_p90_ms, m.ttft_p90_ms)});
  }
  std::string text = base::text_table(table, output_columns(), 0);
  text +=
      fmt::format("the forecast was wrong by at most {:.1f} % (tokens/s) and {:.1f} % (TTFT p90)",
                  100 * worst[0], 100 * worst[2]);
  if (is_again) {
    text += fmt::format("; recalibrated on these runs by {:.1f} % and {:.1f} %", 100 * worst[1],
                        100 * worst[3]);
  }
  return text + "\n";
}

bool is_better_measured(const Measured& one, const Measured& other) {
  if (one.keeps != other.keeps) return one.keeps;
  // A load that comes at a rate gives all of them its tokens: then the first token counts.
  if (one.tokens_per_s > kAlike * other.tokens_per_s) return true;
  return kAlike * one.tokens_per_s > other.tokens_per_s && one.ttft_p90_ms < other.ttft_p90_ms;
}

// Of the best measured one over the flags as they stand.
std::string gain_text(const Point& best, const Point& plain) {
  const Measured& one = *best.measured;
  const Measured& other = *plain.measured;
  if (&best == &plain) return "nothing measured is better than the flags as they stand\n";
  return fmt::format(
      "gain of the best measured ({}) over the flags as they stand: {} tokens/s, {} TTFT p90\n",
      name_of(best.settings), percent(one.tokens_per_s, other.tokens_per_s),
      percent(one.ttft_p90_ms, other.ttft_p90_ms));
}

}  // namespace

const Point* best_measured(const std::vector<Point>& points) {
  const Point* best = nullptr;
  for (const Point& one : points) {
    if (!one.measured) continue;
    if (best == nullptr || is_better_measured(*one.measured, *best->measured)) best = &one;
  }
  return best;
}

Result<std::string> Confirmation::measure(PointPlayer& player, const cli::Arguments& arguments,
                                          const std::vector<report::Objective>& objectives,
                                          BestBy best_by, std::vector<Point>& points) {
  const Listening listening(interrupt_);
  TRY_ASSIGN(const BenchLock lock, BenchLock::take(&*interrupt_));
  // The flags as they stand are a point, too, even where they keep no objective.
  const auto is_plain = [](const Point& one) { return one.settings.empty(); };
  if (std::ranges::find_if(points, is_plain) == points.end()) {
    TRY_ASSIGN(Point plain, player.judge(arguments, {}, objectives, best_by));
    if (!plain.why_not.empty()) {
      return Error{ErrorCode::kDoesNotFit, "the flags as they stand: " + plain.why_not, "confirm"};
    }
    points.push_back(std::move(plain));
  }
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return points[i].value; });
  std::vector<Candidate> candidates;
  const auto most = static_cast<size_t>(arguments.integer("--confirm-best"));
  for (const size_t i : order) {
    const bool is_one = points[i].why_not.empty() && points[i].keeps && !is_plain(points[i]);
    if (is_one && candidates.size() < most) candidates.push_back({.point = i});
  }
  const size_t plain = static_cast<size_t>(std::ranges::find_if(points, is_plain) - points.begin());
  candidates.push_back({.point = plain});
  const int64_t rounds = arguments.integer("--confirm-rounds");
  TRY(check_time(points, candidates, rounds));
  TRY(play_rounds(player, arguments, objectives, points, candidates));
  for (const Candidate& one : candidates) {
    points[one.point].measured = Measured{.tokens_per_s = middle(one.tokens_per_s),
                                          .tokens_spread = half_spread(one.tokens_per_s),
                                          .ttft_p90_ms = middle(one.ttft_p90_ms),
                                          .ttft_spread = half_spread(one.ttft_p90_ms),
                                          .failed = one.failed,
                                          .keeps = 2 * one.kept > rounds};
  }
  if (is_local_) {
    TRY(forecast_again(player, arguments, objectives, points, candidates));
  }
  const Point& best = *best_measured(points);
  return fmt::format(
      "measured on {}, {} round{} by turns, medians; +-: half of what lies between "
      "the least and the most; forecast: simulated over measured\n{}{}",
      is_local_ ? "this machine" : arguments.text("--confirm"), rounds, rounds == 1 ? "" : "s",
      confirmed_table(points), gain_text(best, points[plain]));
}

}  // namespace pelton::apps
