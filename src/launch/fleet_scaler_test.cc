#include "launch/fleet_scaler.h"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "launch/test_scaled_fleet.h"

namespace pelton::launch {
namespace {

using autoscaler::PoolPhase;
using State = LaunchedReplica::State;

TEST_F(FleetScalerTest, TwoRolesComeAndGoAsOne) {
  scale_roles(20);
  EXPECT_TRUE(launcher_.orders.empty());
  hold(3);
  scaler_->turn(true);
  ASSERT_EQ(launcher_.orders.size(), 2u) << "in one turn";
  EXPECT_EQ(launcher_.orders[0].pool, "p");
  EXPECT_EQ(launcher_.orders[1].pool, "p:prefill");
  ASSERT_EQ(fleet_.members.size(), 0u);
  pass(1);
  ASSERT_EQ(fleet_.members.size(), 2u);
  EXPECT_EQ(fleet_.members[0].pool, "p") << "gateways know one pool";
  EXPECT_EQ(fleet_.members[1].pool, "p");
  all_ready();
  serve();
  serve_for(20, 200, 3000);
  EXPECT_GT(launcher_.running("p:prefill"), 5);
  EXPECT_GT(launcher_.running("p"), 1);
  const int decode = launcher_.running("p");
  serve_for(20, 200, 6000);
  EXPECT_GT(launcher_.running("p:prefill"), 10);
  EXPECT_EQ(launcher_.running("p"), decode);
  // One that computes prompts is lost: another one takes its place, of its role.
  launcher_.end(kPrefillPlace, "ended by signal 9");
  launcher_.orders.clear();
  pass(1);
  ASSERT_EQ(launcher_.orders.size(), 1u);
  EXPECT_EQ(launcher_.orders[0].pool, "p:prefill");
  all_ready();
  // Nobody asks any more: the pool retires, and those that compute prompts go with it.
  fleet_.report.in_service = 0;
  pass(400);
  EXPECT_EQ(launcher_.running("p"), 0);
  EXPECT_EQ(launcher_.running("p:prefill"), 0);
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kCold);
}

// Both roles' memories: whoever takes over orders nothing that is there, and decides alike.
TEST_F(FleetScalerTest, WhoTakesOverTwoRolesDecidesAlike) {
  scale_roles(20);
  hold(3);
  scaler_->turn(true);
  pass(1);
  all_ready();
  serve();
  serve_for(20, 200, 3000);
  serve_for(4, 5, 200);  // less for a while: the delay is what is remembered
  const std::vector<FleetScaler::Memory> memories = scaler_->memories();
  ASSERT_EQ(memories.size(), 2u);
  FleetScaler other(roles(20), launcher_, fleet_, clock_, log_, nullptr, 9);
  for (const FleetScaler::Memory& one : memories) ASSERT_TRUE(other.remember(one).ok());
  FleetScaler forgetful(roles(20), launcher_, fleet_, clock_, log_, nullptr, 9);
  const size_t before = launcher_.orders.size();
  other.turn(false);
  forgetful.turn(false);
  scaler_->turn(true);
  EXPECT_EQ(launcher_.orders.size(), before) << "nothing is started beside what is there";
  ASSERT_EQ(other.states().size(), 2u);
  for (const size_t role : {0u, 1u}) {
    const auto now = other.states()[role].decision;
    EXPECT_EQ(now.text(), scaler_->states()[role].decision.text());
    EXPECT_EQ(now.desired, scaler_->states()[role].decision.desired);
  }
  EXPECT_GT(other.states()[1].decision.desired, 5) << "as it was needed lately";
  EXPECT_GT(forgetful.states()[1].decision.desired, 5) << "who knows nothing takes nothing away";
}

// What runs may be a whole fleet: nothing is started beside it before it is seen.
TEST_F(FleetScalerTest, NothingIsDecidedBeforeItIsKnownWhatRuns) {
  launcher_.known = false;
  scale(2, 4);
  hold(10);
  pass(30);
  EXPECT_TRUE(launcher_.orders.empty());
  EXPECT_EQ(fleet_.unknown, std::vector<std::string>{"p"});
  EXPECT_EQ(scaler_->states().at(0).pool, "p");
  const ReplicaOrder earlier{.pool = "p", .ordinal = 0, .token = 90};
  const int64_t now_ns = clock_.now_ns();
  launcher_.replicas[0] = {
      .order = earlier, .port = 100, .ordered_ns = now_ns, .progress_ns = now_ns};
  launcher_.newest = 90;
  launcher_.known = true;
  scaler_->turn(true);
  EXPECT_TRUE(fleet_.unknown.empty());
  EXPECT_EQ(fleet_.members.size(), 1u);
  ASSERT_EQ(launcher_.orders.size(), 1u) << "two are the least, and one is there";
  EXPECT_EQ(launcher_.orders[0].ordinal, 1);
  EXPECT_EQ(launcher_.orders[0].token, 91u) << "newer than what has been seen meanwhile";
}

TEST_F(FleetScalerTest, ReplicasOfAPoolThatIsGoneAreEndedOnce) {
  scale(0, 4);
  const ReplicaOrder other{.pool = "removed", .ordinal = 7, .token = 3};
  launcher_.replicas[7] = {.order = other, .port = 107};
  scaler_->turn(false);
  launcher_.replicas[7].state = State::kRunning;  // it takes its time
  scaler_->turn(false);
  EXPECT_EQ(launcher_.stopped, std::vector<ReplicaOrder>{other});
}

TEST_F(FleetScalerTest, TheFirstHeldRequestStartsOneAndOnlyOne) {
  scale(0, 4);
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kCold);
  EXPECT_EQ(fleet_.announced.eta_s, 10);
  clock_.advance_ns(kSecond_ns / 100);
  hold(40);
  scaler_->turn(true);  // at once, between two decisions
  ASSERT_EQ(launcher_.orders.size(), 1u);
  EXPECT_EQ(launcher_.orders[0].token, 41u) << "newer than any before";
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kStarting);
  pass(4);
  EXPECT_EQ(launcher_.orders.size(), 1u) << "one is on its way";
  EXPECT_NEAR(fleet_.announced.eta_s, 6, 1e-6);
  ASSERT_EQ(fleet_.members.size(), 1u);
  EXPECT_EQ(fleet_.members[0].port, 100);
  become_ready(0);
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kReady);
  EXPECT_EQ(fleet_.announced.eta_s, 0);
}

TEST_F(FleetScalerTest, OneThatStandsByIsWokenAndStandsByAgain) {
  scale(0, 1, 1);
  ASSERT_EQ(launcher_.orders.size(), 1u) << "nobody has asked for anything";
  become_ready(0);
  ASSERT_EQ(fleet_.drained.size(), 1u) << "nothing is routed to it";
  EXPECT_EQ(scaler_->states().at(0).standby, 1);
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kCold);
  EXPECT_EQ(fleet_.announced.eta_s, 0) << "nobody waits for a start";
  clock_.advance_ns(kSecond_ns);
  hold(3);
  scaler_->turn(true);
  ASSERT_EQ(fleet_.undrained.size(), 1u);
  EXPECT_EQ(fleet_.undrained[0].port, 100);
  EXPECT_EQ(scaler_->states().at(0).ready, 1);
  EXPECT_EQ(scaler_->states().at(0).woken, 1);
  EXPECT_EQ(launcher_.orders.size(), 1u) << "woken in place of a start";
  serve();
  pass(20);
  EXPECT_EQ(fleet_.drained.size(), 2u);
  EXPECT_EQ(scaler_->states().at(0).standby, 1) << "idle, it stands by again";
  EXPECT_TRUE(launcher_.stopped.empty());
  EXPECT_EQ(launcher_.orders.size(), 1u);
}

TEST_F(FleetScalerTest, OneThatStandsByGivesItsMemoryBackOnceItHasNothingToDo) {
  scale(0, 1, 1);
  fleet_.known.push_back({.host = "h", .port = 100, .is_ready = true, .slots = 64, .running = 1});
  pass(5);
  ASSERT_EQ(scaler_->states().at(0).standby, 1);
  EXPECT_TRUE(fleet_.released.empty()) << "somebody asks it from elsewhere";
  fleet_.known[0].running = 0;
  fleet_.known[0].is_silent = true;
  pass(1);
  EXPECT_TRUE(fleet_.released.empty()) << "what it does now is not known";
  fleet_.known[0].is_silent = false;
  pass(10);
  ASSERT_EQ(fleet_.released.size(), 1u) << "once";
  EXPECT_EQ(fleet_.released[0].port, 100);
  hold(3);
  scaler_->turn(true);
  serve();
  pass(20);
  ASSERT_EQ(scaler_->states().at(0).standby, 1);
  EXPECT_EQ(fleet_.released.size(), 2u) << "it has served meanwhile";
}

// Who is refused because a start failed would have been served by the one that stands by.
TEST_F(FleetScalerTest, AFailedStartIsNobodysConcernWhileOneStandsBy) {
  scale(0, 3, 2);
  ASSERT_EQ(launcher_.orders.size(), 2u);
  become_ready(0);
  launcher_.end(1, "ended with exit code 4");
  launcher_.replicas[1].is_hopeless = true;
  scaler_->turn(false);
  EXPECT_EQ(scaler_->states().at(0).standby, 1);
  EXPECT_EQ(fleet_.announced.failure, "");
}

// Whoever takes over knows who stands by.
TEST_F(FleetScalerTest, WhoStandsByIsHandedOver) {
  scale(0, 2, 1);
  become_ready(0);
  const std::vector<FleetScaler::Memory> memories = scaler_->memories();
  ScaledPool pool{.name = "p"};
  pool.policy.replicas_max = 2;
  pool.policy.standby = 1;
  scaler_ =
      std::make_unique<FleetScaler>(std::vector<ScaledPool>{pool}, launcher_, fleet_, clock_, log_);
  ASSERT_TRUE(scaler_->remember(memories.at(0)).ok());
  scaler_->turn(false);
  EXPECT_EQ(scaler_->states().at(0).standby, 1);
  EXPECT_EQ(launcher_.orders.size(), 1u);
}

TEST_F(FleetScalerTest, TheLastGoesWhenTheGatewayHolds) {
  scale(0, 4);
  hold(1);
  scaler_->turn(true);
  become_ready(0);
  serve();
  fleet_.acknowledges = false;
  pass(8);
  EXPECT_GT(fleet_.retirement, 0u);
  EXPECT_TRUE(fleet_.drained.empty()) << "the gateway has not said that it holds";
  fleet_.acknowledges = true;
  pass(4);
  ASSERT_EQ(fleet_.drained.size(), 1u);
  ASSERT_EQ(launcher_.stopped.size(), 1u);
  pass(4);
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kCold);
  EXPECT_EQ(scaler_->states()[0].ready, 0);
  EXPECT_EQ(launcher_.orders.size(), 1u) << "nothing is started for nothing";
}

TEST_F(FleetScalerTest, ARequestInBetweenCancelsIt) {
  scale(0, 4);
  hold(1);
  scaler_->turn(true);
  become_ready(0);
  serve();
  fleet_.acknowledges = false;
  pass(8);
  ASSERT_GT(fleet_.retirement, 0u);
  hold(1);
  scaler_->turn(true);
  EXPECT_EQ(fleet_.retirement, 0u);
  EXPECT_TRUE(fleet_.drained.empty());
}

TEST_F(FleetScalerTest, AFailedStartIsTriedAgainAndThirdTimeSaysSo) {
  scale(0, 1);
  hold(1);
  scaler_->turn(true);
  launcher_.end(0, "ended by signal 9");
  scaler_->turn(false);
  EXPECT_EQ(fleet_.announced.failure, "");
  EXPECT_EQ(launcher_.orders.size(), 1u) << "after a pause";
  pass(1);
  ASSERT_EQ(launcher_.orders.size(), 2u);
  launcher_.end(0, "ended by signal 9");
  pass(1);
  EXPECT_EQ(launcher_.orders.size(), 2u) << "a longer pause";
  pass(1.5);
  ASSERT_EQ(launcher_.orders.size(), 3u);
  launcher_.end(0, "ended by signal 9");
  scaler_->turn(false);
  EXPECT_EQ(fleet_.announced.failure, "ended by signal 9");
  EXPECT_NEAR(fleet_.announced.again_s, 4, 0.1);
  EXPECT_EQ(scaler_->states()[0].failed_starts, 3);
  hold(1);  // whoever still asks gets another attempt
  pass(5);
  EXPECT_EQ(launcher_.orders.size(), 4u);
  EXPECT_EQ(fleet_.announced.failure, "");
}

// The time until it listens is its machine's, what follows is its model's; and one that was found,
// or runs anew, says nothing of either.
TEST_F(FleetScalerTest, AStartsTimeIsCountedByPhase) {
  launcher_.replicas[5] = {.order = {.pool = "p", .ordinal = 5, .token = 1}, .port = 105};
  launcher_.replicas[5].host = "h";
  fleet_.known.push_back({.host = "h", .port = 105, .is_ready = true, .slots = 64});
  scale(2, 2);
  ASSERT_EQ(launcher_.orders.size(), 1u);
  launcher_.replicas[0].port = 0;
  pass(4);
  launcher_.replicas[0].port = 100;
  pass(7);
  become_ready(0);
  const auto started = [&] { return scaler_->states()[0].start_seconds; };
  EXPECT_EQ(started().order().count(), 1);
  EXPECT_NEAR(started().order().sum, 4, 0.6);
  EXPECT_NEAR(started().load().sum, 7, 0.6);
  EXPECT_EQ(started().load().up_to[5], 0) << "up to 5 s";
  EXPECT_EQ(started().load().up_to[6], 1) << "up to 10 s";
  // Its container runs anew.
  launcher_.replicas[0].port = 0;
  pass(2);
  launcher_.replicas[0].port = 100;
  pass(2);
  EXPECT_EQ(started().order().count(), 1);
}

TEST_F(FleetScalerTest, WhatWouldFailAgainSaysSoAtOnce) {
  scale(1, 1);
  ASSERT_EQ(launcher_.orders.size(), 1u);
  launcher_.end(0, "ended with exit code 4");
  launcher_.replicas[0].is_hopeless = true;
  scaler_->turn(false);
  EXPECT_EQ(fleet_.announced.failure, "ended with exit code 4");
}

// What it said of it is its operators': it may name folders and hosts.
TEST_F(FleetScalerTest, WhyAStartFailedIsKeptForOperators) {
  scale(1, 1);
  launcher_.end(0, "ended with exit code 4, model not found or unreadable");
  launcher_.replicas[0].is_hopeless = true;
  launcher_.replicas[0].said = "/srv/m: no such folder";
  scaler_->turn(false);
  EXPECT_EQ(scaler_->states()[0].last_failure,
            "ended with exit code 4, model not found or unreadable: /srv/m: no such folder");
  EXPECT_EQ(fleet_.announced.failure, "ended with exit code 4, model not found or unreadable");
}

// Ready it would serve nobody, and each request would start another one.
TEST_F(FleetScalerTest, OneThatHasNoneOfThePoolsModelsIsAFailedStart) {
  scale(0, 3);
  hold(5);
  scaler_->turn(true);
  ASSERT_EQ(launcher_.orders.size(), 1u);
  fleet_.known = {{.host = "h", .port = 100, .is_ready = true, .lacks = "it serves as 'a'"}};
  scaler_->turn(false);
  EXPECT_EQ(scaler_->states()[0].ready, 0);
  EXPECT_EQ(scaler_->states()[0].failed_starts, 1);
  EXPECT_EQ(launcher_.stopped, launcher_.orders);
  EXPECT_EQ(fleet_.announced.failure, "it serves as 'a'") << "it would be so again";
  EXPECT_EQ(scaler_->states()[0].last_failure, "it serves as 'a'");
}

// One of two gateways is killed while it holds 60.
TEST_F(FleetScalerTest, ASilentGatewayIsNamedAndItsRequestsAreForgotten) {
  scale(0, 4);
  fleet_.others = {{.gateway = "f",
                    .incarnation = 1,
                    .sequence = 1,
                    .requests = 60,
                    .held = 60,
                    .at_ns = clock_.now_ns()}};
  scaler_->turn(true);
  become_ready(0);
  EXPECT_EQ(scaler_->states()[0].decision.terms.held, 60);
  pass(11);
  fleet_.silent = {{.url = "http://f:8091", .why = "it answers 400: no"}};
  pass(200);
  const FleetScaler::PoolState state = scaler_->states()[0];
  EXPECT_EQ(state.decision.terms.held, 0);
  EXPECT_TRUE(state.decision.alarm);
  EXPECT_EQ(state.decision.desired, 1) << "it may send requests all the same";
  EXPECT_EQ(state.decision.reason, autoscaler::Reason::kSilentGateway);
  EXPECT_EQ(state.silent_gateways, fleet_.silent);
  EXPECT_EQ(fleet_.retirement, 0u);
}

TEST_F(FleetScalerTest, AStartThatAdvancesIsLeftAloneAndOneThatDoesNotIsEnded) {
  scale(1, 1);
  for (int i = 0; i < 120; ++i) {  // twenty minutes
    pass(10);
    launcher_.replicas[0].progress_ns = clock_.now_ns();
  }
  EXPECT_TRUE(launcher_.stopped.empty());
  EXPECT_EQ(launcher_.orders.size(), 1u);
  pass(21);
  ASSERT_EQ(launcher_.stopped.size(), 1u);
  pass(2);
  EXPECT_EQ(launcher_.orders.size(), 2u) << "tried again";
  EXPECT_EQ(scaler_->states()[0].failed_starts, 1);
}

TEST_F(FleetScalerTest, ALostReplicaIsReplacedAtOnce) {
  scale(1, 1);
  become_ready(0);
  launcher_.end(0, "ended by signal 11");
  fleet_.known.clear();
  scaler_->turn(false);
  EXPECT_EQ(launcher_.orders.size(), 2u);
  EXPECT_EQ(scaler_->states()[0].lost, 1);
}

TEST_F(FleetScalerTest, WhatRanBeforeIsTakenOver) {
  launcher_.replicas[1] = {
      .order = {.pool = "p", .ordinal = 1, .token = 7}, .host = "h", .port = 101};
  fleet_.known.push_back({.host = "h", .port = 101, .is_ready = true, .slots = 8});
  scale(1, 4);
  EXPECT_TRUE(launcher_.orders.empty());
  EXPECT_EQ(scaler_->states()[0].ready, 1);
  EXPECT_EQ(fleet_.members.size(), 1u);
}

// As after a restart of whoever decides: the last request is not known, so it may have just been.
TEST_F(FleetScalerTest, WhatIsFoundStaysUntilItIsKnownToBeIdle) {
  clock_.advance_ns(1000 * kSecond_ns);
  for (const int place : {0, 1}) {
    launcher_.replicas[place] = {
        .order = {.pool = "p", .ordinal = place, .token = 7}, .host = "h", .port = 100 + place};
    fleet_.known.push_back({.host = "h", .port = 100 + place, .is_ready = true, .slots = 8});
  }
  scale(0, 4);
  pass(4.5);
  EXPECT_TRUE(fleet_.drained.empty());
  pass(600);
  EXPECT_EQ(launcher_.running("p"), 0) << "and then goes";
}

TEST_F(FleetScalerTest, AFoundReplicaTeachesNoStartTime) {
  clock_.advance_ns(1000 * kSecond_ns);
  launcher_.replicas[0] = {.order = {.pool = "p", .ordinal = 0, .token = 7},
                           .host = "h",
                           .port = 100,
                           .ordered_ns = clock_.now_ns() - 500 * kSecond_ns,
                           .progress_ns = clock_.now_ns()};
  scale(1, 4);
  pass(1);
  become_ready(0);
  pass(3);
  EXPECT_NEAR(scaler_->states()[0].decision.terms.start_s_p90, 10, 1e-9) << "as assumed";
}

TEST_F(FleetScalerTest, ALateStartCountsAgainstTheCeiling) {
  scale(0, 1);
  hold(1);
  scaler_->turn(true);
  ASSERT_EQ(launcher_.orders.size(), 1u);
  pass(15);
  EXPECT_NEAR(fleet_.announced.eta_s, 7.5, 0.6) << "half as long again";
  const std::vector<ReplicaOrder>& stopped = launcher_.stopped;
  for (int i = 0; i < 20 && stopped.empty(); ++i) {
    EXPECT_EQ(launcher_.orders.size(), 1u) << "never beside it";
    pass(1);
  }
  EXPECT_EQ(stopped.size(), 1u) << "it did not advance";
  pass(2);
  EXPECT_EQ(launcher_.orders.size(), 2u) << "and is replaced";
}

// It is late, and advances: below the ceiling another one is ordered, and no more than that.
TEST_F(FleetScalerTest, LateStartsNeverExceedTheCeiling) {
  scale(0, 3);
  hold(1);
  scaler_->turn(true);
  for (int i = 0; i < 200; ++i) {
    pass(1);
    ASSERT_LE(launcher_.running("p"), 3);
  }
  EXPECT_GE(launcher_.orders.size(), 2u);
}

// They were ordered at once: one attempt has failed, not eight.
TEST_F(FleetScalerTest, StartsThatFailTogetherAreOneAttempt) {
  scale(8, 8);
  ASSERT_EQ(launcher_.orders.size(), 8u);
  for (int place = 0; place < 8; ++place) {
    launcher_.end(place, "ended by signal 9");
    clock_.advance_ns(10'000'000);
    scaler_->turn(false);
  }
  EXPECT_EQ(fleet_.announced.failure, "");
  EXPECT_NEAR(fleet_.announced.eta_s, 11, 0.2) << "the pause, and a start";
  pass(1);
  EXPECT_EQ(launcher_.orders.size(), 16u);
}

TEST_F(FleetScalerTest, OneThatIsRequeuedStartsAgain) {
  scale(1, 1);
  become_ready(0);
  launcher_.replicas[0].port = 0;
  fleet_.known.clear();
  scaler_->turn(false);
  EXPECT_EQ(scaler_->states()[0].ready, 0);
  EXPECT_EQ(scaler_->states()[0].starting, 1);
  launcher_.replicas[0].port = 100;
  become_ready(0);
  EXPECT_EQ(scaler_->states()[0].ready, 1);
  EXPECT_EQ(launcher_.orders.size(), 1u) << "the same replica";
}

TEST_F(FleetScalerTest, WhoTakesOverDecidesAlike) {
  // One decides on and another takes over from it amid a load that falls: both see the same facts.
  scale(1, 8);
  hold(500);
  scaler_->turn(true);
  for (int i = 0; i < 8; ++i) become_ready(i);
  serve();
  pass(130);
  const std::vector<FleetScaler::Memory> memories = scaler_->memories();
  const autoscaler::PoolDecision last = scaler_->states()[0].decision;
  ScaledPool pool{.name = "p"};
  pool.policy.replicas_min = 1;
  pool.policy.replicas_max = 8;
  pool.policy.concurrency_target = 64;
  pool.policy.idle_to_zero_s = 5;
  pool.start_s = 10;
  pool.progress_s = 20;
  FleetScaler other({pool}, launcher_, fleet_, clock_, log_, nullptr, 7);
  ASSERT_EQ(memories.size(), 1u);
  ASSERT_TRUE(other.remember(memories[0]).ok());
  EXPECT_TRUE(other.remember({.pool = "another", .text = "{}"}).ok()) << "it is scaled no longer";
  EXPECT_FALSE(other.remember({.pool = "p", .text = "{}"}).ok());
  EXPECT_FALSE(other.remember({.pool = "p", .text = "{\"scaler\":{},\"ready_ns\":{}}"}).ok());
  other.turn(false);
  scaler_->turn(true);
  EXPECT_EQ(other.states()[0].decision.text(), scaler_->states()[0].decision.text());
  EXPECT_EQ(other.states()[0].decision.drain, scaler_->states()[0].decision.drain);
  EXPECT_GE(last.desired, 1);
  // Its orders are of its epoch.
  const size_t before = launcher_.orders.size();
  launcher_.end(0, "ended by signal 9");
  other.turn(true);
  hold(5'000);
  other.turn(true);
  ASSERT_GT(launcher_.orders.size(), before);
  EXPECT_EQ(epoch_of(launcher_.orders.back().token), 7u);
}

// What it finds is somebody else's: what does not advance as it sees it, and what has no pool here.
TEST_F(FleetScalerTest, WhoOnlyAdvisesStopsNothing) {
  ASSERT_TRUE(launcher_.start({.pool = "p", .ordinal = 0, .token = 41}).ok());
  ASSERT_TRUE(launcher_.start({.pool = "q", .ordinal = 0, .token = 42}).ok());
  ScaledPool pool{.name = "p"};
  pool.policy.replicas_max = 4;
  pool.progress_s = 20;
  pool.is_advised_only = true;
  scaler_ = std::make_unique<FleetScaler>(std::vector{pool}, launcher_, fleet_, clock_, log_);
  pass(30);
  hold(1);
  scaler_->turn(true);
  EXPECT_EQ(scaler_->states()[0].decision.desired, 1);
  EXPECT_TRUE(launcher_.stopped.empty());
  EXPECT_EQ(launcher_.orders.size(), 2u) << "nor is one started";
  pool.is_advised_only = false;
  FleetScaler acting({pool}, launcher_, fleet_, clock_, log_);
  acting.turn(false);
  EXPECT_EQ(launcher_.stopped.size(), 2u);
}

// No stock is no failed start: requests wait for as long as they may, and it is asked for again.
TEST_F(FleetScalerTest, WhatThereIsNoneOfIsAskedForAgainAndRefusesNobody) {
  scale(0, 4);
  launcher_.none_to_be_had = "out of stock";
  hold(1);
  scaler_->turn(true);
  pass(60);
  EXPECT_EQ(fleet_.announced.failure, "");
  EXPECT_EQ(fleet_.announced.phase, PoolPhase::kCold);
  EXPECT_EQ(scaler_->states()[0].failed_starts, 0);
  launcher_.none_to_be_had.clear();
  pass(11);
  EXPECT_EQ(launcher_.orders.size(), 1u);
}

}  // namespace
}  // namespace pelton::launch
