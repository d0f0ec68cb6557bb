#include "server/grpc_listener.h"

#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <pelton/v1/inference.grpc.pb.h>

#include "net/connection_acceptor.h"
#include "net/descriptor_share.h"
#include "net/work_loop.h"
#include "server/grpc_certificates.h"
#include "server/grpc_embed.h"
#include "server/grpc_generate.h"
#include "server/grpc_refusal.h"
#include "server/grpc_session.h"
#include "server/grpc_tokenize.h"
#include "server/health.h"

namespace pelton::server {
namespace {

constexpr const char* kServiceName = "pelton.v1.Inference";

// A session's messages come as bytes: one that is none is answered, and the session goes on.
using Base = v1::Inference::WithRawCallbackMethod_Session<
    v1::Inference::WithCallbackMethod_Generate<v1::Inference::WithCallbackMethod_Tokenize<
        v1::Inference::WithCallbackMethod_Embed<v1::Inference::Service>>>>;

class Service final : public Base {
 public:
  Service(GrpcServices& shared, rpc::Sessions& sessions) : shared_(shared), sessions_(sessions) {}

  grpc::ServerWriteReactor<v1::GenerateChunk>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    return start_generate(shared_, *context, *request);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Session(
      grpc::CallbackServerContext* context) override {
    return sessions_.start(*context, session_host(shared_, *context));
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeReply* reply) override {
    return start_tokenize(shared_, *context, *request, *reply);
  }
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const v1::EmbedRequest* request, v1::EmbedReply* reply) override {
    return start_embed(shared_, *context, *request, *reply);
  }

 private:
  GrpcServices& shared_;
  rpc::Sessions& sessions_;
};

// What clients may ask of the library.
void bound(grpc::ServerBuilder& builder, const GrpcListener::Options& options) {
  const auto ms = [](std::chrono::milliseconds time) { return static_cast<int>(time.count()); };
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_max);
  // Until its SETTINGS have come, TLS included.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ms(options.first_call_time_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, ms(options.idle_time_max));
  // No pings: one that waits behind words that are read slowly is answered late, and the kernel's
  // TCP_USER_TIMEOUT that comes with them ends slow readers too. The acceptor does it instead.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 64 * 1024);
  builder.SetMaxReceiveMessageSize(options.message_bytes_max);
  grpc::ResourceQuota quota("pelton");
  builder.SetResourceQuota(quota.Resize(options.memory_bytes_max));
}

// What the acceptor says, in the words of the command line.
Result<void> in_flag_words(Result<void> listening) {
  if (listening.ok()) return {};
  Error error = std::move(listening).error();
  if (error.field == "port") error.field = "grpc-port";
  return error;
}

}  // namespace

// The server goes first, then what its calls used.
struct GrpcListener::Parts {
  Parts(Services& services, const Options& options, int connections_fitting, base::Log& log)
      : connections_max(connections_fitting),
        connections({.address = options.address,
                     .port = options.port,
                     .connections_max = connections_fitting,
                     .claim_time_max = options.first_call_time_max,
                     // The library goes first where a connection has no call at all.
                     .idle_time_max = options.idle_time_max + options.first_call_time_max,
                     .stall_time_max = options.stall_time_max,
                     .lost_time_max = options.stall_time_max},
                    log),
        shared{.services = services,
               .loop = loop,
               .connections = connections,
               .calls_max = options.calls_max,
               .stall_time_max = options.stall_time_max,
               .hosts = options.hosts},
        sessions(loop, {.stall_time_max = options.stall_time_max,
                        .idle_time_max = options.session_idle_time_max}),
        service(shared, sessions) {}

  Result<std::shared_ptr<grpc::ServerCredentials>> credentials(const Options& options) {
    if (options.tls == nullptr) return grpc::InsecureServerCredentials();
    tls = options.tls;
    TRY_ASSIGN(certificates, GrpcCertificates::make(*tls));
    return certificates->credentials();
  }

  const int connections_max;
  net::ConnectionAcceptor connections;
  GrpcServices shared;
  rpc::Sessions sessions;
  Service service;
  net::WorkLoop loop;  // does what was posted to it before what that uses goes
  std::shared_ptr<const net::TlsIdentity> tls;
  std::unique_ptr<GrpcCertificates> certificates;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> handed_over;
  std::unique_ptr<grpc::Server> grpc;
};

GrpcListener::GrpcListener(Services& services, base::Log& log) : services_(services), log_(log) {}

GrpcListener::~GrpcListener() {
  close(std::chrono::milliseconds(0));
}

Result<void> GrpcListener::open(const Options& options) {
  CHECK(parts_ == nullptr, "open() is called once");
  // Their complaints about a client's bytes go to that client; a line each would fill our log, and
  // with what clients wrote.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  const int connections_max = net::fitting_connections({.wanted = options.connections_max,
                                                        .promised = options.descriptors_promised,
                                                        .spared = options.descriptors_spared});
  auto parts = std::make_unique<Parts>(services_, options, connections_max, log_);
  if (connections_max < options.connections_max) {
    log_.warning(fmt::format(
        "gRPC: room for {} connections instead of {}: more descriptors may not be open (ulimit -n)",
        connections_max, options.connections_max));
  }
  TRY(in_flag_words(parts->connections.listen()));
  TRY_ASSIGN(std::shared_ptr<grpc::ServerCredentials> credentials, parts->credentials(options));
  grpc::ServerBuilder builder;
  bound(builder, options);
  watch_calls(builder, parts->connections);
  // The library has no bound of connections, and would take descriptors until none is left.
  parts->handed_over = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(&parts->service);
  parts->grpc = builder.BuildAndStart();
  if (parts->grpc == nullptr) {
    return Error{ErrorCode::kUnavailable, "gRPC's library refuses to start", "grpc-port"};
  }
  TRY(parts->connections.start(
      [&connections = parts->connections, &library = *parts->handed_over](int socket) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
        handed.listener_fd = connections.descriptor();
        handed.fd = socket;
        library.HandleNewConnection(&handed);
      }));
  services_.reload_statistics.watch_grpc(parts->connections.counts());
  parts_ = std::move(parts);
  set_serving(server::ready(services_));
  return {};
}

int GrpcListener::port() const {
  return parts_ == nullptr ? 0 : parts_->connections.port();
}
int GrpcListener::connection_count() const {
  return parts_ == nullptr ? 0 : parts_->connections.connection_count();
}
int GrpcListener::connections_max() const {
  return parts_ == nullptr ? 0 : parts_->connections_max;
}

Result<void> GrpcListener::renew_certificates() {
  if (parts_ == nullptr || parts_->certificates == nullptr) return {};
  return parts_->certificates->update(*parts_->tls);
}

void GrpcListener::set_serving(bool serving) {
  if (parts_ == nullptr) return;
  grpc::HealthCheckServiceInterface& health = *parts_->grpc->GetHealthCheckService();
  health.SetServingStatus("", serving);
  health.SetServingStatus(kServiceName, serving);
}

void GrpcListener::close(std::chrono::milliseconds grace) {
  if (parts_ == nullptr) return;
  set_serving(false);
  parts_->connections.stop_accepting();
  parts_->sessions.drain();
  parts_->grpc->Shutdown(std::chrono::system_clock::now() + grace);
  parts_->grpc->Wait();
  parts_->connections.stop();
  log_.debug("the gRPC listener is closed");
  parts_.reset();
}

}  // namespace pelton::server
