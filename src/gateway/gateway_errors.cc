#include "gateway/gateway_errors.h"

#include <algorithm>

#include <fmt/format.h>

namespace pelton::gateway {

api::ApiError loop_detected() {
  return {.status = 508,
          .message =
              "the request has come through this gateway before, or through too many: one "
              "of its workers sends it back",
          .type = "server_error",
          .param = {},
          .code = "loop_detected"};
}

api::ApiError no_replica_for_this() {
  return {.status = 503,
          .message = "no replica of this model runs, and a request of this kind starts none",
          .type = "server_error",
          .param = {},
          .code = "no_replica",
          .retry_after_s = 1};
}

api::ApiError no_worker_in_region() {
  return {.status = 503,
          .message = "no worker of the region that this key is tied to is there for this model",
          .type = "server_error",
          .param = {},
          .code = "no_worker",
          .retry_after_s = 1};
}

api::ApiError region_not_allowed(const Error& why) {
  return {.status = 403,
          .message = why.message,
          .type = "permission_error",
          .param = why.field,
          .code = "region_not_allowed"};
}

api::ApiError cannot_resume(std::string_view why) {
  return {.status = kCannotResume,
          .message = fmt::format("this stream cannot be resumed: {}", why),
          .type = "invalid_request_error",
          .param = {},
          .code = "cannot_resume"};
}

api::ApiError lists_are_workers_own() {
  return {
      .status = 501,
      .message =
          "each worker keeps files and batches of its own, and none has the list of all; one is "
          "found by its id",
      .type = "invalid_request_error",
      .param = {},
      .code = "not_supported"};
}

api::ApiError no_live_sessions_there() {
  return {.status = 501,
          .message = "live sessions are passed on to workers of pelton's own kind only",
          .type = "invalid_request_error",
          .param = {},
          .code = "modality_not_supported"};
}

std::optional<api::ApiError> modality_missing(std::string_view path) {
  constexpr std::string_view kMissing[] = {"/v1/images/", "/v1/videos", "/v1/moderations",
                                           "/v1/realtime"};
  const bool is_missing = std::ranges::any_of(
      kMissing, [&](std::string_view begin) { return path.starts_with(begin); });
  if (!is_missing) return std::nullopt;
  return api::ApiError{
      .status = 501,
      .message = fmt::format("{} is not answered here: no worker of this pool makes that", path),
      .type = "invalid_request_error",
      .param = {},
      .code = "modality_not_supported"};
}

}  // namespace pelton::gateway
