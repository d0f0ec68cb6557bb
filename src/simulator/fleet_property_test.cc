// Random small fleets, scaled and not, with faults of every kind, clients that leave and that try
// again. Whatever happens: every request ends once, with its own tokens and all of them; times do
// not go back; every queue and KV cache is empty at the end (the fleet CHECKs that); replicas stay
// within bounds; one seed is one run, also beside another thread's. A failing seed is printed:
// PELTON_SEED=N replays it. PELTON_FULL: 10^5 of them.
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "simulator/even_steps.h"
#include "simulator/simulation.h"

namespace pelton::simulator {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // Uniform in [low, high].
  int roll(int low, int high) {
    return low + static_cast<int>(base::random_bits(seed_, count_++) %
                                  static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return roll(1, n) == 1; }
  double number(double low, double high) {
    return low + (high - low) * base::random_unit(seed_, count_++);
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

Autoscaling a_scaling(Dice& dice) {
  Autoscaling asked;
  autoscaler::PoolPolicy& policy = asked.policy;
  policy.replicas_max = dice.roll(1, 4);
  policy.replicas_min = dice.roll(0, policy.replicas_max);
  policy.window_s = dice.roll(6, 30);
  policy.idle_to_zero_s = dice.roll(1, 20);
  if (dice.one_in(2)) policy.scale_down_delay_s = dice.roll(0, 30);
  if (dice.one_in(4)) policy.rule = autoscaler::PoolPolicy::Rule::kKnative;
  asked.replicas = dice.roll(0, policy.replicas_max);
  asked.start_s = dice.number(0.01, 20);
  if (dice.one_in(2)) {
    asked.phases = {{.name = "provision", .seconds = dice.number(0.1, 5), .p90_s = 8},
                    {.name = "weights", .seconds = dice.number(0, 5)}};
  }
  if (dice.one_in(4)) asked.held_max = dice.roll(0, 5);
  if (dice.one_in(4)) asked.hold_s_max = dice.number(0.1, 10);
  return asked;
}

Fault a_fault(Dice& dice, int replicas, bool is_scaled) {
  const double at_s = dice.number(0, 20);
  const Fault::Kind last = is_scaled ? Fault::Kind::kAutoscalerDown : Fault::Kind::kGatewayDown;
  return {.kind = static_cast<Fault::Kind>(dice.roll(0, static_cast<int>(last))),
          .replica = dice.roll(0, replicas - 1),
          .at_s = at_s,
          .until_s = at_s + dice.number(0.1, 20),
          .factor = dice.number(0.5, 5),
          .count = dice.roll(1, 3),
          .share = dice.number(0.01, 0.9),
          .delay_s = dice.number(0.001, 6)};
}

// Between gateways and replicas, and how late the autoscaler hears.
void add_network(Dice& dice, SimulationOptions& options) {
  if (dice.one_in(3)) options.network.round_trip_s = dice.number(0.001, 0.3);
  if (dice.one_in(3)) options.network.loss = dice.number(0, 0.5);
  if (options.has_network() && !options.autoscaling) options.answers_go_on = !dice.one_in(4);
  if (!options.autoscaling) return;
  if (dice.one_in(3)) options.autoscaling->facts_delay_s = dice.number(0, 15);
  if (dice.one_in(3)) options.autoscaling->facts_lost = dice.number(0, 1);
  if (options.has_network()) options.answers_go_on = dice.one_in(2);
}

SimulationOptions a_fleet(Dice& dice, uint64_t seed) {
  SimulationOptions options;
  options.seed = seed;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {dice.roll(20, 60)}},
                 {{.name = "window", .sliding_window = 128}, {dice.roll(20, 40)}}},
      .sequences_max = dice.roll(1, 4),
      .batch_tokens_max = dice.roll(8, 64),
      .context_tokens_max = 300,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica.inbox_max = dice.one_in(4) ? dice.roll(1, 4) : 1024;
  options.replica_count = dice.roll(1, 3);
  const bool is_scaled = dice.one_in(2);
  if (is_scaled) options.autoscaling = a_scaling(dice);
  options.dispatch = static_cast<Dispatcher::Policy>(dice.roll(0, 5));
  if (!is_scaled && dice.one_in(2)) {
    options.gateways = dice.roll(1, 3);
    options.report_s = dice.number(0, 0.5);
    if (dice.one_in(2)) options.reports_lost = dice.number(0, 0.9);
    if (dice.one_in(2)) options.reports_doubled = dice.number(0, 0.5);
  }
  options.answers_go_on = !is_scaled && dice.one_in(2);
  if (dice.one_in(3)) options.clients.patience_s = dice.number(0.05, 10);
  if (dice.one_in(3)) {
    options.clients.retries_max = dice.roll(1, 3);
    options.clients.back_off_s = dice.number(0, 3);
  }
  if (dice.one_in(4)) options.concurrency_max = dice.roll(1, 6);
  const int replicas = is_scaled ? options.autoscaling->policy.replicas_max : options.replica_count;
  for (int i = dice.roll(0, 4); i > 0; --i) {
    options.faults.push_back(a_fault(dice, replicas, is_scaled));
  }
  add_network(dice, options);
  return options;
}

workload::Workload a_load(Dice& dice) {
  workload::Workload load;
  double at_s = 0;
  for (int i = dice.roll(1, 15); i > 0; --i) {
    at_s += dice.one_in(8) ? dice.number(5, 20) : dice.number(0, 0.5);
    load.at_s.push_back(at_s);
    workload::Conversation& one = load.conversations.emplace_back();
    for (int turns = dice.roll(1, 3); turns > 0; --turns) {
      one.turns.push_back({.prompt = std::to_string(dice.roll(0, 5)),
                           .prompt_tokens = dice.roll(1, 40),
                           .output_tokens = dice.roll(1, 20),
                           .think_s = dice.number(0, 1)});
    }
  }
  return load;
}

// Every number of a run, as one.
uint64_t digest(const SimulationResult& result) {
  uint64_t sum =
      base::random_bits(static_cast<uint64_t>(result.events), static_cast<uint64_t>(result.left));
  const auto add = [&](int64_t value) {
    sum = base::random_bits(sum, static_cast<uint64_t>(value));
  };
  for (const report::RequestRecord& record : result.records) {
    add(record.due_ns);
    add(record.first_byte_ns);
    add(record.end_ns);
    add(record.output_tokens);
    for (const report::Piece& piece : record.pieces) add(piece.at_ns);
  }
  if (!result.scaling) return sum;
  for (const ScalingStep& step : result.scaling->history.steps()) {
    add(step.desired);
    for (const char c : step.text) add(c);
  }
  return sum;
}

void expect_sound(const SimulationOptions& options, const workload::Workload& load,
                  const SimulationResult& result) {
  ASSERT_EQ(result.unfinished, 0);
  ASSERT_GE(result.records.size(), load.conversations.size());
  int64_t left = 0;
  for (const report::RequestRecord& record : result.records) {
    const auto& turns = load.conversations[static_cast<size_t>(record.conversation)].turns;
    const workload::Turn& turn = turns[static_cast<size_t>(record.turn)];
    ASSERT_LE(0, record.due_ns);
    ASSERT_LE(record.due_ns, record.start_ns);
    ASSERT_LE(record.start_ns, record.end_ns);
    left += record.error == "its client left" ? 1 : 0;
    ASSERT_EQ(record.ok, record.error.empty()) << record.error;
    int64_t seen_ns = record.start_ns;
    for (const report::Piece& piece : record.pieces) {
      ASSERT_LE(seen_ns, piece.at_ns);
      seen_ns = piece.at_ns;
    }
    if (!record.ok) continue;
    ASSERT_EQ(record.output_tokens, turn.output_tokens);
    ASSERT_EQ(record.pieces.size(), static_cast<size_t>(turn.output_tokens));
  }
  ASSERT_EQ(left, result.left);
  if (!options.autoscaling) return;
  const autoscaler::PoolPolicy& policy = options.autoscaling->policy;
  ASSERT_GE(result.scaling->replica_s, 0);
  ASSERT_LE(result.scaling->replicas_most, policy.replicas_max);
  ASSERT_LE(result.scaling->replica_s, policy.replicas_max * result.duration_s + 1e-6);
  for (const ScalingSample& sample : result.scaling->history.samples()) {
    ASSERT_LE(policy.replicas_min, sample.desired) << "at " << sample.at_s;
    ASSERT_LE(sample.desired, policy.replicas_max);
    ASSERT_LE(sample.present(), policy.replicas_max);
    ASSERT_GE(sample.held, 0);
    ASSERT_GE(sample.in_service, 0);
  }
}

// Over many fleets: that what is to be borne did happen.
struct Happened {
  int64_t left = 0;
  int64_t retried = 0;
  int64_t redispatched = 0;
  int64_t failed_starts = 0;
  int64_t drained = 0;
  int64_t answered = 0;
  int64_t taken_back = 0;
  int64_t sent_back = 0;
  int64_t found_down = 0;
  int64_t ignored = 0;
  int64_t held_decisions = 0;

  void add(const SimulationResult& result) {
    left += result.left;
    retried += result.client_retries;
    redispatched += result.redispatched;
    for (const report::RequestRecord& record : result.records) answered += record.ok ? 1 : 0;
    if (result.network) {
      taken_back += result.network->taken_back;
      sent_back += result.network->sent_back;
      found_down += result.network->found_down;
      ignored += result.network->ignored;
    }
    if (!result.scaling) return;
    held_decisions += result.scaling->decisions_held;
    failed_starts += result.scaling->failed_starts;
    for (const ScalingStep& step : result.scaling->history.steps()) drained += step.drained;
  }
};

void play(uint64_t seed, const cost_model::StepTimeModel& times, Happened& happened) {
  Dice dice(seed);
  const SimulationOptions options = a_fleet(dice, seed);
  const workload::Workload load = a_load(dice);
  Result<SimulationResult> result = simulate(options, load, times);
  ASSERT_TRUE(result.ok()) << result.error().message;
  expect_sound(options, load, *result);
  happened.add(*result);
  if (seed % 8 != 0) return;
  uint64_t others[2] = {0, 0};
  std::thread beside([&] { others[0] = digest(*simulate(options, load, times)); });
  others[1] = digest(*simulate(options, load, times));
  beside.join();
  ASSERT_EQ(others[0], digest(*result));
  ASSERT_EQ(others[1], digest(*result));
}

// The only replica was on trial, and the request that was its trial was taken back when it was
// silent: what was held waited for the trial's outcome for ever.
TEST(FleetProperty, ATrialThatIsTakenBackIsFollowedByAnother) {
  Happened happened;
  play(409'159'720, *even_steps(0.05), happened);
  EXPECT_GT(happened.taken_back, 0);
}

TEST(FleetProperty, RandomFleetsWithFaultsLoseAndDoubleNothing) {
  const cost_model::StepTimeModel times = *even_steps(0.05);
  Happened happened;
  if (const char* one = std::getenv("PELTON_SEED"); one != nullptr) {
    return play(static_cast<uint64_t>(std::atoll(one)), times, happened);
  }
  const int count = std::getenv("PELTON_FULL") != nullptr ? 100'000 : 1'000;
  const auto first = static_cast<uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000'000);
  for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i) {
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(first + static_cast<uint64_t>(i)));
    play(first + static_cast<uint64_t>(i), times, happened);
  }
  for (const int64_t count_of :
       {happened.left, happened.retried, happened.redispatched, happened.failed_starts,
        happened.drained, happened.answered, happened.taken_back, happened.found_down,
        happened.ignored, happened.held_decisions}) {
    EXPECT_GT(count_of, count / 200);  // the rarest happen in 2 of 100 fleets
  }
}

}  // namespace
}  // namespace pelton::simulator
