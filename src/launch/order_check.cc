#include "launch/order_check.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "net/ip_address.h"
#include "net/url.h"

namespace pelton::launch {
namespace {

using Address = ScaledFleet::Address;

constexpr size_t kShownMax = 100;  // bytes of what somebody else has named

std::string shown(const Address& one) {
  return fmt::format("{} of pool '{}'",
                     net::format_host_port(one.host.substr(0, kShownMax), one.port),
                     one.pool.substr(0, kShownMax));
}

std::optional<OrderFault> check_place(const Address& one, const OrderRules::Pool& pool,
                                      const OrderRules& rules) {
  const auto refused = [&](std::string_view why) {
    return OrderFault{.code = "address_not_allowed",
                      .message = fmt::format("{} {}", shown(one), why)};
  };
  if (!net::is_ip_address(one.host) && !pool.takes_names) {
    return refused("is a name: its pool's replicas have IP addresses");
  }
  if (!rules.may_stand(one.host)) {
    return refused(
        "stands where no worker may: in 'allowed_cidrs', or without these on this machine and in "
        "private networks");
  }
  if (pool.port != 0 && pool.port != one.port) {
    return refused(fmt::format("has another port than its pool's replicas, {}", pool.port));
  }
  return std::nullopt;
}

std::optional<OrderFault> check_launched(const ExchangeOrder& order,
                                         const std::set<Address>& before, const OrderRules& rules) {
  std::set<std::pair<std::string, int>> seen;
  for (const Address& one : order.launched) {
    const auto pool = rules.pools.find(one.pool);
    CHECK(pool != rules.pools.end(), "a foreign pool's replica was left in the order");
    if (auto fault = check_place(one, pool->second, rules)) return fault;
    const bool is_twice = !seen.emplace(one.host, one.port).second;
    // One that is obeyed already stays, whatever the file says meanwhile.
    if (is_twice || (!before.contains(one) && rules.is_declared(one))) {
      return OrderFault{
          .code = "address_taken",
          .message = fmt::format("{} is {} already", shown(one),
                                 is_twice ? "in this order" : "a worker of the configuration's")};
    }
  }
  return std::nullopt;
}

}  // namespace

void leave_out_foreign(ExchangeOrder& order, const OrderRules& rules) {
  for (auto* const some : {&order.launched, &order.draining, &order.released}) {
    std::erase_if(*some, [&](const Address& one) { return !rules.pools.contains(one.pool); });
  }
}

std::optional<OrderFault> check_order(const ExchangeOrder& order,
                                      const std::vector<Address>& before, const OrderRules& rules) {
  std::set<Address> launched(before.begin(), before.end());
  if (auto fault = check_launched(order, launched, rules)) return fault;
  launched.insert(order.launched.begin(), order.launched.end());
  for (const auto* const some : {&order.draining, &order.released}) {
    for (const Address& one : *some) {
      if (launched.contains(one)) continue;
      return OrderFault{
          .code = "address_not_launched",
          .message = fmt::format("{} was not launched by an autoscaler, which is to "
                                 "{}",
                                 shown(one), some == &order.draining ? "drain" : "stand by")};
    }
  }
  return std::nullopt;
}

}  // namespace pelton::launch
