#include "server/grpc_call.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <grpc/support/time.h>

#include "server/reply.h"

namespace pelton::server {
namespace {

std::string_view metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

constexpr size_t kMetadataBytesMax = 64 * 1024;  // as HTTP's headers

size_t metadata_bytes(const grpc::CallbackServerContext& context) {
  size_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata()) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

// Or of "ipv6:%5B::1%5D:51234", which may name an interface: "%5Bfe80::1%25eth0%5D:51234".
std::string remote_of(const std::string& peer) {
  std::string remote = peer.substr(peer.find(':') + 1);
  for (const auto& [coded, plain] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const size_t at = remote.find(coded);
    if (at != std::string::npos) remote.replace(at, 3, plain);
  }
  const size_t zone = remote.find('%');
  if (zone != std::string::npos) remote.erase(zone, remote.find(']') - zone);
  return remote;
}

GrpcEntry::GrpcEntry(GrpcHouse& house, const access::TrackedRequest::Route& route,
                     grpc::CallbackServerContext& context, const google::protobuf::Message& request)
    : entry_(house.server.book(), route) {
  if (!house.server.reporter().wanted()) return;
  const std::string id = house.server.request_id(metadata(context, "x-request-id"));
  house.server.report(entry_, {.path = route.handler,
                               .remote = remote_of(context.peer()),
                               .request_id = id,
                               .traceparent = metadata(context, "traceparent"),
                               .request_bytes = static_cast<int64_t>(request.ByteSizeLong())});
  context.AddInitialMetadata("x-request-id", id);
  if (!record()->traced) return;
  context.AddInitialMetadata("traceparent", telemetry::format_traceparent(record()->trace));
}

std::variant<GrpcCaller, api::ApiError> admit(const GrpcHouse& house, const GrpcPlace& place,
                                              const grpc::CallbackServerContext& context,
                                              GrpcEntry& entry, std::string_view model) {
  const grpc::string_ref authority = context.ExperimentalGetAuthority();
  if (!house.hosts.allow({authority.data(), authority.size()})) return api::forbidden_host();
  const auto& all = context.client_metadata();
  const access::AccessControl::Credentials credentials{
      .authorization = metadata(context, "authorization"),
      .api_key = metadata(context, "x-api-key"),
      .repeated = all.count("authorization") > 1 || all.count("x-api-key") > 1};
  std::optional<access::Principal> who = house.server.access().identify(credentials);
  if (!who) return api::bad_api_key();
  house.connections.claim(remote_of(context.peer()), net::ConnectionAcceptor::Claim::kCaller);
  if (entry.record() != nullptr) entry.record()->tenant = who->tenant;
  if (metadata_bytes(context) > kMetadataBytesMax) {
    return api::api_error({ErrorCode::kOverloaded, "the call's metadata are too large", ""});
  }
  if (!place.fits()) {
    return api::api_error({ErrorCode::kOverloaded, "too many calls are open", ""});
  }
  Server::ModelOrError found = house.server.model_now(model);
  if (auto* error = std::get_if<api::ApiError>(&found)) return std::move(*error);
  GrpcCaller caller{.model = std::get<0>(std::move(found)),
                    .tenant = who->tenant,
                    .who = *std::move(who),
                    .arrived_ns = house.server.clock().now_ns()};
  if (entry.record() != nullptr) entry.record()->model = caller.model->id;
  // Not as a point of time: eleven thousand years do not fit one.
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC),
                   gpr_now(GPR_CLOCK_MONOTONIC));
  constexpr int64_t kNeverSeconds = int64_t{3600} * 24 * 365 * 100;  // a century is none
  if (left.tv_sec < kNeverSeconds) {
    const int64_t seconds = std::max<int64_t>(left.tv_sec, -1);
    caller.deadline_ns = caller.arrived_ns + seconds * 1'000'000'000 + left.tv_nsec;
  }
  return caller;
}

}  // namespace pelton::server
