// Which pool a request goes to, by its model, its tenant and the routes of the configuration. Pure.
//
// Of a route's arms one is drawn by weighted rendezvous hashing: each arm has the score
// -weight / ln(u), u in (0, 1) being a hash of the sticky key and the arm, and the highest one has
// the request. So shares are as the weights, one key stays with its arm, and a weight that changes
// moves only as many keys as it must.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/config.h"

namespace pelton::gateway {

struct RouteKey {
  std::string_view model;  // empty: none is named
  std::string_view tenant;
  std::string_view session;  // as its client calls it; empty: it has none
  uint64_t draw = 0;         // of the request
};

struct RouteChoice {
  const PoolConfig* pool = nullptr;
  const RouteArm* arm = nullptr;  // null: no route has it
};

// None: nobody answers to that model, or the tenant may not know of it.
std::optional<RouteChoice> choose_route(const GatewayConfig& config, const RouteKey& key);
// Whether the tenant may ask for it.
bool may_use(const GatewayConfig& config, std::string_view tenant, const PoolConfig& pool,
             std::string_view model);

}  // namespace pelton::gateway
