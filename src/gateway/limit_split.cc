#include "gateway/limit_split.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr double kKept = 0.1;  // of the limit, in equal parts, whoever asks for nothing
constexpr size_t kAccountsMax = 10'000;
constexpr size_t kNameMax = 128;

double demand_of(const LimitDemands& demands, std::string_view account) {
  const auto found = demands.find(account);
  return found == demands.end() ? 0 : found->second;
}

}  // namespace

std::string encode(const LimitDemands& demands) {
  std::string out;
  base::JsonWriter w(out);
  w.begin_object().key("accounts").begin_object();
  for (const auto& [account, demand] : demands) w.key(account).number(demand);
  w.end_object().end_object();
  return out;
}

Result<LimitDemands> decode_limit_demands(std::string_view text) {
  TRY_ASSIGN(const Json json, Json::parse(text));
  const Json* accounts = json.find("accounts");
  if (accounts == nullptr || !accounts->is_object()) {
    return Error{ErrorCode::kInvalidArgument, "'accounts' is missing", "accounts"};
  }
  LimitDemands demands;
  for (const Json::Member& member : accounts->as_object()) {
    const bool is_one =
        member.value.is_number() && member.key.size() <= kNameMax && demands.size() < kAccountsMax;
    if (!is_one) {
      return Error{ErrorCode::kInvalidArgument, "'accounts' holds no demand", "accounts"};
    }
    demands[member.key] = std::clamp(member.value.as_number(), 0.0, 1.0);
  }
  return demands;
}

double limit_share(const GatewayDemands& all, std::string_view gateway, std::string_view account) {
  if (all.empty()) return 1;
  const auto count = static_cast<double>(all.size());
  const double kept = kKept / count;
  std::vector<double> wanted;
  double own = 0;
  for (const auto& [name, demands] : all) {
    wanted.push_back(std::max(demand_of(demands, account) - kept, 0.0));
    if (name == gateway) own = wanted.back();
  }
  // Water-filling: whoever wants less than an equal part of what is left has all of it.
  std::ranges::sort(wanted);
  double left = 1 - kKept;
  double level = left;
  for (size_t i = 0; i < wanted.size(); ++i) {
    level = left / static_cast<double>(wanted.size() - i);
    if (wanted[i] > level) return kept + std::min(own, level);
    left -= wanted[i];
  }
  return kept + own + left / count;
}

admission::Limits part_of(const admission::Limits& limits, double share) {
  const auto part = [&](int64_t limit) -> int64_t {
    if (limit == 0) return 0;  // no bound
    return std::max<int64_t>(
        static_cast<int64_t>(std::floor(static_cast<double>(limit) * share + 1e-9)), 1);
  };
  return {.requests_per_minute = part(limits.requests_per_minute),
          .tokens_per_minute = part(limits.tokens_per_minute),
          .concurrent_requests = static_cast<int>(part(limits.concurrent_requests))};
}

}  // namespace pelton::gateway
