#include "server/grpc_call.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <grpc/support/time.h>

#include "rpc/remote.h"
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

Call grpc_call(const GrpcServices& shared, const access::TrackedRequest::Route& route,
               grpc::CallbackServerContext& context, const google::protobuf::Message& message,
               std::shared_ptr<net::Exchange> exchange) {
  Services& services = shared.services;
  Call call{.request = {},
            .exchange = std::move(exchange),
            .headers = {},
            .tenant = {},
            .caller = {},
            .arrived_ns = services.clock.now_ns(),
            .body_bytes = static_cast<int64_t>(message.ByteSizeLong())};
  call.entry = std::make_unique<access::TrackedRequest>(services.statistics, route);
  if (!services.reporter.wanted()) return call;
  const std::string id = services.request_id(metadata(context, "x-request-id"));
  services.report(*call.entry, {.path = route.handler,
                                .remote = rpc::remote_of(context.peer()),
                                .request_id = id,
                                .traceparent = metadata(context, "traceparent"),
                                .request_bytes = call.body_bytes});
  context.AddInitialMetadata("x-request-id", id);
  const access::RequestRecord& record = *call.entry->record();
  if (record.traced) {
    context.AddInitialMetadata("traceparent", telemetry::format_traceparent(record.trace));
  }
  return call;
}

namespace {

// On the server's clock; not as a point of time: eleven thousand years do not fit one.
std::optional<int64_t> deadline_ns(const grpc::CallbackServerContext& context, int64_t now_ns) {
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC),
                   gpr_now(GPR_CLOCK_MONOTONIC));
  constexpr int64_t kNeverSeconds = int64_t{3600} * 24 * 365 * 100;  // a century is none
  if (left.tv_sec >= kNeverSeconds) return std::nullopt;
  const int64_t seconds = std::max<int64_t>(left.tv_sec, -1);
  return now_ns + seconds * 1'000'000'000 + left.tv_nsec;
}

}  // namespace

std::optional<access::Principal> caller_of(const GrpcServices& shared,
                                           const grpc::CallbackServerContext& context) {
  const auto& all = context.client_metadata();
  return shared.services.access_control.identify(
      {.authorization = metadata(context, "authorization"),
       .api_key = metadata(context, "x-api-key"),
       .repeated = all.count("authorization") > 1 || all.count("x-api-key") > 1});
}

bool admit(const GrpcServices& shared, GrpcPlace& place, const grpc::CallbackServerContext& context,
           std::string_view model, Call& call) {
  const auto refuse = [&](const api::ApiError& error) {
    call.send(error);
    return false;
  };
  const grpc::string_ref authority = context.ExperimentalGetAuthority();
  if (!shared.hosts.allow({authority.data(), authority.size()}))
    return refuse(api::forbidden_host());
  std::optional<access::Principal> who = caller_of(shared, context);
  if (!who) return refuse(api::bad_api_key());
  place.enter(rpc::remote_of(context.peer()));
  call.caller = *std::move(who);
  call.tenant = call.caller.tenant;
  if (call.entry->record() != nullptr) call.entry->record()->tenant = call.tenant;
  if (metadata_bytes(context) > kMetadataBytesMax) {
    return refuse(
        api::api_error({ErrorCode::kOverloaded, "the call's metadata are too large", ""}));
  }
  if (!place.fits()) {
    return refuse(api::api_error({ErrorCode::kOverloaded, "too many calls are open", ""}));
  }
  call.transport_deadline_ns = deadline_ns(context, shared.services.clock.now_ns());
  call.model_asked = std::string(model);
  return true;
}

}  // namespace pelton::server
