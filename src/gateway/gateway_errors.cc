#include "gateway/gateway_errors.h"

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

}  // namespace pelton::gateway
