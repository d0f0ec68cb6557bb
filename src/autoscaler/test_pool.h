// For tests: a pool in seconds of virtual time. Requests come at a given rate, evenly, wait in one
// gateway in the order of their coming, and take a fixed time in one slot each; replicas start
// after a fixed time. What PoolScaler decides is carried out.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autoscaler/pool_scaler.h"

namespace pelton::autoscaler {

class TestPool {
 public:
  struct Options {
    PoolPolicy policy;
    int slots = 16;
    double service_s = 8;
    int64_t start_s = 30;
    double late_s = 2;  // a request that waited longer is late
    ReplicaModel model;
    std::optional<ServedSums::Request> request;  // what gateways count of each that finishes
    // Who decides; none: PoolScaler by that policy.
    std::function<PoolDecision(const PoolFacts&, int64_t now_ns)> decide = {};
  };

  explicit TestPool(const Options& options) : options_(options), scaler_(options.policy) {
    report_.gateway = "g";
    report_.incarnation = 1;
  }

  // Replicas that have been ready for an hour.
  void give(int count) {
    for (int i = 0; i < count; ++i) {
      replicas_.push_back({.id = "r" + std::to_string(++started_),
                           .phase = ReplicaPhase::kReady,
                           .ready_ns = -3600 * kSecond,
                           .slots = options_.slots,
                           .model = options_.model});
    }
  }
  // One second with `rate` requests; a decision at its end.
  const PoolDecision& second(double rate) {
    ++now_s_;
    finish();
    requests_due_ += rate;
    for (; requests_due_ >= 1; requests_due_ -= 1) {
      ++report_.requests;
      queue_.push_back(now_s_);
    }
    for (ReplicaFacts& one : replicas_) {
      if (one.phase == ReplicaPhase::kOrdered &&
          now_s_ >= one.ordered_ns / kSecond + options_.start_s) {
        one.phase = one.stands_by ? ReplicaPhase::kStandby : ReplicaPhase::kReady;
        one.ready_ns = now_s_ * kSecond;
      }
      replica_seconds_ += 1;
    }
    serve();
    std::erase_if(replicas_, [](const ReplicaFacts& one) {
      return one.phase == ReplicaPhase::kDraining && one.running == 0;
    });
    decide();
    return decision_;
  }
  void seconds(int count, double rate) {
    for (int i = 0; i < count; ++i) second(rate);
  }

  int ready() const { return count(ReplicaPhase::kReady); }
  int standby() const { return count(ReplicaPhase::kStandby); }
  int coming() const { return count(ReplicaPhase::kOrdered); }
  int replicas() const { return static_cast<int>(replicas_.size()); }
  double replica_hours() const { return replica_seconds_ / 3600; }
  int64_t served() const { return served_; }
  int64_t late() const { return late_; }
  int64_t now_s() const { return now_s_; }
  int started() const { return started_; }
  int direction_changes() const { return direction_changes_; }
  int held() const { return static_cast<int>(queue_.size()); }
  const PoolDecision& decision() const { return decision_; }
  PoolScaler& scaler() { return scaler_; }
  std::vector<ReplicaFacts>& replica_facts() { return replicas_; }
  GatewayReport& report() { return report_; }
  PoolFacts facts() const {
    return {.gateways = {report_},
            .replicas = replicas_,
            .slots_assumed = options_.slots,
            .service_s_assumed = options_.service_s,
            .start_s_assumed = static_cast<double>(options_.start_s)};
  }

  static constexpr int64_t kSecond = 1'000'000'000;

 private:
  struct Running {
    double until_s;
    std::string replica;
  };

  int count(ReplicaPhase phase) const {
    return static_cast<int>(std::count_if(replicas_.begin(), replicas_.end(),
                                          [&](const auto& one) { return one.phase == phase; }));
  }
  ReplicaFacts* find(const std::string& id) {
    for (ReplicaFacts& one : replicas_) {
      if (one.id == id) return &one;
    }
    return nullptr;
  }
  void finish() {
    while (!running_.empty() && running_.front().until_s <= static_cast<double>(now_s_)) {
      ++report_.finished;
      if (options_.request) report_.served.add(*options_.request);
      if (ReplicaFacts* one = find(running_.front().replica)) --one->running;
      running_.pop_front();
    }
  }
  void serve() {
    for (ReplicaFacts& one : replicas_) {
      if (one.phase != ReplicaPhase::kReady) continue;
      while (one.running < one.slots && !queue_.empty()) {
        ++served_;
        if (static_cast<double>(now_s_ - queue_.front()) > options_.late_s) ++late_;
        queue_.pop_front();
        ++one.running;
        running_.push_back({static_cast<double>(now_s_) + options_.service_s, one.id});
      }
    }
  }
  void decide() {
    report_.in_service = static_cast<int>(running_.size());
    report_.held = static_cast<int>(queue_.size());
    report_.in_service_s += report_.in_service;
    report_.held_s += report_.held;
    ++report_.sequence;
    report_.at_ns = now_s_ * kSecond;
    decision_ = options_.decide ? options_.decide(facts(), now_s_ * kSecond)
                                : scaler_.decide(facts(), now_s_ * kSecond);
    report_.holds_for = decision_.retirement;
    for (const std::string& id : decision_.recall) find(id)->phase = ReplicaPhase::kReady;
    for (const std::string& id : decision_.wake) {
      ReplicaFacts& one = *find(id);
      if (one.phase == ReplicaPhase::kStandby) one.phase = ReplicaPhase::kReady;
      one.stands_by = false;
    }
    for (const std::string& id : decision_.drain) find(id)->phase = ReplicaPhase::kDraining;
    for (int i = 0; i < decision_.start; ++i) {
      replicas_.push_back({.id = "r" + std::to_string(++started_),
                           .phase = ReplicaPhase::kOrdered,
                           .ordered_ns = now_s_ * kSecond,
                           .slots = options_.slots,
                           .model = options_.model,
                           .stands_by = i >= decision_.start - decision_.start_standby});
    }
    const int up = decision_.start > 0 || !decision_.recall.empty() ? 1 : 0;
    const int direction = up - (decision_.drain.empty() ? 0 : 1);
    if (direction != 0 && direction != direction_) {
      if (direction_ != 0) ++direction_changes_;
      direction_ = direction;
    }
  }

  const Options options_;
  PoolScaler scaler_;
  GatewayReport report_;
  std::vector<ReplicaFacts> replicas_;
  std::deque<int64_t> queue_;  // when each came
  std::deque<Running> running_;
  PoolDecision decision_;
  int64_t now_s_ = 0;
  double requests_due_ = 0;
  double replica_seconds_ = 0;
  int64_t served_ = 0;
  int64_t late_ = 0;
  int started_ = 0;
  int direction_ = 0;
  int direction_changes_ = 0;
};

}  // namespace pelton::autoscaler
