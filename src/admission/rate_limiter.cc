#include "admission/rate_limiter.h"

#include "base/check.h"

namespace pelton::admission {
namespace {

void adjust(std::optional<TokenBucket>& bucket, int64_t per_minute, int64_t now_ns) {
  if (per_minute == 0) {
    bucket.reset();
  } else if (!bucket) {
    bucket.emplace(per_minute, now_ns);
  } else if (bucket->per_minute() != per_minute) {
    bucket->change(per_minute, now_ns);
  }
}

std::optional<RateLimiter::Level> level_of(const std::optional<TokenBucket>& bucket,
                                           int64_t now_ns) {
  if (!bucket) return std::nullopt;
  return RateLimiter::Level{.limit = bucket->per_minute(),
                            .left = bucket->left(now_ns),
                            .until_full_ns = bucket->until_full_ns(now_ns)};
}

}  // namespace

bool RateLimiter::Account::owes_nothing(int64_t now_ns) const {
  const auto is_full = [&](const std::optional<TokenBucket>& bucket) {
    return !bucket || bucket->until_full_ns(now_ns) == 0;
  };
  return open == 0 && is_full(requests) && is_full(tokens);
}

std::optional<RateLimiter::Refusal> RateLimiter::enter(const std::string& account,
                                                       const Limits& limits, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (accounts_.size() >= kAccountsKept) {
    std::erase_if(accounts_, [&](const auto& entry) { return entry.second.owes_nothing(now_ns); });
  }
  Account& one = accounts_[account];
  adjust(one.requests, limits.requests_per_minute, now_ns);
  adjust(one.tokens, limits.tokens_per_minute, now_ns);
  if (limits.concurrent_requests > 0 && one.open >= limits.concurrent_requests) {
    return Refusal{.bound = Bound::kConcurrent, .limit = limits.concurrent_requests};
  }
  if (one.requests) {
    const int64_t wait_ns = one.requests->wait_ns(1, now_ns);
    if (wait_ns > 0) {
      return Refusal{
          .bound = Bound::kRequests, .limit = limits.requests_per_minute, .retry_ns = wait_ns};
    }
    one.requests->take(1, now_ns);
  }
  ++one.open;
  return std::nullopt;
}

void RateLimiter::leave(const std::string& account, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(account);
  CHECK(found != accounts_.end() && found->second.open > 0, "a request left that had not entered");
  --found->second.open;
  if (found->second.owes_nothing(now_ns)) accounts_.erase(found);
}

std::optional<RateLimiter::Refusal> RateLimiter::reserve(const std::string& account, int64_t tokens,
                                                         int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(account);
  CHECK(found != accounts_.end() && found->second.open > 0, "tokens for a request not let in");
  std::optional<TokenBucket>& bucket = found->second.tokens;
  if (!bucket) return std::nullopt;
  const int64_t wait_ns = bucket->wait_ns(tokens, now_ns);
  if (wait_ns > 0) {
    return Refusal{.bound = Bound::kTokens, .limit = bucket->per_minute(), .retry_ns = wait_ns};
  }
  bucket->take(tokens, now_ns);
  return std::nullopt;
}

// The limits may have changed meanwhile, so a bucket that was there may be gone, and the other way
// round: then the debt of this request is forgiven, or taken whole.
void RateLimiter::settle(const std::string& account, int64_t reserved, int64_t used,
                         int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(account);
  CHECK(found != accounts_.end(), "settling with an account that is not there");
  std::optional<TokenBucket>& bucket = found->second.tokens;
  if (!bucket) return;
  if (used > reserved) bucket->take(used - reserved, now_ns);
  if (used < reserved) bucket->give_back(reserved - used, now_ns);
}

void RateLimiter::give_back_request(const std::string& account, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(account);
  if (found != accounts_.end() && found->second.requests) {
    found->second.requests->give_back(1, now_ns);
  }
}

RateLimiter::Levels RateLimiter::levels(const std::string& account, int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  const auto found = accounts_.find(account);
  if (found == accounts_.end()) return {};
  return {.requests = level_of(found->second.requests, now_ns),
          .tokens = level_of(found->second.tokens, now_ns),
          .open = found->second.open};
}

size_t RateLimiter::account_count() const {
  const std::lock_guard lock(mutex_);
  return accounts_.size();
}

}  // namespace pelton::admission
