#include "server/front_desk.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/random.h"

namespace pelton::server {
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

}  // namespace

Pass::Pass(FrontDesk& desk, Caller caller, const ServedModel& model)
    : desk_(&desk), caller_(std::move(caller)), model_(model) {
  desk.inside_.fetch_add(1, std::memory_order_relaxed);
}

Pass::Pass(Pass&& other) noexcept
    : desk_(std::exchange(other.desk_, nullptr)),
      caller_(std::move(other.caller_)),
      model_(other.model_),
      reserved_(other.reserved_),
      used_(other.used_) {}

Pass::~Pass() {
  if (desk_ == nullptr) return;
  desk_->settle(*this);
  desk_->inside_.fetch_sub(1, std::memory_order_relaxed);
}

void Pass::note_end(const engine::StreamEnd& end) {
  if (end.times.seated_ns == 0) used_ = std::max<int64_t>(used_ - end.prompt_tokens, 0);
  if (end.reason != engine::FinishReason::kStop && end.reason != engine::FinishReason::kLength) {
    return;
  }
  // Two at once may lose one's share: it is an estimate.
  const int64_t typical = desk_->typical_output_.load(std::memory_order_relaxed);
  desk_->typical_output_.store(typical + (end.output_tokens - typical) / 16,
                               std::memory_order_relaxed);
}

void FrontDesk::add_limits(const Caller& caller, net::HttpHeaders& headers) const {
  if (!caller.limits.any()) return;
  const RateLimiter::Levels levels = limiter_.levels(caller.account, clock_.now_ns());
  const auto add = [&](std::string_view what, const std::optional<RateLimiter::Level>& level) {
    if (!level) return;
    headers.add(fmt::format("x-ratelimit-limit-{}", what), std::to_string(level->limit));
    headers.add(fmt::format("x-ratelimit-remaining-{}", what), std::to_string(level->left));
    headers.add(fmt::format("x-ratelimit-reset-{}", what), duration(level->until_full_ns));
  };
  add("requests", levels.requests);
  add("tokens", levels.tokens);
}

api::ApiError Pass::told(const Error& error) const {
  return desk_->told(error, model_);
}

FrontDesk::FrontDesk(KeyRing keys, std::string secret, const base::Clock& clock)
    : clock_(clock),
      secret_(std::move(secret)),
      keys_(std::make_shared<const KeyRing>(std::move(keys))) {}

std::optional<Caller> FrontDesk::identify(const Credentials& credentials) const {
  const std::shared_ptr<const KeyRing> keys = keys_.load();
  if (keys->empty()) return Caller{};
  if (credentials.repeated) return std::nullopt;
  std::string_view key = credentials.api_key;
  if (!credentials.authorization.empty()) {
    const std::string_view bearer = bearer_key(credentials.authorization);
    if (!key.empty() && key != bearer) return std::nullopt;
    key = bearer;
  }
  const Caller* caller = key.empty() ? nullptr : keys->caller_of(key);
  return caller == nullptr ? std::nullopt : std::optional(*caller);
}

void FrontDesk::replace_keys(KeyRing keys) {
  keys_.store(std::make_shared<const KeyRing>(std::move(keys)));
}

std::variant<Pass, api::ApiError> FrontDesk::enter(Caller caller, const ServedModel& model,
                                                   Work work) {
  const Result<void> room =
      model.engine.room_for({.tenant = caller.tenant, .weight = caller.weight, .kind = work});
  if (!room.ok()) return no_room(room.error(), model);
  if (!caller.account.empty()) {
    const auto refusal = limiter_.enter(caller.account, caller.limits, clock_.now_ns());
    if (refusal) return rate_limited(*refusal);
  }
  return Pass(*this, std::move(caller), model);
}

std::optional<api::ApiError> FrontDesk::reserve(Pass& pass, int64_t tokens) {
  if (pass.caller_.account.empty()) return std::nullopt;
  const auto refusal = limiter_.reserve(pass.caller_.account, tokens, clock_.now_ns());
  if (refusal) return rate_limited(*refusal);
  pass.reserved_ += tokens;
  return std::nullopt;
}

std::variant<std::vector<engine::TokenStream>, api::ApiError> FrontDesk::submit(
    Pass& pass, request::GenerationRequest request, Wanted wanted) {
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t output_tokens =
      std::min<int64_t>(request.stop.max_new_tokens, typical_output_.load());
  if (auto refused = reserve(pass, prompt_tokens + wanted.answers * output_tokens)) {
    return *std::move(refused);
  }
  request.weight = pass.caller_.weight;
  Result<std::vector<engine::TokenStream>> streams = pass.model_.engine.submit_answers(
      std::move(request), wanted.answers, std::move(wanted.courier));
  if (!streams.ok()) {
    const bool is_callers = streams.error().code != ErrorCode::kOverloaded &&
                            streams.error().code != ErrorCode::kUnavailable;
    if (!is_callers) limiter_.give_back_request(pass.caller_.account, clock_.now_ns());
    return no_room(streams.error(), pass.model_);
  }
  pass.used_ += prompt_tokens;
  return std::move(streams).value();
}

void FrontDesk::settle(Pass& pass) {
  const std::string& account = pass.caller_.account;
  if (account.empty()) return;
  const int64_t now_ns = clock_.now_ns();
  limiter_.settle(account, pass.reserved_, pass.used_, now_ns);
  limiter_.leave(account, now_ns);
}

api::ApiError FrontDesk::no_room(const Error& error, const ServedModel& model) {
  if (error.code == ErrorCode::kOverloaded) count(Refused::kQueue);
  return told(error, model);
}

api::ApiError FrontDesk::not_compiled(const Caller& caller, const Error& error, int64_t retry_ns) {
  api::ApiError told = api::api_error(error);
  if (error.code != ErrorCode::kOverloaded) return told;
  count(Refused::kFormats);
  limiter_.give_back_request(caller.account, clock_.now_ns());
  told.retry_after_s = retry_after_s(retry_ns);
  return told;
}

api::ApiError FrontDesk::told(const Error& error, const ServedModel& model) const {
  api::ApiError told = api::api_error(error);
  // Half of those who wait have gone by then.
  if (error.code == ErrorCode::kOverloaded) {
    told.retry_after_s = retry_after_s(model.engine.retry_after_ns());
  }
  return told;
}

// Told to all alike, they would come back in one moment, so it differs by a quarter either way.
int FrontDesk::retry_after_s(int64_t ns) const {
  const auto now_ns = static_cast<uint64_t>(clock_.now_ns());
  const auto draw = static_cast<int64_t>(base::random_bits(now_ns, 0) % 51);
  const int64_t ms = ns / kMs * (75 + draw) / 100;
  return static_cast<int>((std::clamp(ms, kRetryMsLeast, kRetryMsMost) + 999) / 1000);
}

api::ApiError FrontDesk::rate_limited(const RateLimiter::Refusal& refusal) {
  count(refusal.bound == RateLimiter::Bound::kRequests ? Refused::kRequests
        : refusal.bound == RateLimiter::Bound::kTokens ? Refused::kTokens
                                                       : Refused::kConcurrent);
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

std::string FrontDesk::cache_salt(std::string_view tenant, std::string_view of_request) const {
  if (tenant.empty() && of_request.empty()) return {};
  return base::hmac_sha256(secret_, fmt::format("{}:{}{}", tenant.size(), tenant, of_request));
}

}  // namespace pelton::server
