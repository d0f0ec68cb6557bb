#include "gateway/route_table.h"

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "base/random.h"

namespace pelton::gateway {
namespace {

const TenantConfig* tenant_of(const GatewayConfig& config, std::string_view name) {
  const auto found = std::ranges::find(config.tenants, name, &TenantConfig::name);
  return found == config.tenants.end() ? nullptr : &*found;
}

const PoolConfig* pool_named(const GatewayConfig& config, std::string_view name) {
  const auto found = std::ranges::find(config.pools, name, &PoolConfig::name);
  return found == config.pools.end() ? nullptr : &*found;
}

bool has_model(const PoolConfig& pool, std::string_view model) {
  return std::ranges::find(pool.models, model) != pool.models.end();
}

uint64_t key_hash(const RouteConfig& route, const RouteKey& key) {
  using Sticky = RouteConfig::Sticky;
  if (route.sticky == Sticky::kTenant) return base::fnv1a64(key.tenant);
  if (route.sticky == Sticky::kSession && !key.session.empty()) {
    return base::mix64(base::fnv1a64(key.session) + base::fnv1a64(key.tenant));
  }
  return key.draw;
}

const RouteArm* arm_of(const RouteConfig& route, const RouteKey& key) {
  const uint64_t hash = key_hash(route, key);
  const RouteArm* best = nullptr;
  double best_score = 0;
  for (const RouteArm& arm : route.arms) {
    if (arm.weight == 0) continue;
    const uint64_t bits = base::mix64(hash ^ base::fnv1a64(route.model + "\n" + arm.name));
    const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
    const double score = -arm.weight / std::log(u);
    if (best == nullptr || score > best_score) {
      best = &arm;
      best_score = score;
    }
  }
  return best;
}

}  // namespace

bool may_use(const GatewayConfig& config, std::string_view tenant, const PoolConfig& pool,
             std::string_view model) {
  const TenantConfig* rules = tenant_of(config, tenant);
  if (rules == nullptr) return true;
  if (!rules->pool.empty() && rules->pool != pool.name) return false;
  return rules->models.empty() || std::ranges::find(rules->models, model) != rules->models.end();
}

std::optional<RouteChoice> choose_route(const GatewayConfig& config, const RouteKey& key) {
  // What names no model means the only one; what is no JSON its worker refuses.
  if (key.model.empty()) {
    const bool is_only =
        config.pools.size() == 1 &&
        may_use(config, key.tenant, config.pools.front(), config.pools.front().models.front());
    if (!is_only) return std::nullopt;
    return RouteChoice{.pool = &config.pools.front(), .arm = nullptr};
  }
  const TenantConfig* rules = tenant_of(config, key.tenant);
  const bool is_pinned = rules != nullptr && !rules->pool.empty();
  for (const RouteConfig& route : config.routes) {
    const bool is_its = route.model == key.model &&
                        (route.tenant == "*" || route.tenant == key.tenant) && !is_pinned;
    if (!is_its) continue;
    const RouteArm* arm = arm_of(route, key);
    const PoolConfig* pool = arm == nullptr ? nullptr : pool_named(config, arm->pool);
    if (pool == nullptr || !may_use(config, key.tenant, *pool, key.model)) return std::nullopt;
    return RouteChoice{.pool = pool, .arm = arm};
  }
  for (const PoolConfig& pool : config.pools) {
    if (!has_model(pool, key.model) || !may_use(config, key.tenant, pool, key.model)) continue;
    return RouteChoice{.pool = &pool, .arm = nullptr};
  }
  return std::nullopt;
}

}  // namespace pelton::gateway
