// What each account (an API key) may ask for in a minute, and how much at once. Tokens are reserved
// by an estimate when a request comes and settled by what it really cost when it is over, so an
// account may overdraw by one request's surprise and pays for it before the next is let in.
//
// Knows numbers and names only: a gateway's and a server's are the same. Guards itself; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "admission/token_bucket.h"

namespace pelton::admission {

// 0: no bound.
struct Limits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers
  int concurrent_requests = 0;

  bool any() const {
    return requests_per_minute > 0 || tokens_per_minute > 0 || concurrent_requests > 0;
  }
  bool operator==(const Limits&) const = default;
};

class RateLimiter {
 public:
  enum class Bound { kRequests, kTokens, kConcurrent };

  struct Refusal {
    Bound bound = Bound::kRequests;
    int64_t limit = 0;
    int64_t retry_ns = 0;  // when it would be let in, if nobody else comes; 0: not known
  };

  // One of the two buckets, as the account's owner hears of it.
  struct Level {
    int64_t limit = 0;
    int64_t left = 0;
    int64_t until_full_ns = 0;
  };
  struct Levels {
    std::optional<Level> requests;
    std::optional<Level> tokens;
    int open = 0;  // requests that have entered and not left
  };

  // One request begins: it is counted at once, unless it is refused. `limits` are the account's as
  // of now; a change takes effect at once, what was used stays used. Each request that was let in
  // leaves once.
  std::optional<Refusal> enter(const std::string& account, const Limits& limits, int64_t now_ns);
  void leave(const std::string& account, int64_t now_ns);

  // Of an account that has entered. More than a minute's tokens are let in by a full bucket.
  std::optional<Refusal> reserve(const std::string& account, int64_t tokens, int64_t now_ns);
  void settle(const std::string& account, int64_t reserved, int64_t used, int64_t now_ns);
  // It was not served, through no fault of its own: it does not count.
  void give_back_request(const std::string& account, int64_t now_ns);

  Levels levels(const std::string& account, int64_t now_ns) const;
  size_t account_count() const;

 private:
  // Those that owe nothing are as good as unknown, and are forgotten beyond that.
  static constexpr size_t kAccountsKept = 20'000;

  struct Account {
    std::optional<TokenBucket> requests;
    std::optional<TokenBucket> tokens;
    int open = 0;

    bool owes_nothing(int64_t now_ns) const;
  };

  mutable std::mutex mutex_;
  std::map<std::string, Account, std::less<>> accounts_;
};

}  // namespace pelton::admission
