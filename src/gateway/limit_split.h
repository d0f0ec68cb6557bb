// How several gateways split each key's limits: every one of them computes the same shares from the
// same demands, and what they add up to is the whole limit. Pure.
//
//   demands 0.9, 0.3, 0 of three gateways -> 0.033 each is kept for who comes next, and of the rest
//   each gets what it wants, or as much as the others where that is too much
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "admission/rate_limiter.h"
#include "base/result.h"

namespace pelton::gateway {

// By account: which part of its limit was asked for lately, 0 to 1.
using LimitDemands = std::map<std::string, double, std::less<>>;

std::string encode(const LimitDemands& demands);
// kInvalidArgument.
Result<LimitDemands> decode_limit_demands(std::string_view text);

// The share of `gateway`, which is one of them; 0 to 1.
using GatewayDemands = std::map<std::string, LimitDemands, std::less<>>;
double limit_share(const GatewayDemands& all, std::string_view gateway, std::string_view account);

// That part of each limit, rounded down, but at least one.
admission::Limits part_of(const admission::Limits& limits, double share);

}  // namespace pelton::gateway
