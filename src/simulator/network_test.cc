// Messages that are lost, late and cut off between gateways and replicas, and facts that the
// autoscaler does not hear; what gateways and autoscaler make of it; gateways that die.
#include "simulator/network.h"

#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "simulator/even_steps.h"
#include "simulator/fleet_text.h"
#include "simulator/simulation.h"
#include "workload/spec.h"

namespace pelton::simulator {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// A copy each 200 ms, 400 ms, ... and half a round trip.
TEST(Network, WhatMeetsACutComesWithTheFirstCopyBehindIt) {
  const std::vector<Fault> faults = {
      {.kind = Fault::Kind::kCut, .replica = 1, .gateway = 0, .at_s = 1, .until_s = 2}};
  Network network({.asked = {.round_trip_s = 0.01}, .replicas = 2}, faults);
  EXPECT_EQ(network.arrives_ns(0, 0, 1), 5'000'000);
  EXPECT_EQ(network.arrives_ns(kSecond, 0, 0), kSecond + 5'000'000) << "another replica";
  EXPECT_EQ(network.arrives_ns(kSecond, 1, 1), kSecond + 5'000'000) << "another gateway";
  // Sent again after 0.21, 0.42 and 0.84 s.
  EXPECT_EQ(network.arrives_ns(kSecond, 0, 1), kSecond + 1'470'000'000 + 5'000'000);
  EXPECT_EQ(network.counts().cut_off, 1);
  EXPECT_EQ(network.counts().copies_lost, 0);
}

TEST(Network, WhatIsLostIsLateAndNothingIsGone) {
  Network network({.asked = {.loss = 0.25}, .replicas = 1}, {});
  int late = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::optional<int64_t> at_ns = network.arrives_ns(0, 0, 0);
    ASSERT_TRUE(at_ns);
    late += *at_ns > 0 ? 1 : 0;
  }
  EXPECT_NEAR(late, 1000, 120);
  EXPECT_EQ(network.counts().given_up, 0);
}

TEST(Network, WhoIsCutOffForEverIsGivenUp) {
  const std::vector<Fault> faults = {{.kind = Fault::Kind::kCut, .at_s = 0, .until_s = 1e9}};
  Network network({.replicas = 1}, faults);
  EXPECT_EQ(network.arrives_ns(kSecond, 0, 0), std::nullopt);
  EXPECT_EQ(network.counts().given_up, 1);
}

SimulationOptions two_replicas() {
  SimulationOptions options;
  options.replica.capacity = {
      .groups = {{{.name = "full"}, {800}}, {{.name = "window", .sliding_window = 128}, {600}}},
      .sequences_max = 32,
      .batch_tokens_max = 256,
      .context_tokens_max = 1000,
      .vocab_size = 1000};
  options.replica.checks = true;
  options.replica_count = 2;
  options.answers_go_on = true;
  options.report_s = 0.1;
  return options;
}

workload::Workload requests(const std::string& spec) {
  return *workload::make_workload(*workload::parse_spec(*Json::parse(spec), "test"),
                                  workload::ids_vocabulary(1000));
}

SimulationResult run(const SimulationOptions& options, const workload::Workload& load) {
  Result<SimulationResult> result = simulate(options, load, *even_steps(0.02));
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

const char* const kSteady =
    R"({"input_tokens":20,"output_tokens":200,"count":40,"rate":5,"seed":1})";

// The way there and back, once each.
TEST(SimulatedNetwork, ARoundTripLiesBeforeTheFirstToken) {
  SimulationOptions options = two_replicas();
  const workload::Workload one =
      requests(R"({"input_tokens":20,"output_tokens":5,"count":1,"rate":"inf"})");
  const int64_t near_ns = run(options, one).records[0].first_byte_ns;
  options.network.round_trip_s = 0.08;
  const SimulationResult far = run(options, one);
  EXPECT_NEAR(static_cast<double>(far.records[0].first_byte_ns - near_ns), 0.08e9, 1e6);
  EXPECT_EQ(far.records[0].output_tokens, 5);
}

// Its replica goes on talking to nobody; another one goes on after three seconds of silence.
TEST(SimulatedNetwork, AnswersOfAReplicaThatIsCutOffGoOnElsewhere) {
  SimulationOptions options = two_replicas();
  options.faults = {{.kind = Fault::Kind::kCut, .replica = 0, .at_s = 3, .until_s = 30}};
  const SimulationResult result = run(options, requests(kSteady));
  ASSERT_TRUE(result.network);
  EXPECT_GT(result.network->taken_back, 3);
  EXPECT_EQ(result.network->found_down, 1);
  EXPECT_GT(result.network->ignored, 0) << "what it said to nobody";
  EXPECT_GT(result.moved, 3);
  double longest_s = 0;
  for (const report::RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok) << record.error;
    EXPECT_EQ(record.output_tokens, 200);
    for (size_t i = 1; i < record.pieces.size(); ++i) {
      const int64_t gap_ns = record.pieces[i].at_ns - record.pieces[i - 1].at_ns;
      longest_s = std::max(longest_s, static_cast<double>(gap_ns) * 1e-9);
    }
  }
  // Found down after three seconds of silence, looked at each 50 ms, and begun anew elsewhere.
  EXPECT_GT(longest_s, 2.9);
  EXPECT_LT(longest_s, 4);
}

// Shorter than a silence that counts: all comes late, and nothing twice.
TEST(SimulatedNetwork, AShortCutOnlyDelays) {
  SimulationOptions options = two_replicas();
  options.faults = {{.kind = Fault::Kind::kCut, .replica = 0, .at_s = 3, .until_s = 3.5}};
  const SimulationResult result = run(options, requests(kSteady));
  EXPECT_EQ(result.network->found_down, 0);
  EXPECT_EQ(result.redispatched, 0);
  EXPECT_GT(result.network->cut_off, 10);
  for (const report::RequestRecord& record : result.records) EXPECT_EQ(record.output_tokens, 200);
}

// Nobody can be reached: requests wait as long as a gateway lets them, and then fail.
TEST(SimulatedNetwork, WithoutAnyReplicaRequestsWaitForAWhile) {
  SimulationOptions options = two_replicas();
  for (const int replica : {0, 1}) {
    options.faults.push_back(
        {.kind = Fault::Kind::kCut, .replica = replica, .at_s = 0, .until_s = 8});
  }
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":5,"count":10,"rate":2})");
  const SimulationResult late = run(options, load);
  EXPECT_GT(late.network->waited, 0);
  for (const report::RequestRecord& record : late.records) EXPECT_TRUE(record.ok) << record.error;
  for (Fault& fault : options.faults) fault.until_s = 100;
  const SimulationResult never = run(options, load);
  for (const report::RequestRecord& record : never.records) {
    EXPECT_EQ(record.error, "no replica can be reached");
  }
}

// One of two gateways does not reach a replica that the other one uses.
TEST(SimulatedNetwork, ACutOfOneGatewayIsThatGatewaysAlone) {
  SimulationOptions options = two_replicas();
  options.gateways = 2;
  options.faults = {
      {.kind = Fault::Kind::kCut, .replica = 0, .gateway = 1, .at_s = 1, .until_s = 60}};
  const SimulationResult result = run(options, requests(kSteady));
  EXPECT_EQ(result.network->found_down, 1);
  EXPECT_GT(result.replicas[0].tokens, 1000);
  for (const report::RequestRecord& record : result.records) EXPECT_TRUE(record.ok);
}

TEST(SimulatedNetwork, ItsCountsAreInTheReport) {
  SimulationOptions options = two_replicas();
  options.network.loss = 0.05;
  const SimulationResult result = run(options, requests(kSteady));
  EXPECT_GT(result.network->copies_lost, 20);
  EXPECT_NE(network_text(result).find("copies lost"), std::string::npos);
  const Json json = *Json::parse(with_network("{\"a\":1}", result));
  EXPECT_EQ(json.find("network")->integer("copies_lost"), result.network->copies_lost);
  const SimulationResult none = run(two_replicas(), requests(kSteady));
  EXPECT_FALSE(none.network);
  EXPECT_EQ(network_text(none), "");
}

SimulationOptions a_scaled_fleet() {
  SimulationOptions options = two_replicas();
  options.report_s = 0;
  options.replica.capacity.sequences_max = 8;
  options.autoscaling.emplace();
  options.autoscaling->policy.replicas_min = 1;
  options.autoscaling->policy.replicas_max = 6;
  options.autoscaling->policy.window_s = 10;
  options.autoscaling->policy.scale_down_delay_s = 10;
  options.autoscaling->start_s = 2;
  options.autoscaling->replicas = 1;
  options.duration_s = 200;
  return options;
}

int drained(const SimulationResult& result, double from_s, double to_s) {
  int count = 0;
  for (const ScalingStep& step : result.scaling->history.steps()) {
    if (step.at_s >= from_s && step.at_s < to_s) count += step.drained;
  }
  return count;
}

std::string steps_of(const SimulationResult& result) {
  std::string text;
  for (const ScalingStep& step : result.scaling->history.steps()) {
    text += std::to_string(step.at_s) + " " + step.text + "\n";
  }
  return text;
}

// The load is gone after 40 s. Who hears nothing keeps what there is until it hears again.
TEST(SimulatedNetwork, AnAutoscalerWithoutFactsTakesNothingAway) {
  SimulationOptions options = a_scaled_fleet();
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":200,"count":240,"rate":6,"seed":1})");
  const SimulationResult heard = run(options, load);
  ASSERT_GT(drained(heard, 40, 130), 0);
  EXPECT_EQ(heard.scaling->facts_unheard, 0);

  options.faults = {{.kind = Fault::Kind::kFactsCut, .at_s = 35, .until_s = 150}};
  const SimulationResult unheard = run(options, load);
  // What was heard before says that they are needed, and ten seconds later nothing says otherwise.
  EXPECT_EQ(drained(unheard, 35, 150), 0) << steps_of(unheard);
  EXPECT_GT(drained(unheard, 150, 200), 0);
  EXPECT_GT(unheard.scaling->decisions_held, 10);
  EXPECT_NE(network_text(unheard).find("kept all replicas"), std::string::npos);
}

// Old ones of up to ten seconds are as good as new ones that much later.
TEST(SimulatedNetwork, LateFactsScaleLater) {
  SimulationOptions options = a_scaled_fleet();
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":200,"count":240,"rate":6,"seed":1})");
  const auto first_start = [&] {
    const SimulationResult result = run(options, load);
    for (const ScalingStep& step : result.scaling->history.steps()) {
      if (step.started > 0) return step.at_s;
    }
    return 1e9;
  };
  const double soon_s = first_start();
  options.autoscaling->facts_delay_s = 6;
  EXPECT_GE(first_start(), soon_s + 4);
}

// A load begins at 5 s, decisions fall on each fourth: what is late by less than a decision is
// heard with the next one, as it was so long before.
TEST(SimulatedNetwork, FactsAreAsOldAsTheirDelay) {
  SimulationOptions options = a_scaled_fleet();
  options.autoscaling->tick_s = 4;
  workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":200,"count":120,"rate":12,"seed":1})");
  for (double& at_s : load.at_s) at_s += 5;
  const auto first_start = [&](double delay_s) {
    options.autoscaling->facts_delay_s = delay_s;
    const SimulationResult result = run(options, load);
    for (const ScalingStep& step : result.scaling->history.steps()) {
      if (step.started > 0) return step.at_s;
    }
    return 1e9;
  };
  EXPECT_NEAR(first_start(0), 8, 1e-6);
  EXPECT_NEAR(first_start(1), 8, 1e-6);
  EXPECT_NEAR(first_start(3.5), 12, 1e-6) << "at 4.5 s nobody had come";
  EXPECT_NEAR(first_start(5), 12, 1e-6);
}

// Nobody serves and somebody comes: that is said at once, and heard so much later.
TEST(SimulatedNetwork, DemandOfAnEmptyFleetIsHeardAfterItsDelay) {
  SimulationOptions options = a_scaled_fleet();
  options.duration_s.reset();
  options.autoscaling->policy.replicas_min = 0;
  options.autoscaling->replicas = 0;
  options.autoscaling->tick_s = 10;
  workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":5,"count":1,"rate":"inf"})");
  load.at_s[0] = 11;
  const auto first_ns = [&](double delay_s) {
    options.autoscaling->facts_delay_s = delay_s;
    return run(options, load).records[0].first_byte_ns;
  };
  EXPECT_NEAR(static_cast<double>(first_ns(0.3) - first_ns(0)), 0.3e9, 1e6);
}

TEST(SimulatedNetwork, AReplicaThatIsCutOffIsNotGivenRequestsInAScaledFleet) {
  SimulationOptions options = a_scaled_fleet();
  options.duration_s.reset();
  options.autoscaling->replicas = 2;
  options.faults = {{.kind = Fault::Kind::kCut, .replica = 0, .at_s = 2, .until_s = 60}};
  const SimulationResult result =
      run(options, requests(R"({"input_tokens":20,"output_tokens":50,"count":60,"rate":4})"));
  EXPECT_EQ(result.network->found_down, 1);
  for (const report::RequestRecord& record : result.records) {
    EXPECT_TRUE(record.ok) << record.error;
    EXPECT_EQ(record.output_tokens, 50);
  }
}

std::map<std::string, int> ends_of(const SimulationResult& result) {
  std::map<std::string, int> ends;
  for (const report::RequestRecord& record : result.records) ++ends[record.error];
  return ends;
}

// Two gateways have half of the requests each; a request takes four seconds.
TEST(SimulatedGateways, AGatewayThatDiesTakesItsRequestsAlong) {
  for (const double round_trip_s : {0.0, 0.01}) {
    SimulationOptions options = two_replicas();
    options.network.round_trip_s = round_trip_s;
    options.gateways = 2;
    options.faults = {{.kind = Fault::Kind::kGatewayDown, .gateway = 1, .at_s = 4, .until_s = 6}};
    const workload::Workload load = requests(kSteady);
    std::map<std::string, int> ends = ends_of(run(options, load));
    EXPECT_GT(ends["its gateway died"], 3);
    EXPECT_EQ(ends["its gateway died"] + ends[""], 40) << "the others, and who came meanwhile";
    // Clients that ask again have all that they asked for: at the other one.
    options.clients = {.retries_max = 2, .back_off_s = 0.2};
    const SimulationResult again = run(options, load);
    EXPECT_GT(again.client_retries, 3);
    for (const report::RequestRecord& record : again.records) {
      EXPECT_TRUE(record.ok) << record.error;
      EXPECT_EQ(record.output_tokens, 200);
    }
  }
}

// What a replica was asked for its sake it stops: a single gateway, and nobody who tries again.
TEST(SimulatedGateways, ReplicasComputeNoLongerForAGatewayThatDied) {
  SimulationOptions options = two_replicas();
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":200,"count":10,"rate":"inf","seed":1})");
  options.faults = {{.kind = Fault::Kind::kGatewayDown, .at_s = 1, .until_s = 30}};
  const SimulationResult result = run(options, load);
  EXPECT_EQ(ends_of(result)["its gateway died"], 10);
  int64_t tokens = 0;
  for (const ReplicaCounts& replica : result.replicas) tokens += replica.tokens;
  EXPECT_LT(tokens, 10 * 200 / 2) << "of a second of four";
  // Who comes while none is there is refused at once, and served when it is back.
  options.faults[0] = {.kind = Fault::Kind::kGatewayDown, .at_s = 0, .until_s = 5};
  EXPECT_EQ(ends_of(run(options, load))["no gateway is up"], 10);
  options.clients = {.retries_max = 5, .back_off_s = 1};
  EXPECT_EQ(ends_of(run(options, load))[""], 10);
}

// In a fleet that is scaled requests are held at the gateway; its demand is not left over.
TEST(SimulatedGateways, WhatAScaledFleetHoldsIsGoneWithItsGateway) {
  SimulationOptions options = a_scaled_fleet();
  options.duration_s.reset();
  options.autoscaling->policy.replicas_max = 1;
  options.faults = {{.kind = Fault::Kind::kGatewayDown, .at_s = 3, .until_s = 8}};
  const workload::Workload load =
      requests(R"({"input_tokens":20,"output_tokens":100,"count":60,"rate":6,"seed":1})");
  std::map<std::string, int> ends = ends_of(run(options, load));
  EXPECT_GT(ends["its gateway died"], 8) << "the replica's eight slots, and who waited";
  EXPECT_GT(ends["no gateway is up"], 10);
  EXPECT_GT(ends[""], 5);
}

TEST(SimulatedNetwork, WhatCannotBeIsRefused) {
  const workload::Workload load = requests(kSteady);
  const auto refusal = [&](const SimulationOptions& options) {
    const Result<SimulationResult> result = simulate(options, load, *even_steps(0.02));
    return result.ok() ? "" : result.error().message;
  };
  SimulationOptions options = two_replicas();
  options.network.loss = 1;
  EXPECT_NE(refusal(options).find("network-loss"), std::string::npos);
  options.network = {.round_trip_s = 0.1};
  options.report_s = 5;
  EXPECT_NE(refusal(options).find("report-interval"), std::string::npos);
  options.report_s = 0.1;
  options.faults = {{.kind = Fault::Kind::kCut, .gateway = 3, .at_s = 1, .until_s = 2}};
  EXPECT_NE(refusal(options).find("no gateway 3"), std::string::npos);
  options.faults = {{.kind = Fault::Kind::kGatewayDown, .gateway = 3, .at_s = 1, .until_s = 2}};
  EXPECT_NE(refusal(options).find("no gateway 3"), std::string::npos);
  options.faults = {{.kind = Fault::Kind::kFactsCut, .at_s = 1, .until_s = 2}};
  EXPECT_NE(refusal(options).find("only where a fleet is scaled"), std::string::npos);
  const auto parsed = [](const std::string& text) {
    return parse_faults(*Json::parse(text), {.replicas = 2}, "f.json");
  };
  const Result<std::vector<Fault>> sound = parsed(
      R"([{"kind":"cut","replica":1,"gateway":0,"at_s":1,"until_s":2},
          {"kind":"lossy","zone":0,"at_s":1,"share":0.2},
          {"kind":"late","replica":0,"at_s":1,"delay_s":0.5}])");
  ASSERT_TRUE(sound.ok()) << sound.error().message;
  EXPECT_EQ((*sound)[0].gateway, 0);
  EXPECT_EQ((*sound)[1].gateway, -1);
  EXPECT_EQ(sound->back().delay_s, 0.5);
  for (const char* const text :
       {R"([{"kind":"lossy","replica":0,"at_s":1}])", R"([{"kind":"late","replica":0,"at_s":1}])",
        R"([{"kind":"lossy","replica":0,"at_s":1,"share":1}])",
        R"([{"kind":"cut","replica":0,"at_s":1,"gateway":64}])",
        R"([{"kind":"late","replica":0,"at_s":1,"delay_s":61}])",
        R"([{"kind":"gateway_down","at_s":1,"node":0}])"}) {
    EXPECT_FALSE(parsed(text).ok()) << text;
  }
}

}  // namespace
}  // namespace pelton::simulator
