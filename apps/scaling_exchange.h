// A gateway's side of an autoscaler that is another process (launch/exchange.h): two pages of the
// operator's listener. Owned by the verb, behind the gateway; DemandCount is there before it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "gateway/gateway.h"
#include "launch/exchange.h"
#include "launch/order_fence.h"
#include "net/http_message.h"
#include "net/http_server.h"

namespace pelton::apps {

// How often a request has come that no replica took, and who waits to hear of the next. Any thread.
class DemandCount {
 public:
  void notify();
  // Answers once there are more than `after`, or `wait` is over.
  void answer(const std::shared_ptr<net::Exchange>& exchange, int64_t after,
              std::chrono::milliseconds wait);

 private:
  struct Waiting {
    std::weak_ptr<net::Exchange> exchange;
    bool is_answered = false;  // its net thread's
  };
  static void send(const std::shared_ptr<net::Exchange>& exchange, Waiting& waiting, int64_t count);
  int64_t count();

  std::mutex mutex_;
  int64_t count_ = 0;                              // guarded by mutex_, as the next
  std::vector<std::shared_ptr<Waiting>> waiting_;  // bounded
};

class ScalingExchange {
 public:
  // All outlive it.
  ScalingExchange(gateway::Gateway& gateway, DemandCount& demand, const base::Clock& clock)
      : gateway_(gateway), demand_(demand), clock_(clock) {}

  // Whether the request is one of these pages; then it has been, or will be, answered.
  // `who` asks, as the audit log has it.
  bool handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange,
              std::string_view who);

 private:
  // A refusal, which is a line of the audit log.
  struct Refused {
    int status = 400;
    std::string_view code;
    std::string message;
    uint64_t epoch = 0;  // the order's; 0: it is none
  };
  net::HttpResponse exchange(const net::HttpRequest& request, std::string_view who);
  std::optional<Refused> obey(const net::HttpRequest& request, std::string_view who,
                              launch::ExchangeOrder& order);
  std::optional<Refused> not_ours(launch::ExchangeOrder& order) const;  // under mutex_
  launch::ExchangeReport report(const launch::ExchangeOrder& order);
  void note_wanted(bool advises, const std::string& pool,
                   autoscaler::GatewayReport& report);  // under mutex_
  net::HttpResponse refuse(const net::HttpRequest& request, std::string_view who,
                           const Refused& refused) const;
  void keep_unknown(launch::ExchangeOrder& order) const;  // under mutex_, as the next
  void apply(const launch::ExchangeOrder& order);
  void audit(const net::HttpRequest& request, std::string_view who,
             const launch::ExchangeOrder& order) const;

  gateway::Gateway& gateway_;
  DemandCount& demand_;
  const base::Clock& clock_;
  std::mutex mutex_;
  launch::OrderFence fence_;  // guarded by mutex_, as the next two
  launch::ExchangeOrder last_;
  // When one that advises has last seen, of these pools, a request that waits, or would not: a
  // report says the latter once, and whoever acts is to hear it too.
  std::map<std::string, int64_t> wanted_ns_;
};

}  // namespace pelton::apps
