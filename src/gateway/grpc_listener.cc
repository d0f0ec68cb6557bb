#include "gateway/grpc_listener.h"

#include <climits>
#include <utility>

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pelton/v1/inference.grpc.pb.h>

#include "base/check.h"
#include "gateway/grpc_call.h"
#include "net/connection_acceptor.h"
#include "net/work_loop.h"
#include "rpc/grpc_frame.h"

namespace pelton::gateway {
namespace {

using Raw = v1::Inference::WithRawCallbackMethod_Session<
    v1::Inference::WithRawCallbackMethod_Generate<v1::Inference::WithRawCallbackMethod_Tokenize<
        v1::Inference::WithRawCallbackMethod_Embed<v1::Inference::Service>>>>;

class Service final : public Raw {
 public:
  Service(GrpcShared& shared, rpc::Sessions& sessions) : shared_(shared), sessions_(sessions) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* message) override {
    return start_stream(shared_, *context, rpc::kGrpcGenerate, *message);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    return sessions_.start(*context, session_host(shared_, *context));
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* message,
                                     grpc::ByteBuffer* reply) override {
    return start_unary(shared_, *context, rpc::kGrpcTokenize, *message, *reply);
  }
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* message,
                                  grpc::ByteBuffer* reply) override {
    return start_unary(shared_, *context, rpc::kGrpcEmbed, *message, *reply);
  }

 private:
  GrpcShared& shared_;
  rpc::Sessions& sessions_;
};

// What clients may ask of the library.
void bound(grpc::ServerBuilder& builder, const GrpcListener::Options& options) {
  const auto ms = [](std::chrono::milliseconds time) { return static_cast<int>(time.count()); };
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_max);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ms(options.first_call_time_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, ms(options.idle_time_max));
  // Calls that are held say nothing for long: pings keep what lies between awake, as with
  // WebSockets. Nobody is given up for not answering them: the acceptor looks after lost peers, and
  // slow readers are none.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ms(options.ping_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, INT_MAX);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 64 * 1024);
  builder.SetMaxReceiveMessageSize(options.message_bytes_max);
  grpc::ResourceQuota quota("pelton-gateway");
  builder.SetResourceQuota(quota.Resize(options.memory_bytes_max));
}

}  // namespace

// The server goes first, then what its calls used.
struct GrpcListener::Parts {
  Parts(const Handler& handler, const Knows& knows, const Options& options, base::Log& log)
      : connections({.address = options.address,
                     .port = options.port,
                     .connections_max = options.connections_max,
                     .claim_time_max = options.first_call_time_max,
                     // The library goes first where a connection has no call at all.
                     .idle_time_max = options.idle_time_max + options.first_call_time_max,
                     .stall_time_max = options.stall_time_max,
                     .lost_time_max = options.stall_time_max},
                    log),
        shared{.handler = handler,
               .knows = knows,
               .loop = loop,
               .connections = connections,
               .hosts = options.hosts,
               .calls_max = options.calls_max,
               .stall_time_max = options.stall_time_max},
        sessions(loop, {.stall_time_max = options.stall_time_max}),
        service(shared, sessions) {}

  net::ConnectionAcceptor connections;
  GrpcShared shared;
  rpc::Sessions sessions;
  Service service;
  net::WorkLoop loop;  // does what was posted to it before what that uses goes
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> handed_over;
  std::unique_ptr<grpc::Server> grpc;
};

GrpcListener::GrpcListener(Handler handler, Knows knows, base::Log& log)
    : handler_(std::move(handler)), knows_(std::move(knows)), log_(log) {}

GrpcListener::~GrpcListener() {
  close(std::chrono::milliseconds(0));
}

Result<void> GrpcListener::open(const Options& options) {
  CHECK(parts_ == nullptr, "open() is called once");
  // Their complaints about a client's bytes go to that client.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::EnableDefaultHealthCheckService(true);
  auto parts = std::make_unique<Parts>(handler_, knows_, options, log_);
  TRY(parts->connections.listen());
  grpc::ServerBuilder builder;
  bound(builder, options);
  // The library has no bound of connections, and would take descriptors until none is left.
  parts->handed_over = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&parts->service);
  parts->grpc = builder.BuildAndStart();
  if (parts->grpc == nullptr) {
    return Error{ErrorCode::kUnavailable, "gRPC's library refuses to start", {}};
  }
  parts->grpc->GetHealthCheckService()->SetServingStatus(v1::Inference::service_full_name(), true);
  TRY(parts->connections.start(
      [&connections = parts->connections, &library = *parts->handed_over](int socket) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
        handed.listener_fd = connections.descriptor();
        handed.fd = socket;
        library.HandleNewConnection(&handed);
      }));
  parts_ = std::move(parts);
  return {};
}

int GrpcListener::port() const {
  return parts_ == nullptr ? 0 : parts_->connections.port();
}

void GrpcListener::close(std::chrono::milliseconds grace) {
  if (parts_ == nullptr) return;
  parts_->grpc->GetHealthCheckService()->SetServingStatus(false);
  parts_->connections.stop_accepting();
  parts_->sessions.drain();
  parts_->grpc->Shutdown(std::chrono::system_clock::now() + grace);
  parts_->grpc->Wait();
  parts_->connections.stop();
  log_.debug("the gRPC listener is closed");
  parts_.reset();
}

}  // namespace pelton::gateway
