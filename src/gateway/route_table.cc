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

bool has_model(const PoolConfig& pool, std::string_view model) {
  return std::ranges::find(pool.models, model) != pool.models.end();
}

// Empty, or the same.
bool is_or_any(const std::string& wanted, const std::string& name) {
  return wanted.empty() || wanted == name;
}

bool has_or_any(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

// It may know of the model there, wherever that stands.
bool may_know(const GatewayConfig& config, const Asker& asker, const PoolConfig& pool,
              std::string_view model) {
  const KeyScope* scope = asker.scope;
  if (scope != nullptr &&
      !(is_or_any(scope->pool, pool.name) && has_or_any(scope->models, model))) {
    return false;
  }
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  return rules == nullptr ||
         (is_or_any(rules->pool, pool.name) && has_or_any(rules->models, model));
}

bool is_in_reach(const GatewayConfig& config, const Asker& asker, const PoolConfig& pool) {
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  const std::string of_tenant = rules == nullptr ? std::string() : rules->region;
  const std::string of_key = asker.scope == nullptr ? std::string() : asker.scope->region;
  const std::string narrowed(asker.region);
  // Its gateway there stands for a worker of each pool.
  const auto is_there = [&](const std::string& region) {
    return is_or_any(region, pool.region) || config.regions.has(region);
  };
  if (pool.region == PoolConfig::kRegionOfWorker) {
    return is_or_any(of_tenant, of_key) || of_key.empty();
  }
  const bool both_hold = is_or_any(of_tenant, of_key) || of_key.empty();
  return both_hold && is_there(of_tenant) && is_there(of_key) && is_there(narrowed);
}

uint64_t key_hash(const RouteConfig& route, const RouteKey& key) {
  using Sticky = RouteConfig::Sticky;
  const uint64_t tenant = base::fnv1a64(key.asker.tenant);
  if (route.sticky == Sticky::kTenant) return tenant;
  std::string_view name;
  if (route.sticky == Sticky::kSession) name = key.session;
  if (route.sticky == Sticky::kUser) name = key.user;
  return name.empty() ? key.draw : base::mix64(base::fnv1a64(name) + tenant);
}

// In (0, 1), of the key and of what is drawn for.
double unit_of(uint64_t hash, const std::string& purpose) {
  const uint64_t bits = base::mix64(hash ^ base::fnv1a64(purpose));
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

bool is_shadowed(const GatewayConfig& config, const RouteConfig& route, const RouteKey& key) {
  if (!route.shadow) return false;
  const PoolConfig* pool = pool_named(config, route.shadow->pool);
  if (pool == nullptr || !may_use(config, key.asker, *pool, key.model)) return false;
  const std::string purpose = route.model + "\nshadow of\n" + route.shadow->pool;
  return unit_of(key_hash(route, key), purpose) < route.shadow->share;
}

// Of a route, for one request.
struct DrawnArm {
  const RouteArm* arm = nullptr;
  bool is_drawn = false;
};

// The weight of the arm that is rolled out, beside others of which `others` is the sum.
double rolled_out_weight(const RolloutShare& rollout, double others) {
  if (rollout.share >= 1) return INFINITY;
  const bool is_elsewhere = rollout.pin == RolloutShare::Pin::kOthers;
  if (rollout.share <= 0 || is_elsewhere) return 0;
  if (rollout.pin == RolloutShare::Pin::kCandidate) return INFINITY;
  return others * rollout.share / (1 - rollout.share);
}

// Of those that the asker may be sent to.
DrawnArm arm_of(const GatewayConfig& config, const RouteConfig& route, const RouteKey& key) {
  std::vector<const RouteArm*> its;
  double others = 0;
  const RouteArm* candidate = nullptr;
  for (const RouteArm& arm : route.arms) {
    const PoolConfig* pool = pool_named(config, arm.pool);
    if (pool == nullptr || !may_use(config, key.asker, *pool, key.model)) continue;
    if (!key.home.empty() && arm.pool == key.home) return {.arm = &arm};
    its.push_back(&arm);
    if (route.is_rolled_out(arm)) {
      candidate = &arm;
    } else {
      others += arm.weight;
    }
  }
  const uint64_t hash = key_hash(route, key);
  DrawnArm best{.is_drawn = candidate != nullptr && others > 0};
  double best_score = 0;
  for (const RouteArm* arm : its) {
    const double weight = arm == candidate ? rolled_out_weight(key.rollout, others) : arm->weight;
    if (weight == 0) continue;
    const double score = -weight / std::log(unit_of(hash, route.model + "\n" + arm->name));
    if (best.arm == nullptr || score > best_score) {
      best.arm = arm;
      best_score = score;
    }
  }
  return best;
}

}  // namespace

const PoolConfig* pool_named(const GatewayConfig& config, std::string_view name) {
  const auto found = std::ranges::find(config.pools, name, &PoolConfig::name);
  return found == config.pools.end() ? nullptr : &*found;
}

bool is_tied_to_pool(const GatewayConfig& config, const Asker& asker) {
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  return (rules != nullptr && !rules->pool.empty()) ||
         (asker.scope != nullptr && !asker.scope->pool.empty());
}

bool may_use(const GatewayConfig& config, const Asker& asker, const PoolConfig& pool,
             std::string_view model) {
  return may_know(config, asker, pool, model) && is_in_reach(config, asker, pool);
}

std::string region_of(const GatewayConfig& config, const Asker& asker) {
  if (!asker.region.empty()) return std::string(asker.region);
  if (asker.scope != nullptr && !asker.scope->region.empty()) return asker.scope->region;
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  return rules == nullptr ? std::string() : rules->region;
}

double weight_of(const GatewayConfig& config, const Asker& asker) {
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  return rules == nullptr ? 0 : rules->weight;
}

std::vector<std::string> fallback_of(const GatewayConfig& config, const RouteKey& key,
                                     const RouteChoice& choice) {
  std::vector<std::string> pools;
  if (choice.route == nullptr || choice.pool == nullptr) return pools;
  for (const std::string& name : choice.route->fallback) {
    const PoolConfig* pool = pool_named(config, name);
    if (pool == nullptr || pool == choice.pool || !may_use(config, key.asker, *pool, key.model)) {
      continue;
    }
    pools.push_back(name);
  }
  return pools;
}

bool is_limited_to_models(const GatewayConfig& config, const Asker& asker) {
  const TenantConfig* rules = tenant_of(config, asker.tenant);
  return (rules != nullptr && !rules->models.empty()) ||
         (asker.scope != nullptr && !asker.scope->models.empty());
}

bool makes_any(const GatewayConfig& config, MediaKind kind) {
  return std::ranges::any_of(config.pools,
                             [&](const PoolConfig& pool) { return makes(pool.media, kind); });
}

std::string media_model(const GatewayConfig& config, const Asker& asker, MediaKind kind) {
  for (const PoolConfig& pool : config.pools) {
    if (!makes(pool.media, kind)) continue;
    const auto may = [&](const std::string& model) { return may_use(config, asker, pool, model); };
    const auto model = std::ranges::find_if(pool.models, may);
    if (model != pool.models.end()) return *model;
  }
  return "";
}

bool is_for_clients(const GatewayConfig& config, const PoolConfig& pool) {
  bool is_shadow = false;
  for (const RouteConfig& route : config.routes) {
    is_shadow = is_shadow || (route.shadow && route.shadow->pool == pool.name);
    const auto arm = std::ranges::find(route.arms, pool.name, &RouteArm::pool);
    const bool has_some = arm != route.arms.end() && (arm->weight > 0 || route.is_rolled_out(*arm));
    if (has_some) return true;
  }
  const auto is_routed = [&](const std::string& model) {
    return std::ranges::find(config.routes, model, &RouteConfig::model) != config.routes.end();
  };
  return !is_shadow || !std::ranges::all_of(pool.models, is_routed) ||
         std::ranges::find(config.tenants, pool.name, &TenantConfig::pool) != config.tenants.end();
}

const RouteConfig* find_route(const GatewayConfig& config, std::string_view model,
                              const Asker& asker) {
  if (is_tied_to_pool(config, asker)) return nullptr;
  const auto found = std::ranges::find_if(config.routes, [&](const RouteConfig& route) {
    return route.model == model && (route.tenant == "*" || route.tenant == asker.tenant);
  });
  return found == config.routes.end() ? nullptr : &*found;
}

std::optional<RouteChoice> choose_route(const GatewayConfig& config, const RouteKey& key) {
  // What names no model means the only one: which that is of several its worker says, so that only
  // those may leave it open who may use all of them.
  if (key.model.empty()) {
    const auto may = [&](const std::string& model) {
      return may_use(config, key.asker, config.pools.front(), model);
    };
    const bool is_only =
        config.pools.size() == 1 && std::ranges::all_of(config.pools.front().models, may);
    if (!is_only) return std::nullopt;
    return RouteChoice{.pool = &config.pools.front()};
  }
  if (const RouteConfig* route = find_route(config, key.model, key.asker)) {
    if (const DrawnArm drawn = arm_of(config, *route, key); drawn.arm != nullptr) {
      return RouteChoice{.pool = pool_named(config, drawn.arm->pool),
                         .route = route,
                         .arm = drawn.arm,
                         .is_shadowed = is_shadowed(config, *route, key),
                         .is_drawn = drawn.is_drawn};
    }
    const bool is_known = std::ranges::any_of(route->arms, [&](const RouteArm& arm) {
      const PoolConfig* pool = pool_named(config, arm.pool);
      return arm.weight > 0 && pool != nullptr && may_know(config, key.asker, *pool, key.model);
    });
    return is_known ? std::optional(RouteChoice{}) : std::nullopt;
  }
  bool is_known = false;
  for (const PoolConfig& pool : config.pools) {
    if (!has_model(pool, key.model) || !may_know(config, key.asker, pool, key.model)) continue;
    is_known = true;
    if (is_in_reach(config, key.asker, pool)) return RouteChoice{.pool = &pool};
  }
  return is_known ? std::optional(RouteChoice{}) : std::nullopt;
}

}  // namespace pelton::gateway
