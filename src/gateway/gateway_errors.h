// What a gateway refuses by itself, before any worker is asked. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "api/error.h"

namespace pelton::gateway {

// GW-03.
api::ApiError loop_detected();
// TN-14: whose region has no pool is sent to no other one.
api::ApiError no_worker_in_region();
// 403: who asks may not have it there.
api::ApiError region_not_allowed(const Error& why);
api::ApiError no_replica_for_this();
// 409: the rest of that stream is not to be had here.
inline constexpr int kCannotResume = 409;
api::ApiError cannot_resume(std::string_view why);
api::ApiError lists_are_workers_own();
// Of a pool of workers of another kind, which are asked over HTTP.
api::ApiError no_live_sessions_there();
// 501, as each of Pelton's workers answers a path of pictures, judgements and sound; none: another.
std::optional<api::ApiError> modality_missing(std::string_view path);

}  // namespace pelton::gateway
