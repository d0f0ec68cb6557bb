#include "server/grpc_door.h"

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

#include "net/port_watch.h"
#include "server/grpc_certificates.h"
#include "server/grpc_embed.h"
#include "server/grpc_generate.h"
#include "server/grpc_refusal.h"
#include "server/grpc_tokenize.h"
#include "server/work_loop.h"

namespace pelton::server {
namespace {

constexpr const char* kServiceName = "pelton.v1.Inference";

class Service final : public v1::Inference::CallbackService {
 public:
  explicit Service(GrpcHouse& house) : house_(house) {}

  grpc::ServerWriteReactor<v1::GenerateChunk>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override {
    return start_generate(house_, *context, *request);
  }
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeReply* reply) override {
    return start_tokenize(house_, *context, *request, *reply);
  }
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const v1::EmbedRequest* request, v1::EmbedReply* reply) override {
    return start_embed(house_, *context, *request, *reply);
  }

 private:
  GrpcHouse& house_;
};

}  // namespace

// The server goes first, then what its calls used.
struct GrpcDoor::Parts {
  explicit Parts(Server& server, const Options& options)
      : house{.server = server,
              .loop = loop,
              .calls_max = options.calls_max,
              .stall_time_max = options.stall_time_max},
        service(house) {}

  WorkLoop loop;
  GrpcHouse house;
  Service service;
  int port = 0;
  std::shared_ptr<const net::TlsIdentity> tls;
  std::unique_ptr<GrpcCertificates> certificates;
  std::unique_ptr<grpc::Server> grpc;
  std::optional<net::PortWatch> peers;
};

GrpcDoor::GrpcDoor(Server& server, base::Log& log) : server_(server), log_(log) {}

GrpcDoor::~GrpcDoor() {
  close(std::chrono::milliseconds(0));
}

Result<void> GrpcDoor::open(const Options& options) {
  CHECK(parts_ == nullptr, "open() is called once");
  // Their complaints about a client's bytes go to that client; a line each would fill our log, and
  // with what clients wrote.
  google::protobuf::SetLogHandler(nullptr);
  gpr_set_log_function([](gpr_log_func_args*) {});
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto parts = std::make_unique<Parts>(server_, options);
  const bool is_v6 = options.address.find(':') != std::string::npos;
  const std::string address =
      fmt::format("{}{}{}:{}", is_v6 ? "[" : "", options.address, is_v6 ? "]" : "", options.port);
  grpc::ServerBuilder builder;
  // Without, a second server would share the port and take every other call.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.calls_max);
  // No pings: one that waits behind words that are read slowly is answered late, and the kernel's
  // TCP_USER_TIMEOUT that comes with them ends slow readers too. `peers` does it instead.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 64 * 1024);
  builder.SetMaxReceiveMessageSize(options.message_bytes_max);
  grpc::ResourceQuota quota("pelton");
  builder.SetResourceQuota(quota.Resize(options.memory_bytes_max));
  refuse_bad_messages(builder);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options.tls != nullptr) {
    parts->tls = options.tls;
    TRY_ASSIGN(parts->certificates, GrpcCertificates::make(*options.tls));
    credentials = parts->certificates->credentials();
  }
  builder.AddListeningPort(address, credentials, &parts->port);
  builder.RegisterService(&parts->service);
  parts->grpc = builder.BuildAndStart();
  if (parts->grpc == nullptr || parts->port == 0) {
    return Error{ErrorCode::kAddressInUse, fmt::format("cannot listen on {} for gRPC", address),
                 "grpc-port"};
  }
  parts->peers.emplace(net::PortWatch::Options{.port = parts->port,
                                               .stall_time_max = options.stall_time_max,
                                               .lost_time_max = options.stall_time_max});
  parts_ = std::move(parts);
  set_serving(server_.ready());
  return {};
}

int GrpcDoor::port() const {
  return parts_ == nullptr ? 0 : parts_->port;
}

Result<void> GrpcDoor::renew_certificates() {
  if (parts_ == nullptr || parts_->certificates == nullptr) return {};
  return parts_->certificates->update(*parts_->tls);
}

void GrpcDoor::set_serving(bool serving) {
  if (parts_ == nullptr) return;
  grpc::HealthCheckServiceInterface& health = *parts_->grpc->GetHealthCheckService();
  health.SetServingStatus("", serving);
  health.SetServingStatus(kServiceName, serving);
}

void GrpcDoor::close(std::chrono::milliseconds grace) {
  if (parts_ == nullptr) return;
  set_serving(false);
  parts_->grpc->Shutdown(std::chrono::system_clock::now() + grace);
  parts_->grpc->Wait();
  log_.debug("the gRPC door is closed");
  parts_.reset();
}

}  // namespace pelton::server
