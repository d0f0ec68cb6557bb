// The part of gateway::Gateway that its operators' console asks: numbers, whose key is an
// operator's, and commands to workers.
#include "gateway/gateway.h"
#include "gateway/key_scopes.h"

namespace pelton::gateway {

FleetSampler::Sums Gateway::sums() const {
  FleetSampler::Sums sums{.open = counters_.open,
                          .waiting = counters_.figures.waiting(),
                          .retries = counters_.figures.retries(),
                          .moves = counters_.figures.moves(),
                          .interrupted = counters_.interrupted,
                          .unserved = counters_.unserved,
                          .ended = counters_.figures.ended()};
  for (const auto& [pool, gate] : gates()) sums.held[pool] = gate->counts().held;
  return sums;
}

bool Gateway::has_operators() const {
  const Config settings = config();
  return settings->config.key_scopes != nullptr && settings->config.key_scopes->has_operators();
}

std::optional<access::Principal> Gateway::operator_of(std::string_view key) const {
  if (!has_operators()) return std::nullopt;  // where no key is asked for, anybody would be one
  std::optional<access::Principal> found =
      access_control_.identify({.authorization = {}, .api_key = key});
  if (!found || !found->is_admin) return std::nullopt;
  return found;
}

bool Gateway::is_operator(const std::string& account) const {
  const Config settings = config();
  if (settings->config.key_scopes == nullptr) return false;
  const KeyScope* scope = settings->config.key_scopes->of(account);
  return scope != nullptr && scope->is_operator;
}

bool Gateway::command(std::string_view worker, Fleet::Command command) {
  return fleet_.command(worker, command);
}

}  // namespace pelton::gateway
