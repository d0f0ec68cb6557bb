// What an operator asks a running server, on a listener of its own: models to be loaded and
// unloaded, the ledger, metrics, health. No key is asked for, so it belongs on the loopback or a
// private network. Owned by the program's entry, which hands handle() to a net::HttpServer of its
// own and stops that before this goes away. handle() runs on that server's net threads; what takes
// long is done by the ModelLoader, and answered when it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "api/load_model_request.h"
#include "net/http_message.h"
#include "net/http_server.h"
#include "server/fault_injection.h"
#include "server/model_loader.h"
#include "server/models_report.h"
#include "server/services.h"

namespace pelton::server {

class AdminServer {
 public:
  // Bounds of its own listener: few callers with little to say.
  static constexpr int kConnectionsMax = 64;
  static constexpr size_t kBodyBytesMax = size_t{1} << 20;  // a prefix that is to be pinned

  struct Parts {  // what is referred to outlives it
    const Services& services;
    const net::HttpServer& listener;  // the public one
    ModelLoader& loader;
    // What is to be loaded, and under which names; reads no model. Errors as a request's.
    std::function<Result<ModelLoader::Order>(const api::LoadModelRequest&)> order;
    std::function<ModelMemory()> memory;
    int64_t drain_ms =
        0;  // what the answers of a model get that is unloaded, unless asked otherwise
    FaultInjection* faults = nullptr;  // null: this worker computes, and none are injected
  };
  explicit AdminServer(Parts parts) : parts_(std::move(parts)) {}

  void handle(const net::HttpRequest& request, const std::shared_ptr<net::Exchange>& exchange);

 private:
  // Whoever waits for the outcome of what it asked for.
  using Waiter = std::shared_ptr<net::Exchange>;

  net::HttpResponse page(const net::HttpRequest& request) const;
  net::HttpResponse model_page(std::string_view id) const;
  void load(const net::HttpRequest& request, const Waiter& waiter);
  net::HttpResponse faults(const net::HttpRequest& request) const;
  void unload(const net::HttpRequest& request, std::string_view id, const Waiter& waiter);

  const Parts parts_;
};

}  // namespace pelton::server
