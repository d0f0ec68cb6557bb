#include "gateway/fixed_pools.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pelton::gateway {
namespace {

const PoolConfig* find_pool(const GatewayConfig& config, std::string_view name) {
  const auto found = std::ranges::find(config.pools, name, &PoolConfig::name);
  return found == config.pools.end() ? nullptr : &*found;
}

Error takes_new_start(std::string_view what) {
  return {ErrorCode::kBadConfig,
          fmt::format("{}; pools with [pool.scale] come, go and change their names and models with "
                      "a new start of the gateway",
                      what),
          "pool"};
}

}  // namespace

Result<void> check_fixed_pools(const GatewayConfig& in_force, const GatewayConfig& fresh) {
  for (const PoolConfig& pool : in_force.pools) {
    if (!pool.scaling) continue;
    const PoolConfig* const now = find_pool(fresh, pool.name);
    if (now == nullptr) {
      return takes_new_start(fmt::format(
          "[[pool]]: pool '{}' is scaled, and the file has none of this name any more", pool.name));
    }
    // A Deployment says how its pods are called, and they are found through its Service.
    const bool names_replicas = pool.scaling->launch && !pool.scaling->launch->serve.empty() &&
                                pool.kubernetes_service.empty();
    if (names_replicas && now->models != pool.models) {
      return takes_new_start(fmt::format(
          "[[pool]]: replicas of pool '{}' are called '{}', and its 'model' is '{}' now", pool.name,
          fmt::join(pool.models, "', '"), fmt::join(now->models, "', '")));
    }
  }
  for (const PoolConfig& pool : fresh.pools) {
    if (!pool.scaling || find_pool(in_force, pool.name) != nullptr) continue;
    return takes_new_start(fmt::format("{}: [[pool]]: pool '{}' is new, and has [pool.scale]",
                                       pool.scaling->place, pool.name));
  }
  return {};
}

}  // namespace pelton::gateway
