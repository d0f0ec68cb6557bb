// Copies of clients' requests to a pool that is being tried out ([[route]] shadow). Nobody gets
// their answers: they are read, counted by arm and dropped. A copy has one attempt, behind all
// others at its worker, and only where there is plenty of room: none begins while half of the
// slots there, or nearly all of those of its request's own pool, are taken, and those that run are
// cut once there is no room for clients any more. Owned by the gateway; any thread. Copies run on a
// thread of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "admission/token_bucket.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/arm_figures.h"
#include "gateway/config.h"
#include "gateway/fleet.h"
#include "gateway/id_homes.h"
#include "gateway/quarantine.h"
#include "gateway/relay.h"
#include "gateway/relay_counters.h"
#include "gateway/retry_budget.h"
#include "net/http_client.h"
#include "net/work_loop.h"

namespace pelton::gateway {

class ShadowTraffic {
 public:
  struct Options {  // all outlive it
    Fleet& fleet;
    net::HttpClient& client;
    const base::Clock& clock;
    base::Log& log;
    ArmTable& arms;
    const std::string& gateway;
  };

  explicit ShadowTraffic(const Options& options);
  ~ShadowTraffic();
  ShadowTraffic(const ShadowTraffic&) = delete;
  ShadowTraffic& operator=(const ShadowTraffic&) = delete;

  // A copy of this request goes to its route's shadow, if there is room and budget.
  struct Target {
    const ShadowConfig& to;
    bool is_foreign = false;    // it knows no priority
    int64_t output_tokens = 0;  // that an answer there is expected to have
  };
  void offer(const Target& target, const Relay::Request& request);
  // To be called now and then: cuts what is in clients' way.
  void yield();

  struct Counts {
    std::atomic<int64_t> sent{0};
    std::atomic<int64_t> no_room{0};
    std::atomic<int64_t> no_budget{0};
    std::atomic<int64_t> cut{0};
  };
  const Counts& counts() const { return counts_; }

 private:
  class Sink;
  struct Copy {
    std::string pool;
    std::string clients_pool;
    size_t bytes = 0;
    std::shared_ptr<Sink> sink;
    bool is_cut = false;  // its end is on its way
  };

  bool has_room(const ShadowConfig& shadow, const Relay::Request& request);
  bool has_budget(const ShadowConfig& shadow, std::string_view model, int64_t tokens);
  void forget(int64_t number);

  const Options options_;
  const std::string secret_;
  RelayCounters relayed_;  // apart from clients', as the next
  Quarantine quarantine_;
  RetryBudget retry_budget_{RetryBudget::Options{}};
  IdHomes homes_;
  Counts counts_;
  std::mutex mutex_;
  int64_t numbers_ = 0;           // guarded by mutex_, as all below
  size_t bytes_ = 0;              // of open copies
  std::map<int64_t, Copy> open_;  // by their numbers
  std::map<std::string, admission::TokenBucket, std::less<>> budgets_;  // by model and pool
  net::WorkLoop loop_;  // last: what it still does works with all above
};

}  // namespace pelton::gateway
