#include "gateway/limit_shares.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"

namespace pelton::gateway {
namespace {

constexpr size_t kNameBytes = 32;
constexpr size_t kAccountsMax = 10'000;
constexpr double kLeast = 0.01;  // what asks for less is left out
constexpr double kFades = 0.5;   // of the demand before, at each turn

}  // namespace

LimitShares::LimitShares(Options options, base::Log& log)
    : options_(std::move(options)),
      log_(log),
      client_(options_.etcd),
      thread_({.name = "pelton-limits", .interval = options_.interval}, [this] { turn(); }) {}

LimitShares::~LimitShares() {
  client_.cancel();
}

std::string LimitShares::name_of(const access::Principal& principal) const {
  return base::hmac_sha256(options_.secret, principal.account).substr(0, kNameBytes);
}

admission::Limits LimitShares::limits_for(const access::Principal& principal) {
  const std::string name = name_of(principal);
  std::lock_guard lock(mutex_);
  if (asked_.size() < kAccountsMax || asked_.contains(name)) {
    Asked& asked = asked_[name];
    asked.limits = principal.limits;
    ++asked.requests;
  }
  return part_of(principal.limits, limit_share(all_, options_.gateway, name));
}

admission::Limits LimitShares::part_of_limits(const access::Principal& principal) const {
  const std::string name = name_of(principal);
  std::lock_guard lock(mutex_);
  return part_of(principal.limits, limit_share(all_, options_.gateway, name));
}

void LimitShares::note_tokens(const access::Principal& principal, int64_t tokens) {
  const std::string name = name_of(principal);
  std::lock_guard lock(mutex_);
  const auto found = asked_.find(name);
  if (found != asked_.end()) found->second.tokens += tokens;
}

LimitShares::Counts LimitShares::counts() const {
  std::lock_guard lock(mutex_);
  return {.gateways = all_.size(), .failures = failures_};
}

// Which part of its limits each key asked for, by the one that it asked most of; refused or not.
LimitDemands LimitShares::take_demands() {
  std::map<std::string, Asked> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(asked_);
  }
  const double per_minute = 60.0 / static_cast<double>(options_.interval.count());
  LimitDemands demands;
  for (const auto& [name, before] : demands_) demands[name] = before * kFades;
  for (const auto& [name, one] : asked) {
    const auto part = [](double wanted, int64_t limit) {
      return limit == 0 ? 0.0 : wanted / static_cast<double>(limit);
    };
    const auto requests = static_cast<double>(one.requests);
    const double wanted =
        std::max({part(requests * per_minute, one.limits.requests_per_minute),
                  part(static_cast<double>(one.tokens) * per_minute, one.limits.tokens_per_minute),
                  part(requests, one.limits.concurrent_requests)});
    demands[name] = std::min(std::max(demands[name], wanted), 1.0);
  }
  std::erase_if(demands, [](const auto& one) { return one.second < kLeast; });
  return demands;
}

void LimitShares::turn() {
  const Result<void> done = exchange();
  if (!done.ok()) {
    std::lock_guard lock(mutex_);
    ++failures_;
  }
  if (done.ok() == !is_logged_) return;
  is_logged_ = !done.ok();
  if (done.ok()) {
    log_.info("limits of keys are shared with other gateways again");
  } else {
    log_.warning("limits of keys stay as they were shared: " + done.error().message);
  }
}

Result<void> LimitShares::exchange() {
  LimitDemands fresh = take_demands();
  const LimitDemands before = std::exchange(demands_, std::move(fresh));
  if (lease_ != 0 && !client_.renew(lease_).ok()) lease_ = 0;
  if (lease_ == 0) {
    TRY_ASSIGN(lease_, client_.grant(options_.lease));
  }
  const std::string folder = options_.prefix + "/limits/";
  TRY(client_.put(folder + options_.gateway, encode(demands_), lease_));
  TRY_ASSIGN(const cluster::EtcdClient::Snapshot seen, client_.range(folder));
  GatewayDemands all;
  for (const cluster::EtcdClient::Entry& entry : seen.entries) {
    Result<LimitDemands> demands = decode_limit_demands(entry.value);
    all[entry.key.substr(folder.size())] = demands.ok() ? *std::move(demands) : LimitDemands();
  }
  // Its own counts a turn later than others hear of it: by then they have said theirs, so that two
  // who are asked for more at once do not both take it.
  all[options_.gateway] = before;
  std::lock_guard lock(mutex_);
  all_ = std::move(all);
  return {};
}

}  // namespace pelton::gateway
