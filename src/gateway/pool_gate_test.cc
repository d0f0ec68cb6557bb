#include "gateway/pool_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pelton::gateway {
namespace {

using Place = PoolGate::Place;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSecond_ns = 1'000'000'000;

class PoolGateTest : public testing::Test {
 protected:
  struct Request final : HeldRequest {
    Request(std::string name, std::vector<std::string>& released)
        : name(std::move(name)), released(released) {}
    void on_released() override { released.push_back(name); }
    void on_start_failed() override { failed = true; }
    const std::string name;
    std::vector<std::string>& released;
    bool failed = false;
  };

  void open(ScalingConfig config) {
    gate_ = std::make_unique<PoolGate>(std::move(config), clock_, [this] { ++demands_; });
  }
  void SetUp() override { open({}); }
  void open_queue(const HoldConfig& hold) { gate_ = std::make_unique<PoolGate>(hold, clock_); }

  // Its number; none: refused, with what stands in refusal_.
  std::optional<int64_t> hold(const std::string& name, const std::string& tenant = "",
                              int64_t bytes = 1, int64_t wait_max_ns = 600 * kSecond_ns) {
    requests_.push_back(std::make_shared<Request>(name, released_));
    return gate_->enter(
        {.tenant = tenant, .bytes = bytes, .wait_max_ns = wait_max_ns, .request = requests_.back()},
        refusal_);
  }

  // Of workers that take so many at once; true: it goes to one, or is held.
  bool ask(const std::string& name, const PoolSupply& supply, const std::string& tenant = "") {
    if (gate_->passes(supply, PoolGate::Takes::kSlot)) {
      released_.push_back(name);
      return true;
    }
    requests_.push_back(std::make_shared<Request>(name, released_));
    return gate_
        ->enter({.tenant = tenant,
                 .bytes = 1,
                 .wait_max_ns = 600 * kSecond_ns,
                 .request = requests_.back(),
                 .takes = PoolGate::Takes::kSlot},
                refusal_, supply)
        .has_value();
  }

  base::VirtualClock clock_;
  std::unique_ptr<PoolGate> gate_;
  std::vector<std::shared_ptr<Request>> requests_;
  std::vector<std::string> released_;
  PoolGate::Refusal refusal_;
  int demands_ = 0;
};

TEST_F(PoolGateTest, ARequestIsHeldWhileNobodyIsReadyOrOthersWait) {
  EXPECT_TRUE(gate_->holds({.ready = 0}));
  EXPECT_FALSE(gate_->holds({.ready = 1, .free_slots = 0}));
  hold("a");
  EXPECT_TRUE(gate_->holds({.ready = 1, .free_slots = 8})) << "behind the one that came before";
}

TEST_F(PoolGateTest, AsManyGoAsThereAreSlots) {
  for (const char* name : {"a", "b", "c", "d"}) hold(name);
  EXPECT_EQ(demands_, 1) << "the first one asks for a replica";
  gate_->release({.ready = 1, .free_slots = 2});
  gate_->release({.ready = 1, .free_slots = 2});
  EXPECT_THAT(released_, ElementsAre("a", "b")) << "they are not at the replica yet";
  gate_->note_passed();
  gate_->note_passed();
  gate_->release({.ready = 1, .free_slots = 1});
  EXPECT_THAT(released_, ElementsAre("a", "b", "c"));
}

TEST_F(PoolGateTest, TenantsTakeTurnsAndEachInOrder) {
  for (const char* name : {"a1", "a2", "a3"}) hold(name, "a");
  for (const char* name : {"b1", "b2"}) hold(name, "b");
  gate_->release({.ready = 1, .free_slots = 5});
  ASSERT_EQ(released_.size(), 5u);
  const auto place = [&](const char* name) {
    return std::ranges::find(released_, name) - released_.begin();
  };
  EXPECT_LT(place("a1"), place("a2"));
  EXPECT_LT(place("a2"), place("a3"));
  EXPECT_LT(place("b1"), place("b2"));
  EXPECT_LT(place("b1"), place("a2")) << "who came first does not come first only";
}

TEST_F(PoolGateTest, WhoLeavesTakesNoSlot) {
  const std::optional<int64_t> number = hold("a");
  hold("b");
  hold("c");
  gate_->leave(*number);
  gate_->leave(*number);
  requests_[1].reset();  // its client has gone, and nobody said so
  gate_->release({.ready = 1, .free_slots = 1});
  EXPECT_THAT(released_, ElementsAre("c"));
}

TEST_F(PoolGateTest, BoundsAreRefusedWithATime) {
  ScalingConfig config;
  config.hold.requests_max = 2;
  config.hold.bytes_max = 100;
  open(config);
  gate_->announce({.eta_s = 12});
  EXPECT_TRUE(hold("a", "", 60));
  EXPECT_FALSE(hold("b", "", 41)) << "their bodies are too much";
  EXPECT_EQ(refusal_.code, "model_starting");
  EXPECT_EQ(refusal_.retry_after_s, 12);
  EXPECT_TRUE(hold("c", "", 40));
  EXPECT_FALSE(hold("d", "", 0)) << "they are too many";
}

TEST_F(PoolGateTest, WhoCannotWaitSoLongIsRefusedAtOnce) {
  gate_->announce({.phase = autoscaler::PoolPhase::kStarting, .eta_s = 30});
  EXPECT_FALSE(hold("a", "", 1, 29 * kSecond_ns));
  EXPECT_THAT(refusal_.message, HasSubstr("in 30 s"));
  EXPECT_EQ(refusal_.retry_after_s, 30);
  EXPECT_EQ(demands_, 1) << "the model is wanted all the same";
  EXPECT_TRUE(hold("b", "", 1, 31 * kSecond_ns));
}

TEST_F(PoolGateTest, AStartThatFailedIsSaidToAll) {
  hold("a");
  hold("b");
  gate_->announce({.failure = "no such model", .again_s = 4});
  EXPECT_TRUE(requests_[0]->failed);
  EXPECT_TRUE(requests_[1]->failed);
  EXPECT_FALSE(hold("c"));
  EXPECT_EQ(refusal_.code, "model_start_failed");
  EXPECT_THAT(refusal_.message, HasSubstr("no such model"));
  gate_->announce({.phase = autoscaler::PoolPhase::kStarting, .eta_s = 1});
  EXPECT_TRUE(hold("d"));
}

TEST_F(PoolGateTest, RetiredItHoldsUntilThatIsNotRenewed) {
  gate_->retire(3);
  EXPECT_TRUE(gate_->holds({.ready = 1, .free_slots = 8}));
  EXPECT_EQ(gate_->report("g").holds_for, 3u);
  hold("a");
  gate_->release({.ready = 1, .free_slots = 8});
  EXPECT_TRUE(released_.empty());
  clock_.advance_ns(kSecond_ns);
  gate_->release({.ready = 1, .free_slots = 4});
  EXPECT_TRUE(released_.empty()) << "whoever retired it has said so a second ago";
  clock_.advance_ns(kSecond_ns);  // and is gone: an order stands five times a second
  EXPECT_EQ(gate_->report("g").holds_for, 0u);
  gate_->release({.ready = 1, .free_slots = 8});
  EXPECT_THAT(released_, ElementsAre("a"));
}

TEST_F(PoolGateTest, TimeIsCountedWhereItPasses) {
  gate_->note_request();
  gate_->note_request();
  gate_->move(Place::kNone, Place::kHeld);
  gate_->move(Place::kNone, Place::kInService);
  clock_.advance_ns(2 * kSecond_ns);
  gate_->move(Place::kHeld, Place::kInService);
  clock_.advance_ns(3 * kSecond_ns);
  gate_->move(Place::kInService, Place::kOver);
  const autoscaler::GatewayReport first = gate_->report("g");
  EXPECT_EQ(first.requests, 2);
  EXPECT_EQ(first.finished, 1);
  EXPECT_EQ(first.held, 0);
  EXPECT_EQ(first.in_service, 1);
  EXPECT_DOUBLE_EQ(first.held_s, 2);
  EXPECT_DOUBLE_EQ(first.in_service_s, 2 + 2 * 3);
  EXPECT_GT(gate_->report("g").sequence, first.sequence);
}

TEST_F(PoolGateTest, WhoWouldNotWaitIsSeenOnce) {
  EXPECT_EQ(gate_->refuse_cold().code, "model_starting");
  EXPECT_EQ(demands_, 1);
  EXPECT_EQ(gate_->report("g").held, 1);
  EXPECT_EQ(gate_->report("g").held, 0);
}

// Whoever hears of it asks for a report at once, which may come before the request is counted.
TEST_F(PoolGateTest, TheFirstThatIsHeldIsInTheReportThatItCausesToBeAskedFor) {
  int held = 0;
  gate_ =
      std::make_unique<PoolGate>(ScalingConfig{}, clock_, [&] { held = gate_->report("g").held; });
  hold("a");
  EXPECT_EQ(held, 1);
  EXPECT_EQ(gate_->report("g").held, 0) << "from then on it is counted";
}

TEST_F(PoolGateTest, WhatWasNeverServedIsNoFinishedAnswer) {
  gate_->move(Place::kNone, Place::kHeld);
  gate_->move(Place::kHeld, Place::kOver);
  EXPECT_EQ(gate_->report("g").finished, 0);
}

TEST_F(PoolGateTest, WhatTakesASlotWaitsForOne) {
  open_queue({.requests_max = 2});
  const PoolSupply supply{.ready = 2, .free_slots = 2, .slots = 2};
  EXPECT_TRUE(ask("a", supply));
  EXPECT_TRUE(ask("b", supply));
  EXPECT_THAT(released_, ElementsAre("a", "b"));
  EXPECT_TRUE(ask("c", supply)) << "two are on their way: it waits";
  gate_->note_passed();
  gate_->note_passed();
  const PoolSupply full{.ready = 2, .free_slots = 0, .slots = 2};
  EXPECT_TRUE(ask("d", full));
  EXPECT_EQ(gate_->counts().held, 2);
  EXPECT_FALSE(gate_->is_scaled());
  EXPECT_FALSE(ask("e", full));
  EXPECT_EQ(refusal_.status, 429);
  EXPECT_EQ(refusal_.code, "overloaded");
  EXPECT_THAT(refusal_.message, HasSubstr("2 wait"));
  EXPECT_FALSE(gate_->passes(supply, PoolGate::Takes::kSlot)) << "nobody overtakes who waits";
  gate_->release({.ready = 2, .free_slots = 1, .slots = 2});
  EXPECT_THAT(released_, ElementsAre("a", "b", "c"));
}

TEST_F(PoolGateTest, WhenASlotWillBeFreeIsEstimatedByWhatWasServed) {
  open_queue({.requests_max = 3});
  for (int i = 0; i < 4; ++i) gate_->move(Place::kNone, Place::kInService);
  clock_.advance_ns(6 * kSecond_ns);
  for (int i = 0; i < 4; ++i) gate_->move(Place::kInService, Place::kOver);
  const PoolSupply full{.ready = 2, .free_slots = 0, .slots = 2};
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(ask(name, full));
  EXPECT_FALSE(ask("d", full));
  EXPECT_DOUBLE_EQ(refusal_.retry_after_s, 4 * 6 / 2) << "the fourth, at two workers";
  EXPECT_DOUBLE_EQ(gate_->refuse_late(PoolGate::Takes::kSlot, full).retry_after_s, 12);
  EXPECT_EQ(gate_->refuse_late(PoolGate::Takes::kSlot, full).status, 429);
  gate_->set_hold({.requests_max = 4});
  EXPECT_TRUE(ask("d", full)) << "a reload says that more may wait";
}

// A queue before workers that are started is both: without one it says so as any such pool does.
TEST_F(PoolGateTest, AScaledPoolsQueueSpeaksOfItsModelWhileThereIsNoReplica) {
  ScalingConfig config;
  config.hold.requests_max = 1;
  open(config);
  EXPECT_TRUE(ask("a", {}));
  EXPECT_EQ(demands_, 1);
  EXPECT_FALSE(ask("b", {}));
  EXPECT_EQ(refusal_.status, 503);
  EXPECT_EQ(refusal_.code, "model_starting");
  const PoolSupply full{.ready = 1, .free_slots = 0, .slots = 1};
  EXPECT_FALSE(ask("c", full));
  EXPECT_EQ(refusal_.status, 429);
  EXPECT_EQ(gate_->refuse_late(PoolGate::Takes::kSlot, full).status, 429);
  EXPECT_EQ(gate_->refuse_late(PoolGate::Takes::kSlot, {}).status, 503);
}

TEST_F(PoolGateTest, WhatGoesOnBehindAnAnswerIsInService) {
  gate_->release({.ready = 1, .free_slots = 1, .slots = 2, .jobs = 1});
  clock_.advance_ns(5 * kSecond_ns);
  EXPECT_EQ(gate_->report("g").in_service, 1);
  EXPECT_DOUBLE_EQ(gate_->report("g").in_service_s, 5);
  gate_->release({.ready = 1, .free_slots = 2, .slots = 2});
  clock_.advance_ns(5 * kSecond_ns);
  EXPECT_EQ(gate_->report("g").in_service, 0);
  EXPECT_DOUBLE_EQ(gate_->report("g").in_service_s, 5);
}

}  // namespace
}  // namespace pelton::gateway
