// What a decision takes: of one pool of many replicas, and of many pools one after the other.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "autoscaler/pool_scaler.h"

namespace pelton::autoscaler {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct BusyPool {
  explicit BusyPool(int replicas)
      : scaler({.replicas_min = 1, .replicas_max = 2 * replicas}), slots(16) {
    facts.gateways = {{.gateway = "a", .incarnation = 1}, {.gateway = "b", .incarnation = 1}};
    for (int i = 0; i < replicas; ++i) {
      facts.replicas.push_back({.id = std::to_string(i) + ".1",
                                .phase = ReplicaPhase::kReady,
                                .ready_ns = -3600 * kSecond,
                                .slots = slots,
                                .running = slots / 2});
    }
  }
  // Two seconds later, half of all slots busy with requests of 8 s.
  void decide(int64_t now_ns) {
    const auto busy = static_cast<int>(facts.replicas.size()) * slots / 2;
    for (GatewayReport& one : facts.gateways) {
      ++one.sequence;
      one.requests += busy / 8;
      one.finished += busy / 8;
      one.in_service = busy / 2;
      one.in_service_s += busy;
      one.at_ns = now_ns;
    }
    benchmark::DoNotOptimize(scaler.decide(facts, now_ns));
  }

  PoolScaler scaler;
  int slots;
  PoolFacts facts;
};

void BM_Decision(benchmark::State& state) {
  std::vector<BusyPool> pools(static_cast<size_t>(state.range(0)),
                              BusyPool(static_cast<int>(state.range(1))));
  int64_t now_ns = 0;
  for (auto _ : state) {
    now_ns += 2 * kSecond;
    for (BusyPool& one : pools) one.decide(now_ns);
  }
  state.SetLabel(std::to_string(state.range(0)) + " pools of " + std::to_string(state.range(1)));
}
BENCHMARK(BM_Decision)
    ->Args({1, 10})
    ->Args({1, 100})
    ->Args({1, 1000})
    ->Args({1000, 10})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pelton::autoscaler
