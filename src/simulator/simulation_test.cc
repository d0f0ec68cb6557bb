#include "simulator/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cost_model/slices.h"
#include "report/summary.h"
#include "workload/offered_load.h"

namespace pelton::simulator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;

// A model whose decode step takes a round time: 1 ms a step and 0.1 ms a row and 10 us a token.
cost_model::StepTimeModel round_times() {
  cost_model::Hardware hardware = *cost_model::find_hardware("h100");
  hardware.bytes_per_second = 1e18;
  hardware.rates[cost_model::Arithmetic::kBf16] = 1e30;
  Result<cost_model::StepTimeModel> made =
      cost_model::StepTimeModel::make({.hardware = hardware,
                                       .shape = *cost_model::find_model_config("gpt-oss-20b"),
                                       .efficiency = {.bandwidth = 1,
                                                      .compute = 1,
                                                      .attention = 1,
                                                      .step_s = 1e-3,
                                                      .token_s = 1e-5,
                                                      .row_s = 1e-4}});
  return *made;
}

SimulationOptions small_fleet(int replicas) {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {2000}}, {{.name = "window", .sliding_window = 128}, {1000}}},
      .sequences_max = 8,
      .batch_tokens_max = 256,
      .context_tokens_max = 4096,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica_count = replicas;
  return options;
}

workload::Workload requests(const std::string& spec) {
  const Result<workload::WorkloadSpec> parsed = workload::parse_spec(*Json::parse(spec), "test");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return *workload::make_workload(*parsed, workload::ids_vocabulary(1000));
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& workload) {
  const cost_model::StepTimeModel times = round_times();
  Result<SimulationResult> result = simulate(options, workload, times);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

TEST(Simulation, OneRequestTakesWhatItsStepsTake) {
  SimulationOptions options = small_fleet(1);
  options.overhead = {.in_s = 0.002, .in_token_s = 1e-6, .out_s = 0.001};
  options.replica.steps_in_flight_max = 1;
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":100,"output_tokens":5,"count":1,"rate":"inf"})"));
  ASSERT_EQ(result.records.size(), 1u);
  const report::RequestRecord& record = result.records[0];
  EXPECT_TRUE(record.ok);
  EXPECT_EQ(record.output_tokens, 5);
  // In 2.1 ms, 1 + 0.1 + 100 * 0.01 ms of prefill, out 1 ms; then 1.11 ms a token. What is read of
  // an infinitely fast memory adds nanoseconds.
  EXPECT_NEAR(static_cast<double>(record.first_byte_ns), 5.2e6, 1e3);
  EXPECT_NEAR(static_cast<double>(record.end_ns), 5.2e6 + 4 * 1.11e6, 1e3);
  EXPECT_EQ(record.pieces.size(), 5u);
  EXPECT_EQ(result.replicas[0].steps, 5);
}

// An encoder's texts are never cut: of 100 and 300 tokens in steps of 512, each step has whole
// ones.
TEST(Simulation, AnEncodersTextIsComputedInOneStep) {
  SimulationOptions options = small_fleet(1);
  engine::ExecutorCapacity& capacity = options.replica.capacity;
  capacity.batch_tokens_max = 512;
  capacity.whole_prompts = true;
  capacity.pooled_sequences_max = 64;
  capacity.embedding_size = 1;
  capacity.context_tokens_max = 512;
  options.replica.prefix_cache = false;
  options.replica.steps_in_flight_max = 1;
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":300,"output_tokens":1,"count":10,"rate":"inf"})"));
  EXPECT_EQ(result.unfinished, 0);
  for (const report::RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok);
    EXPECT_EQ(record.output_tokens, 1);
  }
  // Cut, ten of 300 tokens would be six steps of 512.
  EXPECT_EQ(result.replicas[0].steps, 10);
  EXPECT_EQ(result.replicas[0].rows, 10);
  // Short ones share a step, more of them than there are slots for sequences that sample: 25 of 20.
  const SimulationResult shorter =
      run(options, requests(R"({"input_tokens":20,"output_tokens":1,"count":50,"rate":"inf"})"));
  EXPECT_EQ(shorter.replicas[0].steps, 2);
  // One that no step holds is refused, not cut.
  capacity.context_tokens_max = 256;
  EXPECT_FALSE(
      run(options, requests(R"({"input_tokens":300,"output_tokens":1,"count":1,"rate":"inf"})"))
          .records[0]
          .ok);
}

// Four guesses a row, all right: 20 tokens behind the first in four steps of five rows.
TEST(Simulation, SpeculationTakesAnAcceptance) {
  SimulationOptions options = small_fleet(1);
  options.replica.capacity.draft_tokens_max = 4;
  options.replica.capacity.draft_rows_max = 32;
  options.replica.adaptive_drafts = false;
  options.replica.draft_acceptance = cost_model::DraftAcceptance(1.0);
  options.replica.draft_token_s = 1e-4;
  const workload::Workload load =
      requests(R"({"input_tokens":100,"output_tokens":21,"count":1,"rate":"inf"})");
  const SimulationResult right = run(options, load);
  const report::RequestRecord& record = right.records[0];
  EXPECT_EQ(record.output_tokens, 21);
  EXPECT_EQ(right.replicas[0].steps, 5);
  EXPECT_EQ(right.replicas[0].scheduler.accepted_tokens, 16);
  // 1 + 0.1 + 5 * 0.01 ms, and four guesses of 0.1 ms.
  EXPECT_NEAR(static_cast<double>(record.end_ns - record.first_byte_ns), 4 * 1.55e6, 1e3);

  options.replica.draft_acceptance = cost_model::DraftAcceptance(0.0);
  EXPECT_EQ(run(options, load).replicas[0].steps, 21);
  options.replica.adaptive_drafts = true;  // seen to lose, and left
  options.replica.draft_token_s = 1e-3;
  EXPECT_LT(run(options, load).replicas[0].scheduler.draft_tokens, 40);
}

// By place: of four guesses the first is right and the second is not, two tokens a step.
TEST(Simulation, SpeculationTakesAnAcceptanceByPlace) {
  SimulationOptions options = small_fleet(1);
  options.replica.capacity.draft_tokens_max = 4;
  options.replica.capacity.draft_rows_max = 32;
  options.replica.adaptive_drafts = false;
  options.replica.draft_acceptance = *cost_model::DraftAcceptance::parse("1,0");
  const workload::Workload load =
      requests(R"({"input_tokens":100,"output_tokens":21,"count":1,"rate":"inf"})");
  const SimulationResult result = run(options, load);
  EXPECT_EQ(result.replicas[0].steps, 11);
  EXPECT_EQ(result.replicas[0].scheduler.accepted_tokens, 10);
}

// Of each request its own: those that are guessed well and those that are not, by one seed the
// same; a plain number is the run that it was.
TEST(Simulation, SpeculationTakesAnAcceptanceByRequest) {
  SimulationOptions options = small_fleet(1);
  options.replica.capacity.draft_tokens_max = 4;
  options.replica.capacity.draft_rows_max = 64;
  options.replica.adaptive_drafts = false;
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":60,"count":60,"rate":5})");
  const auto spread = [&](const char* acceptance) {
    options.replica.draft_acceptance = *cost_model::DraftAcceptance::parse(acceptance);
    const SimulationResult result = run(options, load);
    const SimulationResult again = run(options, load);
    double least = 1e9;
    double most = 0;
    for (size_t i = 0; i < result.records.size(); ++i) {
      const report::RequestRecord& one = result.records[i];
      EXPECT_EQ(one.end_ns, again.records[i].end_ns);
      const auto took = static_cast<double>(one.end_ns - one.first_byte_ns);
      least = std::min(least, took);
      most = std::max(most, took);
    }
    return most / least;
  };
  EXPECT_GT(spread("0.5*0.95+0.5*0.05"), 2.5);
  EXPECT_LT(spread("0.5"), 2);
}

// Everything is drawn from seeds: a run can be had again, and another one.
TEST(Simulation, OneSeedReplaysOneRun) {
  const workload::Workload load = requests(
      R"({"input_tokens":60,"output_tokens":20,"range_ratio":0.5,"count":60,"rate":100,"seed":5})");
  SimulationOptions options = small_fleet(3);
  options.replica.residuals = std::vector<double>(cost_model::kSlices, 1.0);
  options.replica.residuals.back() = 3;
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 1, .at_s = 0.2, .until_s = 0.4}};
  options.seed = 11;
  const auto ends = [&] {
    std::vector<int64_t> all;
    for (const report::RequestRecord& record : run(options, load).records) {
      all.push_back(record.end_ns);
      for (const report::Piece& piece : record.pieces) all.push_back(piece.at_ns);
    }
    return all;
  };
  const std::vector<int64_t> one = ends();
  EXPECT_EQ(one, ends());
  options.seed = 12;
  EXPECT_NE(one, ends());
}

TEST(Simulation, AClosedLoopKeepsToItsConcurrency) {
  SimulationOptions options = small_fleet(1);
  options.concurrency_max = 5;
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":30,"output_tokens":10,"count":40,"rate":"inf"})"));
  EXPECT_EQ(result.records.size(), 40u);
  EXPECT_EQ(report::peak_concurrency(result.records), 5);
  EXPECT_EQ(result.replicas[0].running_max, 5);
}

// A listener reads one request after another.
TEST(Simulation, WhoComesAtOnceArrivesOneByOne) {
  SimulationOptions options = small_fleet(1);
  options.overhead = {.in_s = 0.01};
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":10,"output_tokens":1,"count":4,"rate":"inf"})"));
  ASSERT_EQ(result.records.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    // 10 ms each, then a step of 1 + 0.1 + 10 * 0.01 ms.
    EXPECT_NEAR(static_cast<double>(result.records[i].first_byte_ns),
                static_cast<double>(i + 1) * 1e7 + 1.2e6, 1e3);
  }
  // Two listeners read two at a time.
  options.replica_count = 2;
  const SimulationResult two =
      run(options, requests(R"({"input_tokens":10,"output_tokens":1,"count":4,"rate":"inf"})"));
  EXPECT_NEAR(static_cast<double>(two.records[3].first_byte_ns), 2.5e7 + 1.2e6, 1e3);
}

// What requests cost around the engine varies as it was measured; no token overtakes another.
TEST(Simulation, ListenersAreNotEquallyFast) {
  SimulationOptions options = small_fleet(1);
  options.overhead = {.in_s = 0.001, .out_s = 0.002};
  options.overhead.in_residuals = std::vector<double>(cost_model::kSlices, 0.5);
  options.overhead.out_residuals = std::vector<double>(cost_model::kSlices, 0.5);
  for (size_t i = cost_model::kSlices / 2; i < cost_model::kSlices; ++i) {
    options.overhead.in_residuals[i] = 1.5;
    options.overhead.out_residuals[i] = 1.5;
  }
  options.concurrency_max = 1;
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":10,"output_tokens":3,"count":200,"rate":"inf"})"));
  std::map<int64_t, int> firsts;  // in tenths of milliseconds
  for (const report::RequestRecord& record : result.records) {
    ++firsts[std::llround(static_cast<double>(record.first_byte_ns - record.start_ns) / 1e5)];
    ASSERT_EQ(record.pieces.size(), 3u);
    EXPECT_LE(record.pieces[0].at_ns, record.pieces[1].at_ns);
    EXPECT_LE(record.pieces[1].at_ns, record.pieces[2].at_ns);
  }
  // In 0.5 or 1.5 ms, a step of 1.2, out 1 or 3.
  ASSERT_THAT(firsts, ElementsAre(Key(27), Key(37), Key(47), Key(57)));
  for (const auto& [first, count] : firsts) EXPECT_NEAR(count, 50, 20) << first;
}

// Long steps are not planned one ahead, not even the first ones: who comes during the first joins
// the second.
TEST(Simulation, TheFirstStepsAreAsLongAsTheOthers) {
  SimulationOptions options = small_fleet(1);
  options.overhead = {.in_s = 0.0001};
  options.replica.overlapped_step_ns_max = 500'000;  // a step takes a millisecond
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":10,"output_tokens":2,"count":4,"rate":"inf"})"));
  // One prompt; the other three and a token; three tokens.
  EXPECT_EQ(result.replicas[0].steps, 3);
}

// With more clients than slots, the rest wait, and the slots stay full.
TEST(Simulation, SeatsAreTheLimitOfWhatRuns) {
  const SimulationResult result =
      run(small_fleet(1),
          requests(R"({"input_tokens":30,"output_tokens":50,"count":40,"rate":"inf"})"));
  EXPECT_EQ(result.replicas[0].running_max, 8);
  EXPECT_EQ(report::peak_concurrency(result.records), 40);
}

TEST(Simulation, LaterTurnsFindTheEarlierOnesInTheCache) {
  const SimulationResult result = run(
      small_fleet(1),
      requests(
          R"({"input_tokens":64,"output_tokens":32,"turns":3,"think_s":0.1,"count":4,"rate":10})"));
  ASSERT_EQ(result.records.size(), 12u);
  for (const report::RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok);
    if (record.turn == 0) continue;
    EXPECT_EQ(record.input_tokens, 64 * (record.turn + 1) + 32 * record.turn);
    EXPECT_GE(record.cached_tokens, (64 + 32) * record.turn - 16);
  }
}

// What is computed of a load is what a run of it sends.
TEST(Simulation, A13_TheOfferedLoadIsWhatIsSent) {
  const workload::Workload load = requests(
      R"({"input_tokens":64,"output_tokens":32,"turns":3,"think_s":0.1,"count":40,"rate":2})");
  const SimulationResult result = run(small_fleet(1), load);
  const workload::OfferedLoad offered = workload::offered_load(load);
  double prompts = 0;
  double answers = 0;
  for (const report::RequestRecord& record : result.records) {
    prompts += static_cast<double>(record.input_tokens);
    answers += static_cast<double>(record.output_tokens);
  }
  const auto count = static_cast<double>(result.records.size());
  EXPECT_DOUBLE_EQ(offered.prompt_tokens, prompts / count);
  EXPECT_DOUBLE_EQ(offered.output_tokens, answers / count);
  EXPECT_NEAR(offered.requests_per_s, count / load.at_s.back(), 1e-9);
}

// A crash loses what was being answered, and nothing else; afterwards the replica serves again.
TEST(Simulation, ACrashFailsWhatHadBegunAndMovesTheRest) {
  SimulationOptions options = small_fleet(2);
  options.dispatch = Dispatcher::Policy::kRoundRobin;
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 0, .at_s = 0.1, .until_s = 0.3}};
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":50,"output_tokens":100,"count":60,"rate":100})"));
  ASSERT_EQ(result.records.size(), 60u);
  int failed = 0;
  for (const report::RequestRecord& record : result.records) {
    EXPECT_GE(record.end_ns, 0);
    if (record.ok) {
      EXPECT_EQ(record.output_tokens, 100);
      continue;
    }
    ++failed;
    EXPECT_EQ(record.error, "its replica died");
    EXPECT_GE(record.first_byte_ns, 0) << "what had not begun is served elsewhere";
    EXPECT_EQ(record.end_ns, 100'000'000);
  }
  EXPECT_GT(failed, 0);
  EXPECT_LE(failed, 8);
  EXPECT_GT(result.replicas[0].steps, 150);  // it came back
}

TEST(Simulation, NobodyServesWhileAllAreDown) {
  SimulationOptions options = small_fleet(1);
  options.faults = {{.kind = Fault::Kind::kCrash, .replica = 0, .at_s = 0, .until_s = 0.5}};
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":50,"output_tokens":10,"count":10,"rate":10})"));
  const report::Summary summary = report::summarize(result.records, result.duration_s, {});
  EXPECT_EQ(summary.completed + summary.failed, 10);
  EXPECT_GT(summary.failed, 0);
  EXPECT_GT(summary.completed, 0);
  EXPECT_EQ(summary.errors.begin()->first, "no replica is up");
}

TEST(Simulation, SlowStepsAndFailedStepsAreSeenByTheirRequests) {
  const std::string spec = R"({"input_tokens":50,"output_tokens":50,"count":20,"rate":20})";
  const SimulationResult plain = run(small_fleet(1), requests(spec));
  SimulationOptions options = small_fleet(1);
  options.faults = {{.kind = Fault::Kind::kSlow, .at_s = 0, .until_s = 1e6, .factor = 4}};
  const SimulationResult slow = run(options, requests(spec));
  const auto tpot = [](const SimulationResult& result) {
    const report::Summary summary = report::summarize(result.records, result.duration_s, {});
    const std::vector<double>& values = summary.values_ms.at(report::Metric::kTpot);
    return values[values.size() / 2];
  };
  EXPECT_GT(tpot(slow), 3.5 * tpot(plain));
  options.faults = {{.kind = Fault::Kind::kStepError, .at_s = 0.5, .count = 1}};
  const SimulationResult failing = run(options, requests(spec));
  const report::Summary summary = report::summarize(failing.records, failing.duration_s, {});
  EXPECT_EQ(failing.replicas[0].steps_failed, 1);
  EXPECT_EQ(summary.completed + summary.failed, 20);
  EXPECT_GE(summary.failed, 1);
}

// Conversations of which each begins with one of a few long prefixes, more than one replica can
// keep: whoever routes by what replicas hold computes less and answers sooner.
TEST(Simulation, RoutersThatKnowPrefixesComputeLess) {
  const workload::Workload load = requests(
      R"({"dataset":"prefix_repetition","prefix_tokens":600,"suffix_tokens":40,
          "output_tokens":20,"prefix_count":24,"count":300,"rate":60,"seed":3})");
  struct Outcome {
    double cached = 0;  // share of the prompts
    double ttft_ms = 0;
  };
  const auto outcome = [&](Dispatcher::Policy policy) {
    SimulationOptions options = small_fleet(4);
    options.dispatch = policy;
    options.replica.capacity.groups[0].block_counts[kv::kDevice] = 500;
    options.replica.capacity.groups[1].block_counts[kv::kDevice] = 500;
    const SimulationResult result = run(options, load);
    Outcome mean;
    double prompts = 0;
    for (const report::RequestRecord& record : result.records) {
      EXPECT_TRUE(record.ok) << record.error;
      mean.cached += static_cast<double>(record.cached_tokens);
      prompts += static_cast<double>(record.input_tokens);
      mean.ttft_ms += static_cast<double>(record.first_byte_ns - record.start_ns) * 1e-6;
    }
    mean.cached /= prompts;
    mean.ttft_ms /= static_cast<double>(result.records.size());
    return mean;
  };
  const Outcome robin = outcome(Dispatcher::Policy::kRoundRobin);
  const Outcome threshold = outcome(Dispatcher::Policy::kPrefixThreshold);
  const Outcome cost = outcome(Dispatcher::Policy::kCost);
  EXPECT_GT(cost.cached, robin.cached + 0.1);
  EXPECT_GT(threshold.cached, robin.cached + 0.1);
  EXPECT_LT(cost.ttft_ms, robin.ttft_ms);
}

// Two zones 50 ms apart, each with a gateway and half of the replicas: what is sent across had no
// room at home, as far as its gateway could know.
TEST(Simulation, WhatTheNearZoneHasRoomForStaysThere) {
  for (const double report_s : {0.0, 0.1}) {
    SimulationOptions options = small_fleet(4);
    options.dispatch = Dispatcher::Policy::kCost;
    options.gateways = options.zones = 2;
    options.report_s = report_s;
    const SimulationResult result = run(
        options, requests(R"({"dataset":"prefix_repetition","prefix_tokens":300,"suffix_tokens":40,
                              "output_tokens":40,"prefix_count":12,"count":600,"rate":120,"seed":3})"));
    EXPECT_EQ(result.zones.sent, 600);
    EXPECT_LE(result.zones.across_with_room, report_s > 0 ? 12 : 0) << "2 %";
    EXPECT_EQ(result.unfinished, 0);
  }
  // One zone is full: it is helped by the other one, 50 ms later.
  SimulationOptions options = small_fleet(2);
  options.dispatch = Dispatcher::Policy::kCost;
  options.gateways = options.zones = 2;
  options.replica.capacity.sequences_max = 2;
  const SimulationResult result =
      run(options,
          requests(R"({"input_tokens":40,"output_tokens":200,"count":40,"rate":"inf","seed":4})"));
  EXPECT_GT(result.zones.across, 0);
  EXPECT_EQ(result.zones.across_with_room, 0);
}

// What gateways know is a report old, and each knows only what it sent itself since.
TEST(Simulation, SeveralGatewaysSpreadRequestsNearlyAsWellAsOne) {
  const workload::Workload load =
      requests(R"({"input_tokens":200,"output_tokens":60,"count":800,"rate":100,"seed":5})");
  const auto took_s = [&](int gateways) {
    SimulationOptions options = small_fleet(4);
    options.dispatch = Dispatcher::Policy::kCost;
    options.gateways = gateways;
    options.report_s = 0.1;
    const SimulationResult result = run(options, load);
    for (const report::RequestRecord& record : result.records) EXPECT_TRUE(record.ok);
    EXPECT_EQ(result.records.size(), 800u);
    return result.duration_s;
  };
  const double one = took_s(1);
  EXPECT_LT(took_s(4), one * 1.1);
  EXPECT_EQ(took_s(4), took_s(4)) << "one seed is one run";
}

// Rows of any lengths on fleets of any size with any faults: nobody is forgotten, and the
// schedulers' books and the plans hold (checks are on).
TEST(SimulationProperty, EveryRequestEndsOnce) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto pick = [&](uint64_t what, uint64_t most) {
      return static_cast<int>(base::random_bits(seed, what) % most);
    };
    SimulationOptions options = small_fleet(1 + pick(1, 4));
    options.seed = seed;
    options.dispatch = static_cast<Dispatcher::Policy>(pick(2, 6));
    options.replica.capacity.groups[0].block_counts[kv::kDevice] = 60 + pick(3, 200);
    options.replica.capacity.groups[1].block_counts[kv::kDevice] = 120;
    options.replica.steps_in_flight_max = 1 + pick(4, 2);
    if (pick(5, 2) == 1) options.concurrency_max = 1 + pick(6, 20);
    for (int i = 0; i < pick(7, 6); ++i) {
      const double at = pick(8 + static_cast<uint64_t>(i), 100) * 0.01;
      options.faults.push_back({.kind = static_cast<Fault::Kind>(i % 3),
                                .replica = i % options.replica_count,
                                .at_s = at,
                                .until_s = at + 0.2,
                                .factor = 2,
                                .count = 2});
    }
    workload::WorkloadSpec spec;
    spec.lengths = {.input_tokens = 1 + pick(20, 300),
                    .output_tokens = 1 + pick(21, 60),
                    .range_ratio = 0.5,
                    .prefix_tokens = pick(22, 64)};
    spec.turns = {.count = 1 + pick(23, 3), .think_s = 0.01};
    spec.count = 30;
    spec.arrivals.rate = 50;
    spec.seed = seed;
    const workload::Workload load = *workload::make_workload(spec, workload::ids_vocabulary(1000));
    const SimulationResult result = run(options, load);
    EXPECT_EQ(result.unfinished, 0) << "seed " << seed;
    for (const report::RequestRecord& record : result.records) {
      ASSERT_GE(record.end_ns, record.start_ns) << "seed " << seed;
      ASSERT_GE(record.start_ns, record.due_ns) << "seed " << seed;
      if (!record.ok) continue;
      ASSERT_EQ(record.pieces.back().at_ns, record.end_ns) << "seed " << seed;
    }
  }
}

TEST(Fault, FilesAreCheckedFieldByField) {
  const auto refuse = [](const std::string& text) {
    return parse_faults(*Json::parse(text), {.replicas = 2}, "f.json").error().message;
  };
  EXPECT_THAT(refuse("{}"), HasSubstr("list"));
  EXPECT_THAT(refuse(R"([{"kind":"rain"}])"), HasSubstr("faults[0].kind"));
  EXPECT_THAT(refuse(R"([{"kind":"crash","replica":2,"at_s":1}])"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refuse(R"([{"kind":"crash","at_s":5,"until_s":4}])"), HasSubstr("until_s"));
  EXPECT_THAT(refuse(R"([{"kind":"slow","at_s":5,"factor":0}])"), HasSubstr("factor"));
  EXPECT_THAT(refuse(R"([{"kind":"crash","at_s":3,"until":5}])"),
              HasSubstr("no member 'until': a fault of the kind crash has kind, at_s, until_s, "
                        "replica, node, zone"));
  EXPECT_THAT(refuse(R"([{"kind":"crash","at_s":3,"until_s":"5"}])"), HasSubstr("until_s"));
  EXPECT_THAT(refuse(R"([{"kind":"crash","at_s":3,"replica":0.5}])"), HasSubstr("replica"));
  EXPECT_THAT(refuse("[3]"), HasSubstr("faults[0] must be an object"));
  EXPECT_EQ(parse_faults(*Json::parse(R"([{"kind":"slow","replica":1,"at_s":5,"factor":2}])"),
                         {.replicas = 2}, "f")
                ->front()
                .replica,
            1);
}

// A member of another kind would be ignored, and one that is missing guessed.
TEST(Fault, EachKindHasItsOwnMembers) {
  const auto parse = [](const std::string& text, int replicas) {
    return parse_faults(*Json::parse("[" + text + "]"), {.replicas = replicas}, "f");
  };
  for (const char* const text : {R"({"kind":"crash","replica":0,"at_s":1,"factor":2})",
                                 R"({"kind":"crash","replica":0,"at_s":1,"count":2})",
                                 R"({"kind":"crash","replica":0,"at_s":1,"share":0.5})",
                                 R"({"kind":"crash","replica":0,"at_s":1,"delay_s":1})",
                                 R"({"kind":"crash","replica":0,"at_s":1,"gateway":0})",
                                 R"({"kind":"step_error","replica":0,"at_s":1,"until_s":2})",
                                 R"({"kind":"start_error","at_s":1,"until_s":2})",
                                 R"({"kind":"slow_start","replica":0,"at_s":1,"factor":2})",
                                 R"({"kind":"gateway_down","replica":0,"at_s":1})",
                                 R"({"kind":"facts_cut","gateway":0,"at_s":1})"}) {
    EXPECT_THAT(parse(text, 2).error().message, HasSubstr("has no member '")) << text;
  }
  for (const char* const text :
       {R"({"kind":"slow","replica":0,"at_s":1})", R"({"kind":"slow_start","at_s":1})"}) {
    EXPECT_THAT(parse(text, 2).error().message, HasSubstr("factor is missing")) << text;
  }
  for (const char* const text :
       {R"({"kind":"crash","at_s":1})", R"({"kind":"slow","at_s":1,"factor":2})",
        R"({"kind":"step_error","at_s":1})", R"({"kind":"cut","at_s":1})",
        R"({"kind":"lossy","at_s":1,"share":0.2})", R"({"kind":"late","at_s":1,"delay_s":1})"}) {
    EXPECT_THAT(parse(text, 2).error().message, HasSubstr("replica is missing")) << text;
    EXPECT_TRUE(parse(text, 1).ok()) << text;  // there is no other
  }
  for (const char* const text :
       {R"({"kind":"step_error","replica":0,"at_s":1})", R"({"kind":"start_error","at_s":1})",
        R"({"kind":"stock_out","at_s":1})", R"({"kind":"gateway_down","at_s":1})"}) {
    EXPECT_TRUE(parse(text, 2).ok()) << text;
  }
}

// What a node or a zone has goes at once.
TEST(Fault, ANodeOrAZoneIsEachReplicaThatStandsThere) {
  const auto parse = [](const char* text) {
    return parse_faults(*Json::parse(text), {.replicas = 11, .zones = 3}, "f.json");
  };
  const auto replicas = [&](const char* text) {
    std::vector<int> found;
    const Result<std::vector<Fault>> faults = parse(text);
    if (!faults.ok()) return found;
    for (const Fault& one : *faults) found.push_back(one.replica);
    return found;
  };
  EXPECT_THAT(replicas(R"([{"kind":"crash","at_s":3,"node":1}])"), testing::ElementsAre(8, 9, 10));
  EXPECT_THAT(replicas(R"([{"kind":"slow","at_s":3,"factor":2,"zone":2}])"),
              testing::ElementsAre(2, 5, 8));
  for (const auto& [text, what] :
       {std::pair(R"([{"kind":"crash","at_s":3,"node":2}])", "0 to 1"),
        {R"([{"kind":"crash","at_s":3,"zone":3}])", "0 to 2"},
        {R"([{"kind":"crash","at_s":3,"zone":0,"node":0}])", "beside"},
        {R"([{"kind":"crash","at_s":3,"zone":0,"replica":0}])", "beside"},
        {R"([{"kind":"stock_out","at_s":3,"zone":0}])", "no member 'zone'"}}) {
    EXPECT_THAT(parse(text).error().message, HasSubstr(what)) << text;
  }
}

}  // namespace
}  // namespace pelton::simulator
