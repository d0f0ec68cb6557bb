// What keys may ask for in a minute and at once, this gateway's part of it and what is left of
// that, as JSON for the operator's listener. Keys are shown by the first digits of their hashes.
#pragma once

#include <string>
#include <string_view>

#include "access/access_control.h"
#include "gateway/limit_shares.h"

namespace pelton::gateway {

// `tenant`: of this one only; empty: of all. At most kLimitsShown keys.
inline constexpr size_t kLimitsShown = 1'000;
// `shares`: null: the limits are this gateway's own.
std::string limits_body(const access::AccessControl& access, const LimitShares* shares,
                        std::string_view tenant);

}  // namespace pelton::gateway
