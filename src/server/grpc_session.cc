#include "server/grpc_session.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/grpc_generate.h"
#include "server/request_pipeline.h"

namespace pelton::server {
namespace {

constexpr access::TrackedRequest::Route kSession = {.handler = "/pelton.v1.Inference/Session",
                                                    .method = "POST"};

class GrpcSession final : public rpc::SessionHost {
 public:
  GrpcSession(GrpcServices& shared, grpc::CallbackServerContext& context)
      : shared_(shared), context_(context), place_(shared) {}

  bool admit(std::shared_ptr<net::Exchange> opening) override {
    opening_ = grpc_call(shared_, kSession, context_, v1::SessionRequest(), std::move(opening));
    if (!server::admit(shared_, place_, context_, "", *opening_)) return false;
    opening_->note_answered(200);
    return true;
  }

  void start_turn(v1::GenerateRequest request,
                  const std::shared_ptr<net::Exchange>& exchange) override {
    Services& services = shared_.services;
    // A key may have been taken away, or been given to another tenant, since.
    const std::optional<access::Principal> caller = caller_of(shared_, context_);
    Call call{.request = {},
              .exchange = exchange,
              .headers = {},
              .tenant = caller ? caller->tenant : "",
              .caller = caller.value_or(access::Principal()),
              .arrived_ns = services.clock.now_ns(),
              .body_bytes = static_cast<int64_t>(request.ByteSizeLong()),
              .transport_deadline_ns = opening_->transport_deadline_ns};
    call.model_asked = request.model();
    call.entry = new_entry(call.body_bytes, call.tenant);
    if (!caller) return call.send(api::bad_api_key());
    std::unique_ptr<ModelRequest> turn = generate_request(std::move(request));
    if (turn == nullptr) return call.send(no_generate_prompt());
    run_request(std::move(call), services, std::move(turn), Work::kSampled);
  }

 private:
  // A turn is reported by the session's name with a number behind it, within its trace.
  std::unique_ptr<access::TrackedRequest> new_entry(int64_t bytes, const std::string& tenant) {
    Services& services = shared_.services;
    auto entry = std::make_unique<access::TrackedRequest>(services.statistics, kSession);
    const access::RequestRecord* const session = opening_->record();
    if (session == nullptr) return entry;
    const std::string id = fmt::format("{}-{}", session->request_id, ++turns_);
    services.report(*entry, {.path = kSession.handler,
                             .remote = session->remote,
                             .request_id = id,
                             .request_bytes = bytes,
                             .within = session});
    if (entry->record() != nullptr) entry->record()->tenant = tenant;
    return entry;
  }

  GrpcServices& shared_;
  grpc::CallbackServerContext& context_;
  GrpcPlace place_;
  std::optional<Call> opening_;
  int64_t turns_ = 0;
};

}  // namespace

std::unique_ptr<rpc::SessionHost> session_host(GrpcServices& shared,
                                               grpc::CallbackServerContext& context) {
  return std::make_unique<GrpcSession>(shared, context);
}

}  // namespace pelton::server
