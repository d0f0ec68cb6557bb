// The gateways of a fleet, as an autoscaler in a process of its own sees them: over their admin
// listeners (exchange.h). To each gateway there are two threads: one sends what is in force when it
// has changed, and five times a second anyway; the other waits for demand, and has the first one
// ask what it is before the decider hears that there is some. What a gateway that does not answer
// said last stays, and grows old (autoscaler/pool_facts.h: nothing goes down on old facts); what it
// saw of workers is believed for ten seconds, where another one sees them.
//
// The methods are called on the decider's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "launch/exchange.h"
#include "launch/fleet_scaler.h"
#include "net/http_client.h"

namespace pelton::launch {

class RemoteFleet final : public ScaledFleet {
 public:
  struct Options {
    std::vector<std::string> gateways;  // URLs of their admin listeners
    std::vector<std::string> pools;
    std::string key = {};  // an operator's, of gateways that ask for one; empty: none
    uint64_t epoch = 0;    // of this autoscaler; newer ones are greater
    bool advises = false;  // only: gateways are asked, and nothing is ordered
    // Any thread: a request has come that no replica takes, and is in the reports.
    std::function<void()> on_demand;
  };
  // All outlive it.
  RemoteFleet(Options options, const base::Clock& clock, base::Log& log);
  ~RemoteFleet() override;
  RemoteFleet(const RemoteFleet&) = delete;
  RemoteFleet& operator=(const RemoteFleet&) = delete;

  // A gateway obeys a newer autoscaler; this one is to end. One that has obeyed this one says so
  // once. Whom none has obeyed yet may have begun after a clock was set back: until it is refused
  // for longer than a gateway waits for an autoscaler that is silent (OrderFence), it asks again.
  bool is_superseded() const { return superseded_; }

  std::vector<autoscaler::GatewayReport> reports(const std::string& pool) override;
  std::vector<SilentGateway> silent_gateways() override;
  std::vector<Worker> workers(const std::string& pool) override;
  void set_launched(const std::vector<Address>& addresses,
                    const std::vector<std::string>& unknown) override;
  void set_draining(const Address& address, bool draining) override;
  void release_memory(const Address& address) override;
  void retire(const std::string& pool, uint64_t retirement) override;
  void announce(const std::string& pool, const autoscaler::PoolAnnouncement& announcement) override;

 private:
  struct Gateway {
    std::string url;
    ExchangeReport report;    // the last; guarded by mutex_, as the next three
    bool has_demand = false;  // that no exchange has begun after
    int64_t heard_ns = 0;     // 0: never
    std::string trouble;      // written by its pusher alone
    std::string foreign;      // pools that it does not scale; its pusher's own, as the next
    int64_t refused_ns = 0;   // since when it refuses us, whom it has never obeyed; 0: it does not
    std::thread pusher;
    std::thread listener;
  };

  void push(Gateway& gateway);
  ExchangeOrder order_to_send() const;  // under mutex_
  void listen(Gateway& gateway);
  void add_key(net::HttpCall& call) const;
  Result<void> exchange(Gateway& gateway, const ExchangeOrder& order);
  void note(Gateway& gateway, const Result<void>& done);
  void note_foreign(Gateway& gateway, const ExchangeReport& report);
  void note_refused(Gateway& gateway);
  bool is_silent(const Gateway& gateway, int64_t now_ns) const;
  ExchangeOrder::Pool* pool_of(const std::string& name);
  template <typename Change>
  void change(const Change& change);
  bool is_stopping() const;

  const Options options_;
  const base::Clock& clock_;
  base::Log& log_;
  const int64_t began_ns_;
  std::atomic<bool> superseded_ = false;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_, as the next two
  ExchangeOrder order_;
  uint64_t version_ = 1;  // of the order
  net::HttpClient client_;
  std::vector<std::unique_ptr<Gateway>> gateways_;
};

}  // namespace pelton::launch
