// What an autoscaler that is a process of its own and a gateway exchange over the gateway's
// admin listener. The autoscaler sends all that is in force, each time; the gateway answers with
// what it knows: so one that is lost, or a gateway that was started anew, costs nothing.
//
//   POST /v1/autoscaler/exchange            an order, answered by a report
//   GET  /v1/autoscaler/demand?after=N&wait_ms=M   answered when more than N requests have come
//   that
//                                           no replica takes, or after M ms: {"count": 17}
//
// `epoch` fences: a gateway that has heard a newer autoscaler refuses the older one (409). An order
// of whoever only advises is none: it is answered, whoever else is obeyed. Text in, values out, and
// the reverse; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autoscaler/pool_announcement.h"
#include "autoscaler/pool_facts.h"
#include "launch/fleet_scaler.h"

namespace pelton::launch {

struct ExchangeOrder {
  struct Pool {
    std::string name;
    uint64_t retirement = 0;
    autoscaler::PoolAnnouncement announcement;

    bool operator==(const Pool&) const = default;
  };
  uint64_t epoch = 0;
  bool advises = false;  // only: the report is asked for, and nothing is ordered
  std::vector<ScaledFleet::Address> launched;
  std::vector<ScaledFleet::Address> draining;  // of those
  std::vector<ScaledFleet::Address> released;  // of those: they stand by, without a KV cache
  // Pools of which it is not known yet what was launched: what an earlier order said stands.
  std::vector<std::string> unknown;
  std::vector<Pool> pools;

  bool operator==(const ExchangeOrder&) const = default;
};
std::string order_body(const ExchangeOrder& order);
// Errors: kInvalidArgument.
Result<ExchangeOrder> parse_order_body(std::string_view body);

struct ExchangeReport {
  struct Pool {
    std::string name;
    // None: the gateway does not scale it, and has left its replicas out of the order.
    std::optional<autoscaler::GatewayReport> report;
    std::vector<ScaledFleet::Worker> workers;
  };
  std::vector<Pool> pools;
};
std::string report_body(const ExchangeReport& report);
Result<ExchangeReport> parse_report_body(std::string_view body);

}  // namespace pelton::launch
