#include "gateway/limits_page.h"

#include <algorithm>
#include <optional>

#include "base/json_writer.h"

namespace pelton::gateway {
namespace {

constexpr size_t kShownDigits = 12;
using Level = admission::RateLimiter::Level;

struct Bound {
  std::string_view name;
  int64_t limit = 0;  // 0: there is none
  int64_t here = 0;
  int64_t left = 0;
};

void write_bound(base::JsonWriter& w, const Bound& bound) {
  if (bound.limit == 0) return;
  w.key(bound.name).begin_object().key("limit").integer(bound.limit);
  w.key("here").integer(bound.here);
  w.key("left").integer(std::clamp<int64_t>(bound.left, 0, bound.here)).end_object();
}

// Of a bucket that nobody has taken from all is left.
int64_t left_of(const std::optional<Level>& level, int64_t here) {
  return level ? level->left : here;
}

}  // namespace

std::string limits_body(const access::AccessControl& access, const LimitShares* shares,
                        std::string_view tenant) {
  std::string body;
  base::JsonWriter w(body);
  w.begin_object()
      .key("gateways")
      .integer(shares == nullptr
                   ? 1
                   : std::max<int64_t>(static_cast<int64_t>(shares->counts().gateways), 1));
  w.key("limits").begin_array();
  size_t shown = 0;
  size_t all = 0;
  for (const access::AccessControl::Use& use : access.uses()) {
    const access::Principal& who = use.principal;
    if (!tenant.empty() && who.tenant != tenant) continue;
    if (++all > kLimitsShown) continue;
    ++shown;
    const admission::Limits here = shares == nullptr ? who.limits : shares->part_of_limits(who);
    w.begin_object().key("tenant").string(who.tenant);
    w.key("key").string(std::string_view(who.account).substr(0, kShownDigits));
    w.key("weight").number(who.weight);
    write_bound(w, {.name = "requests_per_minute",
                    .limit = who.limits.requests_per_minute,
                    .here = here.requests_per_minute,
                    .left = left_of(use.levels.requests, here.requests_per_minute)});
    write_bound(w, {.name = "tokens_per_minute",
                    .limit = who.limits.tokens_per_minute,
                    .here = here.tokens_per_minute,
                    .left = left_of(use.levels.tokens, here.tokens_per_minute)});
    write_bound(w, {.name = "concurrent_requests",
                    .limit = who.limits.concurrent_requests,
                    .here = here.concurrent_requests,
                    .left = here.concurrent_requests - use.levels.open});
    w.end_object();
  }
  w.end_array().key("not_shown").integer(static_cast<int64_t>(all - shown)).end_object();
  return body;
}

}  // namespace pelton::gateway
