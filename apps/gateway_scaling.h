// `pelton gateway --with-autoscaler`: the gateway's pools get their replicas from this process,
// which starts them as [pool.launch] says. Owned by the verb, behind the gateway.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/gateway.h"
#include "launch/fleet_scaler.h"
#include "launch/launcher_set.h"
#include "net/http_message.h"
#include "telemetry/prometheus_text.h"

namespace pelton::apps {

// What wakes the thread that scales; it is there before the gateway. Any thread.
class DemandSignal {
 public:
  void notify();
  void stop();
  enum class Woken { kByTime, kByDemand, kToStop };
  Woken wait(std::chrono::milliseconds at_most);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_demand_ = false;  // guarded by mutex_, as the next
  bool stops_ = false;
};

class GatewayScaling final : public launch::ScaledFleet {
 public:
  // Errors: kBadConfig: nothing there says what is to be started.
  static Result<void> check(const gateway::GatewayConfig& config);
  // All outlive it; the configuration has been checked. `facts_file`: where facts are recorded;
  // empty: nowhere. Errors: open_launcher()'s, kIo.
  static Result<std::unique_ptr<GatewayScaling>> make(const gateway::GatewayConfig& config,
                                                      const std::string& facts_file,
                                                      gateway::Gateway& gateway,
                                                      DemandSignal& signal,
                                                      const base::Clock& clock, base::Log& log);
  ~GatewayScaling() override;
  GatewayScaling(const GatewayScaling&) = delete;
  GatewayScaling& operator=(const GatewayScaling&) = delete;

  // From now on it decides and acts, on a thread of its own.
  void start();
  // No decision any more; all replicas of this machine are stopped, which is waited for.
  void stop(std::chrono::milliseconds grace);

  // For the operator's listener; any thread. GET /v1/autoscaler.
  net::HttpResponse page() const;
  void add_metrics(telemetry::PrometheusText& text) const;
  std::vector<launch::FleetScaler::PoolState> states() const { return scaler_.states(); }

  std::vector<autoscaler::GatewayReport> reports(const std::string& pool) override;
  std::vector<Worker> workers(const std::string& pool) override;
  void set_launched(const std::vector<Address>& addresses,
                    const std::vector<std::string>& unknown) override;
  void set_draining(const Address& address, bool draining) override;
  void release_memory(const Address& address) override;
  void retire(const std::string& pool, uint64_t retirement) override;
  void announce(const std::string& pool, const autoscaler::PoolAnnouncement& announcement) override;

 private:
  GatewayScaling(std::vector<launch::ScaledPool> pools,
                 std::unique_ptr<launch::LauncherSet> launcher,
                 std::unique_ptr<launch::FactsRecorder> recorder, gateway::Gateway& gateway,
                 DemandSignal& signal, const base::Clock& clock, base::Log& log);
  void run();

  gateway::Gateway& gateway_;
  DemandSignal& signal_;
  const std::unique_ptr<launch::LauncherSet> launcher_;
  const std::unique_ptr<launch::FactsRecorder> recorder_;  // null: facts are not kept
  launch::FleetScaler scaler_;
  std::thread thread_;
};

}  // namespace pelton::apps
