#include "server/grpc_refusal.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <grpcpp/support/server_interceptor.h>

#include "rpc/grpc_frame.h"
#include "rpc/remote.h"

namespace pelton::server {
namespace {

namespace experimental = grpc::experimental;

constexpr std::string_view kOurs[] = {rpc::kGrpcGenerate, rpc::kGrpcSession, rpc::kGrpcTokenize,
                                      rpc::kGrpcEmbed};

// Of one call, created and gone with it.
class Refusal final : public experimental::Interceptor {
 public:
  void Intercept(experimental::InterceptorBatchMethods* call) override {
    using Point = experimental::InterceptionHookPoints;
    if (call->QueryInterceptionHookPoint(Point::PRE_SEND_STATUS) && is_the_librarys(*call)) {
      call->ModifySendStatus(
          {grpc::StatusCode::INVALID_ARGUMENT, "the message is not one that this method takes"});
    }
    call->Proceed();
  }

 private:
  // What we refuse ourselves comes with an error object.
  static bool is_the_librarys(experimental::InterceptorBatchMethods& call) {
    const grpc::StatusCode code = call.GetSendStatus().error_code();
    if (code != grpc::StatusCode::UNIMPLEMENTED && code != grpc::StatusCode::INTERNAL) return false;
    const auto* trailing = call.GetSendTrailingMetadata();
    return trailing == nullptr || trailing->find("pelton-error-bin") == trailing->end();
  }
};

class Factory final : public experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(net::ConnectionAcceptor& connections) : connections_(connections) {}

  experimental::Interceptor* CreateServerInterceptor(experimental::ServerRpcInfo* call) override {
    // A method that is none, and other services, speak for themselves.
    const std::string_view method = call->method();
    const bool is_ours = std::find(std::begin(kOurs), std::end(kOurs), method) != std::end(kOurs);
    if (is_ours) return new Refusal;
    connections_.claim(rpc::remote_of(call->server_context()->peer()),
                       net::ConnectionAcceptor::Claim::kAnybody);
    return nullptr;
  }

 private:
  net::ConnectionAcceptor& connections_;
};

}  // namespace

void watch_calls(grpc::ServerBuilder& builder, net::ConnectionAcceptor& connections) {
  std::vector<std::unique_ptr<experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(connections));
  builder.experimental().SetInterceptorCreators(std::move(factories));
}

}  // namespace pelton::server
