#include "server/grpc_call.h"

#include <chrono>
#include <string_view>

namespace pelton::server {
namespace {

std::string_view metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

}  // namespace

std::variant<GrpcCaller, api::ApiError> admit(const GrpcHouse& house, const GrpcPlace& place,
                                              const grpc::CallbackServerContext& context) {
  const FrontDesk::Credentials credentials{.authorization = metadata(context, "authorization"),
                                           .api_key = metadata(context, "x-api-key")};
  std::optional<Caller> who = house.server.desk().identify(credentials);
  if (!who) return api::bad_api_key();
  if (!place.fits()) {
    return api::api_error({ErrorCode::kOverloaded, "too many calls are open", ""});
  }
  const ServedModel* model = house.server.model();
  if (!house.server.ready()) {
    return api::api_error(
        {ErrorCode::kUnavailable,
         model == nullptr ? "The model is still being loaded" : "The server is shutting down", ""});
  }
  GrpcCaller caller{.model = model,
                    .tenant = who->tenant,
                    .who = *std::move(who),
                    .arrived_ns = house.server.clock().now_ns()};
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        deadline - std::chrono::system_clock::now());
    // A century is none: the sum must not overflow.
    constexpr std::chrono::nanoseconds kNever = std::chrono::hours(24 * 365 * 100);
    if (left < kNever) caller.deadline_ns = caller.arrived_ns + left.count();
  }
  return caller;
}

}  // namespace pelton::server
