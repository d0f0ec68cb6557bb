// Random pools whose replicas start, fail, vanish and are taken back, under random loads, policies
// and gateways: what must hold at each decision is computed here anew, from the facts alone.
// A failing seed is printed: PELTON_SEED=N replays it. PELTON_FULL: a million decisions;
// PELTON_STREAMS=N: of so many pools, each 200.
#include <algorithm>
#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autoscaler/pool_scaler.h"
#include "base/random.h"

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  // Uniform in [low, high].
  int roll(int low, int high) {
    return low + static_cast<int>(base::random_bits(seed_, count_++) %
                                  static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return roll(1, n) == 1; }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

PoolPolicy a_policy(Dice& dice) {
  PoolPolicy asked{.replicas_min = dice.roll(0, 2), .replicas_max = dice.roll(3, 20)};
  asked.window_s = dice.roll(6, 60);
  if (dice.one_in(2)) asked.scale_down_delay_s = dice.roll(0, 100);
  if (dice.one_in(2)) asked.target_utilization = dice.roll(3, 10) / 10.0;
  if (dice.one_in(3)) asked.concurrency_target = dice.roll(1, 8);
  asked.scale_down_rate_max = dice.roll(1, 10) / 10.0;
  asked.idle_to_zero_s = dice.roll(1, 60);
  if (dice.one_in(3)) {
    asked.gpus_each = 2;
    asked.gpus_max = 2 * dice.roll(3, 10) + 1;
  }
  if (dice.one_in(3)) {
    asked.price_each = 10;
    asked.price_max = 10 * dice.roll(3, 10) + 5;
  }
  if (dice.one_in(4)) asked.standby = 1;
  // A ceiling that falls while replicas run, and is lifted again.
  if (dice.one_in(3)) {
    const int from = dice.roll(1, 3);
    asked.schedules = {{.from_minute = from,
                        .to_minute = from + dice.roll(1, 2),
                        .replicas_max = dice.roll(std::max(asked.replicas_min, 1), 3)}};
  }
  return asked;
}

// Requests in three gateways, replicas that obey or fail to.
class RandomPool {
 public:
  explicit RandomPool(uint64_t seed)
      : dice_(seed),
        policy_(a_policy(dice_)),
        slots_(dice_.roll(1, 8)),
        start_s_(dice_.roll(1, 90)) {
    for (int i = 0; i < 3; ++i) {
      gateways_.push_back(
          {.gateway = std::string(1, static_cast<char>('a' + i)), .incarnation = 1});
    }
  }

  const PoolPolicy& policy() const { return policy_; }
  int64_t now_ns() const { return now_ns_; }

  PoolFacts next() {
    now_ns_ += dice_.roll(1, 3) * kSecond;
    if (dice_.one_in(40)) rate_ = dice_.roll(0, 3) == 0 ? 0 : dice_.roll(0, 30);
    for (ReplicaFacts& one : replicas_) advance(one);
    std::erase_if(replicas_, [&](const ReplicaFacts& one) {
      return (one.phase == ReplicaPhase::kDraining && dice_.one_in(3)) || dice_.one_in(400);
    });
    serve();
    PoolFacts facts{.gateways = gateways_,
                    .replicas = replicas_,
                    .slots_assumed = slots_,
                    .service_s_assumed = 3,
                    .start_s_assumed = static_cast<double>(start_s_),
                    .unix_s = now_ns_ / kSecond};
    return facts;
  }

  void obey(const PoolDecision& decision) {
    for (GatewayReport& one : gateways_) one.holds_for = decision.retirement;
    const auto set = [&](const std::vector<std::string>& ids, ReplicaPhase phase) {
      for (ReplicaFacts& one : replicas_) {
        if (std::ranges::find(ids, one.id) != ids.end()) one.phase = phase;
      }
    };
    set(decision.recall, ReplicaPhase::kReady);
    set(decision.drain, ReplicaPhase::kDraining);
    for (ReplicaFacts& one : replicas_) {
      if (std::ranges::find(decision.wake, one.id) == decision.wake.end()) continue;
      one.stands_by = false;
      if (one.phase == ReplicaPhase::kStandby) one.phase = ReplicaPhase::kReady;
    }
    std::erase_if(replicas_, [&](const ReplicaFacts& one) {
      return std::ranges::find(decision.dismiss, one.id) != decision.dismiss.end();
    });
    for (int i = 0; i < decision.start; ++i) {
      replicas_.push_back({.id = "r" + std::to_string(++started_),
                           .ordered_ns = now_ns_,
                           .slots = slots_,
                           .stands_by = i >= decision.start - decision.start_standby});
    }
  }

 private:
  void advance(ReplicaFacts& one) {
    if (one.phase == ReplicaPhase::kOrdered || one.phase == ReplicaPhase::kStarting) {
      if (dice_.one_in(10)) one.progress_ns = now_ns_;
      const bool due = now_ns_ - one.ordered_ns >= start_s_ * kSecond;
      if (!due || dice_.one_in(5)) return;
      one.phase = one.stands_by ? ReplicaPhase::kStandby : ReplicaPhase::kReady;
      one.ready_ns = now_ns_;
    }
    if (dice_.one_in(300)) one.reclaimed = true;
    if (dice_.one_in(300)) one.healthy = !one.healthy;
  }
  void serve() {
    int left = 0;
    for (GatewayReport& one : gateways_) left += one.held;
    for (ReplicaFacts& one : replicas_) {
      if (one.phase != ReplicaPhase::kReady) {
        one.running = 0;
        continue;
      }
      one.running = dice_.roll(0, std::min(one.slots, rate_));
      one.kv_used = dice_.roll(0, 9) / 10.0;
      one.waiting = dice_.one_in(10) ? dice_.roll(0, 7) : 0;
      left = std::max(left - one.slots, 0);
    }
    for (GatewayReport& one : gateways_) {
      const int came = dice_.roll(0, rate_ / 3);
      one.requests += came;
      one.held = left / 3 + (replicas_.empty() ? came : 0);
      one.in_service = dice_.roll(0, rate_);
      one.finished += dice_.roll(0, came);
      one.in_service_s += one.in_service;
      if (dice_.one_in(30)) continue;  // not heard of
      ++one.sequence;
      one.at_ns = now_ns_;
    }
  }

  Dice dice_;
  const PoolPolicy policy_;
  const int slots_;
  const int64_t start_s_;
  int64_t now_ns_ = kSecond;
  int rate_ = 5;
  int started_ = 0;
  std::vector<GatewayReport> gateways_;
  std::vector<ReplicaFacts> replicas_;
};

// What is there, counted from the facts.
struct Counted {
  int ready = 0;
  int running = 0;
  int waiting = 0;
  int slots = 1;
  double kv_used = 0;
  int all = 0;
};
Counted counted(const PoolFacts& facts) {
  Counted seen;
  int free_slots = 0;
  int queued = 0;
  for (const ReplicaFacts& one : facts.replicas) {
    ++seen.all;
    if (one.phase != ReplicaPhase::kReady) continue;
    ++seen.ready;
    seen.running += one.running;
    seen.kv_used += one.kv_used;
    seen.slots = one.slots;
    free_slots += one.slots - one.running;
    queued += one.waiting;
  }
  for (const GatewayReport& one : facts.gateways) queued += one.held;
  seen.waiting = std::max(queued - free_slots, 0);
  return seen;
}

struct Happened {
  int64_t decisions = 0;
  int64_t ups = 0;
  int64_t downs = 0;
  int64_t to_nothing = 0;
  int64_t beyond = 0;  // a ceiling that fell, replicas that went for it
};

class Checker {
 public:
  explicit Checker(const PoolPolicy& policy) : policy_(policy) {}

  void check(const PoolFacts& facts, const PoolDecision& decision, int64_t now_ns,
             Happened& happened) {
    const Counted seen = counted(facts);
    const PoolDecision::Terms& terms = decision.terms;
    const int most = policy_.bounds(facts.unix_s).most;
    const int present = terms.ready + terms.coming;
    const int up = decision.start - decision.start_standby +
                   static_cast<int>(decision.wake.size() + decision.recall.size());
    ++happened.decisions;
    // Bounds and budget, of all that is there and not only of what serves.
    ASSERT_LE(decision.desired, most);
    ASSERT_GE(decision.desired, std::min(policy_.replicas_min, most));
    if (decision.start > 0) {
      ASSERT_LE(present + terms.draining + terms.standby + decision.start, most);
    }
    // Never an order while enough are coming.
    ASSERT_LE(present + up, std::max(decision.desired, present));
    if (present >= decision.desired) {
      ASSERT_EQ(up, 0);
    }
    // What is beyond a ceiling is given back, and the last one is not among it.
    if (present > most) {
      ASSERT_GE(decision.desired, 1) << decision.text();
    }
    // A ceiling is never relaxed: what serves beyond it goes at once, and no more than that.
    const auto gone = static_cast<int>(decision.drain.size());
    if (present > most) {
      ASSERT_EQ(gone, std::max(seen.ready - most, 0)) << decision.text();
      happened.beyond += gone;
    }
    // Both directions at once would be neither.
    if (!decision.drain.empty()) {
      ASSERT_EQ(up, 0);
      if (present <= most) {
        check_survivors(seen, decision, terms);
        check_direction(terms, now_ns);
      }
      last_down_ns_ = now_ns;
      ++happened.downs;
      happened.to_nothing += decision.desired == 0 ? 1 : 0;
    }
    if (up > 0) {
      const bool just_down = last_down_ns_ >= 0 &&
                             now_ns - last_down_ns_ < static_cast<int64_t>(policy_.window_s * 1e9);
      const bool urgent = terms.waiting > 0 || terms.by_panic > 0 || lost(seen) ||
                          decision.desired <= policy_.replicas_min || present == 0;
      ASSERT_TRUE(!just_down || urgent) << decision.text();
      last_up_ns_ = now_ns;
      ++happened.ups;
    }
    last_all_ = seen.all;
  }

 private:
  // A replica has vanished since the last decision: what takes its place changes no direction.
  bool lost(const Counted& seen) const { return seen.all < last_all_; }

  // Those that stay bear what all bear now: 80 % of the target's slots and of the KV cache.
  void check_survivors(const Counted& seen, const PoolDecision& decision,
                       const PoolDecision::Terms& terms) const {
    const auto gone = static_cast<int>(decision.drain.size());
    const int stay = seen.ready - gone;
    if (decision.desired == 0) {
      ASSERT_EQ(seen.running + seen.waiting, 0);
      ASSERT_EQ(terms.held, 0);
      return;
    }
    ASSERT_GT(stay, 0);
    const double load_max = std::max(0.8, policy_.target_utilization.value_or(0));
    const double target = terms.concurrency_target;
    ASSERT_LE(seen.running + seen.waiting, load_max * target * stay + 1e-9) << decision.text();
    ASSERT_LE(seen.kv_used, 0.8 * stay + 1e-9) << decision.text();
  }
  void check_direction(const PoolDecision::Terms& terms, int64_t now_ns) const {
    if (last_up_ns_ < 0 || terms.ready + terms.coming == 1)
      return;  // the last one: by its own rule
    ASSERT_GE(now_ns - last_up_ns_, static_cast<int64_t>(policy_.window_s * 1e9));
  }

  const PoolPolicy policy_;
  int64_t last_up_ns_ = -1;
  int64_t last_down_ns_ = -1;
  int last_all_ = 0;
};

void play(uint64_t seed, Happened& happened) {
  RandomPool pool(seed);
  ASSERT_TRUE(pool.policy().check().ok()) << pool.policy().check().error().message;
  PoolScaler scaler(pool.policy());
  PoolScaler reordered(pool.policy());
  Checker checker(pool.policy());
  Dice order(~seed);
  for (int i = 0; i < 200; ++i) {
    const PoolFacts facts = pool.next();
    const PoolDecision decision = scaler.decide(facts, pool.now_ns());
    checker.check(facts, decision, pool.now_ns(), happened);
    if (testing::Test::HasFatalFailure()) return;
    // Whichever gateway and replica is reported first.
    PoolFacts other = facts;
    for (size_t k = other.gateways.size(); k > 1; --k) {
      std::swap(other.gateways[k - 1],
                other.gateways[static_cast<size_t>(order.roll(0, static_cast<int>(k) - 1))]);
    }
    for (size_t k = other.replicas.size(); k > 1; --k) {
      std::swap(other.replicas[k - 1],
                other.replicas[static_cast<size_t>(order.roll(0, static_cast<int>(k) - 1))]);
    }
    const PoolDecision same = reordered.decide(other, pool.now_ns());
    ASSERT_EQ(same.text(), decision.text());
    ASSERT_EQ(same.drain, decision.drain);
    ASSERT_EQ(same.wake, decision.wake);
    pool.obey(decision);
  }
}

TEST(PoolScalerFacts, RandomPoolsKeepBoundsBudgetDirectionAndSurvivors) {
  Happened happened;
  if (const char* one = std::getenv("PELTON_SEED"); one != nullptr) {
    return play(std::strtoull(one, nullptr, 10), happened);
  }
  int streams = std::getenv("PELTON_FULL") != nullptr ? 5'000 : 1'000;
  if (const char* asked = std::getenv("PELTON_STREAMS")) streams = std::atoi(asked);
  const uint64_t first = std::random_device{}();
  for (int i = 0; i < streams && !testing::Test::HasFatalFailure(); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE("PELTON_SEED=" + std::to_string(seed));
    play(seed, happened);
  }
  EXPECT_GT(happened.ups, happened.decisions / 100);
  EXPECT_GT(happened.downs, happened.decisions / 1'000);
  EXPECT_GT(happened.to_nothing, streams / 100);
  EXPECT_GT(happened.beyond, streams / 100);
}

// At this one all went at once, one of them started a moment ago, as the ceiling fell to one.
TEST(PoolScalerFacts, ACeilingThatFallsOnAnIdlePoolLeavesTheLastOneToItsOwnRule) {
  Happened happened;
  play(1087936380, happened);
}

}  // namespace
}  // namespace pelton::autoscaler
