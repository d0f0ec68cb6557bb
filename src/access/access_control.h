// Access control: whose key a request carries, what that key may ask for in a minute and at once,
// and under which salt what is computed for it is cached. Knows no engine: whoever forwards
// requests uses it as whoever computes them. Owned by the server; any thread.
//
// A request that makes a model work gets an AdmissionTicket. What it takes from its key's allowance
// is reserved by an estimate (its prompt, and as many output tokens as answers lately had, at most
// what it asks for) and settled by what it really took when the ticket goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "access/api_keys.h"
#include "access/refusal_counts.h"
#include "admission/rate_limiter.h"
#include "api/error.h"
#include "base/clock.h"
#include "base/result.h"
#include "net/http_message.h"

namespace pelton::access {

class AccessControl;

// One request's. Moves along with it, on its thread; the access control outlives it.
class AdmissionTicket {
 public:
  AdmissionTicket(AdmissionTicket&& other) noexcept;
  AdmissionTicket& operator=(AdmissionTicket&&) = delete;
  ~AdmissionTicket();

  AccessControl& control() const { return *control_; }
  const Principal& principal() const { return principal_; }

  void note_prompt(int64_t tokens) { used_ += tokens; }
  void note_output(int64_t tokens) { used_ += tokens; }
  // One answer is over; what was never scheduled costs nothing.
  struct AnswerEnd {
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
    bool scheduled = false;
    bool complete = false;  // it stopped by itself or by its length: typical of answers
  };
  void note_end(const AnswerEnd& end);

 private:
  friend class AccessControl;
  AdmissionTicket(AccessControl& control, Principal principal);

  AccessControl* control_;  // null: moved from
  Principal principal_;
  int64_t reserved_ = 0;
  int64_t used_ = 0;
};

class AccessControl {
 public:
  // `clock` outlives it. `secret`: of the salts; drawn anew at each start.
  AccessControl(ApiKeys keys, std::string secret, const base::Clock& clock);

  // Who asks; none if a key is asked for and this is not one. Where none is, anybody is the
  // operator.
  struct Credentials {
    std::string_view authorization;  // "Bearer KEY"
    std::string_view api_key;        // KEY; beside the other, the same one
    // One of them comes twice: which one counts, a proxy before us may see otherwise.
    bool repeated = false;
  };
  static Credentials credentials_of(const net::HttpHeaders& headers);
  std::optional<Principal> identify(const Credentials& credentials) const;
  // From the next request on. What keys have used of their limits stays used.
  void replace_keys(ApiKeys keys);

  // What is left of a principal's allowance, as OpenAI's clients read it: x-ratelimit-…; nothing
  // where there is none.
  void add_limits(const Principal& principal, net::HttpHeaders& headers) const;

  // Whose keys have limits, and what those have used.
  struct Use {
    Principal principal;
    admission::RateLimiter::Levels levels;
  };
  std::vector<Use> uses() const;

  // 429 if the key's requests are used up. `refusals`, here and below: those of the model that is
  // asked.
  std::variant<AdmissionTicket, api::ApiError> admit(Principal principal, RefusalCounts& refusals);
  // 429 if the key's tokens are.
  std::optional<api::ApiError> reserve(AdmissionTicket& ticket, int64_t tokens,
                                       RefusalCounts& refusals);
  // It was not served, through no fault of its own: it does not count.
  void refund_request(const Principal& principal);

  // Output tokens of an answer that may have `tokens_max`, judging by those lately.
  int64_t expected_output(int64_t tokens_max) const;

  // An error as it is answered: where there is no room, when to try again. `retry_ns`: when there
  // may be some. The first counts what was refused for lack of room.
  api::ApiError overloaded(const Error& error, RefusalCounts& refusals, RefusalCounts::By by,
                           int64_t retry_ns) const;
  api::ApiError with_retry(const Error& error, int64_t retry_ns) const;

  // What a request's computed prefixes, sampled turns and grammars are kept under: nobody finds
  // those of another tenant, nor those under another of its tenant's own salts, and whoever reads
  // it learns neither. Empty if both are.
  std::string cache_salt(std::string_view tenant, std::string_view of_request) const;

  // Requests that make a model work, from being admitted until their answers are out.
  int64_t inside() const { return inside_.load(std::memory_order_relaxed); }

 private:
  friend class AdmissionTicket;

  int retry_after_s(int64_t ns) const;
  void settle(AdmissionTicket& ticket);

  const base::Clock& clock_;
  const std::string secret_;
  std::atomic<std::shared_ptr<const ApiKeys>> keys_;
  admission::RateLimiter limiter_;
  std::atomic<int64_t> typical_output_{256};  // tokens of an answer, lately
  std::atomic<int64_t> inside_{0};
};

}  // namespace pelton::access
