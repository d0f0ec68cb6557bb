#include "access/access_control.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/random.h"

namespace pelton::access {
namespace {

using admission::RateLimiter;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kRetryMsLeast = 1'000;
constexpr int64_t kRetryMsMost = 120'000;

// As OpenAI writes them: "1m30s", "20ms".
std::string duration(int64_t ns) {
  const int64_t ms = (ns + kMs - 1) / kMs;
  if (ms < 1000) return fmt::format("{}ms", ms);
  const int64_t seconds = (ms + 999) / 1000;
  if (seconds < 60) return fmt::format("{}s", seconds);
  return fmt::format("{}m{}s", seconds / 60, seconds % 60);
}

std::string_view unit(RateLimiter::Bound bound) {
  switch (bound) {
    case RateLimiter::Bound::kRequests:
      return "requests per minute";
    case RateLimiter::Bound::kTokens:
      return "tokens per minute";
    case RateLimiter::Bound::kConcurrent:
      break;
  }
  return "requests at once";
}

// KEY of "Bearer KEY"; empty: it is something else.
std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer = authorization.size() >= kBearer.size() &&
                      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(),
                                 [](char a, char b) { return a == (b | 0x20); });
  return bearer ? authorization.substr(kBearer.size()) : std::string_view();
}

api::ApiError rate_limited(const RateLimiter::Refusal& refusal, RefusalCounts& refusals) {
  using By = RefusalCounts::By;
  refusals.count(refusal.bound == RateLimiter::Bound::kRequests ? By::kRequests
                 : refusal.bound == RateLimiter::Bound::kTokens ? By::kTokens
                                                                : By::kConcurrent);
  const std::string when =
      refusal.retry_ns == 0 ? "when one of them has ended" : "in " + duration(refusal.retry_ns);
  const int64_t ms = std::max<int64_t>((refusal.retry_ns + kMs - 1) / kMs, 1);
  return {.status = 429,
          .message = fmt::format("Rate limit reached: this key may ask for {} {}; try again {}",
                                 refusal.limit, unit(refusal.bound), when),
          .type = "rate_limit_error",
          .param = {},
          .code = "rate_limit_exceeded",
          .retry_after_s = static_cast<int>((ms + 999) / 1000)};
}

}  // namespace

AdmissionTicket::AdmissionTicket(AccessControl& control, Principal principal)
    : control_(&control), principal_(std::move(principal)) {
  control.inside_.fetch_add(1, std::memory_order_relaxed);
}

AdmissionTicket::AdmissionTicket(AdmissionTicket&& other) noexcept
    : control_(std::exchange(other.control_, nullptr)),
      principal_(std::move(other.principal_)),
      reserved_(other.reserved_),
      used_(other.used_) {}

AdmissionTicket::~AdmissionTicket() {
  if (control_ == nullptr) return;
  control_->settle(*this);
  control_->inside_.fetch_sub(1, std::memory_order_relaxed);
}

void AdmissionTicket::note_end(const AnswerEnd& end) {
  if (!end.scheduled) used_ = std::max<int64_t>(used_ - end.prompt_tokens, 0);
  if (!end.complete) return;
  // Two at once may lose one's share: it is an estimate.
  const int64_t typical = control_->typical_output_.load(std::memory_order_relaxed);
  control_->typical_output_.store(typical + (end.output_tokens - typical) / 16,
                                  std::memory_order_relaxed);
}

void AccessControl::add_limits(const Principal& principal, net::HttpHeaders& headers) const {
  if (!principal.limits.any()) return;
  const RateLimiter::Levels levels = limiter_.levels(principal.account, clock_.now_ns());
  const auto add = [&](std::string_view what, const std::optional<RateLimiter::Level>& level) {
    if (!level) return;
    headers.add(fmt::format("x-ratelimit-limit-{}", what), std::to_string(level->limit));
    headers.add(fmt::format("x-ratelimit-remaining-{}", what), std::to_string(level->left));
    headers.add(fmt::format("x-ratelimit-reset-{}", what), duration(level->until_full_ns));
  };
  add("requests", levels.requests);
  add("tokens", levels.tokens);
}

std::vector<AccessControl::Use> AccessControl::uses() const {
  std::vector<Use> all;
  const int64_t now_ns = clock_.now_ns();
  for (Principal& one : keys_.load()->limited()) {
    RateLimiter::Levels levels = limiter_.levels(one.account, now_ns);
    all.push_back({.principal = std::move(one), .levels = std::move(levels)});
  }
  return all;
}

AccessControl::AccessControl(ApiKeys keys, std::string secret, const base::Clock& clock)
    : clock_(clock),
      secret_(std::move(secret)),
      keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}

AccessControl::Credentials AccessControl::credentials_of(const net::HttpHeaders& headers) {
  return {.authorization = headers.get("Authorization"),
          .api_key = headers.get("x-api-key"),
          .repeated = headers.count("Authorization") > 1 || headers.count("x-api-key") > 1};
}

std::optional<Principal> AccessControl::identify(const Credentials& credentials) const {
  const std::shared_ptr<const ApiKeys> keys = keys_.load();
  if (keys->empty()) return Principal{.is_admin = true};
  if (credentials.repeated) return std::nullopt;
  std::string_view key = credentials.api_key;
  if (!credentials.authorization.empty()) {
    const std::string_view bearer = bearer_key(credentials.authorization);
    if (!key.empty() && key != bearer) return std::nullopt;
    key = bearer;
  }
  const Principal* found = key.empty() ? nullptr : keys->principal_of(key);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

void AccessControl::replace_keys(ApiKeys keys) {
  keys_.store(std::make_shared<const ApiKeys>(std::move(keys)));
}

std::variant<AdmissionTicket, api::ApiError> AccessControl::admit(Principal principal,
                                                                  RefusalCounts& refusals) {
  if (!principal.account.empty()) {
    const auto refusal = limiter_.enter(principal.account, principal.limits, clock_.now_ns());
    if (refusal) return rate_limited(*refusal, refusals);
  }
  return AdmissionTicket(*this, std::move(principal));
}

std::optional<api::ApiError> AccessControl::reserve(AdmissionTicket& ticket, int64_t tokens,
                                                    RefusalCounts& refusals) {
  if (ticket.principal_.account.empty()) return std::nullopt;
  const auto refusal = limiter_.reserve(ticket.principal_.account, tokens, clock_.now_ns());
  if (refusal) return rate_limited(*refusal, refusals);
  ticket.reserved_ += tokens;
  return std::nullopt;
}

void AccessControl::refund_request(const Principal& principal) {
  limiter_.give_back_request(principal.account, clock_.now_ns());
}

int64_t AccessControl::expected_output(int64_t tokens_max) const {
  return std::min(tokens_max, typical_output_.load());
}

void AccessControl::settle(AdmissionTicket& ticket) {
  const std::string& account = ticket.principal_.account;
  if (account.empty()) return;
  const int64_t now_ns = clock_.now_ns();
  limiter_.settle(account, ticket.reserved_, ticket.used_, now_ns);
  limiter_.leave(account, now_ns);
}

api::ApiError AccessControl::overloaded(const Error& error, RefusalCounts& refusals,
                                        RefusalCounts::By by, int64_t retry_ns) const {
  if (error.code == ErrorCode::kOverloaded) refusals.count(by);
  return with_retry(error, retry_ns);
}

api::ApiError AccessControl::with_retry(const Error& error, int64_t retry_ns) const {
  api::ApiError reported = api::api_error(error);
  if (error.code == ErrorCode::kOverloaded) reported.retry_after_s = retry_after_s(retry_ns);
  return reported;
}

// If all heard the same they would come back in one moment, so it differs by a quarter either way.
int AccessControl::retry_after_s(int64_t ns) const {
  const auto now_ns = static_cast<uint64_t>(clock_.now_ns());
  const auto draw = static_cast<int64_t>(base::random_bits(now_ns, 0) % 51);
  const int64_t ms = ns / kMs * (75 + draw) / 100;
  return static_cast<int>((std::clamp(ms, kRetryMsLeast, kRetryMsMost) + 999) / 1000);
}

std::string AccessControl::cache_salt(std::string_view tenant, std::string_view of_request) const {
  if (tenant.empty() && of_request.empty()) return {};
  return base::hmac_sha256(secret_, fmt::format("{}:{}{}", tenant.size(), tenant, of_request));
}

}  // namespace pelton::access
