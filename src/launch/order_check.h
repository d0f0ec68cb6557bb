// Whether an autoscaler's order is about replicas that it can have launched: each stands where a
// pool's may, is nobody else's, and only what was launched is drained or put on standby. A key that
// gives orders could otherwise send requests, and the keys in them, anywhere, or drain workers that
// an operator has declared. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/exchange.h"

namespace pelton::launch {

// What the gateway's configuration says.
struct OrderRules {
  struct Pool {
    bool takes_names = true;  // its replicas may be called by their machine's name
    int port = 0;             // of each of them; 0: any
  };
  std::map<std::string, Pool, std::less<>> pools;  // those with [pool.scale]
  // Where a worker may stand, by its IP address, or by a name.
  std::function<bool(const std::string& address)> may_stand;
  std::function<bool(const ScaledFleet::Address& address)> is_declared;  // a worker of the file's
};

// Takes replicas of pools that have no [pool.scale] here out of the order: their workers are not an
// autoscaler's. What it says of others stands, as its file may have been read before or after this
// one.
void leave_out_foreign(ExchangeOrder& order, const OrderRules& rules);

struct OrderFault {
  std::string_view code;  // "address_not_launched", for programs
  std::string message;
};
// `before`: what the last order that was obeyed has launched. Of no foreign pools any more. None:
// it may be obeyed.
std::optional<OrderFault> check_order(const ExchangeOrder& order,
                                      const std::vector<ScaledFleet::Address>& before,
                                      const OrderRules& rules);

}  // namespace pelton::launch
