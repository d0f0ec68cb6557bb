#include "simulator/fluid_year.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <span>

#include <fmt/format.h>

#include "base/duration.h"
#include "base/random.h"
#include "simulator/fluid_fleet.h"
#include "simulator/fluid_pool.h"
#include "simulator/replica_costs.h"
#include "workload/draws.h"

namespace pelton::simulator {
namespace {

constexpr size_t kParts = 365;  // of a timeline
constexpr double kHour_s = 3600;
constexpr std::string_view kLoad = "load";  // nothing had gone wrong

// How often each time was seen, in classes that are 5 % wide.
class TimeHistogram {
 public:
  void add(double seconds, double amount) {
    const double at = std::log(std::max(seconds, kLeast_s) / kLeast_s) / kWidth;
    counts_[std::min(static_cast<size_t>(at), counts_.size() - 1)] += amount;
    total_ += amount;
  }
  std::optional<double> at(double percent) const {
    if (total_ <= 0) return std::nullopt;
    double left = total_ * percent / 100;
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (left <= counts_[i] && counts_[i] > 0) {
        return kLeast_s * std::exp(kWidth * (static_cast<double>(i) + left / counts_[i]));
      }
      left -= counts_[i];
    }
    return kLeast_s * std::exp(kWidth * static_cast<double>(counts_.size()));
  }

 private:
  static constexpr double kLeast_s = 1e-4;
  static constexpr double kWidth = 0.05;
  std::array<double, 400> counts_ = {};
  double total_ = 0;
};

double rate_at(const workload::Arrivals& arrivals, double at_s) {
  double rate = arrivals.rate;
  if (arrivals.day) {
    rate *=
        1 + arrivals.day->swing * std::sin(2 * std::numbers::pi * at_s / arrivals.day->period_s);
  }
  for (const workload::Spike& spike : arrivals.spikes) {
    if (at_s >= spike.at_s && at_s < spike.at_s + spike.for_s) rate += spike.rps;
  }
  return rate;
}

// How many come where so many are expected: Poisson's, of many the normal distribution's.
double drawn_count(double expected, uint64_t seed, uint64_t tick) {
  constexpr double kMany = 30;
  if (expected <= 0) return 0;
  if (expected >= kMany) {
    workload::Draws draws(seed, tick);
    return std::max(0.0, std::round(expected + std::sqrt(expected) * draws.normal()));
  }
  double unit = base::random_unit(seed, tick);
  double chance = std::exp(-expected);
  int count = 0;
  while (unit > chance && count < 200) {
    unit -= chance;
    chance *= expected / ++count;
  }
  return count;
}

struct Tally {
  double requests = 0;
  double late = 0;
  double lost = 0;
  double left = 0;
  double tokens = 0;
  TimeHistogram first_tokens;
  std::vector<double> by_cause;  // of `faults`, then the load's
  std::vector<int64_t> incidents;
  FleetTimeline timeline;
  double used_s = 0;
  double needed_s = 0;
};

struct Tick {
  double from_s = 0;
  double span_s = 0;
  uint64_t number = 0;
};

// The year of one pool's replicas in one region.
class PoolYear {
 public:
  // `fleet` outlives it. `ahead_s`: so much earlier its day begins.
  PoolYear(const YearOptions& options, const SimulationOptions& fleet,
           const cost_model::StepTimeModel& times, double ahead_s, Tally& tally);
  // Of its own clients, requests a second.
  double own_rate(double at_s) const {
    return rate_at(options_.arrivals, at_s + ahead_s_) / options_.regions;
  }
  void begin(const Tick& tick);
  // Its region has gateways and replicas, or would start one for who comes.
  bool answers() const;
  // Of a tick in which it does not answer, the share in which its clients do not know that yet.
  double unknown_share(const Tick& tick) const {
    if (!is_lost_) return 0;
    return std::clamp((lost_since_s_ + options_.failover_s - tick.from_s) / tick.span_s, 0.0, 1.0);
  }
  // So many of its clients' requests a second.
  void lose(const Tick& tick, double rate);
  // By what its region is lost; none: it is not.
  std::optional<size_t> lost_by() const { return answers() ? std::nullopt : lost_by_; }
  // What is late until then is late by this.
  void blame(size_t cause, double until_s);
  // So many requests a second come to it, others' among them.
  void end(const Tick& tick, double rate);
  ScalingCounts scaling() const { return pool_->scaling(); }

 private:
  void add_requests(const Tick& tick, double rate);
  void draw_faults(double from_s, double span_s, uint64_t tick);
  void strike(const FaultRate& rate, size_t index, double at_s);
  uint64_t arrivals_seed() const { return base::random_bits(fleet_.seed, 0x61727276); }
  size_t part_of(double at_s) const {
    return std::min(static_cast<size_t>(at_s / tally_.timeline.part_s), kParts - 1);
  }
  void take(const FluidOutcome& outcome);
  void note_bad(double amount, double came_s);

  const YearOptions& options_;
  const SimulationOptions& fleet_;
  const double ahead_s_;
  Tally& tally_;
  std::unique_ptr<FluidPool> pool_;
  double service_s_ = 1;
  double replica_rate_ = 1;  // requests a second that one bears, with all slots busy
  size_t cause_ = 0;         // of what is late now
  double cause_until_s_ = 0;
  double stock_until_s_ = -1;
  bool is_lost_ = false;
  double lost_since_s_ = 0;
  double lost_until_s_ = 0;
  std::optional<size_t> lost_by_;  // until it answers again
};

PoolYear::PoolYear(const YearOptions& options, const SimulationOptions& fleet,
                   const cost_model::StepTimeModel& times, double ahead_s, Tally& tally)
    : options_(options), fleet_(fleet), ahead_s_(ahead_s), tally_(tally) {
  double prompt = 0;
  double output = 0;
  for (const RequestClass& one : options.classes) {
    prompt += one.share * one.prompt;
    output += one.share * one.output;
  }
  const cluster::StepCosts costs = step_costs(times, fleet.replica.capacity);
  service_s_ = service_s_assumed({.prompt_tokens = prompt, .output_tokens = output}, costs);
  const double slots = fleet.replica.capacity.sequences_max;
  const double full_step_s =
      costs.fixed_s + slots * (costs.row_s + costs.context_token_s * (prompt + output / 2));
  replica_rate_ = slots / (output * full_step_s + slots * prompt * costs.prefill_token_s);
  pool_ =
      std::make_unique<FluidPool>(fleet, times, service_s_, model_of(costs, fleet.replica.capacity),
                                  [this](const FluidOutcome& outcome) { take(outcome); });
  cause_ = options.faults.size();
}

void PoolYear::begin(const Tick& tick) {
  if (stock_until_s_ >= 0 && tick.from_s >= stock_until_s_) {
    pool_->end_fault({.kind = Fault::Kind::kStockOut});
    stock_until_s_ = -1;
  }
  if (is_lost_ && tick.from_s >= lost_until_s_) is_lost_ = false;
  draw_faults(tick.from_s, tick.span_s, tick.number);
  if (answers()) lost_by_.reset();
}

bool PoolYear::answers() const {
  if (is_lost_) return false;
  return !lost_by_ || pool_->ready() > 0 || fleet_.autoscaling->policy.replicas_min == 0;
}

void PoolYear::lose(const Tick& tick, double rate) {
  const double lost = drawn_count(tick.span_s * rate, arrivals_seed(), tick.number);
  if (lost <= 0) return;
  tally_.requests += lost;
  tally_.lost += lost;
  tally_.by_cause[*lost_by_] += lost;
  const auto part = part_of(tick.from_s);
  tally_.timeline.requests[part] += lost;
  tally_.timeline.late[part] += lost;
}

void PoolYear::blame(size_t cause, double until_s) {
  cause_ = cause;
  cause_until_s_ = until_s;
}

void PoolYear::end(const Tick& tick, double rate) {
  if (rate > 0) add_requests(tick, rate);
  pool_->advance(tick.from_s + tick.span_s);
  tally_.needed_s += tick.span_s * std::ceil(rate / replica_rate_);
  tally_.used_s +=
      tick.span_s * pool_->ready() *
      std::min(1.0, pool_->rows() / std::max(pool_->ready() * pool_->slots_each(), 1.0));
}

void PoolYear::add_requests(const Tick& tick, double rate) {
  const double span_s = tick.span_s;
  const double came = drawn_count(span_s * rate, arrivals_seed(), tick.number);
  if (came <= 0) return;
  tally_.requests += came;
  tally_.timeline.requests[part_of(tick.from_s)] += came;
  // In portions that are short beside a request's time in service, the classes by turns.
  const size_t classes = options_.classes.size();
  const double portions_s = std::max(service_s_ / 4, span_s / 64);
  const size_t turns = std::max<size_t>(
      1, static_cast<size_t>(std::ceil(span_s / portions_s / static_cast<double>(classes))));
  const auto count = static_cast<double>(turns * classes);
  for (size_t k = 0; k < turns * classes; ++k) {
    const RequestClass& one = options_.classes[k % classes];
    pool_->add({.amount = came * one.share / static_cast<double>(turns),
                .came_s = pool_->now_s() + span_s * (static_cast<double>(k) + 0.5) / count,
                .prompt = one.prompt,
                .computed = one.computed,
                .output = one.output});
  }
}

// Each kind has draws of its own: without one of them the others come when they came.
void PoolYear::draw_faults(double from_s, double span_s, uint64_t tick) {
  for (size_t i = 0; i < options_.faults.size(); ++i) {
    const FaultRate& rate = options_.faults[i];
    if (rate.is_even) {
      const double turns =
          std::floor((from_s + span_s) / rate.mtbf_s) - std::floor(from_s / rate.mtbf_s);
      if (turns >= 1) strike(rate, i, from_s);
      continue;
    }
    double count = 1;
    if (rate.scope == FaultRate::Scope::kReplica) count = pool_->serving();
    if (rate.scope == FaultRate::Scope::kNode) {
      count = static_cast<double>(pool_->serving()) / options_.node_replicas;
    }
    if (rate.scope == FaultRate::Scope::kZone) count = options_.zones;
    const uint64_t seed = base::random_bits(fleet_.seed, base::fnv1a64(rate.cause));
    const double strikes = drawn_count(count * span_s / rate.mtbf_s, seed, tick);
    for (int k = 0; k < static_cast<int>(strikes); ++k) strike(rate, i, from_s);
  }
}

void PoolYear::strike(const FaultRate& rate, size_t index, double at_s) {
  int size = 1;
  if (rate.scope == FaultRate::Scope::kNode) size = options_.node_replicas;
  if (rate.scope == FaultRate::Scope::kZone) {
    size = static_cast<int>(std::ceil(static_cast<double>(pool_->serving()) / options_.zones));
  }
  const bool is_of_region = rate.scope == FaultRate::Scope::kRegion;
  if (rate.scope == FaultRate::Scope::kFleet || is_of_region) size = pool_->serving();
  ++tally_.incidents[index];
  // What is late until replicas have come back is late by this.
  const double start_s = fleet_.autoscaling->start_seconds();
  const bool nowhere = rate.down_s > 0 && (rate.scope == FaultRate::Scope::kFleet || is_of_region ||
                                           options_.zones < 2);
  blame(index, at_s + (nowhere ? rate.down_s : 0) + 2 * start_s + 120);
  if (is_of_region) {
    if (!is_lost_) lost_since_s_ = at_s;
    is_lost_ = rate.down_s > 0;
    lost_until_s_ = at_s + rate.down_s;
    lost_by_ = index;
  }
  pool_->kill(std::max(1, static_cast<int>(std::lround(size * rate.share))), rate.down_s);
  if (!nowhere) return;
  if (stock_until_s_ < 0) pool_->begin_fault({.kind = Fault::Kind::kStockOut});
  stock_until_s_ = std::max(stock_until_s_, at_s + rate.down_s);
}

void PoolYear::note_bad(double amount, double came_s) {
  const bool is_by_fault = pool_->now_s() <= cause_until_s_;
  tally_.by_cause[is_by_fault ? cause_ : options_.faults.size()] += amount;
  tally_.timeline.late[part_of(came_s)] += amount;
}

void PoolYear::take(const FluidOutcome& outcome) {
  const FluidParcel& parcel = outcome.parcel;
  if (outcome.kind != FluidOutcome::Kind::kServed) {
    (outcome.kind == FluidOutcome::Kind::kLost ? tally_.lost : tally_.left) += parcel.amount;
    return note_bad(parcel.amount, parcel.came_s);
  }
  tally_.tokens += parcel.amount * outcome.output;
  const double first_s = (parcel.begun_s >= 0 ? parcel.begun_s : parcel.first_s) - parcel.came_s;
  constexpr int kPoints = 4;
  for (int i = 0; i < kPoints; ++i) {
    const double off_s = parcel.spread_s * ((i + 0.5) / kPoints - 0.5);
    tally_.first_tokens.add(first_s + off_s, parcel.amount / kPoints);
  }
  if (first_s <= options_.late_s) return;
  tally_.late += parcel.amount;
  note_bad(parcel.amount, parcel.came_s);
}

// A tick of all regions: those that answer have the load of those that do not.
void play_tick(std::span<const std::unique_ptr<PoolYear>> regions, const Tick& tick,
               double grace_s) {
  for (const auto& region : regions) region->begin(tick);
  double others = 0;
  std::optional<size_t> cause;
  const auto there = std::ranges::count_if(regions, [](const auto& one) { return one->answers(); });
  for (const auto& region : regions) {
    if (region->answers()) continue;
    cause = region->lost_by();
    const double rate = region->own_rate(tick.from_s);
    const double lost = there == 0 ? 1.0 : region->unknown_share(tick);
    region->lose(tick, lost * rate);
    if (there > 0) others += (1 - lost) * rate / static_cast<double>(there);
  }
  for (const auto& region : regions) {
    if (region->answers() && cause) region->blame(*cause, tick.from_s + grace_s);
    region->end(tick, region->answers() ? region->own_rate(tick.from_s) + others : 0);
  }
}

std::vector<ScalingCounts> play_pool(const YearOptions& options,
                                     const cost_model::StepTimeModel& times, int number,
                                     Tally& tally) {
  const double period_s = options.arrivals.day ? options.arrivals.day->period_s : 86'400;
  const std::vector<SimulationOptions> fleets = [&] {
    std::vector<SimulationOptions> all(static_cast<size_t>(options.regions), options.fleet);
    for (int r = 0; r < options.regions; ++r) {
      all[static_cast<size_t>(r)].seed = base::random_bits(
          options.fleet.seed, static_cast<uint64_t>(number * options.regions + r));
    }
    return all;
  }();
  std::vector<std::unique_ptr<PoolYear>> regions;
  for (int r = 0; r < options.regions; ++r) {
    const double ahead_s = period_s * (static_cast<double>(number) / options.pools +
                                       static_cast<double>(r) / options.regions);
    regions.push_back(
        std::make_unique<PoolYear>(options, fleets[static_cast<size_t>(r)], times, ahead_s, tally));
  }
  const double grace_s = 2 * options.fleet.autoscaling->start_seconds() + 120;
  Tick tick;
  for (; tick.from_s < options.duration_s; tick.from_s += tick.span_s, ++tick.number) {
    tick.span_s = std::min(options.tick_s, options.duration_s - tick.from_s);
    play_tick(regions, tick, grace_s);
  }
  std::vector<ScalingCounts> counts;
  for (const auto& region : regions) counts.push_back(region->scaling());
  return counts;
}

FleetFigures figures_of_year(const YearOptions& options, const Tally& tally,
                             const std::vector<ScalingCounts>& pools) {
  FleetFigures figures{.requests = std::llround(tally.requests),
                       .late = std::llround(tally.late),
                       .lost = std::llround(tally.lost),
                       .left = std::llround(tally.left),
                       .ttft_p50_s = tally.first_tokens.at(50),
                       .ttft_p90_s = tally.first_tokens.at(90),
                       .ttft_p99_s = tally.first_tokens.at(99),
                       .output_tokens_per_s = tally.tokens / options.duration_s};
  double held_s = 0;
  for (const ScalingCounts& one : pools) {
    figures.replica_hours += one.replica_s / kHour_s;
    figures.most += one.replicas_most;
    figures.started += one.started;
    figures.failed_starts += one.failed_starts;
    figures.direction_changes += one.direction_changes;
    held_s += one.held_s;
  }
  figures.held_mean_s = held_s / std::max(tally.requests, 1.0);
  const double price = options.fleet.autoscaling->policy.price_each;
  if (price > 0) figures.cost = price * figures.replica_hours;
  figures.used_hours = tally.used_s / kHour_s;
  figures.needed_hours = tally.needed_s / kHour_s;
  return figures;
}

std::vector<CauseShare> causes_of(const YearOptions& options, const Tally& tally) {
  std::vector<CauseShare> causes;
  for (size_t i = 0; i < tally.by_cause.size(); ++i) {
    const bool is_fault = i < options.faults.size();
    causes.push_back({.cause = is_fault ? options.faults[i].cause : std::string(kLoad),
                      .incidents = is_fault ? tally.incidents[i] : 0,
                      .requests = tally.by_cause[i],
                      .share = tally.by_cause[i] / std::max(tally.requests, 1.0)});
  }
  std::ranges::stable_sort(causes, std::greater<>(), &CauseShare::requests);
  return causes;
}

Result<void> check(const YearOptions& options) {
  const auto bad = [](const char* field, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, "--days: " + what, field};
  };
  if (!options.fleet.autoscaling) {
    return bad("autoscale",
               "a year is of a fleet that is scaled: give --autoscale or a scenario's [scale]");
  }
  if (std::optional<Error> refusal = fluid_refusal(options.fleet)) {
    // The other fidelity has no --days.
    refusal->message = "--days: " + refusal->message.substr(0, refusal->message.rfind(": use "));
    return *refusal;
  }
  if (options.fleet.concurrency_max) {
    return bad("max-concurrency", "a year's load is a rate, which no --max-concurrency bounds");
  }
  if (!options.fleet.faults.empty()) {
    return bad("faults", "a year has faults by their rates, not by their moments");
  }
  if (options.arrivals.ramp || options.arrivals.burstiness != 1) {
    return bad("workload", "a year's load has no ramp, and Poisson's gaps alone");
  }
  if (!(options.arrivals.rate > 0 && std::isfinite(options.arrivals.rate))) {
    return bad("request-rate", "a year's load needs a finite rate, and a --workload may have none");
  }
  if (!(options.tick_s >= 0.1 && options.tick_s <= 600)) {
    return bad("fluid-tick", "a tick must be 0.1 to 600 seconds");
  }
  if (options.pools < 1 || options.pools > 1000) return bad("pools", "pools must be 1 to 1000");
  if (options.regions < 1 || options.regions > 64) {
    return bad("failure-regions", "regions must be 1 to 64");
  }
  if (options.classes.empty()) return bad("workload", "a load without requests");
  SimulationOptions fleet = options.fleet;
  return check_simulation(fleet, {});
}

}  // namespace

std::vector<RequestClass> request_classes(const workload::Workload& sample, int output_otherwise,
                                          size_t most) {
  std::vector<RequestClass> all;
  for (const workload::Conversation& conversation : sample.conversations) {
    double before = 0;
    for (const workload::Turn& turn : conversation.turns) {
      const double prompt = std::max(turn.prompt_tokens, 1);
      const double output = turn.output_tokens > 0 ? turn.output_tokens : output_otherwise;
      all.push_back({.prompt = before + prompt, .computed = prompt, .output = output});
      before += prompt + output;
    }
  }
  std::ranges::stable_sort(all, {}, [](const RequestClass& one) { return one.computed; });
  std::vector<RequestClass> classes;
  const size_t count = std::min(most, all.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t from = i * all.size() / count;
    const size_t to = (i + 1) * all.size() / count;
    RequestClass one{.share = static_cast<double>(to - from) / static_cast<double>(all.size()),
                     .prompt = 0,
                     .computed = 0,
                     .output = 0};
    for (size_t k = from; k < to; ++k) {
      one.prompt += all[k].prompt / static_cast<double>(to - from);
      one.computed += all[k].computed / static_cast<double>(to - from);
      one.output += all[k].output / static_cast<double>(to - from);
    }
    classes.push_back(one);
  }
  return classes;
}

Result<YearResult> simulate_year(const YearOptions& options,
                                 const cost_model::StepTimeModel& times) {
  TRY(check(options));
  Tally tally;
  tally.by_cause.resize(options.faults.size() + 1);
  tally.incidents.resize(options.faults.size());
  tally.timeline.part_s = options.duration_s / kParts;
  tally.timeline.requests.resize(kParts);
  tally.timeline.late.resize(kParts);
  std::vector<ScalingCounts> pools;
  for (int i = 0; i < options.pools; ++i) {
    for (const ScalingCounts& one : play_pool(options, times, i, tally)) pools.push_back(one);
  }
  YearResult result{.figures = figures_of_year(options, tally, pools),
                    .timeline = tally.timeline,
                    .requests = tally.requests,
                    .causes = causes_of(options, tally)};
  // Of several pools the first one's.
  result.timeline.samples = pools.front().history.samples();
  const double bad = tally.late + tally.lost + tally.left;
  result.availability = 1 - bad / std::max(tally.requests, 1.0);
  return result;
}

}  // namespace pelton::simulator
