// The part of gateway::Gateway that draws the arms of routes which are rolled out.
#include <algorithm>

#include "gateway/asked.h"
#include "gateway/gateway.h"

namespace pelton::gateway {

// Who has replicas started when they are asked for is there.
bool Gateway::serves(std::string_view pool) const {
  const Config settings = config();
  const PoolConfig* const found = pool_named(settings->config, pool);
  if (found == nullptr) return false;
  return found->scaling.has_value() || fleet_.serves(*found);
}

Rollouts::Draw Gateway::draw_rollout(const RouteConfig* route, const RouteKey& key) {
  if (route == nullptr || !route->rollout) return {};
  using Sticky = RouteConfig::Sticky;
  std::string_view stays;
  if (route->sticky == Sticky::kSession) stays = key.session;
  if (route->sticky == Sticky::kUser) stays = key.user;
  if (route->sticky == Sticky::kTenant) stays = key.asker.tenant;
  return rollouts_.draw(*route, key.asker.tenant, stays);
}

// What is asked for by its id is where it is, whatever was drawn.
std::unique_ptr<RolloutTicket> Gateway::begin_rollout(const net::HttpRequest& request,
                                                      const RouteChoice& choice,
                                                      const Rollouts::Draw& draw) {
  if (!choice.is_drawn || !choice.route->rollout || asked_by_id(request)) return nullptr;
  const bool is_candidate = choice.route->is_rolled_out(*choice.arm);
  return rollouts_.begin(*choice.route, draw,
                         is_candidate ? ArmSide::kCandidate : ArmSide::kOthers);
}

}  // namespace pelton::gateway
