#include "apps/serve_worker.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "apps/batches_flags.h"
#include "apps/chains_flags.h"
#include "apps/kv_event_flags.h"
#include "apps/listener_flags.h"
#include "apps/serve_limits.h"
#include "server/audited_requests.h"
#include "server/health.h"
#include "server/random_id.h"

namespace pelton::apps {
namespace {

constexpr std::string_view kUnix = "unix:";  // before a path, in place of a host

// At the replica's port, or at a Unix socket. No page of a browser's can come by that: whatever
// host is named there is fine.
net::HttpServer::Options http_options_of(net::HttpServer::Options first,
                                         const cli::Arguments& arguments, int replica,
                                         const server::Server& server) {
  first.takes_body = [&server](const net::HttpRequest& head) { return server.takes_body(head); };
  first.port = port_of(arguments, "--port", replica);
  if (arguments.has("--uds")) {
    first.address = std::string(kUnix) + arguments.text("--uds");
    first.hosts = net::AllowedHosts();
  }
  return first;
}

// Beside the HTTP listener, at the same address and with the same identity.
server::GrpcListener::Options grpc_options_of(const cli::Arguments& arguments, int replica,
                                              const net::AllowedHosts& hosts,
                                              const net::HttpServer::Options& beside,
                                              const net::HttpServer& http) {
  return {.address = arguments.text("--host"),
          .port = port_of(arguments, "--grpc-port", replica),
          .hosts = hosts,
          .tls = beside.tls,
          .descriptors_spared = beside.descriptors_spared,
          .descriptors_promised = http.connections_max() + http.connection_refusals_max()};
}

}  // namespace

ServeWorker::ServeWorker(const Parts& parts, int replica)
    : parts_(parts),
      replica_(replica),
      server_(server_options(), parts.clock, parts.log),
      http_options_(http_options_of(parts.http, parts.arguments, replica, server_)),
      http_(
          http_options_,
          [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange) {
            exchange = server::audited(request, exchange, server_.services(), parts_.audit);
            server_.handle(std::move(request), std::move(exchange));
          },
          parts.log),
      grpc_(server_.services(), parts.log),
      fleet_(server_, parts.log),
      models_(model_parts()),
      admin_(models_.administration(http_), parts.log) {}

server::Server::Options ServeWorker::server_options() {
  server::Server::Options options = parts_.server;
  if (!parts_.arguments.has("--kv-events-endpoint")) return options;
  // It is there before the first request.
  options.on_prompt = [this](const server::ServedModel& model,
                             const request::GenerationRequest& request) {
    kv_events_->note_prompt(model, request);
  };
  return options;
}

Result<void> ServeWorker::open_events() {
  if (!parts_.arguments.has("--kv-events-endpoint")) return {};
  TRY_ASSIGN(const node::LoadedModel::Options options,
             ModelHost::options_of(parts_.arguments, parts_.clock));
  TRY_ASSIGN(kv_events_, open_kv_events(parts_.arguments, options.engine.hash_seed.value_or(0),
                                        parts_.clock, parts_.log));
  return {};
}

ModelHost::Parts ServeWorker::model_parts() {
  return {.arguments = parts_.arguments,
          .interrupt = parts_.interrupt,
          .server = server_,
          .clock = parts_.clock,
          .log = parts_.log,
          .faults = faults_,
          .tokenizers = parts_.tokenizers,
          .sleep_after_ns = parts_.sleep_after_ns,
          .health_changed =
              [this] { grpc_.set_serving(server::ready_reply(server_.services()).status == 200); },
          .limits =
              [this](const engine::Engine::Options& engine) {
                return limits_in_force({.arguments = parts_.arguments,
                                        .http = http_options_,
                                        .connections_max = http_.connections_max(),
                                        .grpc_connections_max = grpc_.connections_max(),
                                        .engine = engine,
                                        .grpc = grpc_options_ ? &*grpc_options_ : nullptr});
              },
          .weights = parts_.weights};
}

// Half of each model's slots stay free: a live request that comes finds one, also while slots of
// answers that are over are not given back yet.
int ServeWorker::room_for_batches() {
  int slots = std::numeric_limits<int>::max();
  for (const auto& model : server_.services().catalogue.serving()) {
    slots = std::min(slots, model->engine.capacity().sequences_max / 2);
  }
  return std::max(slots, 1);
}

Result<void> ServeWorker::open_batches() {
  TRY_ASSIGN(batch_store_, open_batch_store(parts_.arguments, parts_.clock, parts_.log));
  if (batch_store_ == nullptr) return {};
  batches_ = std::make_unique<server::Batches>(
      batches_options(parts_.arguments),
      server::Batches::Parts{
          .store = *batch_store_,
          .send =
              [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                     const access::Principal& principal) {
                server_.handle_as(std::move(request), std::move(exchange), principal);
              },
          .make_id =
              [this](std::string_view prefix) {
                return server::random_id(prefix, {.seed = server_.services().draw(), .counter = 0});
              },
          .log = parts_.log,
          .room = [this] { return room_for_batches(); }});
  server_.services().batches = batches_.get();
  return {};
}

Result<void> ServeWorker::open_chains() {
  TRY_ASSIGN(chains_, apps::open_chains(
                          parts_.arguments,
                          [this](net::HttpRequest request, std::shared_ptr<net::Exchange> exchange,
                                 const chain_http::ChainService::Caller& caller) {
                            server_.handle_as(std::move(request), std::move(exchange),
                                              caller.principal);
                          },
                          parts_.clock));
  server_.services().chains = chains_.get();
  return {};
}

Result<std::vector<std::string>> ServeWorker::load(const std::vector<node::NamedModel>& models) {
  TRY_ASSIGN(std::vector<std::string> lines, models_.load(models));
  if (batches_ != nullptr) batches_->start();
  if (kv_events_ != nullptr) kv_events_->start(server_.services().catalogue);
  return lines;
}

Result<void> ServeWorker::open() {
  TRY(open_events());
  TRY(open_batches());
  TRY(open_chains());
  server_.services().reload_statistics.watch(
      {.identity = parts_.tls, .handshakes_failed = [this] { return http_.handshakes_failed(); }});
  TRY(with_flag(http_.start(), parts_.arguments.has("--uds") ? "uds" : "host"));
  if (parts_.arguments.has("--grpc-port")) {
    grpc_options_ =
        grpc_options_of(parts_.arguments, replica_, parts_.http.hosts, http_options_, http_);
    grpc_options_->connections_max = parts_.grpc_connections_max;
    TRY(grpc_.open(*grpc_options_));
  }
  TRY(fleet_.open(parts_.arguments, replica_, http_options_.threads, faults_, parts_.audit));
  return admin_.open(parts_.arguments, replica_, parts_.tls, parts_.audit, parts_.gate);
}

std::string ServeWorker::url() const {
  const std::string& host = http_options_.address;
  if (host.starts_with(kUnix)) return host;
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string shown = host == "0.0.0.0" || host == "::" ? "127.0.0.1"
                            : is_v6                           ? "[" + host + "]"
                                                              : host;
  return fmt::format("{}://{}:{}", parts_.tls != nullptr ? "https" : "http", shown, http_.port());
}

std::string ServeWorker::lines() const {
  const std::string grpc =
      grpc_.port() == 0 ? "" : fmt::format("gRPC on {}:{}\n", parts_.http.address, grpc_.port());
  const std::string events =
      kv_events_ == nullptr ? "" : fmt::format("KV events on {}\n", kv_events_->endpoint());
  return fmt::format("listening on {}\n{}{}{}{}", url(), admin_.line(), grpc, fleet_.line(),
                     events);
}

void ServeWorker::refuse() {
  models_.stop_watching();  // they speak to a listener that will be closed
  faults_.set({});          // a step that is to hang would be waited for
  fleet_.leave();
  server_.drain();
  if (batches_ != nullptr) batches_->stop();  // they go on at the next start
}

void ServeWorker::close(std::chrono::milliseconds grace) {
  if (kv_events_ != nullptr) kv_events_->stop();
  fleet_.close(grace);
  grpc_.close(grace);
  http_.stop(grace);
  server_.services().stop_pools();  // whose jobs look at models
  admin_.close();
  // With their threads, on which their last requests end.
  server_.services().chains = nullptr;
  chains_.reset();
  server_.services().batches = nullptr;
  batches_.reset();
}

}  // namespace pelton::apps
