// Which pool a request goes to, by its model, its tenant and the routes of the configuration. Pure.
//
// Of a route's arms one is drawn by weighted rendezvous hashing: each arm has the score
// -weight / ln(u), u in (0, 1) being a hash of the sticky key and the arm, and the highest one has
// the request. So shares are as the weights, one key stays with its arm, and a weight that changes
// moves only as many keys as it must. Which keys' requests are copied to a route's shadow is drawn
// likewise, of the same key. The arm of a roll-out has the weight that makes its share, so that a
// step moves conversations to it only, and one back none but its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "access/api_keys.h"
#include "gateway/config.h"
#include "gateway/media_request.h"

namespace pelton::gateway {

// Who asks: what the configuration says of its tenant holds for it, and what stands beside its key.
struct Asker {
  std::string_view tenant;
  const KeyScope* scope = nullptr;  // null: nothing does
  std::string_view region = {};     // that its request is narrowed to; empty: to none

  static Asker of(const GatewayConfig& config, const access::Principal& principal) {
    const KeyScopes* scopes = config.key_scopes.get();
    return {.tenant = principal.tenant,
            .scope = scopes == nullptr ? nullptr : scopes->of(principal.account)};
  }
};

// Null: there is none of that name.
const PoolConfig* pool_named(const GatewayConfig& config, std::string_view name);

// Whether its requests go to one pool only, by its key or its tenant.
bool is_tied_to_pool(const GatewayConfig& config, const Asker& asker);
// The region that its requests stay in, by its key or its tenant; empty: any.
std::string region_of(const GatewayConfig& config, const Asker& asker);

// Its tenant's share beside others, if the configuration says one; 0: it does not.
double weight_of(const GatewayConfig& config, const Asker& asker);

// What a roll-out's arm has of the conversations of its route, and which arm this one had before.
struct RolloutShare {
  enum class Pin { kNone, kCandidate, kOthers };
  double share = 0;  // 0 to 1
  Pin pin = Pin::kNone;
};

struct RouteKey {
  std::string_view model;  // empty: none is named
  Asker asker;
  std::string_view session;  // by which its conversation is known; empty: by nothing
  std::string_view user;     // whom its client asks for; empty: nobody is named
  std::string_view home;     // a pool: it has what the request goes on from; empty: none has
  uint64_t draw = 0;         // of the request
  // Of a route with a roll-out; else nothing.
  RolloutShare rollout = {};
};

struct RouteChoice {
  // Null: pools have the model, but none of the region that the asker is tied to.
  const PoolConfig* pool = nullptr;
  const RouteConfig* route = nullptr;  // null: no route has it, as the next
  const RouteArm* arm = nullptr;
  bool is_shadowed = false;  // a copy goes to the route's shadow
  // Of a route with a roll-out: its arm was drawn, and it might have been either side's.
  bool is_drawn = false;
};

// The route that has requests for this model; null: none.
const RouteConfig* find_route(const GatewayConfig& config, std::string_view model,
                              const Asker& asker);

// Some pool makes such a thing; and the model that a request for one means which names none: the
// first that the asker may use. Empty: there is none.
bool makes_any(const GatewayConfig& config, MediaKind kind);
std::string media_model(const GatewayConfig& config, const Asker& asker, MediaKind kind);
// None: nobody answers to that model, or the asker may not know of it.
std::optional<RouteChoice> choose_route(const GatewayConfig& config, const RouteKey& key);
// Of the pools that the route falls back to, those that the asker may be sent to and that the
// request does not go to anyhow.
std::vector<std::string> fallback_of(const GatewayConfig& config, const RouteKey& key,
                                     const RouteChoice& choice);
// Whether it may ask for some models only: these it has to name.
bool is_limited_to_models(const GatewayConfig& config, const Asker& asker);
// Whether requests of clients go there, and not only a shadow's copies.
bool is_for_clients(const GatewayConfig& config, const PoolConfig& pool);
// Whether it may ask for it.
bool may_use(const GatewayConfig& config, const Asker& asker, const PoolConfig& pool,
             std::string_view model);

}  // namespace pelton::gateway
