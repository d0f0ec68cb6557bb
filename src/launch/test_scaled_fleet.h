// For tests: the loop over a launcher and gateways that are played, in virtual time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launch/fleet_scaler.h"

namespace pelton::launch {

inline constexpr int64_t kSecond_ns = 1'000'000'000;
inline constexpr int kPrefillPlace = 50;

class PlayedLauncher final : public Launcher {
 public:
  explicit PlayedLauncher(const base::Clock& clock) : clock_(clock) {}
  Result<void> start(const ReplicaOrder& order) override {
    if (!none_to_be_had.empty()) return Error{ErrorCode::kUnavailable, none_to_be_had, {}};
    orders.push_back(order);
    const int place = place_of(order);
    replicas[place] = {.order = order,
                       .port = 100 + place,
                       .ordered_ns = clock_.now_ns(),
                       .progress_ns = clock_.now_ns()};
    replicas[place].host = "h";
    return {};
  }
  void stop(const ReplicaOrder& order, std::chrono::milliseconds /*grace*/) override {
    stopped.push_back(order);
    end(place_of(order), "stopped");
  }
  std::vector<LaunchedReplica> list() override {
    std::vector<LaunchedReplica> all;
    for (const auto& [ordinal, one] : replicas) all.push_back(one);
    return all;
  }
  uint64_t newest_token() const override { return newest; }
  bool is_known(const std::string& /*pool*/) const override { return known; }
  // Those that compute prompts, and those of another pool, have places of their own.
  static int place_of(const ReplicaOrder& order) {
    const bool is_other = order.pool == "p:prefill" || order.pool == "q";
    return order.ordinal + (is_other ? kPrefillPlace : 0);
  }
  int running(const std::string& pool) const {
    return static_cast<int>(std::ranges::count_if(replicas, [&](const auto& one) {
      return one.second.order.pool == pool && one.second.state != LaunchedReplica::State::kEnded;
    }));
  }
  void end(int ordinal, const std::string& how) {
    replicas[ordinal].state = LaunchedReplica::State::kEnded;
    replicas[ordinal].ended = how;
  }

  std::map<int, LaunchedReplica> replicas;
  std::vector<ReplicaOrder> orders;
  std::vector<ReplicaOrder> stopped;
  std::string none_to_be_had;  // why; empty: there are some
  uint64_t newest = 40;
  bool known = true;

 private:
  const base::Clock& clock_;
};

class PlayedFleet final : public ScaledFleet {
 public:
  explicit PlayedFleet(const base::Clock& clock) : clock_(clock) {}
  std::vector<autoscaler::GatewayReport> reports(const std::string& pool) override {
    if (const auto own = of_pool.find(pool); own != of_pool.end()) {
      ++own->second.sequence;
      own->second.gateway = "g";
      own->second.incarnation = 1;
      own->second.at_ns = clock_.now_ns();
      return {own->second};
    }
    ++report.sequence;
    report.gateway = "g";
    report.incarnation = 1;
    report.at_ns = clock_.now_ns();
    report.holds_for = acknowledges ? retirement : 0;
    std::vector<autoscaler::GatewayReport> all = others;
    all.push_back(report);
    return all;
  }
  std::vector<SilentGateway> silent_gateways() override { return silent; }
  std::vector<Worker> workers(const std::string& /*pool*/) override { return known; }
  void set_launched(const std::vector<Address>& addresses,
                    const std::vector<std::string>& pools_unknown) override {
    members = addresses;
    unknown = pools_unknown;
  }
  void set_draining(const Address& address, bool drains) override {
    if (drains) drained.push_back(address);
    if (!drains) undrained.push_back(address);
  }
  void release_memory(const Address& address) override { released.push_back(address); }
  void retire(const std::string& /*pool*/, uint64_t number) override { retirement = number; }
  void announce(const std::string& /*pool*/, const autoscaler::PoolAnnouncement& one) override {
    announced = one;
  }

  autoscaler::GatewayReport report;
  std::map<std::string, autoscaler::GatewayReport> of_pool;  // in its stead
  std::vector<autoscaler::GatewayReport> others;             // of other gateways, as they are
  std::vector<SilentGateway> silent;
  std::vector<Worker> known;
  std::vector<Address> members;
  std::vector<std::string> unknown;
  std::vector<Address> drained;
  std::vector<Address> undrained;
  std::vector<Address> released;
  uint64_t retirement = 0;
  bool acknowledges = true;
  autoscaler::PoolAnnouncement announced;

 private:
  const base::Clock& clock_;
};

class FleetScalerTest : public testing::Test {
 protected:
  void scale(int replicas_min, int replicas_max, int standby = 0) {
    ScaledPool pool{.name = "p"};
    pool.policy.replicas_min = replicas_min;
    pool.policy.replicas_max = replicas_max;
    pool.policy.concurrency_target = 64;
    pool.policy.standby = standby;
    pool.policy.idle_to_zero_s = 5;
    pool.start_s = 10;
    pool.progress_s = 20;
    scaler_ = std::make_unique<FleetScaler>(std::vector<ScaledPool>{pool}, launcher_, fleet_,
                                            clock_, log_);
    scaler_->turn(false);
  }
  // Of two roles, at most so many of each.
  static std::vector<ScaledPool> roles(int most) {
    ScaledPool decode{.name = "p"};
    decode.policy.rule = autoscaler::PoolPolicy::Rule::kSlo;
    decode.policy.slo = {.first_token_s = 0.5, .gap_s = 0.05};
    decode.policy.replicas_max = most;
    decode.policy.window_s = 10;
    decode.policy.idle_to_zero_s = 20;
    ScaledPool prefill = decode;
    decode.policy.prefill = {{.replicas_min = 1, .replicas_max = most}};
    prefill.name = "p:prefill";
    prefill.computes_for = "p";
    return {decode, prefill};
  }
  void scale_roles(int most) {
    scaler_ = std::make_unique<FleetScaler>(roles(most), launcher_, fleet_, clock_, log_);
    scaler_->turn(false);
  }
  // All that runs is ready, and says what its steps cost.
  void all_ready() {
    fleet_.known.clear();
    for (const auto& [place, one] : launcher_.replicas) {
      if (one.state == LaunchedReplica::State::kEnded) continue;
      fleet_.known.push_back({.host = "h",
                              .port = one.port,
                              .is_ready = true,
                              .slots = 16,
                              .model = {.fixed_s = 0.005,
                                        .prefill_token_s = 20e-6,
                                        .row_s = 0.1e-3,
                                        .slots = 16,
                                        .step_tokens = 4096}});
    }
    scaler_->turn(true);
  }
  // For so long, so many a second.
  void serve_for(int seconds, int rate, int prompt) {
    for (int i = 0; i < seconds; ++i) {
      fleet_.report.requests += rate;
      fleet_.report.finished += rate;
      fleet_.report.in_service_s += rate;
      fleet_.report.in_service = rate;
      for (int one = 0; one < rate; ++one) {
        fleet_.report.served.add({.input = prompt,
                                  .computed = prompt,
                                  .output = 100,
                                  .first_token_s = 0.1,
                                  .further_s = 1});
      }
      pass(1);
      all_ready();
    }
  }
  void hold(int count) {
    fleet_.report.requests += count;
    fleet_.report.held += count;
  }
  // Held requests go to a replica, and are answered.
  void serve() {
    fleet_.report.finished += fleet_.report.held;
    fleet_.report.in_service_s += fleet_.report.held;
    fleet_.report.held = 0;
  }
  void pass(double seconds) {
    for (double left = seconds; left > 0; left -= 0.5) {
      clock_.advance_ns(kSecond_ns / 2);
      scaler_->turn(false);
    }
  }
  void become_ready(int ordinal) {
    fleet_.known.push_back({.host = "h", .port = 100 + ordinal, .is_ready = true, .slots = 64});
    scaler_->turn(false);
  }

  base::VirtualClock clock_{1'000'000};
  base::Log log_{clock_, {.level = base::LogLevel::kNone}};
  PlayedLauncher launcher_{clock_};
  PlayedFleet fleet_{clock_};
  std::unique_ptr<FleetScaler> scaler_;
};

}  // namespace pelton::launch
